"""Which methods there are: every file of this folder that holds one, and every installed plugin.

A plugin is an installed package with an entry point in the group `reuse_bench.methods`, whose name is the method's
name and whose object is a `Method` subclass. Nothing is skipped silently: a method that cannot be used stops the
command with a sentence that says whose it is and why.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import pkgutil
import re
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, get_args

from methods.contract import Card, Hyperparameter, Method, Over, Weight
from methods.errors import UserError

ENTRY_POINT_GROUP = "reuse_bench.methods"
BUILT_IN = "built-in"
NAME = re.compile(r"[a-z][a-z0-9_]*")

RESERVED = frozenset({"contract", "conformance", "diagnostics", "errors", "registry", "scaffold"})
"""Modules of this folder that hold no method."""


@dataclass(frozen=True)
class Registered:
    """A method and where it comes from.

    Attributes:
        name: what it is called on the command line.
        method: the class.
        origin: "built-in", or the distribution and version that brought it, or the module that registered it.
    """

    name: str
    method: type[Method]
    origin: str

    @property
    def card(self) -> Card:
        """What the method says about itself."""
        return self.method.card


_CHOICES: Mapping[str, Any] = {"weight": Weight, "over": Over}
_TUPLES: Mapping[str, type] = {"hyperparameters": Hyperparameter, "conventions": str}

_TAKEN = frozenset({"name", "card", "hyperparameters", *vars(Method)})
"""Attributes of a method, which no hyperparameter may replace."""

_registered: dict[str, Registered] = {}
_loaded = False
_LOADING = threading.RLock()


def register(method: type[Method], origin: str | None = None) -> type[Method]:
    """Add a method for this process; usable as a class decorator. Training workers see installed plugins only.

    Args:
        method: the class; registered under its ``name``.
        origin: where it comes from; its module by default.

    Raises:
        UserError: the name is taken, or the class is no method with a name and a card.
    """
    _load()
    _add(method, origin or f"module {method.__module__}")
    return method


def available() -> Mapping[str, Registered]:
    """All methods by name: built-in ones first, each part in alphabetical order.

    Raises:
        UserError: a method or plugin cannot be used.
    """
    _load()
    return dict(sorted(_registered.items(), key=lambda item: (item[1].origin != BUILT_IN, item[0])))


def get(name: str) -> type[Method]:
    """The class of a method.

    Raises:
        UserError: no such method, or some method or plugin cannot be used.
    """
    return lookup(name).method


def create(name: str, hyperparameters: Mapping[str, float | None] | None = None) -> Method:
    """A method with these hyperparameters, and its own defaults for the others.

    Raises:
        ValueError: it does not take them; the message names the one.
        UserError: no such method, or it cannot be made.
    """
    method = get(name)
    try:
        made = method(**hyperparameters or {})
    except ValueError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"method {name}: cannot be made ({_one_line(error)}): mend its __init__") from error
    if not isinstance(getattr(made, "hyperparameters", None), Mapping):
        raise UserError(f"method {name}: its __init__ does not call that of methods.contract.Method: mend it")
    return made


def lookup(name: str) -> Registered:
    """A method with its origin.

    Raises:
        UserError: no such method, or some method or plugin cannot be used.
    """
    _load()
    if name not in _registered:
        raise UserError(f"method {name!r} is unknown: choose one of {', '.join(available())}")
    return _registered[name]


def source_digest(name: str) -> str:
    """SHA-256 over the source of what computes a method's loss: the modules of its class and of its bases.

    The same installed files give the same digest in every process, whatever was imported before.

    Raises:
        UserError: no such method, or its source is not in a file.
    """
    digest = hashlib.sha256()
    for module in dict.fromkeys(base.__module__ for base in get(name).__mro__ if issubclass(base, Method)):
        path = getattr(sys.modules[module], "__file__", None)
        if path is None or not Path(path).is_file():
            raise UserError(f"method {name!r}: the source of module {module} is not in a file: put it into one")
        source = Path(path).read_bytes()
        digest.update(f"{module} {len(source)}\n".encode() + source)
    return digest.hexdigest()


def _load() -> None:
    """Find all methods, once a process; on failure nothing is kept, so that the next call says the same again."""
    global _loaded
    with _LOADING:  # another thread waits until all are found; a method that registers itself meanwhile does not
        if _loaded:
            return
        _loaded = True
        before = dict(_registered)
        try:
            with contextlib.redirect_stdout(sys.stderr):  # what an import prints must not get before our answer
                _load_built_in()
                for entry_point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda found: found.name):
                    _load_plugin(entry_point)
        except BaseException:
            _loaded = False
            _registered.clear()
            _registered.update(before)
            raise


def _load_built_in() -> None:
    package = importlib.import_module("methods")
    for found in pkgutil.iter_modules(package.__path__):
        if found.name in RESERVED or found.name.startswith("_"):
            continue
        where = f"methods/{found.name}.py"
        try:
            module = importlib.import_module(f"methods.{found.name}")
        except (Exception, SystemExit) as error:
            raise UserError(f"{where} cannot be imported ({_one_line(error)}): mend or remove the file") from error
        classes = [
            value
            for value in vars(module).values()
            if inspect.isclass(value) and issubclass(value, Method) and value.__module__ == module.__name__
        ]
        if not classes:
            raise UserError(f"{where} holds no subclass of methods.contract.Method: add one, or move the file")
        for method in classes:
            _add(method, BUILT_IN, where)


def _load_plugin(entry_point: EntryPoint) -> None:
    distribution = entry_point.dist
    package = f"{distribution.name} {distribution.version}" if distribution else "unknown package"
    where = f"package {package}, entry point {entry_point.name} = {entry_point.value}"
    mend = f"mend it, or uninstall {distribution.name if distribution else 'the package'}"
    try:
        method = entry_point.load()
    except (Exception, SystemExit) as error:
        raise UserError(f"{where}: cannot be imported ({_one_line(error)}): {mend}") from error
    if not (inspect.isclass(method) and issubclass(method, Method)):
        raise UserError(f"{where}: is no subclass of methods.contract.Method: {mend}")
    if getattr(method, "name", None) != entry_point.name:
        raise UserError(
            f"{where}: the class calls itself {getattr(method, 'name', None)!r}, not {entry_point.name!r}: {mend}"
        )
    _add(method, package, where)


def _add(method: type[Method], origin: str, where: str | None = None) -> None:
    where = where or origin
    name = getattr(method, "name", None)
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        raise UserError(f"{where}: {method.__name__}.name is {name!r}: use lower-case letters, digits and underscores")
    if not isinstance(getattr(method, "card", None), Card):
        raise UserError(f"{where}: method {name!r} has no card: set {method.__name__}.card to a methods.contract.Card")
    if wrong := _wrong_field(method.card) or _wrong_hyperparameter(method.card):
        raise UserError(f"{where}: method {name!r}: card.{wrong} is not what methods.contract.Card says: mend it")
    if inspect.isabstract(method):
        missing = ", ".join(sorted(method.__abstractmethods__))
        raise UserError(f"{where}: method {name!r} does not define {missing}: add it to {method.__name__}")
    known = _registered.get(name)
    if known is not None and known.method is not method:
        raise UserError(
            f"{where}: method name {name!r} is taken by {known.origin} ({known.method.__module__}): choose another name"
        )
    if known is None:
        _registered[name] = Registered(name, method, origin)


def _wrong_field(card: Card) -> str | None:
    """The first field of a value that its type rules out; nobody type-checks a plugin."""
    for field in fields(card):
        value = getattr(card, field.name)
        if field.name in _CHOICES:
            fits = value in get_args(_CHOICES[field.name])
        elif field.name in _TUPLES:
            fits = isinstance(value, tuple) and all(isinstance(one, _TUPLES[field.name]) for one in value)
        else:
            fits = isinstance(value, bool) if field.name == "exact_gradient" else _is_text(value)
        if not fits:
            return f"{field.name} = {value!r}"
    return None


def _wrong_hyperparameter(card: Card) -> str | None:
    """The first that has no name of its own, no text, or a default that is no number of its range."""
    names = [parameter.name for parameter in card.hyperparameters]
    for parameter in card.hyperparameters:
        try:
            free = parameter.name.isidentifier() and parameter.name not in _TAKEN and names.count(parameter.name) == 1
            parameter.checked("default", parameter.default)
            fits = free and _is_text(parameter.meaning) and bool(parameter.interval)
        except (AttributeError, TypeError, ValueError, OverflowError):
            fits = False
        if not fits:
            return f"hyperparameters: {parameter!r}"
    return None


def _is_text(value: Any) -> bool:
    """Text that a record can hold: UTF-8 has no half of a surrogate pair."""
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
