r"""Reads an answer, as a model or a data set writes it, into tokens and expression trees.

The grammar is the part of LaTeX (and of plain text) in which answers to mathematical questions are written. What it
does not cover raises `Unreadable`; nothing is guessed. Trees are plain tuples:

    ("num", Fraction, quantum)      quantum: worth of the last written digit; None when the number is exact
    ("sym", name) ("const", name)   names such as "x", "x_1", "\alpha"; constants "pi", "e", "i", "inf"
    ("add", a, b, ...) ("mul", a, b, ...) ("div", a, b) ("pow", a, b) ("neg", a)
    ("fun", name, a, ...)           sin, ln, root, log, floor, factorial, binomial, ...
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, NamedTuple

Tree = tuple[Any, ...]

MAX_TOKENS = 3000
MAX_DEPTH = 60
MAX_DIGITS = 3000
MAX_EXPONENT = 3000


class Unreadable(ValueError):  # noqa: N818
    """The text is outside the grammar."""


class Token(NamedTuple):
    """kind: num, sym, fun, text, set or op. space: whether white space stands before it."""

    kind: str
    text: str
    space: bool = False


_UNICODE = {
    "−": "-", "–": "-", "—": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/", "∕": "/", "⁄": "/",
    "√": r"\sqrt ", "∞": r"\infty ", "°": r"\DEG ", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ",
    "≠": r"\ne ", "≈": r"\approx ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "±": r"\pm ", "∓": r"\mp ",
    "∅": r"\emptyset ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "⌊": r"\lfloor ",
    "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "½": r"\frac12 ", "¼": r"\frac14 ", "¾": r"\frac34 ",
    "⅓": r"\frac13 ", "⅔": r"\frac23 ", "′": "'", "’": "'", "，": ",", "：": ":", "；": ";", "（": "(", "）": ")",
    "％": "%", "⟨": r"\langle ", "⟩": r"\rangle ", "∠": r"\angle ", "…": r"\ldots ", "\u2009": r"\,",
    "\u202f": r"\,", "\u2002": " ", "\u2003": " ", "\u2005": r"\,", "\u2006": r"\,", "\u200b": "", "\ufeff": "",
    "¢": r"\text{ cents}", "∀": r"\forall ",
    "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "θ": r"\theta ", "λ": r"\lambda ",
    "μ": r"\mu ", "π": r"\pi ", "ρ": r"\rho ", "σ": r"\sigma ", "τ": r"\tau ", "φ": r"\phi ", "ω": r"\omega ",
}  # fmt: skip
_TRANSLATION = str.maketrans(_UNICODE)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ]+")
_PREPARATIONS = (
    (
        re.compile(r"\^\s*(?:\{\s*\\(?:circ|degree)\s*\}|\\(?:circ|degree)(?![A-Za-z]))|\\degrees?(?![A-Za-z])"),
        r"\\DEG ",
    ),
    (re.compile(r"\^\s*(?:\{\s*(?:\\prime\s*)\}|\\prime(?![A-Za-z]))"), "'"),
    (re.compile(r"\^\s*\{\s*\\prime\s*\\prime\s*\}"), "''"),
    (re.compile(r"(?<=[\d}])(\s*(?:\\[,; ])?\s*)((?:km|cm|mm|m|ft|mi)/(?:s|h|hr|min))\b"), r"\1\\text{\2}"),
    (re.compile(r"(?<=\d)\s*[xX]\s*(?=10\s*\^)"), r"\\times "),
    (re.compile(r"(?<=\d)\s*\\(?:text|mathrm|rm)\s*\{\s*[eE]\s*\}\s*(?=[+-]?\d)"), "e"),
    (re.compile(r"(?<=\d)\{(\\[dt]?frac\s*\{\d+\}\s*\{\d+\})\}"), r"\1"),
    (
        re.compile(
            r"(?<=\d)(?:\\[,; ]|~|\s)*\(?\\text\w*\s*\{\s*\(?(?:in )?base(?![A-Za-z])[\s~]*\}?\s*(\w+)\)?\s*\}?\s*\)?"
        ),
        r"_{\1}",
    ),
    (re.compile(r"(?<=\d)\s*\^\s*\{?\s*\\(?:text\w*|mathrm|mbox)\s*\{\s*(?:st|nd|rd|th)\s*\}\s*\}?"), " "),
    (re.compile(r"\\(?:thinspace|enspace|enskip|medspace|thickspace)(?![A-Za-z])"), r"\\,"),
    (re.compile(r"(?<=\))\s*_\s*\{?\s*\\(?:text\s*\{\s*)?(?:max|min)\s*\}{0,2}"), ""),
    # 18 degrees 48 minutes, the measure of an angle, dx/dt.
    (re.compile(r"(?<![\d.])(\d+)\s*\\DEG\s*(\d{1,2})\s*'(?!')"), r"(\1+\2/60)\\DEG "),
    (re.compile(r"(?<![A-Za-z\\])m\s*(?=\\(?:measured)?angle(?![A-Za-z]))"), ""),
    (
        re.compile(r"(?<![A-Za-z\\])d(\^\{?\d\}?)?\s?([A-Za-z]|\\[a-z]+)\s*/\s*d\s?([a-z](?:\^\{?\d\}?)?)(?![A-Za-z])"),
        r"\\frac{d\1\2}{d\3}",
    ),
    # f: x -> 1/x, x -> 1/x, and f: R -> R before a formula.
    (re.compile(r"([A-Za-z])\s*(?:\\colon(?![A-Za-z])|:)\s*([A-Za-z])\s*\\mapsto(?![A-Za-z])"), r"\1(\2)="),
    (re.compile(r"(?<![A-Za-z\\])([A-Za-z])\s*\\mapsto(?![A-Za-z])"), r"f(\1)="),
    (
        re.compile(r"[A-Za-z]\s*(?:\\colon(?![A-Za-z])|:)\s*\\mathbb[^,;=]{1,12}\\(?:to|rightarrow)[^,;=]{1,16}[,;]"),
        "",
    ),
)

_DIGITS = r"\d{1,3}(?:(?:\{,\}|,\\!\s*|\\[,;:!]\s*|\\ |~|'|_|\u00a0| )\d{3})+(?![\d])|\d+"
_NUMBER = re.compile(
    rf"(?P<whole>{_DIGITS})(?:(?P<point>\.)(?P<part>\d*))?|\.(?P<only>\d+)",
)
_EXPONENT = re.compile(r"[eE](?:\{?([+-]?\d+)\}?)(?![A-Za-z0-9^.])")
_MACRO = re.compile(r"\\(?:[A-Za-z]+|.)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z]+")

_IGNORED = {
    "left", "right", "middle", "big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr", "biggl", "biggr", "bigm",
    "displaystyle", "textstyle", "scriptstyle", "limits", "nolimits", "mathstrut", "rm", "bf", "it", "mathbf",
    "boldsymbol", "bm", "mathnormal", "boxed", "fbox", "underline", "cal", "mathcal", "mathfrak", "mathsf", "mathit",
    "mathscr", "mathtt", "ensuremath", "qquad", "quad", "!", ",", ";", ":", " ", ">", "\n", "nobreak", "allowbreak",
    "(", ")", "hfill", "/", "-", "therefore", "noindent", "checkmark",
}  # fmt: skip
_SPACES = {"qquad", "quad", ",", ";", ":", " ", ">", "\n"}
_TEXT = {
    "text", "textrm", "textbf", "textit", "textsf", "texttt", "textnormal", "emph", "mbox", "hbox", "mathrm",
    "operatorname", "operatorname*", "textup", "textsc",
}  # fmt: skip
_RENAMED = {
    "dfrac": r"\frac", "tfrac": r"\frac", "cfrac": r"\frac", "nicefrac": r"\frac", "sfrac": r"\frac",
    "cr": "\\\\", "dbinom": r"\binom", "tbinom": r"\binom",
    "leq": r"\le", "leqslant": r"\le", "lt": "<", "geq": r"\ge", "geqslant": r"\ge", "gt": ">", "neq": r"\ne",
    "times": "*", "cdot": "*", "ast": "*", "star": "*", "cdotp": "*", "div": "/", "lbrace": r"\{", "rbrace": r"\}",
    "lvert": "|", "rvert": "|", "vert": "|", "mid": "|", "langle": "(", "rangle": ")", "lbrack": "[", "rbrack": "]",
    "varnothing": r"\emptyset", "dots": r"\ldots", "cdots": r"\ldots", "dotsc": r"\ldots", "simeq": r"\approx",
    "approxeq": r"\approx", "thickapprox": r"\approx", "smallsetminus": r"\setminus", "backslash": r"\setminus",
    "lor": r"\or", "vee": r"\or", "land": r"\and", "wedge": r"\and", "measuredangle": r"\angle",
    "equiv": "=", "lparen": "(", "rparen": ")", "colon": ":", "%": "%", "bar": r"\overline", "&": r"\and",
    "bigcup": r"\cup", "arcctg": "arccot", "sim": r"\approx",
}  # fmt: skip
_OPERATORS = {
    r"\frac", r"\binom", r"\sqrt", r"\le", r"\ge", r"\ne", r"\approx", r"\in", r"\cup", r"\cap", r"\setminus", r"\pm",
    r"\mp", r"\{", r"\}", r"\emptyset", r"\ldots", r"\or", r"\angle", r"\triangle", r"\lfloor", r"\rfloor", r"\lceil",
    r"\rceil", r"\overline", r"\vec", r"\hat", r"\tilde", r"\dot", r"\ddot", r"\widehat", r"\widetilde", r"\infty",
    r"\DEG", r"\$", r"\pounds", r"\euro", r"\begin", r"\end", "\\\\", r"\sum", r"\int", r"\prod", r"\lim", r"\to",
    r"\pmod", r"\bmod", r"\overrightarrow", r"\notin", r"\choose", r"\implies", r"\Rightarrow", r"\partial",
    r"\and", r"\forall", r"\over",
}  # fmt: skip
FUNCTIONS = {
    "sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "arcsin", "arccos", "arctan", "arccot",
    "ln", "log", "lg", "exp", "max", "min", "gcd", "lcm", "cis",
}  # fmt: skip
_CALLED = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "arsinh": "arcsinh"}
CONNECTIVES = {"and", "or", "&"}
BARE_UNITS = {
    "cm", "mm", "km", "kg", "mg", "mph", "kph", "ft", "feet", "foot", "inch", "inches", "degree", "degrees", "minute",
    "minutes", "mins", "hour", "hours", "hrs", "second", "seconds", "secs", "dollar", "dollars", "cent", "cents",
    "unit", "units", "meter", "meters", "metre", "metres", "mile", "miles", "yard", "yards", "percent", "square",
    "cubic", "sq", "day", "days", "week", "weeks", "year", "years", "people", "points", "liters", "litres", "pounds",
    "ounces", "USD", "radians", "rad", "Hz", "kHz", "MHz", "GHz", "eV", "keV", "MeV", "pc", "kpc", "Mpc", "erg",
    "ergs", "mol", "kJ", "nm", "thousand", "million", "billion", "trillion", "ways", "students", "cmH",
}  # fmt: skip
# Short ones, which are as often a product of symbols: the weight mg, the length pc.
MAYBE_SYMBOLS = {unit for unit in BARE_UNITS if len(unit) <= 3}
_WORDS = CONNECTIVES | BARE_UNITS | {"no", "none", "solution", "solutions", "for", "all", "where", "with", "when", "if"}


def tokenize(text: str, units: bool = True) -> list[Token]:
    """Tokens of an answer. ``units``: whether a short bare word such as ``mg`` is a unit, or a product of symbols.

    Raises:
        Unreadable: too long, or braces of a text command do not balance.
    """
    if len(text) > 4 * MAX_TOKENS:
        raise Unreadable("too long")
    text = text.translate(_TRANSLATION)
    text = _SUPERSCRIPT_RUN.sub(lambda run: "^{" + run.group().translate(_SUPERSCRIPTS) + "}", text)
    for pattern, replacement in _PREPARATIONS:
        text = pattern.sub(replacement, text)
    tokens: list[Token] = []
    _scan(text, tokens, 0, units)
    while tokens and tokens[-1].text in (".", ",", ";"):
        tokens.pop()
    if len(tokens) > MAX_TOKENS:
        raise Unreadable("too long")
    return tokens


def _scan(text: str, tokens: list[Token], level: int, units: bool) -> None:
    if level > 5:
        raise Unreadable("text commands nested too deeply")
    position, space = 0, False
    while position < len(text):
        character = text[position]
        if character.isspace() or character in "~$":
            position, space = position + 1, True
            continue
        begin = len(tokens)
        if (match := _NUMBER.match(text, position)) is not None:
            end = match.end()
            if (exponent := _EXPONENT.match(text, end)) is not None:
                end = exponent.end()
            tokens.append(Token("num", _plain_number(match, exponent), space))
            position = end
        elif character == "\\":
            position, space = _scan_macro(text, position, tokens, space, level, units)
            if len(tokens) == begin:
                continue
        elif (match := _WORD.match(text, position)) is not None:
            _scan_word(match.group(), tokens, space, units)
            position = match.end()
        else:
            for pair, meaning in (("**", "^"), ("<=", r"\le"), (">=", r"\ge"), ("!=", r"\ne"), ("<>", r"\ne")):
                if text.startswith(pair, position):
                    tokens.append(Token("op", meaning, space))
                    position += 2
                    break
            else:
                if "\ud800" <= character <= "\udfff":
                    raise Unreadable("half a character")
                kind = "op" if ord(character) < 128 else "sym"
                kind = "op" if character in "€£¥₹" else kind
                tokens.append(Token(kind, character, space))
                position += 1
        space = False
        if len(tokens) > MAX_TOKENS:
            raise Unreadable("too long")


def _plain_number(match: re.Match[str], exponent: re.Match[str] | None) -> str:
    whole = re.sub(r"\D", "", match.group("whole") or "0")
    part = match.group("only") if match.group("only") is not None else match.group("part")
    number = whole if part is None else f"{whole}.{part}"
    if len(number) > MAX_DIGITS:
        raise Unreadable("number too long")
    return number + (f"e{exponent.group(1)}" if exponent else "")


def _scan_word(word: str, tokens: list[Token], space: bool, units: bool) -> None:
    lower = word.lower()
    if word in MAYBE_SYMBOLS and (not units or (tokens and tokens[-1].text == "_")):
        tokens.extend(Token("sym", letter, space and not index) for index, letter in enumerate(word))
        return
    if word in FUNCTIONS or word in _CALLED:
        tokens.append(Token("fun", _CALLED.get(word, word), space))
    elif word == "sqrt":
        tokens.append(Token("op", r"\sqrt", space))
    elif word in ("pi", "Pi"):
        tokens.append(Token("sym", r"\pi", space))
    elif lower in ("infinity", "inf", "oo"):
        tokens.append(Token("op", r"\infty", space))
    elif word in _WORDS or (lower in _WORDS and len(word) > 3):
        tokens.append(Token("text", word, space))
    else:
        for letter in word:
            tokens.append(Token("sym", letter, space))
            space = False


def _scan_macro(
    text: str, position: int, tokens: list[Token], space: bool, level: int, units: bool
) -> tuple[int, bool]:
    match = _MACRO.match(text, position)
    if match is None:  # a lone backslash at the end
        return position + 1, space
    name, end = match.group()[1:], match.end()
    if name in _TEXT:
        content, end = _argument(text, end)
        _scan_text(content, tokens, space, level, units)
        return end, False
    if name == "mathbb":
        content, end = _argument(text, end)
        tokens.append(Token("set", content.strip(), space))
        return end, False
    if name in ("color", "hspace", "vspace", "phantom", "label", "tag", "textcolor"):
        return _argument(text, end)[1], space
    if name in ("begin", "end"):
        content, end = _argument(text, end)
        if name == "begin" and content.strip("*") in ("array", "tabular"):
            rest = text[end:].lstrip()
            if rest.startswith("{"):
                end = len(text) - len(rest) + rest.index("}") + 1 if "}" in rest else end
        tokens.append(Token("op", f"\\{name}:{content.strip('*')}", space))
        return end, False
    if name in ("left", "right", "middle") and text.startswith(".", end):
        return end + 1, space
    if name == "not" and (following := re.match(r"\s*(=|\\in(?![A-Za-z]))", text[end:])):
        tokens.append(Token("op", r"\ne" if following.group(1) == "=" else r"\notin", space))
        return end + following.end(), False
    if name == "\\":
        spacing = re.match(r"\s*\[[^\]]*(?:pt|em|ex|cm|mm)\]", text[end:])
        tokens.append(Token("op", "\\\\", space))
        return end + (spacing.end() if spacing else 0), False
    if name in _IGNORED:
        return end, space or name in _SPACES
    name = _RENAMED.get(name, "\\" + name)
    if name.lstrip("\\") in FUNCTIONS:
        tokens.append(Token("fun", name.lstrip("\\"), space))
    elif name in _OPERATORS or not name.startswith("\\"):
        tokens.append(Token("op", name, space))
    elif name in (r"\[", r"\]"):  # display delimiters around the whole
        pass
    else:
        tokens.append(Token("sym", {r"\varphi": r"\phi", r"\varepsilon": r"\epsilon"}.get(name, name), space))
    return end, False


def _argument(text: str, position: int) -> tuple[str, int]:
    """Content of the brace group at ``position``, or the one character there, and where it ends."""
    while position < len(text) and text[position].isspace():
        position += 1
    if position >= len(text) or text[position] != "{":
        return text[position : position + 1], position + 1
    depth = 0
    for end in range(position, len(text)):
        if text[end] in "{}" and text[end - 1] != "\\":
            depth += 1 if text[end] == "{" else -1
            if depth == 0:
                return text[position + 1 : end], end + 1
    raise Unreadable("unbalanced braces")


# Spaces, products and powers of units, as in \mathrm{m\,s^{-1}}.
_UNIT_MARKS = re.compile(r"~|\\[,;: ]|\\cdot(?![A-Za-z])|(?<=[A-Za-z])\^(?:\{-?\d\}|-?\d)")


def _scan_text(content: str, tokens: list[Token], space: bool, level: int, units: bool) -> None:
    words = _UNIT_MARKS.sub(" ", content).strip().strip(".")
    if re.fullmatch(r"\([A-Za-z]{3,}(?: [A-Za-z]+)*\)", words):  # (units)
        words = words[1:-1]
    if not words or words == ",":
        if words:
            tokens.append(Token("op", ",", space))
        return
    if words in (FUNCTIONS - {"min", "max"}) or words in _CALLED:
        tokens.append(Token("fun", _CALLED.get(words, words), space))
    elif re.fullmatch(r"[^\W\d_]+(?:(?:[\s.-]+|\s*/\s*\(?\s*)[^\W\d_]+)*\)?", words):
        tokens.append(Token("text", words, space or content[:1].isspace()))
    elif (listed := re.fullmatch(r",?\s*(and|or)", words)) is not None:
        tokens.append(Token("text", listed.group(1), True))
    else:
        _scan(content, tokens, level + 1, units)


_CLOSING = {"(": ")", "[": "]", "{": "}"}
_OPENERS = {"(", "[", "{", r"\{", r"\lfloor", r"\lceil"}
_CLOSERS = {")", "]", "}", r"\}", r"\rfloor", r"\rceil"}


def opens(token: Token) -> bool:
    """Whether a bracket of any kind begins here."""
    return token.kind == "op" and (token.text in _OPENERS or token.text.startswith(r"\begin:"))


def closes(token: Token) -> bool:
    """Whether a bracket of any kind ends here."""
    return token.kind == "op" and (token.text in _CLOSERS or token.text.startswith(r"\end:"))


def number_tree(text: str) -> Tree:
    """Tree of a written number: its value, and the worth of its last digit unless it is a whole number."""
    mantissa, _, exponent = text.partition("e")
    shift = int(exponent) if exponent else 0
    if abs(shift) > MAX_EXPONENT:
        raise Unreadable("exponent too large")
    whole, point, part = mantissa.partition(".")
    scale = Fraction(10) ** (shift - len(part))
    value = Fraction(int((whole + part) or "0")) * scale
    exact = not point or (value.denominator == 1 and not exponent)
    return ("num", value, None if exact else scale)


_DEGREE: Tree = ("div", ("const", "pi"), ("num", Fraction(180), None))
TRIGONOMETRIC = FUNCTIONS - {"ln", "log", "lg", "exp", "max", "min", "gcd", "lcm"}


class Parser:
    """Recursive descent over tokens. ``tight``: a slash takes the whole product after it, as in ``1/2a`` = 1/(2a)."""

    def __init__(self, tokens: list[Token], tight: bool = False) -> None:
        self.tokens = tokens
        self.tight = tight
        self.ambiguous = False
        self.position = 0
        self.depth = 0
        self.bars = 0

    def parse(self) -> Tree:
        """The tree of all tokens.

        Raises:
            Unreadable: they are no expression.
        """
        tree = self._choice()
        if self.position != len(self.tokens):
            raise Unreadable(f"unexpected {self.tokens[self.position].text!r}")
        return tree

    def _peek(self, ahead: int = 0) -> Token | None:
        index = self.position + ahead
        return self.tokens[index] if index < len(self.tokens) else None

    def _is(self, *texts: str) -> bool:
        token = self._peek()
        return token is not None and token.kind == "op" and token.text in texts

    def _take(self, text: str) -> None:
        if not self._is(text):
            raise Unreadable(f"{text!r} expected")
        self.position += 1

    def _choice(self) -> Tree:
        tree = self._sum()
        if self._is(r"\choose"):
            self.position += 1
            tree = ("fun", "binomial", tree, self._sum())
        elif self._is(r"\over"):
            self.position += 1
            tree = ("div", tree, self._sum())
        return tree

    def _sum(self) -> Tree:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        terms = [self._product()]
        while self._is("+", "-"):
            negative = self._is("-")
            self.position += 1
            term = self._product()
            terms.append(("neg", term) if negative else term)
        self.depth -= 1
        return terms[0] if len(terms) == 1 else ("add", *terms)

    def _product(self) -> Tree:
        if self._is("-", "+"):
            negative = self._is("-")
            self.position += 1
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise Unreadable("nested too deeply")
            tree = self._product()
            self.depth -= 1
            return ("neg", tree) if negative else tree
        factors = [self._mixed() or self._power()]
        after_slash = False
        while True:
            if self._is("*"):
                self.position += 1
                factors.append(self._signed_power())
                after_slash = False
            elif self._is("/"):
                self.position += 1
                divisor = self._signed_power()
                if self._starts_factor():
                    self.ambiguous = True
                    if self.tight:
                        parts = [divisor]
                        while self._starts_factor():
                            parts.append(self._power())
                        divisor = ("mul", *parts)
                factors = [("div", factors[0] if len(factors) == 1 else ("mul", *factors), divisor)]
                after_slash = True
            elif self._starts_factor(after_number=factors[-1][0] == "num" and not after_slash):
                factors.append(self._power())
                after_slash = False
            else:
                return factors[0] if len(factors) == 1 else ("mul", *factors)

    def _signed_power(self) -> Tree:
        if self._is("-", "+"):
            negative = self._is("-")
            self.position += 1
            tree = self._power()
            return ("neg", tree) if negative else tree
        return self._mixed() or self._power()

    def _mixed(self) -> Tree | None:
        r"""A mixed number: ``2\frac{1}{3}`` or ``2 1/3``."""
        whole = self._peek()
        if whole is None or whole.kind != "num" or not whole.text.isdigit():
            return None
        start = self.position
        self.position += 1
        try:
            if self._is(r"\frac"):
                self.position += 1
                top, bottom = self._small(), self._small()
            else:
                first, slash, second = self._peek(), self._peek(1), self._peek(2)
                if not (first and slash and second and first.kind == second.kind == "num" and slash.text == "/"):
                    raise Unreadable("no mixed number")
                top, bottom = number_tree(first.text), number_tree(second.text)
                self.position += 3
            if top[0] == bottom[0] == "num" and 0 < top[1] < bottom[1] and top[2] is bottom[2] is None:
                following = self._peek()
                if following is None or following.text not in ("^", "!"):
                    return ("num", int(whole.text) + top[1] / bottom[1], None)
        except Unreadable:
            pass
        self.position = start
        return None

    def _starts_factor(self, after_number: bool = False) -> bool:
        token = self._peek()
        if token is None:
            return False
        if token.kind == "num":
            return not after_number and self.tokens[self.position - 1].kind != "num"
        if token.kind in ("sym", "fun"):
            return True
        if token.kind == "text":
            return len(token.text) == 1
        if token.text == "|":
            return self.bars == 0
        return token.text in (
            "(", "[", "{", r"\frac", r"\binom", r"\sqrt", r"\lfloor", r"\lceil", r"\overline", r"\vec", r"\hat",
            r"\tilde", r"\dot", r"\ddot", r"\infty",
        )  # fmt: skip

    def _power(self) -> Tree:
        base = self._postfix(self._atom())
        if self._is("^"):
            self.position += 1
            base = self._postfix(("pow", base, self._exponent()))
            if self._is("^"):
                raise Unreadable("two exponents")
        return base

    def _postfix(self, tree: Tree) -> Tree:
        while self._is("!", r"\DEG"):
            tree = ("fun", "factorial", tree) if self._is("!") else ("mul", tree, _DEGREE)
            self.position += 1
        return tree

    def _exponent(self) -> Tree:
        if self._is("-", "+"):
            negative = self._is("-")
            self.position += 1
            tree = self._exponent()
            return ("neg", tree) if negative else tree
        token = self._peek()
        if token is not None and token.kind == "num":
            self.position += 1
            tree = number_tree(token.text)
        else:
            tree = self._atom()
        if self._is("^"):  # 2^3^4 of plain text
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise Unreadable("nested too deeply")
            self.position += 1
            tree = ("pow", tree, self._exponent())
            self.depth -= 1
        return tree

    def _atom(self) -> Tree:
        token = self._peek()
        if token is None:
            raise Unreadable("something is missing at the end")
        self.position += 1
        if token.kind == "num":
            return self._number(token)
        if token.kind == "sym" or (token.kind == "text" and len(token.text) == 1):
            return self._symbol(token.text)
        if token.kind == "fun":
            return self._function(token.text)
        if token.kind != "op":
            raise Unreadable(f"unexpected {token.text!r}")
        if token.text in _CLOSING:
            tree = self._choice()
            self._take(_CLOSING[token.text])
            return tree
        if token.text in (r"\lfloor", r"\lceil"):
            tree = self._sum()
            self._take(token.text.replace("l", "r", 1))
            return ("fun", "floor" if token.text == r"\lfloor" else "ceil", tree)
        if token.text == "|":
            self.bars += 1
            tree = self._sum()
            self._take("|")
            self.bars -= 1
            return ("fun", "abs", tree)
        if token.text == r"\frac":
            start = self.position
            top, bottom = self._small(), self._small()
            return self._derivative(start) or ("div", top, bottom)
        if token.text == r"\binom":
            return ("fun", "binomial", self._small(), self._small())
        if token.text == r"\sqrt":
            return self._root()
        if token.text == r"\infty":
            return ("const", "inf")
        if token.text in (r"\dot", r"\ddot"):
            return self._decorated("'" if token.text == r"\dot" else "''")
        if token.text in (r"\overline", r"\vec", r"\hat", r"\tilde"):
            return self._decorated(token.text)
        raise Unreadable(f"unexpected {token.text!r}")

    def _number(self, token: Token) -> Tree:
        tree = number_tree(token.text)
        if self._is(r"\overline") and "." in token.text and "e" not in token.text:
            self.position += 1
            digits = self._braced()
            if len(digits) != 1 or not digits[0].text.isdigit():
                raise Unreadable("digits expected under the bar")
            period, places = digits[0].text, len(token.text.partition(".")[2])
            repeated = Fraction(int(period), (10 ** len(period) - 1) * 10**places)
            return ("num", tree[1] + repeated, None)
        if self._is(r"\ldots") and "." in token.text:  # 0.333...
            self.position += 1
        return tree

    def _braced(self) -> list[Token]:
        """Tokens of the brace group here, or the one token."""
        if not self._is("{"):
            token = self._peek()
            if token is None:
                raise Unreadable("something is missing at the end")
            self.position += 1
            return [token]
        depth, start = 0, self.position + 1
        while (token := self._peek()) is not None:
            self.position += 1
            depth += (token.text == "{") - (token.text == "}")
            if depth == 0:
                return self.tokens[start : self.position - 1]
        raise Unreadable("unbalanced braces")

    def _small(self) -> Tree:
        r"""Argument of a command: a group, or one character, as in ``\frac43``."""
        token = self._peek()
        if token is None or closes(token):
            raise Unreadable("an argument is missing")
        if token.kind == "num" and token.text.isdigit() and len(token.text) > 1:
            self.tokens = list(self.tokens)
            self.tokens[self.position : self.position + 1] = [
                Token("num", token.text[0], token.space),
                Token("num", token.text[1:], False),
            ]
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        tree = self._atom()
        self.depth -= 1
        return tree

    def _root(self) -> Tree:
        degree: Tree = ("num", Fraction(2), None)
        if self._is("["):
            self.position += 1
            degree = self._sum()
            self._take("]")
        token = self._peek()
        if token is not None and token.kind == "num":
            self.position += 1
            return ("fun", "root", number_tree(token.text), degree)
        return ("fun", "root", self._small(), degree)

    def _symbol(self, name: str) -> Tree:
        if name == r"\pi":
            return ("const", "pi")
        name = name.replace(r"\imath", "i")
        primes = ""
        subscript = ""
        while True:
            if self._is("'"):
                self.position += 1
                primes += "'"
            elif self._is("_") and not subscript:
                self.position += 1
                subscript = "_" + "".join(token.text for token in self._braced() if token.text not in "{}")
            else:
                break
        if not primes and not subscript and name in ("e", "i"):
            return ("const", name)
        return self._applied(name + subscript + primes)

    def _applied(self, name: str) -> Tree:
        """``I(0)`` is one value, not a product."""
        first, second, third = self._peek(), self._peek(1), self._peek(2)
        if first and second and third and first.text == "(" and second.kind == "num" and third.text == ")":
            self.position += 3
            return ("sym", f"{name}({second.text})")
        return ("sym", name)

    def _decorated(self, mark: str) -> Tree:
        inside = "".join(token.text for token in self._braced())
        if not inside or any(character.isdigit() for character in inside):
            raise Unreadable(f"a symbol expected under {mark!r}")
        subscript = ""
        if self._is("_"):
            self.position += 1
            subscript = "_" + "".join(token.text for token in self._braced() if token.text not in "{}")
        return self._applied(f"{inside}{subscript}{mark}")

    def _derivative(self, start: int) -> Tree | None:
        r"""``\frac{d^2 x}{d t^2}`` is the symbol ``x''``."""
        written = "".join(token.text for token in self.tokens[start : self.position])
        match = re.fullmatch(
            r"\{d(?:\^\{?(\d)\}?)?([A-Za-z](?:_\{?\w+\}?)?|\\[a-z]+)\}\{d([A-Za-z]|\\[a-z]+)(?:\^\{?(\d)\}?)?\}",
            written,
        )
        if match is None or (match.group(1) or "1") != (match.group(4) or "1"):
            return None
        name = match.group(2).replace("{", "").replace("}", "")
        return ("sym", name + "'" * int(match.group(1) or 1))

    def _function(self, name: str) -> Tree:
        power: Tree | None = None
        base: Tree | None = None
        while self._is("^", "_"):
            raised = self._is("^")
            self.position += 1
            if raised and power is None:
                power = self._exponent()
            elif not raised and base is None and name == "log":
                base = self._small_number()
            else:
                raise Unreadable("an index too many")
        if power == ("neg", ("num", Fraction(1), None)) and name in ("sin", "cos", "tan", "cot"):
            name, power = "arc" + name, None
        arguments = self._function_arguments(name)
        if name == "log" and base is not None:
            arguments.append(base)
        tree: Tree
        if name == "exp":
            tree = ("pow", ("const", "e"), arguments[0])
        elif name == "cis":
            tree = ("pow", ("const", "e"), ("mul", ("const", "i"), arguments[0]))
        elif name == "lg":
            tree = ("fun", "log", arguments[0], ("num", Fraction(10), None))
        else:
            tree = ("fun", "ln" if name == "log" and base is None else name, *arguments)
        return tree if power is None else ("pow", tree, power)

    def _small_number(self) -> Tree:
        token = self._peek()
        if token is not None and token.kind == "num":  # \log_2 8, \log_10 x of plain text
            self.position += 1
            return number_tree(token.text)
        return self._small()

    def _function_arguments(self, name: str) -> list[Tree]:
        if name in ("max", "min", "gcd", "lcm"):
            closing = {"(": ")", r"\{": r"\}"}.get(self.tokens[self.position].text) if self._peek() else None
            if closing is None:
                raise Unreadable(f"{name} without brackets")
            self.position += 1
            arguments = [self._sum()]
            while self._is(","):
                self.position += 1
                arguments.append(self._sum())
            self._take(closing)
            return arguments
        if self._is("(", "[", "{", "|"):
            return [self._atom()]
        token = self._peek()
        if token is not None and token.kind == "fun":
            return [self._power()]
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        factors = [self._signed_power()]
        while self._starts_factor() and (token := self._peek()) is not None and token.kind != "fun":
            factors.append(self._power())
        if self._is("/"):
            self.ambiguous = True  # \cos 2\pi/3
            if self.tight:
                self.position += 1
                factors = [("div", ("mul", *factors), self._power())]
        self.depth -= 1
        return [factors[0] if len(factors) == 1 else ("mul", *factors)]


def readings(tokens: list[Token]) -> list[Tree]:
    """The tree of the tokens; two where a slash can be read in two ways.

    Raises:
        Unreadable: they are no expression.
    """
    parser = Parser(tokens)
    trees = [parser.parse()]
    if parser.ambiguous:
        trees.append(Parser(tokens, tight=True).parse())
    return trees
