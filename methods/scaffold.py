"""A start for a new method, in the tree or as a plugin package, and the page of all cards."""

from __future__ import annotations

import keyword
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from string import Template

from methods.errors import UserError
from methods.registry import ENTRY_POINT_GROUP, NAME, RESERVED, Registered, available

_METHOD = Template('''"""$title: one sentence on what it does."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from methods.contract import Batch, Card, Hyperparameter, LossOutputs, Method


class $cls(Method):
    """Plain policy gradient, scaled: put your formula in its place."""

    name: ClassVar[str] = "$name"
    card: ClassVar[Card] = Card(
        title="$title",
        idea="Every response keeps the same weight.",
        formula=r"-\\mathrm{sg}[\\phi(W)]\\,A\\,\\log\\pi,\\quad \\phi(W) = s",
        paper="Author, Title, year",
        url="",
        weight="response",
        over="tokens",
        exact_gradient=False,
        hyperparameters=(
            Hyperparameter("scale", 1.0, "Multiplies every coefficient.", 0.0, 100.0, open_minimum=True),
        ),
        conventions=("A = 0 counts as positive.",),
    )
    scale: float

    def loss(self, batch: Batch) -> LossOutputs:
        """See the card."""
        return batch.policy_gradient(self.coefficient(batch.log_weight, batch.advantage))

    def coefficient(self, log_weight: Tensor, advantage_sign: Tensor | float) -> Tensor:
        """phi(W), which must be 1 at W = 1."""
        return torch.full_like(log_weight, self.scale)
''')

_NUMBERS = '''

def test_numbers_by_hand() -> None:
    """Three tokens: the loss is -(2 * -1.0 + 2 * -0.5 - 1 * -2.0) / 3, and the gradient -A / 3."""
    log_probs = torch.tensor([[-1.0, -0.5], [-2.0, 0.0]], requires_grad=True)
    advantages = torch.tensor([[2.0, 2.0], [-1.0, -1.0]])
    mask = torch.tensor([[1, 1], [1, 0]])
    loss = get("$name")()(LossInputs(log_probs, log_probs.detach(), advantages, mask)).loss
    loss.backward()
    assert loss.item() == pytest.approx(1 / 3)
    assert log_probs.grad is not None
    torch.testing.assert_close(log_probs.grad, torch.tensor([[-2 / 3, -2 / 3], [1 / 3, 0.0]]))
'''

_TEST_IN_TREE = Template(
    '''"""$title against the contract and against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch

from methods import LossInputs, get
from methods.conformance import CHECKS, check_row


@pytest.mark.parametrize("key", CHECKS)
def test_contract(key: str) -> None:
    row = check_row(get("$name")(), key)
    assert row.status != "fails", f"{row.claim} Found {row.figure}; allowed {row.limit}."
'''
    + _NUMBERS
)

_TEST_IN_PACKAGE = Template(
    '''"""$title against the contract and against numbers worked out by hand."""

import pytest
import torch

from methods import LossInputs, get
from methods.conformance import Row


@pytest.mark.reuse_bench("$name")
def test_contract(conformance_row: Row) -> None:
    """One test a row; the fixture comes with Reuse Bench."""
    row = conformance_row
    assert row.status != "fails", f"{row.claim} Found {row.figure}; allowed {row.limit}."
'''
    + _NUMBERS
)

_PYPROJECT = Template("""[build-system]
requires = ["setuptools>=69"]
build-backend = "setuptools.build_meta"

[project]
name = "$distribution"
version = "0.1.0"
description = "$title: a policy-optimisation loss for Reuse Bench"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["reuse-bench"]

[project.entry-points."$group"]
$name = "$package:$cls"

[tool.setuptools.packages.find]
where = ["src"]
""")

_README = Template("""# $title

A policy-optimisation loss for Reuse Bench. The formula, its card and its hyperparameters are in
`src/$package/__init__.py`.

```
pip install -e . --no-deps
reuse-bench check $name
pytest
```
""")


def new_in_tree(name: str) -> list[Path]:
    """Write ``methods/NAME.py`` and its test into this checkout.

    Returns:
        The files written.

    Raises:
        UserError: the name cannot be used, a file is in the way, or this is no checkout.
    """
    values = _values(name)
    root = Path(__file__).resolve().parents[1]
    if not (root / "tests" / "unit").is_dir():
        raise UserError(f"{root} is no checkout of Reuse Bench: make a package instead, with --package DIR")
    files = {
        root / "methods" / f"{name}.py": _METHOD.substitute(values),
        root / "tests" / "unit" / f"test_methods_{name}.py": _TEST_IN_TREE.substitute(values),
    }
    _write(files)
    return [*files]


def new_package(name: str, folder: Path) -> list[Path]:
    """Write a plugin package that can be installed, tested and published as it is.

    Returns:
        The files written.

    Raises:
        UserError: the name cannot be used, or the folder is not empty.
    """
    values = _values(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not an empty folder: give --package another one")
    files = {
        folder / "pyproject.toml": _PYPROJECT.substitute(values),
        folder / "README.md": _README.substitute(values),
        folder / "src" / values["package"] / "__init__.py": _METHOD.substitute(values),
        folder / "src" / values["package"] / "py.typed": "",
        folder / "tests" / f"test_{name}.py": _TEST_IN_PACKAGE.substitute(values),
    }
    _write(files)
    return [*files]


def cards_markdown(methods: Iterable[Registered]) -> str:
    """The cards of methods as one page."""
    parts = [
        "# Methods\n\nWritten from the cards by `reuse-bench list methods --markdown > docs/methods.md`: "
        "change the cards, not this page.\n"
    ]
    for found in methods:
        card = found.card
        reference = f"[{card.paper}]({card.url})" if card.url else card.paper
        parts.append(f"\n## {card.title}\n\n`{found.name}` · {reference}\n\n{card.idea}\n\n")
        parts.append(f"Loss per token, mean over {card.over}:\n\n$$\n{card.formula}\n$$\n\n")
        if card.hyperparameters:
            parts.append("| hyperparameter | default | range | meaning |\n|---|---|---|---|\n")
            for parameter in card.hyperparameters:
                default = "none" if parameter.default is None else f"{parameter.default:g}"
                parts.append(f"| `{parameter.name}` | {default} | {parameter.interval} | {parameter.meaning} |\n")
            parts.append("\n")
        parts.append("".join(f"- {convention}\n" for convention in card.conventions))
    return "".join(parts)


def _values(name: str) -> dict[str, str]:
    if not NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UserError(f"method name {name!r} cannot be used: lower-case letters, digits and underscores, no keyword")
    if name in RESERVED:
        raise UserError(f"method name {name!r} is the name of a module of Reuse Bench: choose another")
    if name in available():
        raise UserError(f"method name {name!r} is taken by {available()[name].origin}: choose another")
    words = [word for word in name.split("_") if word]
    return {
        "name": name,
        "title": " ".join(words).capitalize(),
        "cls": "".join(word.capitalize() for word in words),
        "distribution": "-".join(["reuse-bench", *words]),
        "package": f"reuse_bench_{name}",
        "group": ENTRY_POINT_GROUP,
    }


def _write(files: dict[Path, str]) -> None:
    for path in files:
        if path.exists():
            raise UserError(f"{path} exists already: remove it, or choose another name")
    made: list[Path] = []
    try:
        for path, text in files.items():
            missing = [folder for folder in path.parents if not folder.exists()]
            for folder in reversed(missing):
                folder.mkdir()
                made.append(folder)
            made.append(path)
            path.write_text(text, encoding="utf-8")
    except OSError:
        # All or nothing: half a method would stop every command.
        for path in reversed(made):
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        raise
