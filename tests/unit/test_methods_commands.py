"""`list methods`, `show method`, `check`, `new-method` and the page of cards."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from typer.testing import CliRunner

import methods
from methods import Batch, Card, LossOutputs, Method, available, registry, scaffold
from methods.errors import UserError
from methods.reinforce import Reinforce
from reuse_bench.commands import methods as commands
from reuse_bench.main import app

ROOT = Path(methods.__file__).parents[1]
RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def _without_openrlhf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing it takes seconds; the benchmarks use it."""
    monkeypatch.setattr(commands, "openrlhf_ppo_loss", lambda: None)


def test_list_shows_every_method_with_its_origin() -> None:
    done = RUNNER.invoke(app, ["list", "methods", "--json"])
    assert done.exit_code == 0
    listed = json.loads(done.stdout)
    assert [method["name"] for method in listed] == list(available())
    assert {"name": "respo", "title": "ReSPO", "origin": "built-in"} in listed
    assert "ReSPO" in RUNNER.invoke(app, ["list", "methods"]).stdout


@pytest.mark.parametrize("name", list(available()))
def test_show_tells_the_card(name: str) -> None:
    done = RUNNER.invoke(app, ["show", "method", name, "--json"])
    facts = json.loads(done.stdout)
    card = available()[name].card
    assert facts["source_sha256"] == registry.source_digest(name)
    assert [parameter["name"] for parameter in facts["hyperparameters"]] == [p.name for p in card.hyperparameters]
    text = RUNNER.invoke(app, ["show", "method", name]).stdout
    for shown in (card.formula, *(parameter.name for parameter in card.hyperparameters)):
        assert shown in text


@pytest.mark.slow
def test_check_passes_for_a_sound_method() -> None:
    done = RUNNER.invoke(app, ["check", "gspo", "--set", "clip_low=0.001", "--json"])
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert document["passed"] is True
    assert document["hyperparameters"] == {"clip_low": 0.001, "clip_high": 4e-4}
    assert "respo holds all rows" in RUNNER.invoke(app, ["check", "respo"]).stdout


@pytest.mark.slow
def test_check_fails_with_exit_code_1_and_names_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    class Flipped(Method):
        name = "flipped"
        card: ClassVar[Card] = Reinforce.card

        def loss(self, batch: Batch) -> LossOutputs:
            return batch.policy_gradient(-torch.ones_like(batch.lengths))

    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    registry.register(Flipped)
    done = RUNNER.invoke(app, ["check", "flipped"])
    assert done.exit_code == 1
    assert "flipped fails on_policy\n" in done.stdout


@pytest.mark.slow
def test_what_a_method_prints_stays_out_of_the_json(monkeypatch: pytest.MonkeyPatch) -> None:
    class Chatty(Reinforce):
        name = "chatty"

        def loss(self, batch: Batch) -> LossOutputs:
            print("here")
            return super().loss(batch)

    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    registry.register(Chatty)
    assert json.loads(RUNNER.invoke(app, ["check", "chatty", "--json"]).stdout)["passed"]


@pytest.mark.parametrize("error", [TypeError, RuntimeError])
def test_a_method_that_cannot_be_made_is_one_sentence(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    class Unmade(Reinforce):
        name = "unmade"

        def __init__(self, **_: object) -> None:
            raise error("no luck")

    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    registry.register(Unmade)
    with pytest.raises(UserError, match=rf"unmade: cannot be made .{error.__name__}: no luck"):
        RUNNER.invoke(app, ["check", "unmade"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "nope"], "method 'nope' is unknown"),
        (["show", "method", "nope"], "method 'nope' is unknown"),
        (["check", "grpo", "--set", "clip_low"], "'clip_low' is no KEY=VALUE"),
        (["check", "grpo", "--set", "clip_low=x"], "'x' is not a number"),
        (["check", "grpo", "--set", "clip=1"], "grpo: unknown hyperparameter 'clip': it takes clip_low"),
        (["check", "grpo", "--set", "clip_low=7"], r"grpo: clip_low=7.0 is out of range: give a number in \[0, 1\]"),
        (["new-method", "Bad-Name"], "method name 'Bad-Name' cannot be used"),
        (["new-method", "class"], "method name 'class' cannot be used"),
        (["new-method", "grpo"], "method name 'grpo' is taken by built-in"),
        (["new-method", "contract"], "'contract' is the name of a module"),
    ],
)
def test_wrong_input_is_one_sentence(arguments: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        RUNNER.invoke(app, arguments, catch_exceptions=False)


def test_the_next_command_can_be_copied_whatever_the_folder_is_called(tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["new-method", "my_loss", "--package", str(tmp_path / "a b'c")])
    (command,) = [line for line in done.stdout.splitlines() if line.startswith("next: pip")]
    assert shlex.split(command)[4:] == [str(tmp_path / "a b'c"), "--no-deps"]


def test_new_package_is_not_written_over_something(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is not an empty folder"):
        scaffold.new_package("my_loss", tmp_path)


@pytest.mark.slow
def test_new_method_in_the_tree_is_found_and_passes_its_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a copy of the tree, with the copy's own code in another process."""
    shutil.copytree(ROOT / "methods", tmp_path / "methods", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    monkeypatch.setattr(scaffold, "__file__", str(tmp_path / "methods" / "scaffold.py"))
    written = scaffold.new_in_tree("my_loss")
    assert written == [tmp_path / "methods" / "my_loss.py", tmp_path / "tests" / "unit" / "test_methods_my_loss.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, written[1]],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "14 passed" in done.stdout, done.stdout + done.stderr


def test_in_tree_needs_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaffold, "__file__", str(tmp_path / "methods" / "scaffold.py"))
    with pytest.raises(UserError, match="is no checkout of Reuse Bench: make a package instead"):
        scaffold.new_in_tree("my_loss")


def test_the_page_of_cards_is_current() -> None:
    page = RUNNER.invoke(app, ["list", "methods", "--markdown"]).stdout
    assert (ROOT / "docs" / "methods.md").read_text(encoding="utf-8") == page


def test_a_package_that_cannot_be_written_whole_is_not_written_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "package"
    with pytest.raises(OSError, match="too long"):
        scaffold.new_package("x" * 250, folder)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", ["self", "clip", ""])
def test_a_hyperparameter_that_the_method_lacks_is_named_with_those_it_has(key: str) -> None:
    with pytest.raises(UserError, match=rf"grpo: unknown hyperparameter '{key}': it takes clip_low"):
        commands.check("grpo", [f"{key}=1"])
