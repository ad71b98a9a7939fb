"""Provenance identifies code and machine, and leaks nothing."""

from __future__ import annotations

import hashlib
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from harness import provenance

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def repository(tmp_path):
    def git(*arguments):
        subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(tmp_path), *arguments],
            check=True,
            capture_output=True,
        )

    git("init", "-q")
    (tmp_path / "methods").mkdir()
    (tmp_path / "requirements").mkdir()
    (tmp_path / "methods" / "a.py").write_text("x = 1\n")
    (tmp_path / "requirements" / "cpu.txt").write_text("a==1\n")
    (tmp_path / "requirements" / "torch-cpu.txt").write_text("torch==2\n")
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    git("add", "-A")
    git("commit", "-q", "-m", "one")
    return tmp_path


def test_a_clean_tree_is_its_commit(repository):
    commit, dirty, digest = provenance.code_state(repository)
    assert len(commit) == 40
    assert (dirty, digest) == (False, None)


def test_results_and_ignored_files_do_not_make_a_tree_dirty(repository):
    (repository / "results").mkdir()
    (repository / "results" / "seed0.json").write_text("{}")
    (repository / "methods" / "ignored.py").write_text("x")
    assert provenance.code_state(repository)[1] is False


def test_every_difference_has_its_own_digest(repository):
    digests = set()
    file = repository / "methods" / "a.py"
    for content in ("x = 2\n", "x = 3\n"):
        file.write_text(content)
        _, dirty, digest = provenance.code_state(repository)
        assert dirty is True
        digests.add(digest)
    file.write_text("x = 1\n")
    for content in ("y = 1\n", "y = 2\n"):
        (repository / "methods" / "new.py").write_text(content)
        _, dirty, digest = provenance.code_state(repository)
        assert dirty is True
        digests.add(digest)
    (repository / "methods" / "new.py").rename(repository / "methods" / "newer.py")
    digests.add(provenance.code_state(repository)[2])
    assert len(digests) == 5
    assert all(len(digest) == 64 for digest in digests)


def test_the_difference_is_repeatable(repository):
    (repository / "methods" / "a.py").write_text("x = 2\n")
    assert provenance.code_state(repository) == provenance.code_state(repository)


def test_the_locks_are_digested_together(repository, monkeypatch):
    monkeypatch.setattr(provenance, "gpus", list)
    expected = hashlib.sha256(b"9\ntorch==2\n5\na==1\n").hexdigest()
    assert provenance.lock_digest(repository) == expected
    (repository / "requirements" / "torch-cpu.txt").write_text("torch==3\n")
    assert provenance.lock_digest(repository) != expected
    (repository / "requirements" / "torch-cpu.txt").unlink()
    assert provenance.lock_digest(repository) is None


def test_a_file_of_a_commit_can_be_read_again(repository):
    commit = provenance.code_state(repository)[0]
    (repository / "methods" / "a.py").write_text("changed")
    assert provenance.file_at(commit, "methods/a.py", repository) == b"x = 1\n"
    assert provenance.file_at(commit, "methods/b.py", repository) is None
    assert provenance.file_at("--output=/tmp/x", "methods/a.py", repository) is None
    assert provenance.file_at("0" * 40, "methods/a.py", repository) is None


def test_nothing_is_known_outside_a_repository(tmp_path, monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert provenance.code_state(tmp_path) == (None, None, None)


def test_an_installation_from_a_git_address_knows_its_commit(tmp_path, monkeypatch):
    class Installed:
        def read_text(self, name):
            assert name == "direct_url.json"
            return '{"url": "https://example.org/x", "vcs_info": {"vcs": "git", "commit_id": "abc"}}'

    monkeypatch.setattr(metadata, "distribution", lambda name: Installed())
    assert provenance.code_state(tmp_path) == ("abc", False, None)


def test_every_installed_distribution_is_listed():
    found = provenance.installed_packages()
    assert found["math-verify"] == metadata.version("math-verify")
    assert found["latex2sympy2-extended"] == metadata.version("latex2sympy2_extended")
    assert list(found) == sorted(found)


def test_only_variables_that_matter_and_no_secrets():
    shown = provenance.environment_that_matters(
        {
            "OMP_NUM_THREADS": "2",
            "TOKENIZERS_PARALLELISM": "false",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "HF_TOKEN": "hf_abcdefghijkl",
            "HF_HUB_OFFLINE": "1",
            "RAY_AUTH_COOKIE": "c",
            "VLLM_API_KEY": "k",
            "HF_ENDPOINT": "https://me:secret@hub.example.org/x",
            "WANDB_API_KEY": "w",
            "USER": "somebody",
            "AWS_SECRET_ACCESS_KEY": "s",
        }
    )
    assert shown == {
        "OMP_NUM_THREADS": "2",
        "TOKENIZERS_PARALLELISM": "false",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_TOKEN": provenance.HIDDEN,
        "HF_HUB_OFFLINE": "1",
        "RAY_AUTH_COOKIE": provenance.HIDDEN,
        "VLLM_API_KEY": provenance.HIDDEN,
        "HF_ENDPOINT": f"https://{provenance.HIDDEN}@hub.example.org/x",
    }


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["run", "--hub-token", "abc", "--seed", "0"], ["run", "--hub-token", "(hidden)", "--seed", "0"]),
        (["run", "--api-key=abc"], ["run", "--api-key=(hidden)"]),
        (["run", "--token", "--seed", "0"], ["run", "--token", "--seed", "0"]),
        (["run", "hf_abcdefghijkl"], ["run", "(hidden)"]),
        (["run", "--max-tokens", "64"], ["run", "--max-tokens", "64"]),
    ],
)
def test_commands_are_shown_without_secrets(words, shown):
    assert provenance.redacted_command(words) == shown


def test_the_home_folder_names_nobody(monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    assert provenance.redact("/home/somebody/data:/home/somebodyelse") == "~/data:/home/somebodyelse"
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    assert provenance.redact("of a user without a home") == "of a user without a home"


def test_everything_together_is_a_provenance():
    found = provenance.collect(started="2026-01-01T00:00:00+00:00", ended="2026-01-01T01:00:00+00:00", command=["x"])
    assert found.command == ["x"]
    assert found.hardware["cores"] >= 1
    assert found.hardware["memory_gib"] > 0
    assert found.python.endswith(found.python.split()[-1])
    assert found.packages["numpy"] == metadata.version("numpy")


def test_code_that_nobody_can_have_is_a_deviation():
    found = provenance.collect(started="x", ended="x", command=[])
    locks = provenance.LOCKS["gpu" if provenance.gpus() else "cpu"]
    pins = [line.split("==") for path in locks for line in (ROOT / path).read_text().splitlines() if "==" in line]
    packages = {name.lower().replace("_", "-").replace(".", "-"): version.split()[0] for name, version in pins}
    closed = {"commit": "a" * 40, "dirty": False, "diff_sha256": None, "lock_sha256": "b" * 64, "packages": packages}
    assert provenance.deviations(found.model_copy(update=closed)) == []
    for change, words in (
        ({"commit": None}, "no commit"),
        ({"dirty": True}, "differs from commit aaaaaaaaaaaa"),
        ({"dirty": None}, "differs from commit"),
        ({"lock_sha256": None}, "without the locks"),
        ({"packages": packages | {"numpy": "1.0"}}, "packages: numpy is 1.0 instead of"),
    ):
        (line,) = provenance.deviations(found.model_copy(update=closed | change))
        assert words in line
