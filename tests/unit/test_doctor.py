"""Each finding of the doctor, with the machine made worse for it."""

from __future__ import annotations

import importlib.util
import json
import socket
import sys
from collections import namedtuple
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from harness import doctor, provenance
from harness.doctor import Check, answers, available_memory_gib, examine, pins
from harness.protocol import Protocol, load_protocol
from reuse_bench.main import app

INSTALLED = cache(provenance.installed_packages)
"""What it really finds here, read once: hundreds of files."""

H100 = "NVIDIA H100 80GB HBM3, 81559 MiB, 570.10"


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without GPUs, Ray address or network, whatever this one is."""
    for name in ("RAY_ADDRESS", "HF_HUB_OFFLINE", "REUSE_BENCH_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REUSE_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(provenance, "gpus", list)
    monkeypatch.setattr(provenance, "installed_packages", INSTALLED)


def find(name: str, protocol: str | Protocol = "tiny", **options: Any) -> Check:
    chosen = load_protocol(protocol) if isinstance(protocol, str) else protocol
    return next(check for check in examine(chosen, offline=True, **options) if check.name == name)


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_tiny_needs_neither_gpus_nor_data_nor_hub() -> None:
    found = {check.name: check.state for check in examine(load_protocol("tiny"), offline=True)}
    assert {found[name] for name in ("GPUs", "data", "hub")} == {"ok"}


@pytest.mark.parametrize("protocol", ["tiny", "small", "qwen3-1.7b", "qwen3-30b-a3b"])
def test_every_problem_says_what_it_means_and_how_to_mend_it(protocol: str) -> None:
    for check in examine(load_protocol(protocol), offline=True):
        assert check.found
        if check.state != "ok":
            assert check.meaning, check.name
            assert check.mend, check.name


def test_python(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find("Python").state == "ok" or sys.platform != "linux"
    monkeypatch.setattr(doctor, "MINIMUM_PYTHON", (99, 0))
    assert (find("Python").state, find("Python").mend) == ("broken", "use Python 99.0 or newer")
    monkeypatch.setattr(doctor, "MINIMUM_PYTHON", (3, 0))
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert find("Python").state == "warning"


def test_missing_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("vllm", "ray") else real(name))
    check = find("training stack")
    assert check.state == "broken"
    assert "ray, vllm" in check.found
    assert "requirements/install.py" in check.mend


def test_what_installs_the_stack_is_named_only_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(provenance.REPOSITORY)
    assert "`python requirements/install.py cpu` (or" in provenance.install_stack()
    monkeypatch.chdir(tmp_path)
    assert f"`python {provenance.REPOSITORY}/requirements/install.py gpu`" in provenance.install_stack("gpu")
    monkeypatch.setattr(provenance, "REPOSITORY", tmp_path)
    assert "install.py" not in provenance.install_stack()
    assert "clone" in provenance.install_stack()


class TestLock:
    def write(self, monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
        (folder / "requirements").mkdir()
        for path in provenance.LOCKS["cpu"]:
            (folder / path).write_text("")
        (folder / provenance.LOCKS["cpu"][0]).write_text(text)
        monkeypatch.setattr(provenance, "REPOSITORY", folder)
        monkeypatch.setattr(provenance, "installed_packages", lambda: {"torch": "2.13.0+cpu", "ray": "2.55.0"})

    def test_as_locked(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.write(monkeypatch, tmp_path, "# a comment\ntorch==2.13.0\nRay==2.55.0  # Ray\n")
        assert find("packages").state == "ok"
        assert find("packages").found.startswith("2 as in")

    def test_other_and_missing_versions(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.write(monkeypatch, tmp_path, "torch==2.13.0+cu130\nray==2.55.1\nvllm==0.29.0\n")
        check = find("packages")
        assert check.state == "warning"
        assert "torch 2.13.0+cpu instead of 2.13.0+cu130" in check.found
        assert "ray 2.55.0 instead of 2.55.1" in check.found
        assert "vllm missing instead of 0.29.0" in check.found

    def test_without_a_lock(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(provenance, "REPOSITORY", tmp_path)
        assert find("packages").state == "warning"

    def test_reading_a_lock(self) -> None:
        text = "A_b.C == 1.0 ; python_version > '3'\n-r other.txt\nx @ https://host/x.whl\n--hash=sha256:00\ny==2 \\\n"
        assert pins(text) == {"a-b-c": "1.0", "y": "2"}


class TestGpus:
    def test_none(self) -> None:
        check = find("GPUs", "qwen3-1.7b")
        assert check.state == "broken"
        assert "8 GPUs a cell (H100 or larger)" in check.meaning

    def test_too_few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(provenance, "gpus", lambda: [H100] * 4)
        check = find("GPUs", "qwen3-1.7b")
        assert (check.state, "--gpus-per-cell 4" in check.mend) == ("broken", True)

    def test_enough(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(provenance, "gpus", lambda: [H100] * 8)
        assert find("GPUs", "qwen3-1.7b").state == "ok"

    def test_too_small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(provenance, "gpus", lambda: [H100] * 8)
        check = find("GPU memory", "qwen3-30b-a3b")
        assert (check.state, check.found) == ("broken", "80 GiB a GPU")
        assert all(check.name != "GPU memory" for check in examine(load_protocol("qwen3-1.7b"), offline=True))

    def test_torch_without_cuda(self, monkeypatch: pytest.MonkeyPatch) -> None:
        torch = pytest.importorskip("torch")
        monkeypatch.setattr(provenance, "gpus", lambda: [H100])
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert find("CUDA").state == "broken"
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        assert find("CUDA").state == "ok"


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < available_memory_gib() < 100_000
    monkeypatch.setattr(doctor, "available_memory_gib", lambda: 2.0)
    assert find("memory").state == "warning"
    monkeypatch.setattr(doctor, "available_memory_gib", lambda: 200.0)
    assert find("memory").state == "ok"
    assert find("memory", "qwen3-1.7b").state == "ok"
    assert find("memory", "qwen3-30b-a3b").state == "warning"


class TestDisk:
    @pytest.mark.parametrize(
        ("free", "protocol", "state"),
        [
            (10e9, "tiny", "ok"),
            (1e8, "tiny", "broken"),
            (40e9, "qwen3-1.7b", "broken"),
            (60e9, "qwen3-1.7b", "warning"),
            (200e9, "qwen3-1.7b", "ok"),
        ],
    )
    def test_space(self, monkeypatch: pytest.MonkeyPatch, free: float, protocol: str, state: str) -> None:
        usage = namedtuple("usage", "total used free")(int(1e13), 0, int(free))
        monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
        assert find("disk", protocol).state == state

    def test_folder_that_does_not_exist_yet(self, tmp_path: Path) -> None:
        assert str(tmp_path) in find("disk", runs=tmp_path / "a" / "b").found
        (tmp_path / "file").write_text("")
        check = find("disk", runs=tmp_path / "file" / "runs")
        assert (check.state, check.found) == ("broken", f"{tmp_path / 'file'} is no folder")

    def test_folder_that_cannot_be_written(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr("os.access", lambda path, mode: False)
        assert find("disk", runs=tmp_path).state == "broken"


def test_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda which: (256, 256))
    assert find("open files").state == "warning"
    monkeypatch.setattr("resource.getrlimit", lambda which: (65536, 65536))
    assert find("open files").state == "ok"


def test_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SHARED_MEMORY_GIB", 1e9)
    assert find("shared memory").state == "warning"


class TestRay:
    def test_answers(self, listener: int) -> None:
        assert answers("127.0.0.1", listener, 1)
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            assert not answers("127.0.0.1", closed.getsockname()[1], 1)

    def test_address(self, monkeypatch: pytest.MonkeyPatch, listener: int) -> None:
        for address in (f"127.0.0.1:{listener}", f"ray://127.0.0.1:{listener}", "auto"):
            monkeypatch.setenv("RAY_ADDRESS", address)
            assert find("Ray").state == "ok"
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
        assert find("Ray").state == "broken"
        monkeypatch.setenv("RAY_ADDRESS", "http://nonsense")
        assert "no such address" in find("Ray").meaning

    def test_unasked_cluster(self, monkeypatch: pytest.MonkeyPatch, listener: int) -> None:
        monkeypatch.setattr(doctor, "RAY_PORT", listener)
        assert find("Ray").state == "warning"
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            monkeypatch.setattr(doctor, "RAY_PORT", closed.getsockname()[1])
            assert find("Ray").state == "ok"


def test_missing_data(tmp_path: Path) -> None:
    check = find("data aime24", "qwen3-1.7b", data=tmp_path)
    assert check.state == "broken"
    assert check.mend == "reuse-bench data fetch aime24"


def test_hub(monkeypatch: pytest.MonkeyPatch, listener: int) -> None:
    protocol = load_protocol("qwen3-1.7b")

    def hub(**options: Any) -> Check:
        return next(check for check in examine(protocol, **options) if check.name == "hub")

    assert hub(offline=True).state == "warning"
    monkeypatch.setattr(doctor, "HUB", ("127.0.0.1", listener))
    assert hub().state == "ok"
    monkeypatch.setattr(doctor, "HUB", ("127.0.0.1", 1))
    assert hub().state == "warning"


class TestCommand:
    def test_json_and_exit_code(self) -> None:
        result = CliRunner().invoke(app, ["doctor", "--protocol", "qwen3-1.7b", "--offline", "--json"])
        found = {check["name"]: check for check in json.loads(result.output)}
        assert found["GPUs"]["state"] == "broken"
        assert result.exit_code == 1

    def test_text(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(doctor, "STACK", ())
        result = CliRunner().invoke(app, ["doctor", "--offline"])
        assert "Python" in result.output
        assert result.exit_code == 0

    def test_no_secret_is_printed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnop")
        assert "hf_abc" not in CliRunner().invoke(app, ["doctor", "--offline", "--json"]).output
