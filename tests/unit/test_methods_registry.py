"""Which methods there are, where they come from, and what is said when one cannot be used."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

import pytest

import methods
from methods import Card, Hyperparameter, Method, available, get, lookup, registry, source_digest
from methods.errors import UserError
from methods.grpo import GRPO

ROOT = Path(methods.__file__).parents[1]


class Plugin(GRPO):
    """A method that a plugin could bring."""

    name: ClassVar[str] = "plugin_loss"


class Cardless(Method):
    name = "cardless"
    loss = GRPO.loss


class MisWeighted(GRPO):
    name: ClassVar[str] = "misweighted"
    card: ClassVar[Card] = replace(GRPO.card, weight="moon")  # type: ignore[arg-type]


class Untitled(GRPO):
    name: ClassVar[str] = "untitled"
    card: ClassVar[Card] = replace(GRPO.card, title=3)  # type: ignore[arg-type]


class Unranged(GRPO):
    name: ClassVar[str] = "unranged"
    card: ClassVar[Card] = replace(GRPO.card, hyperparameters=("clip",))  # type: ignore[arg-type]


def _with(parameters: tuple[Hyperparameter, ...]) -> type[Method]:
    card = replace(GRPO.card, hyperparameters=parameters)
    return type("Odd", (GRPO,), {"name": "odd", "card": card})


class Misnamed(GRPO):
    name: ClassVar[str] = "other"


class Abstract(Method):
    name = "abstract"
    card: ClassVar[Card] = GRPO.card


class Twin(GRPO):
    name: ClassVar[str] = "grpo"


not_a_class = 3


class FakeDistribution:
    name = "some-package"
    version = "1.2"


def _entry_point(name: str, target: str) -> EntryPoint:
    point = EntryPoint(name, target, registry.ENTRY_POINT_GROUP)
    vars(point)["dist"] = FakeDistribution()
    return point


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """The installed entry points; the registry starts empty."""
    points: list[EntryPoint] = []
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(registry, "_loaded", False)
    return points


def test_the_published_methods_and_their_controls_are_built_in() -> None:
    built_in = [name for name, found in available().items() if found.origin == registry.BUILT_IN]
    assert {"grpo", "gspo", "vespo", "respo", "reinforce", "cispo", "clip_higher"} <= set(built_in)
    assert built_in == sorted(built_in)


def test_a_plugin_is_listed_with_its_package(plugins: list[EntryPoint]) -> None:
    plugins.append(_entry_point("plugin_loss", f"{__name__}:Plugin"))
    assert lookup("plugin_loss").origin == "some-package 1.2"
    assert get("plugin_loss") is Plugin
    assert list(available())[-1] == "plugin_loss"


@pytest.mark.parametrize(
    ("name", "target", "cause"),
    [
        ("ghost", "no_such_module_anywhere:Loss", "cannot be imported .ModuleNotFoundError: No module named"),
        ("gone", f"{__name__}:Gone", "cannot be imported .AttributeError"),
        ("number", f"{__name__}:not_a_class", "is no subclass of methods.contract.Method"),
        ("cardless", f"{__name__}:Cardless", "method 'cardless' has no card"),
        ("misweighted", f"{__name__}:MisWeighted", "'misweighted': card.weight = 'moon' is not what"),
        ("untitled", f"{__name__}:Untitled", "'untitled': card.title = 3 is not what"),
        ("unranged", f"{__name__}:Unranged", "'unranged': card.hyperparameters = ..clip.,. is not what"),
        ("misnamed", f"{__name__}:Misnamed", "the class calls itself 'other', not 'misnamed'"),
        ("abstract", f"{__name__}:Abstract", "method 'abstract' does not define loss"),
        ("grpo", f"{__name__}:Twin", r"method name 'grpo' is taken by built-in \(methods\.grpo\): choose another"),
    ],
)
def test_a_plugin_that_cannot_be_used_stops_with_a_sentence(
    plugins: list[EntryPoint], name: str, target: str, cause: str
) -> None:
    plugins.append(_entry_point(name, target))
    for _ in range(2):  # the second call says the same
        with pytest.raises(UserError, match=cause) as caught:
            get("respo")
        assert f"package some-package 1.2, entry point {name} = {target}" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_plugin_that_ends_the_process_stops_with_a_sentence(
    plugins: list[EntryPoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaving_plugin.py").write_text("raise SystemExit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    plugins.append(_entry_point("leaving", "leaving_plugin:Loss"))
    with pytest.raises(UserError, match=r"cannot be imported \(SystemExit: 0\)"):
        available()


def test_what_the_import_of_a_plugin_prints_does_not_get_between_an_answer(
    plugins: list[EntryPoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "greeting_plugin.py").write_text(f"print('hello')\nfrom {__name__} import Plugin\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Plugin.__module__])
    plugins.append(_entry_point("plugin_loss", "greeting_plugin:Plugin"))
    assert "plugin_loss" in available()
    assert capfd.readouterr() == ("", "hello\n")


@pytest.mark.parametrize(
    "parameters",
    [
        (Hyperparameter("a", "x", "m"),),  # type: ignore[arg-type]
        (Hyperparameter("a", None, "m"),),
        (Hyperparameter("a", float("inf"), "m"),),
        (Hyperparameter("a", 10**400, "m"),),
        (Hyperparameter("a", 2.0, "m", maximum=1.0),),
        (Hyperparameter("a", 1.0, "m", minimum=float("nan")),),
        (Hyperparameter("a", 1.0, "m", minimum=None),),  # type: ignore[arg-type]
        (Hyperparameter("a", 1.0, "half of a pair: \ud800"),),
        (Hyperparameter("a", 1.0, None),),  # type: ignore[arg-type]
        (Hyperparameter(5, 1.0, "m"),),  # type: ignore[arg-type]
        (Hyperparameter("two words", 1.0, "m"),),
        (Hyperparameter("loss", 1.0, "m"),),
        (Hyperparameter("card", 1.0, "m"),),
        (Hyperparameter("hyperparameters", 1.0, "m"),),
        (Hyperparameter("a", 1.0, "m"), Hyperparameter("a", 2.0, "m")),
    ],
)
def test_a_hyperparameter_that_nothing_can_be_given_for_is_refused(
    plugins: list[EntryPoint], parameters: tuple[Hyperparameter, ...]
) -> None:
    with pytest.raises(UserError, match=r"'odd': card.hyperparameters: Hyperparameter\(.* is not what"):
        methods.register(_with(parameters))


class Unmakeable(GRPO):
    name: ClassVar[str] = "unmakeable"

    def __init__(self, **hyperparameters: float | None) -> None:
        raise RuntimeError("no")


class Uncalled(GRPO):
    name: ClassVar[str] = "uncalled"

    def __init__(self, **hyperparameters: float | None) -> None:
        pass


def test_a_method_that_cannot_be_made_is_a_sentence(plugins: list[EntryPoint]) -> None:
    methods.register(Unmakeable)
    methods.register(Uncalled)
    with pytest.raises(UserError, match=r"unmakeable: cannot be made \(RuntimeError: no\)"):
        methods.create("unmakeable")
    with pytest.raises(UserError, match="uncalled: its __init__ does not call"):
        methods.create("uncalled")
    with pytest.raises(ValueError, match="grpo: unknown hyperparameter 'x'"):
        methods.create("grpo", {"x": 1.0})
    assert methods.create("grpo").hyperparameters == GRPO().hyperparameters


def test_register_refuses_a_taken_name_and_takes_a_free_one(plugins: list[EntryPoint]) -> None:
    methods.register(Plugin)
    assert lookup("plugin_loss").origin == f"module {__name__}"
    with pytest.raises(UserError, match="'grpo' is taken by built-in"):
        methods.register(Twin)
    with pytest.raises(UserError, match="'Bad Name': use lower-case"):
        methods.register(type("Bad", (GRPO,), {"name": "Bad Name"}))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"method 'nope' is unknown: choose one of cispo, .*vespo"):
        get("nope")


def test_the_digest_covers_the_method_its_bases_and_the_contract() -> None:
    digest = hashlib.sha256()
    for module in ("clip_higher", "grpo", "contract"):
        source = (ROOT / "methods" / f"{module}.py").read_bytes()
        digest.update(f"methods.{module} {len(source)}\n".encode() + source)
    assert source_digest("clip_higher") == digest.hexdigest()
    assert len({source_digest(name) for name in available()}) == len(available())


@pytest.mark.slow  # imports torch in a process of its own
def test_the_digest_is_the_same_in_another_process() -> None:
    code = "from methods import source_digest; print(source_digest('respo'))"
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert found.stdout.strip() == source_digest("respo")


def test_torch_is_not_imported_before_it_is_needed() -> None:
    needless = "methods, harness.runner, harness.verify, reuse_bench.main, reuse_bench.pytest_plugin"
    code = f"import sys, {needless}; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert found.stdout.strip() == "False", found.stderr


def test_a_method_travels_to_another_process() -> None:
    for name in available():
        method = get(name)()
        assert pickle.loads(pickle.dumps(method)).hyperparameters == method.hyperparameters


def test_every_card_is_complete() -> None:
    for found in available().values():
        card = found.card
        assert card.title
        assert card.idea.endswith(".")
        assert card.formula
        assert card.paper
        for parameter in card.hyperparameters:
            assert parameter.meaning.endswith(".")
            assert parameter.default is not None or parameter.optional


def test_threads_that_ask_first_at_the_same_time_all_find_every_method() -> None:
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from threading import Barrier\n"
        "from methods import registry\n"
        "start = Barrier(8)\n"
        "def ask(_): start.wait(); return registry.get('respo').name, len(registry.available())\n"
        "with ThreadPoolExecutor(8) as pool: print(len(set(pool.map(ask, range(8)))))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
