"""Bad input: one sentence on standard error that names what is wrong and the way out, and exit code 2."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from methods.errors import UserError
from reuse_bench.main import main
from tests.synthetic import synthetic_store

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def reuse_bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What the program does, from its first line to its exit code; without a process, whose imports take seconds."""
    code: object = 0
    with (
        mock.patch.object(sys, "argv", ["reuse-bench", *arguments]),
        mock.patch.dict(os.environ),
        contextlib.chdir(ROOT),
        contextlib.redirect_stdout(io.StringIO()) as output,
        contextlib.redirect_stderr(io.StringIO()) as errors,
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())


def reuse_bench_without(missing: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program in a process of its own, which does not find a package."""
    program = (
        f"import sys\nsys.modules[{missing!r}] = None\nsys.argv = ['reuse-bench', *{arguments!r}]\n"
        "from reuse_bench.main import main\nmain()\n"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=600)


def refused(*arguments: str) -> str:
    """The sentence with which the command was refused."""
    return sentence_of(reuse_bench(*arguments))


def sentence_of(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stderr or done.stdout
    assert "Traceback" not in done.stderr
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("reuse-bench:")]
    return sentence


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--method", "gpro"], ["gpro", "grpo", "respo"]),
        (["--protocol", "tyni"], ["tyni", "tiny"]),
        (["--model", "qwen"], ["qwen", "tiny-qwen3"]),
        (["--reuse", "7"], ["7", "8, 16, 32"]),
        (["--set", "update.updatse=3"], ["updatse", "updates"]),
        (["--set", "update.updates=-3"], ["update.updates", "-3"]),
    ],
)
def test_an_unknown_value_is_named_with_the_known_ones(tmp_path: Path, arguments: list[str], parts: list[str]) -> None:
    folders = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    sentence = refused("run", *arguments, *folders)
    assert all(part in sentence for part in parts), sentence
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("clip_low: 0.2, ", "clip_loww: 0.2, ", ["methods.hyperparameters.grpo", "clip_loww", "clip_low"]),
        ("    grpo:", "    grop:", ["grop", "grpo"]),
        ("train: chain", "train: chian", ["chian", "gsm8k"]),
        ("tiny_sum4: {problems: 64", "tiny_sum9: {problems: 64", ["tiny_sum9", "tiny_sum8"]),
        ("tiny_sum4: {problems: 64", "tiny_sum4: {problems: 65", ["tiny_sum4", "65"]),
    ],
)
def test_what_a_protocol_file_names_is_looked_for_before_anything_starts(
    tmp_path: Path, old: str, new: str, parts: list[str]
) -> None:
    pytest.importorskip("ray", reason="the training stack is not installed")
    text = (ROOT / "harness" / "protocols" / "smoke.yaml").read_text()
    assert old in text
    (tmp_path / "mine.yaml").write_text(text.replace(old, new))
    folders = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    sentence = refused("run", "--protocol", str(tmp_path / "mine.yaml"), *folders)
    assert all(part in sentence for part in parts), sentence
    assert not (tmp_path / "runs").exists()


def test_an_unknown_task_is_named() -> None:
    sentence = refused("evaluate", "--protocol", "tiny", "--model", "tiny-qwen3", "--tasks", "tiny_sum9")
    assert "tiny_sum9" in sentence
    assert "tiny_sum8" in sentence


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    sentence = refused(
        "evaluate", "--protocol", "tiny", "--model", str(tmp_path / "empty"), "--out", str(tmp_path / "o")
    )
    assert "empty" in sentence
    assert "safetensors" in sentence


def test_a_wrong_field_of_a_protocol_file_is_named_with_file_and_value(tmp_path: Path) -> None:
    from importlib import resources

    text = (resources.files("harness") / "protocols" / "tiny.yaml").read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("gradient_clip: 1.0", "gradient_clip: -1.0"))
    sentence = refused("show", "protocol", str(path))
    assert all(part in sentence for part in ("mine.yaml", "optimiser.gradient_clip", "-1.0")), sentence


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_store(
        tmp_path_factory.mktemp("store"), methods=("grpo",), reuses=(8,), seeds=(0,), tasks={"tiny_sum3": (4, 2)}
    )


def test_a_damaged_record_is_named(store: Path, tmp_path: Path) -> None:
    (record,) = store.glob("*/*/n8/grpo/seed0.json")
    whole = record.read_text()
    try:
        record.write_text(whole.replace('"reuse": 8', '"reuse": 9'))
        sentence = refused("site", "--records", str(store), "--output", str(tmp_path / "site"))
        assert "seed0.json" in sentence
        record.write_text(whole[: len(whole) // 2])
        assert "seed0.json" in refused("site", "--records", str(store), "--output", str(tmp_path / "site"))
    finally:
        record.write_text(whole)
    assert not (tmp_path / "site").exists()


def test_a_link_in_a_circle_in_place_of_a_file_does_not_stop_the_pages(store: Path, tmp_path: Path) -> None:
    (curve,) = store.glob("*/*/n8/grpo/seed0/updates.jsonl")
    kept = curve.rename(tmp_path / "kept")
    try:
        curve.symlink_to(curve.name)
        done = reuse_bench("site", "--records", str(store), "--output", str(tmp_path / "site"))
        assert "Traceback" not in done.stderr
        assert done.returncode == 0
    finally:
        curve.unlink()
        kept.rename(curve)


def test_a_damaged_sample_file_fails_verification_by_name(store: Path) -> None:
    (samples,) = store.glob("*/*/n8/grpo/seed0/samples/tiny_sum3.parquet")
    whole = samples.read_bytes()
    try:
        samples.write_bytes(whole[:-20])
        done = reuse_bench("verify", str(store))
        assert done.returncode in (1, 2)
        assert "tiny_sum3.parquet" in done.stdout + done.stderr
    finally:
        samples.write_bytes(whole)


@pytest.mark.slow
@pytest.mark.parametrize(("missing", "part"), [("ray", "ray"), ("transformers", "transformers")])
def test_a_missing_training_stack_says_what_to_install(tmp_path: Path, missing: str, part: str, monkeypatch) -> None:
    monkeypatch.setenv("REUSE_BENCH_CACHE", str(tmp_path / "cache"))
    folders = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    cell = ["--protocol", "smoke", "--method", "grpo", "--reuse", "2"]
    sentence = sentence_of(reuse_bench_without(missing, "run", *cell, *folders))
    assert part in sentence
    assert "python requirements/install.py cpu" in sentence


def through_the_shell(redirection: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command line under a POSIX shell, with a redirection or pipe after it; the exit code is its own."""
    command = shlex.join([sys.executable, "-m", "reuse_bench.main", *arguments])
    script = f"{{ {command}; echo exit=$? >&2; }} {redirection}"
    return subprocess.run(
        ["sh", "-c", script], capture_output=True, cwd=ROOT, timeout=600, env={**os.environ, **environment}
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk without space")
@pytest.mark.parametrize("arguments", [("show", "schema"), ("list", "protocols"), ("show", "protocol", "tiny")])
def test_a_full_disk_is_a_sentence(arguments: tuple[str, ...]) -> None:
    done = through_the_shell("> /dev/full", *arguments)
    (sentence, ending) = done.stderr.decode().splitlines()
    assert sentence.startswith("reuse-bench:")
    assert "No space left" in sentence
    assert ending == "exit=2"


def test_a_reader_that_has_enough_ends_the_output_without_a_word() -> None:
    done = through_the_shell("| true", "show", "protocol", "qwen3-1.7b")
    assert done.stderr.decode().startswith("exit=")


def test_output_is_utf_8_whatever_the_locale() -> None:
    done = through_the_shell("", "show", "protocol", "tiny", PYTHONIOENCODING="ascii", COLUMNS="60")
    assert done.stderr == b"exit=0\n"
    assert "…" in done.stdout.decode()


def test_what_the_system_refuses_is_a_sentence() -> None:
    name = "x" * 300
    sentence = refused("stop", "--runs", name)
    assert name in sentence
    assert "too long" in sentence


def test_a_folder_named_like_markup_is_named_as_it_is() -> None:
    done = reuse_bench("stop", "--runs", "[/bold]")
    assert done.returncode == 1
    assert "[/bold]" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_with_control_characters_stays_inside_the_sentence() -> None:
    done = reuse_bench("show", "run", "first\nsecond\x1b[31m")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert r"first\nsecond\x1b[31m" in done.stderr


@pytest.mark.parametrize("command", [["export", "--output", "out"], ["compare", "grpo", "grpo"]])
def test_a_protocol_without_records_is_named_with_those_that_have_some(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    from typer.testing import CliRunner

    from reuse_bench.main import app

    monkeypatch.chdir(tmp_path)
    for name in ("tyni", ""):
        with pytest.raises(UserError, match=f"--protocol: .* has no records of '{name}': there are some of tiny"):
            CliRunner().invoke(app, [*command, "--records", str(store), "--protocol", name], catch_exceptions=False)
    assert not (tmp_path / "out").exists()


def test_a_store_without_records_makes_no_claims(tmp_path: Path) -> None:
    sentence = refused("claims", "--source", "results", "--records", str(tmp_path))
    assert f"{tmp_path}: there are no records" in sentence


def test_a_plan_for_no_gpus_is_refused() -> None:
    assert "0 cannot be split" in refused("plan", "--protocol", "tiny", "--gpus-per-cell", "0")


def test_a_closed_standard_input_is_a_sentence() -> None:
    done = through_the_shell("<&-", "grade")
    assert b"standard input is closed" in done.stderr
    assert done.stderr.endswith(b"exit=2\n")


def test_an_interruption_while_the_commands_are_loaded_has_it_too() -> None:
    program = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'reuse_bench.commands.site': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from reuse_bench.main import main\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert (done.returncode, done.stderr) == (3, "reuse-bench: interrupted\n")


def test_a_closed_standard_error_changes_no_verdict() -> None:
    record = ROOT / "results" / "tiny" / "tiny-qwen3" / "n8" / "grpo" / "seed0.json"
    script = f"{shlex.join([sys.executable, '-m', 'reuse_bench.main', 'verify', str(record)])} 2>&-"
    assert subprocess.run(["sh", "-c", script], capture_output=True, cwd=ROOT, timeout=600).returncode == 0


def test_a_terminal_without_a_width_does_not_swallow_tables() -> None:
    assert "respo" in through_the_shell("", "list", "methods", COLUMNS="0").stdout.decode()


def test_a_deleted_folder_is_a_sentence(tmp_path: Path) -> None:
    folder, program = shlex.quote(str(tmp_path)), shlex.quote(sys.executable)
    script = f"cd {folder} && rmdir {folder} && {program} -m reuse_bench.main list methods"
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, timeout=600, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 2
    assert done.stderr == "reuse-bench: the current folder was deleted: change to another one\n"


def test_an_interruption_has_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from harness import protocol
    from reuse_bench.main import app

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(protocol, "available", interrupt)
    assert CliRunner().invoke(app, ["show", "protocol", "tiny"]).exit_code == 3


def test_tasks_that_name_none_are_refused() -> None:
    assert "--tasks" in refused("evaluate", "--protocol", "tiny", "--model", "tiny-qwen3", "--tasks", ",")


@pytest.mark.parametrize(
    "arguments",
    [
        ["grade", "--timeout", "inf"],
        ["plan", "--protocol", "tiny", "--price", "nan"],
        ["plan", "--protocol", "tiny", "--price", "-1"],
        ["plan", "--protocol", "tiny", "--price", "1e308"],
    ],
)
def test_a_number_that_is_none_is_refused_by_option(arguments: list[str]) -> None:
    from typer.testing import CliRunner

    from reuse_bench.main import app

    with pytest.raises(UserError, match=arguments[-2]):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
