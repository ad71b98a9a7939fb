"""The workflow that verifies records of a pull request: its own steps, run on submissions as they would come."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.synthetic import synthetic_store

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "verify-record.yml"
NEW = Path("smoke/tiny-qwen3/n2/gspo/seed0.json")

pytestmark = pytest.mark.slow


def workflow() -> dict[str, Any]:
    return dict(yaml.safe_load(WORKFLOW.read_text(encoding="utf-8")))


def step(name: str) -> dict[str, Any]:
    (found,) = [one for one in workflow()["jobs"]["verify"]["steps"] if one.get("name") == name]
    return dict(found)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """``results`` of the base branch with one record, and ``submitted/results`` with that one and a new one."""
    synthetic_store(tmp_path / "results", protocol="smoke", methods=("grpo",), reuses=(2,), seeds=(0,))
    shutil.copytree(tmp_path / "results", tmp_path / "submitted" / "results")
    synthetic_store(tmp_path / "submitted" / "results", protocol="smoke", methods=("gspo",), reuses=(2,), seeds=(0,))
    program = tmp_path / "bin" / "reuse-bench"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "from reuse_bench.main import main; main()" "$@"\n')
    program.chmod(0o755)
    return tmp_path


def run(checkout: Path, script: str, **environment: str) -> str:
    """Run a step's script there; returns what it wrote to GITHUB_OUTPUT."""
    output = checkout / "output"
    output.write_text("")
    known = os.environ | {
        "PATH": f"{checkout / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GITHUB_OUTPUT": str(output),
        **environment,
    }
    done = subprocess.run(["bash", "-e", "-c", script], cwd=checkout, env=known, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return output.read_text()


def comment(checkout: Path, code: str) -> str:
    """What the comment would hold: the step's script, with `gh` put aside."""
    (checkout / "bin" / "gh").write_text("#!/bin/sh\nexit 0\n")
    (checkout / "bin" / "gh").chmod(0o755)
    run(checkout, step("Comment")["run"], CODE=code, NUMBER="1", GITHUB_REPOSITORY="a/b", GH_TOKEN="x")
    return (checkout / "comment.md").read_text(encoding="utf-8")


def test_a_true_submission_passes_and_the_comment_names_it(checkout: Path) -> None:
    assert run(checkout, step("Verify")["run"]) == "code=0\n"
    text = comment(checkout, "0")
    assert "**Passed.**" in text
    assert NEW.as_posix() in text


def test_a_false_submission_fails_and_the_comment_says_where(checkout: Path) -> None:
    path = checkout / "submitted" / "results" / NEW.with_suffix("") / "updates.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"update": 1,', b'"update": 1 ,'))
    assert run(checkout, step("Verify")["run"]) == "code=1\n"
    text = comment(checkout, "1")
    assert "**Something differs.**" in text
    assert "training.curve" in text


def test_a_changed_record_of_others_is_named(checkout: Path) -> None:
    shutil.rmtree(checkout / "submitted" / "results" / "smoke" / "tiny-qwen3" / "n2" / "grpo")
    run(checkout, step("Verify")["run"])
    assert "grpo/seed0.json" in comment(checkout, "0")


def test_a_link_in_place_of_the_records_does_not_pass(checkout: Path) -> None:
    shutil.rmtree(checkout / "submitted" / "results")
    (checkout / "submitted" / "results").symlink_to("../results")
    assert run(checkout, step("Verify")["run"]) == "code=2\n"


@pytest.mark.parametrize(
    ("change", "mixed"),
    [
        ("echo more >> results/a.json", False),
        ("echo new > results/'ein \"Lauf\" ü.json'", False),
        ("echo more >> code.py", True),
        ("git mv code.py results/code.py", True),
        ("git rm --quiet code.py", True),
    ],
)
def test_a_change_beside_the_records_is_seen(tmp_path: Path, change: str, mixed: bool) -> None:
    def git(script: str) -> str:
        known = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GITHUB_ENV": str(tmp_path / "environment")}
        names = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        done = subprocess.run(
            ["bash", "-e", "-c", script], cwd=tmp_path / "base", env=known | names, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    (tmp_path / "base" / "results").mkdir(parents=True)
    (tmp_path / "environment").write_text("")
    git("git init --quiet; echo code > code.py; echo record > results/a.json; git add .; git commit --quiet -m one")
    base = git("git rev-parse HEAD")
    head = git(f"{change}; git add .; git commit --quiet -m two; git rev-parse HEAD")
    script = "\n".join(
        line for line in step("Look for changes beside the records")["run"].splitlines() if "fetch" not in line
    )
    git(f"BASE={base} HEAD={head}\n{script}")
    assert ("mixed=yes" in (tmp_path / "environment").read_text()) == mixed


def test_nothing_of_the_pull_request_is_run_and_no_more_is_permitted_than_a_comment() -> None:
    found = workflow()
    assert found["permissions"] == {"contents": "read", "pull-requests": "write"}
    steps = found["jobs"]["verify"]["steps"]
    checkouts = [one["with"] for one in steps if str(one.get("uses", "")).startswith("actions/checkout")]
    (submitted,) = [one for one in checkouts if "repository" in one]
    assert (submitted["path"], submitted["sparse-checkout"]) == ("submitted", "results")
    assert all(one["persist-credentials"] is False for one in checkouts)
    for one in steps:
        script = one.get("run", "")
        # Text of others reaches a shell only through the environment.
        assert "${{" not in script
        used = [line.strip() for line in script.splitlines() if "submitted/" in line]
        assert all(line.startswith("reuse-bench verify submitted/results ") for line in used)
