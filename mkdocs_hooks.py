"""What mkdocs asks of this project while it builds the site of the documents: the navigation, and formulas."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from leaderboard.pages.formula import mathml

_FORMULA = re.compile(r"^\$\$\n(.*?)\n\$\$$", re.DOTALL | re.MULTILINE)


def on_config(config: Any) -> Any:
    """Put every document that the navigation does not name in the place of its ``*``."""
    folder = Path(config.docs_dir)
    named = set(_named(config.nav))
    others = sorted(path.name for path in folder.glob("*.md") if path.name not in named)
    config.nav = _filled(config.nav, others)
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Formulas as MathML, which needs neither a script nor a font from elsewhere."""
    return _FORMULA.sub(lambda found: mathml(found[1]), markdown)


def _named(items: list[Any]) -> list[str]:
    found: list[str] = []
    for item in items:
        if isinstance(item, str):
            found.append(item)
        else:
            for below in item.values():
                found += _named(below if isinstance(below, list) else [below])
    return found


def _filled(items: list[Any], others: list[str]) -> list[Any]:
    filled: list[Any] = []
    for item in items:
        if item == "*":
            filled += others
        elif isinstance(item, str):
            filled.append(item)
        else:
            filled.append({name: _filled(below, others) for name, below in item.items()})
    return filled
