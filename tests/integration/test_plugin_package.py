"""A method from an installed package: written by `new-method`, installed by pip, listed, checked and tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.plugin_package import fresh_environment, install, make_plugin, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    programs = fresh_environment(folder / "venv")
    made = run(programs, "reuse-bench", "new-method", "plugin_loss", "--package", folder / "plugin")
    assert made.returncode == 0, made.stderr
    install(programs, folder / "plugin")
    return programs


def test_it_is_listed_with_its_package(programs: Path) -> None:
    done = run(programs, "reuse-bench", "list", "methods", "--json")
    assert done.returncode == 0, done.stderr
    origins = {method["name"]: method["origin"] for method in json.loads(done.stdout)}
    assert origins["plugin_loss"] == "reuse-bench-plugin-loss 0.1.0"
    assert origins["respo"] == "built-in"


def test_it_passes_the_check_at_once(programs: Path) -> None:
    done = run(programs, "reuse-bench", "check", "plugin_loss", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["passed"] is True
    assert document["hyperparameters"] == {"scale": 1.0}
    assert {row["status"] for row in document["rows"]} == {"holds", "reported"}


def test_a_hyperparameter_that_breaks_it_fails_the_check(programs: Path) -> None:
    done = run(programs, "reuse-bench", "check", "plugin_loss", "--set", "scale=2")
    assert done.returncode == 1
    assert "plugin_loss fails on_policy, lengths" in done.stdout


def test_its_own_tests_pass_with_the_fixture_from_the_pytest_plugin(programs: Path) -> None:
    folder = programs.parents[1] / "plugin"
    done = run(programs, "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", folder, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "14 passed" in done.stdout


def test_a_second_package_with_the_same_name_stops_every_command(programs: Path, tmp_path: Path) -> None:
    """Last of the file: it breaks the environment."""
    package = make_plugin(tmp_path / "twin")
    for path in (package / "pyproject.toml", package / "README.md"):
        text = path.read_text().replace("reuse-bench-plugin-loss", "twin-of-plugin-loss")
        path.write_text(text.replace("reuse_bench_plugin_loss", "twin_of_plugin_loss"))
    (package / "src" / "reuse_bench_plugin_loss").rename(package / "src" / "twin_of_plugin_loss")
    install(programs, package)
    done = run(programs, "reuse-bench", "list", "methods")
    assert done.returncode == 2
    assert "method name 'plugin_loss' is taken by" in done.stderr
    assert done.stderr.count("\n") == 1
