"""The example of docs/adding-a-method.md is a sound method, and the page names every row of the check."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import methods
from methods import Method
from methods.conformance import CHECKS, check

PAGE = (Path(methods.__file__).parents[1] / "docs" / "adding-a-method.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def example() -> type[Method]:
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    namespace: dict[str, object] = {"__name__": "soft_cap"}
    exec(compile(source, "docs/adding-a-method.md", "exec"), namespace)
    return namespace["SoftCap"]  # type: ignore[return-value]


@pytest.mark.parametrize("cap", [2.0, pytest.param(5.0, marks=pytest.mark.slow)])
def test_the_example_passes_the_check(example: type[Method], cap: float) -> None:
    assert [row for row in check(example(cap=cap)) if row.status == "fails"] == []


def test_the_example_is_what_the_text_says(example: type[Method]) -> None:
    weight = torch.tensor([0.25, 1.0, 4.0, 1e8], dtype=torch.float64)
    expected = 2 * weight / (1 + weight)
    torch.testing.assert_close(example().coefficient(weight.log(), 1.0), expected)


def test_the_page_names_every_row_in_order() -> None:
    assert re.findall(r"^\| `(\w+)` \| [^0]", PAGE.split("## What the check asks")[1], flags=re.MULTILINE) == list(
        CHECKS
    )
