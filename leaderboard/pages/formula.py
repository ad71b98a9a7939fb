"""Formulas of method cards: a small part of LaTeX to MathML, which browsers draw without any script or font file.

What is not understood is shown as the LaTeX that was written.
"""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[0-9]+(?:\.[0-9]+)?|\s+|.", re.DOTALL)
_LETTERS = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "epsilon": "ε",
    "varepsilon": "ε",
    "theta": "θ",
    "lambda": "λ",
    "mu": "μ",
    "pi": "π",
    "rho": "ρ",
    "sigma": "σ",
    "tau": "τ",
    "phi": "φ",
    "varphi": "φ",
    "psi": "ψ",
    "omega": "ω",
    "infty": "∞",
    "ell": "ℓ",
}
_OPERATORS = {
    "le": "≤",
    "leq": "≤",
    "ge": "≥",
    "geq": "≥",
    "ne": "≠",
    "cdot": "·",
    "times": "×",
    "pm": "±",
    "to": "→",
    "nabla": "∇",
    "sum": "∑",
    "prod": "∏",
    "ldots": "…",
    "cdots": "⋯",
    "mid": "∣",
    "sim": "∼",
    "approx": "≈",
    "in": "∈",
    "{": "{",
    "}": "}",
    "|": "‖",
    "lvert": "|",
    "rvert": "|",
    "langle": "⟨",
    "rangle": "⟩",
}
_FUNCTIONS = ("min", "max", "log", "exp", "ln", "sup", "inf", "mathbb", "clip", "sign")
_SPACES = {",": "0.17em", ":": "0.22em", ";": "0.28em", "quad": "1em", "qquad": "2em", " ": "0.3em", "!": "0"}
_SIZES = ("left", "right", "big", "bigl", "bigr", "Big", "Bigl", "Bigr", "bigg", "biggl", "biggr")
_TEXT = ("mathrm", "text", "operatorname", "mathit", "mathbf", "mathcal", "textrm")


class _UnknownError(Exception):
    """Something that this part of LaTeX does not hold."""


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = [token for token in _TOKEN.findall(text) if not token.isspace()]
        self.place = 0

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        if not token:
            raise _UnknownError
        self.place += 1
        return token

    def row(self, end: str = "") -> str:
        parts: list[str] = []
        while self.peek() != end:
            parts.append(self.scripts())
        return f"<mrow>{''.join(parts)}</mrow>"

    def scripts(self) -> str:
        base = self.atom()
        below = above = ""
        while self.peek() in ("_", "^"):
            if self.take() == "_":
                below = self.atom()
            else:
                above = self.atom()
        if below and above:
            return f"<msubsup>{base}{below}{above}</msubsup>"
        if below:
            return f"<msub>{base}{below}</msub>"
        return f"<msup>{base}{above}</msup>" if above else base

    def group(self) -> str:
        if self.peek() != "{":
            return self.atom()
        self.take()
        inner = self.row("}")
        self.take()
        return inner

    def words(self) -> str:
        if self.take() != "{":
            raise _UnknownError
        parts = []
        while self.peek() != "}":
            parts.append(self.take())
        self.take()
        return "".join(parts)

    def atom(self) -> str:
        token = self.peek()
        if token == "{":
            return self.group()
        token = self.take()
        if token.startswith("\\"):
            return self.command(token[1:])
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token.isalpha():
            return f"<mi>{escape(token)}</mi>"
        if token in "+-=()[]|,.;:/*<>!'":
            shown = {"-": "−", "*": "∗", "'": "′"}.get(token, token)
            fixed = ' stretchy="false"' if token in "()[]|" else ""
            return f"<mo{fixed}>{escape(shown)}</mo>"
        raise _UnknownError

    def command(self, name: str) -> str:
        if name in _LETTERS:
            return f"<mi>{_LETTERS[name]}</mi>"
        if name in _OPERATORS:
            return f"<mo>{_OPERATORS[name]}</mo>"
        if name in _SPACES:
            return f'<mspace width="{_SPACES[name]}"></mspace>'
        if name in _SIZES:
            following = self.take()
            if following == ".":
                return ""
            shown = _OPERATORS.get(following.removeprefix("\\"), following)
            return f'<mo stretchy="false">{escape(shown)}</mo>'
        if name in _TEXT:
            return f'<mi mathvariant="normal">{escape(self.words())}</mi>'
        if name in ("frac", "tfrac", "dfrac"):
            return f"<mfrac>{self.group()}{self.group()}</mfrac>"
        if name == "sqrt":
            return f"<msqrt>{self.group()}</msqrt>"
        if name in ("bar", "hat", "tilde"):
            accent = {"bar": "¯", "hat": "^", "tilde": "~"}[name]
            return f"<mover>{self.group()}<mo>{accent}</mo></mover>"
        if name in _FUNCTIONS:
            return f'<mi mathvariant="normal">{name}</mi>'
        raise _UnknownError


def mathml(text: str) -> Markup:
    """``text`` (LaTeX) as MathML with the LaTeX as its annotation; as code where it is not understood."""
    try:
        parser = _Parser(text)
        body = parser.row()
        if parser.place != len(parser.tokens):
            raise _UnknownError
    except (_UnknownError, RecursionError):
        return Markup(f"<code>{escape(text)}</code>")
    return Markup(
        f'<math display="block"><semantics>{body}'
        f'<annotation encoding="application/x-tex">{escape(text)}</annotation></semantics></math>'
    )
