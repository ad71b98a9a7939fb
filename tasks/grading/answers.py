r"""The shape of an answer: what it lists, and what each thing listed is.

answer      = one thing, or several (listed, in set braces, or told apart by \pm)
thing       = value, tuple or interval, set, union, relation, ratio, number in a base, matrix
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from fractions import Fraction

from tasks.grading.latex import (
    BARE_UNITS,
    CONNECTIVES,
    TRIGONOMETRIC,
    Token,
    Tree,
    Unreadable,
    closes,
    opens,
    readings,
    tokenize,
)
from tasks.grading.values import same_number, symbols

MAX_ANSWERS = 64
_RELATIONS = {"=", "<", ">", r"\le", r"\ge", r"\ne", r"\approx", r"\in", r"\notin", ":="}
_MATRICES = {"pmatrix", "bmatrix", "matrix", "Bmatrix", "smallmatrix", "array"}
_LISTS = {"cases", "aligned", "align", "gathered", "split", "array", "rcases", "dcases"}
_CONDITIONS = re.compile(r"\s*for (?:all|any|every|each|some)\b|\s*for\b|\s*where\b|\s*with\b|\s*only\b")
_COMPARING = {"<", ">", r"\le", r"\ge", r"\ne"}
# Words that lead to the answer: "The answer is", "Total:", "all". Those that change its meaning are not among them.
_LEADS = r"[A-Za-z' ]{0,60}(?:\b(?:is|are|answer|be)|(?<=[A-Za-z]{3}):)\s*:?"
_KINDS = (
    r"(?:for )?(?:all|any|every)|[Tt]he (?:constant |identity |only )?(?:function|polynomial|point|pair|interval|set)"
)
_LEADING = re.compile(rf"(?:\\text\w*\s*\{{(?:{_LEADS}|\s*(?:{_KINDS}))\s*\}}\s*:?|{_LEADS}(?<=[\s:]))(?=\s*[^\s.:}}])")
_CHANGING = re.compile(r"\b(?:not|no|never|least|most|more|less|than|about|between|except|approximately|n't)\b", re.I)


@dataclass(frozen=True)
class Value:
    """A number or an expression, with what was written around it.

    Attributes:
        trees: its readings; the second takes a slash to divide by the whole product after it.
        unit: words after it, in canonical form; "%" and "deg" are the percent and degree signs.
    """

    trees: tuple[Tree, ...]
    unit: str = ""


@dataclass(frozen=True)
class Group:
    """Bracketed things in order: a tuple, a point, an interval; for "{" a set, in which order does not count."""

    left: str
    right: str
    items: tuple[Thing, ...]


@dataclass(frozen=True)
class Union:
    """Sets of real numbers joined by a union sign, or by "or"."""

    parts: tuple[Thing, ...]


@dataclass(frozen=True)
class Meet:
    """Sets of real numbers, or conditions, that all hold."""

    parts: tuple[Thing, ...]


@dataclass(frozen=True)
class Without:
    """A set of real numbers without another."""

    whole: Thing
    left_out: Thing


@dataclass(frozen=True)
class Named:
    """``name = thing``, or ``name in thing``. ``kind``: variable, function or other; ``tree``: lhs - rhs, if any."""

    name: str
    kind: str
    thing: Thing
    left: tuple[Tree, ...] = ()


@dataclass(frozen=True)
class Equation:
    """Two sides of which neither is a mere name; ``left`` and ``right`` in their readings."""

    left: tuple[Tree, ...]
    right: tuple[Tree, ...]
    thing: Thing | None = None


@dataclass(frozen=True)
class Inequality:
    """A chain such as ``a < x <= b``: its sides and its signs."""

    sides: tuple[tuple[Tree, ...], ...]
    signs: tuple[str, ...]


@dataclass(frozen=True)
class Ratio:
    """``3:2``, or a time of day."""

    parts: tuple[Value, ...]
    written: str


@dataclass(frozen=True)
class Based:
    """A number in a base."""

    digits: str
    base: int


@dataclass(frozen=True)
class Matrix:
    """Rows of things."""

    rows: tuple[tuple[Thing, ...], ...]


@dataclass(frozen=True)
class Known:
    """One of the sets R, Z, N, Q, C; "empty"; "+inf" and "-inf"."""

    name: str


@dataclass(frozen=True)
class Approximate:
    r"""``\frac{1}{3} \approx 0.333``: a thing, and what it is rounded to."""

    thing: Thing
    rounded: Value


Thing = (
    Value
    | Group
    | Union
    | Meet
    | Without
    | Named
    | Equation
    | Inequality
    | Ratio
    | Based
    | Matrix
    | Known
    | Approximate
)


@dataclass(frozen=True)
class Answer:
    """Everything that an answer lists. ``joined``: what stands between the things: "or", "and", or commas."""

    things: tuple[Thing, ...]
    joined: str = ","


def plain_words(text: str) -> str:
    r"""An answer as words: without case, markup, brackets, spaces and punctuation at its ends."""
    text = re.sub(
        r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname|boxed|emph|left|right)\b\*?", "", text
    )
    text = re.sub(r"\\[,;:! ]|\\q?quad|[{}$~]", " ", text)
    text = re.sub(r"\s+", " ", text).strip(" .,;:").casefold()
    inner = re.fullmatch(r"(?:(?:option|choice|answer|graph|figure) ?:? ?)?\(?([a-z])\)?", text)
    if inner:
        return inner.group(1)
    return re.sub(r"\s*([^\w\s])\s*", r"\1", re.sub(r"^(?:an?|the) (?=\w\w)", "", _SUBJECT.sub("", text)))


# "The function is even", "f is even": what it is said of. Words that may deny it are not among them.
_SUBJECT = re.compile(
    r"^(?:it|this|[a-z](?: ?\([a-z]\))?|the (?:answer|function|graph|curve|figure|conic|shape|number|sequence)) is "
)


def read(text: str, several: bool | None = None, units: bool = True) -> Answer:
    """The shape of an answer.

    Args:
        text: the answer.
        several: whether ``1,234`` is a list; None or False: it is a number, when it can be one.
        units: whether short bare words such as ``mg`` are units.

    Raises:
        Unreadable: it has none that is known.
    """
    if not several:
        text = _join_thousands(text)
    tokens = _with_joined_sets(_of_french_schools(tokenize(_without_leading_words(text), units)))
    if not tokens:
        raise Unreadable("empty")
    tokens = _condition_of_set(tokens) or _unwrap(tokens)
    things: list[Thing] = []
    for part in _expand(tokens):
        things.extend(_things(part))
        if len(things) > MAX_ANSWERS:
            raise Unreadable("too many answers")
    if not things:
        raise Unreadable("empty")
    between = {token.text for token in _outside(tokens)}
    joined = "or" if between & {"or", r"\or"} else "and" if between & {"and", r"\and"} else ","
    return Answer(tuple(things), joined)


def _without_leading_words(text: str) -> str:
    match = _LEADING.match(text)
    return text if match is None or _CHANGING.search(match.group()) else text[match.end() :]


def _of_french_schools(tokens: list[Token]) -> list[Token]:
    r"""``]0,1[`` as ``(0,1)``, also in a union and after ``x \in``."""
    place = next((index for index, token in enumerate(tokens) if token.text in (r"\cup", r"\in")), None)
    if place is not None:
        return [*_of_french_schools(tokens[:place]), tokens[place], *_of_french_schools(tokens[place + 1 :])]
    if len(tokens) < 3 or {"[", "]"} & {token.text for token in tokens[1:-1]}:
        return tokens
    left, right = tokens[0].text, tokens[-1].text
    if (left == "]" and right in ("[", "]", ")")) or (left in "([" and right == "["):
        return [Token("op", "(" if left == "]" else left), *tokens[1:-1], Token("op", ")" if right == "[" else right)]
    return tokens


def _with_joined_sets(tokens: list[Token]) -> list[Token]:
    r"""``\{1\} \cup \{2, 3\}`` as ``\{1, 2, 3\}``."""
    if any(token.text in (":", "|") for token in tokens):
        return tokens
    joined: list[Token] = []
    for token in tokens:
        if token.text == r"\{" and [one.text for one in joined[-2:]] == [r"\}", r"\cup"]:
            joined[-2:] = [Token("op", ",")]
        else:
            joined.append(token)
    return joined


def _condition_of_set(tokens: list[Token]) -> list[Token] | None:
    r"""The condition of ``\{x : x > 2\}``, ``\{x \in \mathbb{R} \mid x > 2\}``; None for all that is no such set."""
    if tokens and tokens[0].text != r"\{":
        sides = _split(tokens, r"\in", "=") if tokens[-1].text == r"\}" else []
        if len(sides) == 2 and sides[1] and _is_name(sides[0]):
            tokens = sides[1]
    if len(tokens) < 5 or tokens[0].text != r"\{" or _match(tokens, 0) != len(tokens) - 1:
        return None
    inner = tokens[1:-1]
    place = next((index for index, token in enumerate(inner) if token.text in (":", "|")), None)
    if place is None or not any(token.text in _COMPARING | {r"\in"} for token in inner[place + 1 :]):
        return None
    name, *numbers = _split(inner[:place], r"\in")
    real = [token.text for part in numbers for token in part] in ([], ["R"])
    return inner[place + 1 :] if real and _is_name(name) == "variable" else None


_THOUSANDS = re.compile(r"(?<![\d,.])([1-9]\d{0,2}(?:,\d{3})+)(?![\d,]|\s*,\s*\d)")


def _join_thousands(text: str) -> str:
    """``10,000`` is a number where it stands alone: not inside brackets, and not in a list of others."""
    bare = re.sub(r"\\(?:left|right|text|mathrm|mbox|textbf|boxed|mathbf|frac|dfrac|tfrac|sqrt)\b", "", text)
    if re.search(r"[(\[]|\\\{", bare):
        return text
    matches = list(_THOUSANDS.finditer(text))
    outside = _THOUSANDS.sub("", text)
    if not matches or "," in outside:
        return text
    return _THOUSANDS.sub(lambda match: match.group().replace(",", ""), text)


def _unwrap(tokens: list[Token]) -> list[Token]:
    """Without braces around the whole."""
    while len(tokens) >= 2 and tokens[0].text in ("{", r"\{") and _match(tokens, 0) == len(tokens) - 1:
        if tokens[0].text == r"\{" and len(tokens) == 2:
            return [Token("op", r"\emptyset")]
        tokens = tokens[1:-1]
    return tokens


def _match(tokens: list[Token], start: int) -> int:
    """Where the bracket that opens at ``start`` closes."""
    depth = 0
    for index in range(start, len(tokens)):
        depth += opens(tokens[index]) - closes(tokens[index])
        if depth == 0:
            return index
    raise Unreadable("unbalanced brackets")


def _split(tokens: list[Token], *separators: str) -> list[list[Token]]:
    """Pieces between separators outside all brackets."""
    pieces: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += opens(token) - closes(token)
        if depth < 0:
            raise Unreadable("unbalanced brackets")
        if depth == 0 and token.text in separators and token.kind in ("op", "text"):
            pieces.append([])
        else:
            pieces[-1].append(token)
    if depth:
        raise Unreadable("unbalanced brackets")
    return pieces


def _expand(tokens: list[Token]) -> list[list[Token]]:
    r"""One token list for each choice of signs, list by list: ``1 \pm a, b`` gives three things in two lists."""
    pieces = _split(tokens, ",", ";", "and", "or", r"\or", r"\and")
    pieces = [piece for piece in pieces if piece]
    result: list[list[Token]] = []
    for piece in pieces:
        places = [index for index, token in enumerate(piece) if token.text in (r"\pm", r"\mp")]
        if not places:
            result.append(piece)
            continue
        if len(places) > 4:
            raise Unreadable("too many signs")
        together = any(piece[index].text == r"\mp" for index in places)
        choices = (
            [("+",) * len(places), ("-",) * len(places)] if together else itertools.product("+-", repeat=len(places))
        )
        for signs in choices:
            copy = list(piece)
            for index, sign in zip(places, signs, strict=True):
                opposite = {"+": "-", "-": "+"}[sign]
                copy[index] = Token("op", sign if piece[index].text == r"\pm" else opposite, piece[index].space)
            result.append(copy)
    return result


def _things(tokens: list[Token]) -> list[Thing]:
    """What one piece of a list is: mostly one thing; several for a list inside a command or after a name."""
    tokens = _without_condition(tokens)
    if not tokens or tokens[0].text == r"\forall":
        return []
    if tokens[0].text.startswith(r"\begin:") and _match(tokens, 0) == len(tokens) - 1:
        name = tokens[0].text.partition(":")[2]
        if name in _LISTS and not (name == "array" and any(token.text == "&" for token in tokens)):
            rows = _split(tokens[1:-1], "\\\\", ",", ";")
            return [
                thing
                for row in rows
                for thing in _things([token for token in row if token.text not in ("&", r"\and")])
                if row
            ]
    if tokens[0].text == r"\{" and _match(tokens, 0) == len(tokens) - 1 and len(tokens) > 2:
        return [thing for piece in _expand(tokens[1:-1]) for thing in _things(piece)]
    if len(names := _split(tokens, r"\in")) == 2 and names[1] and names[1][0].text == r"\{" and _is_name(names[0]):
        return _things(names[1])
    if len(names := _split(tokens, "=")) == 2 and names[1] and names[1][0].text == r"\{" and _is_name(names[0]):
        return _things(names[1])
    return [_thing(tokens)]


def _without_condition(tokens: list[Token]) -> list[Token]:
    """Without "for all x" and its like at the end, and without ``(x > 0)`` after an equation."""
    for index, token in enumerate(tokens):
        if index and (token.text == r"\forall" or (token.kind == "text" and _CONDITIONS.match(token.text + " "))):
            return tokens[:index]
    texts = [token.text for token in tokens]
    if texts[-1:] == [")"] and "=" in texts and _COMPARING & set(texts):
        start = next((index for index in range(len(tokens)) if _ends_at(tokens, index)), 0)
        if "=" in texts[:start] and _COMPARING & set(texts[start:]):
            return tokens[:start]
    return tokens


def _ends_at(tokens: list[Token], start: int) -> bool:
    """Whether the bracket that opens here closes at the very end."""
    return tokens[start].text == "(" and _match(tokens, start) == len(tokens) - 1


def _thing(tokens: list[Token]) -> Thing:
    if not tokens:
        raise Unreadable("something is missing")
    relations = [token for token in _outside(tokens) if token.kind == "op" and token.text in _RELATIONS]
    if relations:
        return _relation(tokens)
    if any(token.text == r"\cup" for token in _outside(tokens)):
        return Union(tuple(_thing(part) for part in _split(tokens, r"\cup")))
    if any(token.text == r"\cap" for token in _outside(tokens)):
        return Meet(tuple(_thing(part) for part in _split(tokens, r"\cap")))
    tokens = _with_difference(tokens)
    pieces = _split(tokens, r"\setminus")
    if len(pieces) == 2 and all(pieces):
        return Without(_thing(pieces[0]), _thing(pieces[1]))
    if (known := _known(tokens)) is not None:
        return known
    if (grouped := _group(tokens)) is not None:
        return grouped
    if (turned := _transposed(tokens)) is not None:
        return turned
    if any(token.text == ":" for token in _outside(tokens)):
        parts = _split(tokens, ":")
        written = "".join(token.text for token in tokens)
        return Ratio(tuple(_value(part) for part in parts), written)
    if (based := _based(tokens)) is not None:
        return based
    if (multiple := _multiple(tokens)) is not None:
        return multiple
    named = tokens[0].kind == "sym" and tokens[0].text.isupper() and len(tokens) > 2 and _ends_at(tokens, 1)
    if named and isinstance(point := _group(tokens[1:]), Group):  # P(2, 4)
        return Named(tokens[0].text, "other", point)
    return _value(tokens)


def _with_difference(tokens: list[Token]) -> list[Token]:
    r"""``(2,9) - \{5\}``, ``\mathbb{R} - \{0\}`` with the sign of a difference of sets."""
    for index, (before, sign, after) in enumerate(zip(tokens, tokens[1:], tokens[2:], strict=False), start=1):
        if sign.text == "-" and after.text == r"\{" and (before.kind == "set" or closes(before)):
            return [*tokens[:index], Token("op", r"\setminus"), *tokens[index + 1 :]]
    return tokens


def _outside(tokens: list[Token]) -> list[Token]:
    """Tokens outside all brackets."""
    result = []
    depth = 0
    for token in tokens:
        depth += opens(token)
        if depth == 0:
            result.append(token)
        depth -= closes(token)
    return result


def _known(tokens: list[Token]) -> Known | None:
    if len(tokens) == 1 and tokens[0].kind == "set":
        return Known(tokens[0].text)
    if len(tokens) == 1 and tokens[0].text == r"\emptyset":
        return Known("empty")
    if [token.text.casefold() for token in tokens] in (["none"], ["no solution"], ["no solutions"], ["no", "solution"]):
        return Known("empty")
    if [token.text.casefold() for token in tokens] in (["all real numbers"], ["all reals"]):
        return Known("R")
    if [token.text.casefold() for token in tokens] == ["infinity"]:
        return Known("+inf")
    if tokens[-1].text == r"\infty" and len(tokens) == 1 + (tokens[0].text in "+-"):
        return Known("-inf" if tokens[0].text == "-" else "+inf")
    return None


def _group(tokens: list[Token]) -> Thing | None:
    """A matrix, set, tuple or interval; None when the tokens are none of these."""
    first = tokens[0]
    if not opens(first) or first.text in (r"\lfloor", r"\lceil") or _match(tokens, 0) != len(tokens) - 1:
        return None
    if first.text.startswith(r"\begin:"):
        if first.text.partition(":")[2] not in _MATRICES:
            raise Unreadable(f"{first.text} is not known")
        rows = [row for row in _split(tokens[1:-1], "\\\\") if row]
        return Matrix(tuple(tuple(_thing(cell) for cell in _split(row, "&", r"\and")) for row in rows))
    if first.text == "{":
        return _thing(tokens[1:-1]) if len(tokens) > 2 else None
    pieces = _split(tokens[1:-1], ",", ";")
    if first.text == r"\{":
        return Group("{", "}", tuple(thing for piece in _expand(tokens[1:-1]) for thing in _things(piece)))
    if len(pieces) == 1:
        inner = _outside(tokens[1:-1])
        if first.text in ("(", "[") and len(tokens) > 2 and opens(tokens[1]) and tokens[1].text.startswith(r"\begin:"):
            return _group(tokens[1:-1])
        if any(token.text == ":" for token in inner):
            return _thing(tokens[1:-1])
        return None
    if any(not piece for piece in pieces):
        raise Unreadable("an empty place between brackets")
    return Group(first.text, tokens[-1].text, tuple(_thing(piece) for piece in pieces))


def _transposed(tokens: list[Token]) -> Thing | None:
    r"""``(1, 2)^T`` as a point, as which a column may be written; the rows of a matrix as columns."""
    place = next((index for index in range(len(tokens) - 1, 0, -1) if tokens[index].text == "^"), 0)
    if not place or [token.text for token in tokens[place + 1 :] if token.text not in "{}"] not in _TRANSPOSED:
        return None
    thing = _group(tokens[:place])
    if isinstance(thing, Group) and (thing.left, thing.right) in (("(", ")"), ("[", "]")):
        return Group("(", ")", thing.items)
    if isinstance(thing, Matrix) and len({len(row) for row in thing.rows}) == 1:
        return Matrix(tuple(zip(*thing.rows, strict=True)))
    return None


_TRANSPOSED = (["T"], ["t"], [r"\top"], [r"\intercal"])


def _multiple(tokens: list[Token]) -> Matrix | Group | None:
    r"""``\frac{1}{5}\begin{pmatrix} 1 \\ -18 \end{pmatrix}``, ``\frac{1}{5}(1, -18)^T``, multiplied out."""
    place = next((index for index, token in enumerate(tokens) if token.text.startswith(r"\begin:")), 0)
    while place and tokens[place - 1].text in ("(", "["):
        place -= 1
    if not place:
        depths = list(itertools.accumulate(opens(token) - closes(token) for token in tokens))
        start = [index for index, token in enumerate(tokens) if token.text == "(" and depths[index] == 1]
        place = start[-1] if start else 0
    if not place or tokens[place - 1].kind == "fun":  # \gcd(12, 18)
        return None
    thing, factor = _group(tokens[place:]) or _transposed(tokens[place:]), tokens[:place]
    if not isinstance(thing, Matrix | Group) or (isinstance(thing, Group) and (thing.left, thing.right) != ("(", ")")):
        return None
    if factor[-1].text == "*" and len(factor) > 1:
        factor = factor[:-1]
    if [token.text for token in factor] == ["-"]:
        factor = [*factor, Token("num", "1")]
    (tree,) = readings(factor)[:1]
    if isinstance(thing, Group):
        return None if symbols(tree) else Group("(", ")", _times(tree, thing.items))
    return Matrix(tuple(_times(tree, row) for row in thing.rows))


def _times(factor: Tree, things: tuple[Thing, ...]) -> tuple[Thing, ...]:
    if not all(isinstance(thing, Value) for thing in things):
        raise Unreadable("a multiple of what is no number")
    return tuple(Value(tuple(("mul", factor, tree) for tree in one.trees)) for one in things if isinstance(one, Value))


def _based(tokens: list[Token]) -> Based | None:
    sign = ""
    if tokens[0].text == "-":
        sign, tokens = "-", tokens[1:]
    if len(tokens) > 4 and tokens[0].text == "(" and tokens[2].text == ")":  # (4210)_5
        tokens = [tokens[1], *tokens[3:]]
    if len(tokens) < 3 or tokens[0].kind != "num" or tokens[1].text != "_":
        return None
    rest = [token for token in tokens[2:] if token.text not in ("{", "}", "(", ")", "base")]
    words = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
    words |= {"eleven": 11, "twelve": 12, "sixteen": 16}
    written = "".join(token.text for token in rest).rstrip(".")
    if written.isdigit() and len(written) < 4:
        return Based(sign + tokens[0].text, int(written))
    return Based(sign + tokens[0].text, words[written]) if written in words else None


# --- relations -------------------------------------------------------------------------------------------------------


def _is_name(tokens: list[Token]) -> str:
    r"""What kind of name the tokens are: variable, function, other, or "" for none.

    ``x``, ``m_{\max}``: variable. ``f(x)``, ``P(A)``: function. ``(x, y)``, ``AB``, ``\angle ABC``, words: other.
    """
    if not tokens:
        return "other"
    outside = _outside(tokens)
    numbers = [token for before, token in itertools.pairwise([None, *outside]) if before is None or before.text != "_"]
    if any(token.kind == "set" for token in outside) or any(token and token.kind == "num" for token in numbers):
        return ""
    rest = tokens
    if rest[0].kind == "sym" or (rest[0].kind == "text" and len(rest[0].text) == 1):
        index = 1
        while index < len(rest) and rest[index].text in ("_", "'"):
            index += 1 if rest[index].text == "'" else 2
            if index - 1 < len(rest) and rest[index - 1].text == "{":
                index = _match(rest, index - 1) + 1
        if index >= len(rest):
            return "variable"
        if rest[index].text == "(" and _match(rest, index) == len(rest) - 1:
            return "function"
    if all(token.kind == "sym" and token.text.isupper() for token in rest):
        return "other"
    if rest[0].text == "|" == rest[-1].text and {token.text for token in rest} & {r"\cup", r"\cap", r"\setminus"}:
        return "other"  # the size of a set
    if all(token.kind == "text" for token in rest) or rest[0].text in (r"\angle", r"\triangle", r"\overline"):
        return "other"
    if rest[0].text == "(" and _match(rest, 0) == len(rest) - 1:
        parts = _split(rest[1:-1], ",")
        if len(parts) > 1 and all(_is_name(part) == "variable" for part in parts):
            return "other"
    return ""


def _written(tokens: list[Token]) -> str:
    return "".join(token.text for token in tokens if token.text not in "{}")


def _relation(tokens: list[Token]) -> Thing:
    tokens = [Token("op", "=") if token.text == ":=" else token for token in tokens]
    signs = [token.text for token in _outside(tokens) if token.kind == "op" and token.text in _RELATIONS]
    sides = [_letters(side) for side in _split(tokens, *_RELATIONS)]
    if r"\approx" in signs:
        return _approximate(sides, signs)
    if signs[-1] == r"\in" and len(signs) == 1:
        if not (kind := _is_name(sides[0])):
            raise Unreadable("what is no name is in a set")
        return Named(_written(sides[0]), kind, _thing(sides[1]))
    if signs == [r"\notin"] and _is_name(sides[0]) == "variable":
        return Named(_written(sides[0]), "variable", Without(Known("R"), _thing(sides[1])))
    if set(signs) <= {"<", ">", r"\le", r"\ge"} or signs == [r"\ne"]:
        return Inequality(tuple(_side(side) for side in sides), tuple(signs))
    if set(signs) != {"="}:
        raise Unreadable("a mixture of relations")
    right = _thing(sides[-1])
    _check_chain(sides[1:-1], right)
    first = sides[0]
    kind = _is_name(first)
    left: tuple[Tree, ...] = ()
    try:
        left = tuple(readings(first))
    except Unreadable:
        if not kind:
            raise
    if kind == "other" == _is_name(sides[-1]) and left and isinstance(right, Value):
        return Equation(left, right.trees)  # MR = MC
    if kind:
        return Named(_written(first), kind, right, left)
    if isinstance(right, Value):
        return Equation(left, right.trees, right)
    if left and not symbols(left[0]):
        raise Unreadable("a number and what is none")
    return Named(_written(first), "other", right, left)


def _letters(side: list[Token]) -> list[Token]:
    r"""``\text{LRAC}`` as its letters, as the other side may have it."""
    if len(side) == 1 and side[0].kind == "text" and len(side[0].text) > 1 and side[0].text.isupper():
        return [Token("sym", letter) for letter in side[0].text]
    return side


def _side(tokens: list[Token]) -> tuple[Tree, ...]:
    """A side of an inequality; a bound on ``f(x)`` is a bound on one symbol."""
    return (("sym", _written(tokens)),) if _is_name(tokens) == "function" else tuple(readings(tokens))


def _check_chain(middle: list[list[Token]], last: Thing) -> None:
    """Between the first sign and the last: what is a number must be the last one: ``x = 6 = 5`` offers two answers."""
    for side in middle:
        if _is_name(side) == "other":
            continue
        trees = readings(side)
        if symbols(trees[0]):
            continue
        ends = last.trees if isinstance(last, Value) and not symbols(last.trees[0]) else ()
        if not any(same_number(a, b) for a in trees for b in ends):
            raise Unreadable("sides that differ")


def _approximate(sides: list[list[Token]], signs: list[str]) -> Thing:
    r"""``\approx 3.14``, ``x \approx 3.14``: the number. ``x = \pi/4 \approx 0.785``: both."""
    cut = signs.index(r"\approx")
    if cut < len(signs) - 1:
        raise Unreadable("a relation after a rounded value")
    head: list[Token] = []
    for index, side in enumerate(sides[: cut + 1]):
        head.extend([Token("op", signs[index - 1])] if index else [])
        head.extend(side)
    rounded = _thing(sides[-1])
    if not head or _is_name(head):
        return rounded
    if not isinstance(rounded, Value):
        raise Unreadable("rounded to what is no number")
    return Approximate(_thing(head), rounded)


# --- values ----------------------------------------------------------------------------------------------------------

_CURRENCY = {r"\$", "€", "£", "¥", "₹", r"\pounds", r"\euro", "USD"}
_NO_UNIT = {"unit", "square unit", "cubic unit"}
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_ALIASES = {
    "inch": "in", "inches": "in", "feet": "ft", "foot": "ft", "degrees": "deg", "degree": "deg", "percent": "%",
    "minutes": "min", "minute": "min", "mins": "min", "hours": "h", "hour": "h", "hrs": "h", "seconds": "s",
    "second": "s", "secs": "s", "meter": "m", "meters": "m", "metre": "m", "metres": "m", "dollars": "$",
    "dollar": "$", "usd": "$", "centimeters": "cm", "centimeter": "cm", "kilometers": "km", "kilometer": "km",
    "miles per hour": "mph", "liters": "L", "litres": "L", "radians": "rad",
}  # fmt: skip
_NOT_UNITS = re.compile(
    r"\b(?:or|and|not|than|least|most|more|less|about|is|are|if|when|approximately|undefined|answer|between|to|none"
    r"|true|false|impossible|exactly|only|also|but|either|neither|mod|choose)\b",
    re.IGNORECASE,
)
_SINGLE_UNITS = set("mshgLNJWVAKCFTPHA")


def _value(tokens: list[Token]) -> Value:
    unit = ""
    if tokens and tokens[0].text in _CURRENCY:
        tokens, unit = tokens[1:], "$"
    elif len(tokens) > 1 and tokens[0].text in "+-" and tokens[1].text in _CURRENCY:
        tokens, unit = [tokens[0], *tokens[2:]], "$"
    tokens, scale, after = _split_unit(tokens)
    if not tokens:
        raise Unreadable("a unit without a value")
    trees = tuple(readings(tokens))
    if scale:
        trees = tuple(("mul", tree, ("num", Fraction(10) ** scale, None)) for tree in trees)
    return Value(trees, after or unit)


def _split_unit(tokens: list[Token]) -> tuple[list[Token], int, str]:
    """The tokens without the unit at their end, a power of ten that stands in words, and the unit."""
    depth = 0
    for index, token in enumerate(tokens):
        depth += opens(token) - closes(token)
        if depth or index == 0:
            continue
        if token.text == r"\DEG" and (_has_angle(tokens) or not all(map(_is_unit, tokens[index + 1 :]))):
            continue  # an angle inside a formula
        if token.text in ("%", r"\DEG") or token.text in _CURRENCY or _is_unit(token):
            return tokens[:index], *_unit(tokens[index:])
        if token.text == r"\frac" and (quotient := _unit_quotient(tokens[index:])):
            return tokens[:index], 0, quotient
    return tokens, 0, ""


def _unit_quotient(tokens: list[Token]) -> str:
    r"""``\frac{\text{m}}{\text{s}^2}`` as "m/s"; empty for anything else."""
    if len(tokens) < 6 or tokens[1].text != "{":
        return ""
    end = _match(tokens, 1)
    parts = (tokens[2:end], tokens[end + 1 :])
    for part in parts:
        if not any(_is_unit(token) for token in part):
            return ""
        if not all(_is_unit(token) or token.text in ("{", "}", "^", "2", "3") for token in part):
            return ""
    return "/".join(_unit([token for token in part if token.kind == "text"])[1] for part in parts)


def _has_angle(tokens: list[Token]) -> bool:
    return any(token.kind == "fun" and token.text in TRIGONOMETRIC for token in tokens)


def _is_unit(token: Token) -> bool:
    if token.kind != "text" or token.text in CONNECTIVES or _NOT_UNITS.search(token.text):
        return False
    return len(token.text) > 1 or token.text in _SINGLE_UNITS or token.text in BARE_UNITS


def _unit(tokens: list[Token]) -> tuple[int, str]:
    """Scale and canonical name. Powers and the words square and cubic do not count."""
    scale = 0
    words: list[str] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.kind == "text":
            if not _is_unit(token):
                raise Unreadable(f"{token.text!r} is no unit")
            for word in token.text.split():
                if word.lower() in _SCALES and not words:
                    scale += _SCALES[word.lower()]
                else:
                    words.append(word)
        elif token.text in ("%", r"\DEG"):
            words.append("%" if token.text == "%" else "deg")
        elif token.text in _CURRENCY:
            words.append("$")
        elif token.text == "^":  # cm^2, s^{-1}
            index += 1
            if index < len(tokens) and tokens[index].text == "{":
                index = _match(tokens, index)
        elif token.text in ("/", "*", "-", ".", "(", ")", "{", "}") or token.kind == "sym":
            if token.text == "/" or token.kind == "sym":
                words.append(token.text)
        else:
            raise Unreadable(f"unexpected {token.text!r} after a unit")
        index += 1
    kept = [word for word in words if word.lower() not in ("square", "cubic", "sq", "sq.")]
    name = " ".join(kept)
    name = _ALIASES.get(name.lower(), name)
    name = " ".join(_ALIASES.get(word.lower(), word) for word in name.split())
    return scale, "" if name.lower().rstrip("s") in _NO_UNIT else name.replace(" / ", "/")
