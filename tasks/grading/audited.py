"""The audited grader: reads the box, and compares what stands in it with the gold by stated rules.

docs/grading.md argues every rule.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction

from tasks.grading.answers import (
    Answer,
    Approximate,
    Based,
    Equation,
    Group,
    Inequality,
    Known,
    Matrix,
    Meet,
    Named,
    Ratio,
    Thing,
    Union,
    Value,
    Without,
    plain_words,
    read,
)
from tasks.grading.extract import last_box
from tasks.grading.latex import MAYBE_SYMBOLS, Tree, Unreadable
from tasks.grading.realsets import RealSet, real_set
from tasks.grading.repairs import repaired
from tasks.grading.rules import Rule, rule_of
from tasks.grading.types import RIGHT, Judgement, error, wrong
from tasks.grading.values import (
    Undecided,
    Undefined,
    about_equal,
    compare_numbers,
    exact,
    same_equation,
    same_function,
    same_number,
    same_up_to_factor,
    substitute,
    symbols,
)

MAX_CHARACTERS = 10_000
_REMEMBERED = 50_000
_INTEGER = re.compile(r"[+-]?\d{1,30}")
_TIME = re.compile(r"\d{1,2}:\d\d")
_MARKUP = re.compile(r"(?<!\\)\$")
_ONE: Tree = ("num", Fraction(1), None)


class AuditedGrader:
    """Judges by the rules of a task, and remembers what it has judged."""

    def __init__(self) -> None:
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 6000))
        self._known: dict[tuple[Rule, str, str], Judgement] = {}

    def __call__(self, gold: str, response: str, task: str | None) -> Judgement:
        """Judge a whole response."""
        answer = last_box(response)
        if answer is None:
            return wrong("no box")
        if len(answer) > MAX_CHARACTERS:
            return wrong(f"the answer is longer than {MAX_CHARACTERS} characters")
        rule = rule_of(task)
        key = (rule, gold, answer)
        if key not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = judge(gold, answer, rule)
        return self._known[key]


def judge(gold: str, answer: str, rule: Rule) -> Judgement:
    """Judge the content of a box."""
    try:
        return _judge(gold, answer, rule)
    except Undefined:
        return wrong("undefined")
    except Undecided as caught:
        return error(f"cannot be decided: {caught}")
    except RecursionError:
        return error("nested too deeply")


def _judge(gold: str, answer: str, rule: Rule) -> Judgement:
    gold, answer = gold.strip(), " ".join(answer.split())  # ten thousand spaces are one
    if not gold:
        return error("the gold is empty")
    if _INTEGER.fullmatch(gold) and _INTEGER.fullmatch(answer):
        return RIGHT if int(gold) == int(answer) else wrong("not equal")
    judgement = _judge_reading(gold, answer, rule)
    if judgement.verdict == "wrong":
        for other_gold, other_answer, units in _other_readings(gold, answer):
            if _judge_reading(other_gold, other_answer, rule, units).verdict == "right":
                return RIGHT
    return judgement


# "(A) 27": the letter of a choice before its text, which must be one thing and no second thought.
_CHOICE = re.compile(
    r"(?:(?P<open>\\(?:text\w*|math\w+|mbox)\s*\{\s*)?(?:\((?P<a>[A-E])\)|(?P<b>[A-E])[.:)])\s*(?P<close>\})?"
    r"|\(\\(?:text\w*|math\w+)\s*\{(?P<c>[A-E])\}\))(?:\\[ ,;:!]|\\q?quad|~|:|\.|\s)*(?P<text>.+)"
)
_CHOSEN = re.compile(
    r"(?!.*(?:\([A-E]\)|\b(?:or|and|not|if|is|wrong)\b))(?:[-\d.($]|\\(?:[dt]?frac|sqrt|pi|\$)|[A-Za-z ]+\}?$)"
)
_CHOICE_AFTER = re.compile(
    r"(?P<text>[^,;]*[\d}])(?:\\[ ,;:]|\\q?quad|~|\s)*\\(?:text\w*|math\w+)\s*\{\s*\([A-E]\)\s*\}"
)
# 5.5e-19\,J: after a number and a space that was asked for, where the gold has no letters.
_SHORT_UNIT = re.compile(r"(?<=[\d}])(?:\\[,;: ]|~)\s*(?:[JNKWVATCmsgL]|Pa|Hz|kg|eV)$")
# "all integers k >= 2", where the gold states the inequality; "all real x > 3" for a set too.
_OF_NUMBERS = re.compile(
    r"\\text\w*\s*\{\s*(?:for )?(?:all|any|every) (?:(?:positive |natural |whole )?(?:integers?|numbers?)"
    r"|(?P<real>reals?(?: numbers?)?))\s*\}(?:\\[,;: ]|~|\s)*"
    r"(?:[A-Za-z]\s*\\text\w*\s*\{\s*(?:such that|with|satisfying|where)\s*\})?(?P<condition>.+)"
)
_ORDER = re.compile(r"[<>]|\\[lg](?:eq?|eqslant|t)(?![A-Za-z])")
# a = b = 3 as a = 3, b = 3.
_SAME_FOR_ALL = re.compile(r"(?P<names>(?:(?!\s*\d)(?=[^=]*[A-Za-z])[A-Za-z\d\\{}_'() ]+=){2,})(?P<value>[^=,;<>]+)")
_UNIT_VECTOR = re.compile(
    r"(?P<factor>[+-]?[^+-]*?)\\(?:mathbf|boldsymbol|bm|(?:wide)?hat|vec)[\s{]*(?:\\(?:mathbf|boldsymbol|bm)[\s{]*)?"
    r"\\?(?P<name>[ijk])(?:math)?(?![a-z])[\s}]*"
)
_LOGARITHM = re.compile(r"\\log(?![A-Za-z])(?!\s*_)")
_DECIMAL_LOGARITHM = re.compile(r"\\log\s*_\s*(?:\{\s*10\s*\}|10)")
_OF_TIME = re.compile(r"\s*(?:\\left)?\(\s*t\s*(?:\\right)?\)")
_DERIVATIVE = re.compile(r"\\d?dot\b|\\prime|'|\\frac\{\s*d")
_MAYBE_SYMBOLS = re.compile(rf"(?<![\\A-Za-z])(?:{'|'.join(sorted(MAYBE_SYMBOLS))})(?![A-Za-z])")
_LIST_OF_THOUSANDS = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?!\d|[.,]\d)")


def _other_readings(gold: str, answer: str) -> Iterator[tuple[str, str, bool]]:
    """Gold, answer and whether bare words are units, as they may be meant too."""
    if (choice := _CHOICE.fullmatch(answer)) and _CHOSEN.match(choice["text"]):
        inside = choice["open"] and choice["close"] is None  # \text{(A) 27}
        yield gold, choice["text"].rstrip("}") if inside else choice["text"], True
        yield gold, choice["a"] or choice["b"] or choice["c"], True
    if (choice := _CHOICE_AFTER.fullmatch(answer)) and _CHOSEN.match(choice["text"]):
        yield gold, choice["text"], True
    if (unit := _SHORT_UNIT.search(answer)) and not re.search("[A-DF-Za-df-z]", gold):
        yield gold, answer[: unit.start()], True
    if (numbers := _OF_NUMBERS.fullmatch(answer)) and (numbers["real"] or _ORDER.search(gold)):
        yield gold, numbers["condition"], True
    if (named := _SAME_FOR_ALL.fullmatch(answer)) is not None:
        yield gold, ",".join(f"{name}={named['value']}" for name in named["names"].split("=")[:-1]), True
    if (vector := _of_unit_vectors(answer)) is not None:
        yield gold, vector, True
    if _DECIMAL_LOGARITHM.search(gold) and (joined := _LOGARITHM.sub(r"\\lg", answer)) != answer:
        yield gold, joined, True
    if _OF_TIME.search(gold + answer) and _DERIVATIVE.search(gold):
        gold, answer = _OF_TIME.sub("", gold), _OF_TIME.sub("", answer)
        yield gold, answer, True
    if re.search(r",\s|and|or|;", answer) and (joined := _LIST_OF_THOUSANDS.sub(_without_commas, answer)) != answer:
        yield gold, joined, True
    if _MAYBE_SYMBOLS.search(answer) and re.search("[A-Za-z]", gold):
        yield gold, answer, False


def _of_unit_vectors(answer: str) -> str | None:
    r"""``2\mathbf{i} - \mathbf{k}`` as ``(2,0,-1)``; without a k it has two places. None for anything else."""
    places: dict[str, str] = {}
    end = 0
    while (term := _UNIT_VECTOR.match(answer, end)) is not None:
        name, factor = term["name"], term["factor"].replace(" ", "")
        if name in places or (end and not factor.startswith(("+", "-"))):
            return None
        places[name] = factor + "1" if factor in ("", "+", "-") else factor
        end = term.end()
    if not places or answer[end:].strip():
        return None
    return f"({','.join(places.get(name, '0') for name in ('ijk' if 'k' in places else 'ij'))})"


def _without_commas(match: re.Match[str]) -> str:
    return match.group().replace(",", "")


def _judge_reading(gold: str, answer: str, rule: Rule, units: bool = True) -> Judgement:
    as_written, gold = gold, repaired(gold)
    if rule.family == "integer":
        return _judge_integer(gold, answer)
    if _MARKUP.sub("", as_written).split() == _MARKUP.sub("", answer).split():
        return RIGHT
    words = plain_words(as_written)
    if words and words == plain_words(answer) and _is_prose(as_written):
        return RIGHT
    try:
        wanted = _united(read(gold))
    except Unreadable as caught:
        if _is_prose(as_written):
            return wrong("other words")
        return error(f"the gold cannot be read: {caught}")
    try:
        given = _united(read(answer, several=len(wanted) > 1, units=units), wanted)
    except Unreadable as caught:
        return wrong(f"not understood: {caught}")
    given = _as_one_point(_without_domains(given, wanted), wanted)
    if len(wanted) != len(given):
        return wrong(f"{len(given)} answers where {len(wanted)} are asked for")
    comparison = _Comparison(rule, gold)
    names = {thing.name for thing in wanted if isinstance(thing, Named)}
    comparison.names_matter = len(names) > 1
    return RIGHT if _match(wanted, given, comparison.same) else wrong(comparison.reason or "not equal")


def _judge_integer(gold: str, answer: str) -> Judgement:
    """Exactly the integer, however it is written: 73, 073, 73.0, 73^\\circ, x = 73, \\frac{146}{2}."""
    target = exact_integer(gold)
    if target is None:
        return error(f"the gold {gold!r} is no integer")
    try:
        things = read(answer).things
    except Unreadable as caught:
        return wrong(f"not understood: {caught}")
    if len(things) != 1:
        return wrong(f"{len(things)} answers where 1 is asked for")
    value = _bare(things[0])
    if isinstance(value, Based) and value.base == 10:
        value = Value((("num", Fraction(int(value.digits)), None),))
    if not isinstance(value, Value):
        return wrong("not an integer")
    number: Tree = ("num", Fraction(target), None)
    same = any(not symbols(tree) and same_number(number, tree) for tree in value.trees)
    return RIGHT if same else wrong("not equal")


def exact_integer(text: str) -> int | None:
    """The integer that a gold such as 073 or 27.0 is; None when it is none."""
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None
    return int(value) if value.denominator == 1 else None


_TEXT = re.compile(r"\\(?:text\w*|mbox|mathrm|operatorname)\s*\{[^{}]*\}")


def _is_prose(gold: str) -> bool:
    r"""Whether a gold is words, in which case does not matter: all its letters in \text, or three bare ones or more.

    In formulas it does: n is not N.
    """
    outside, commands = _TEXT.subn("", gold)
    words = plain_words(gold)
    return bool(commands and not re.search("[A-Za-z]", outside)) or (len(words) > 2 and words.isalpha())


def _united(answer: Answer, wanted: tuple[Thing, ...] = ()) -> tuple[Thing, ...]:
    """The things listed; but conditions on one variable are one set of numbers.

    "or" joins them. "and" and commas stand for what they have in common; commas also join those that have nothing.
    """
    things = answer.things
    conditions = all(isinstance(thing, Inequality | Named) for thing in things) and any(
        isinstance(thing, Inequality) for thing in things
    )
    one_set = len(wanted) == 1 and isinstance(_bare(wanted[0]), Union | Inequality | Known)
    one_set &= not any(isinstance(thing, Value) for thing in things)
    if len(things) < 2 or not (conditions or one_set):
        return things
    sides = [side[0] for thing in things if isinstance(thing, Inequality) for side in thing.sides]
    names = frozenset(thing.name for thing in things if isinstance(thing, Named)).union(*map(symbols, sides))
    if len(names) > 1:
        return things
    joined: Union | Meet = Union(things)
    if answer.joined != "or":
        joined = Meet(things)
        if answer.joined == "," and real_set(joined) == []:
            joined = Union(things)
    return things if real_set(joined) is None else (joined,)


def _without_domains(given: tuple[Thing, ...], wanted: tuple[Thing, ...]) -> tuple[Thing, ...]:
    r"""Without ``k \in \mathbb{Z}``, and ``x > 0`` beside a function, unless the gold says it too."""

    def is_domain(thing: Thing) -> bool:
        if isinstance(thing, Inequality):
            return all(isinstance(one, Named) and one.kind == "function" for one in wanted)
        return isinstance(thing, Named) and isinstance(thing.thing, Known) and thing.kind == "variable"

    if any(is_domain(thing) for thing in wanted):
        return given
    return tuple(thing for thing in given if not is_domain(thing)) or given


def _as_one_point(given: tuple[Thing, ...], wanted: tuple[Thing, ...]) -> tuple[Thing, ...]:
    """``x = 2, y = 4`` as the point ``(2, 4)`` that is asked for, by the alphabet; and the other way round."""
    if len(given) == 1 < len(wanted) and isinstance(given[0], Named) and isinstance(items := given[0].thing, Group):
        names = given[0].name.strip("()").split(",")
        if len(names) == len(items.items) == len(wanted) and all(isinstance(one, Named) for one in wanted):
            return tuple(Named(name, "variable", item) for name, item in zip(names, items.items, strict=True))
        return given
    point = _bare(wanted[0]) if len(wanted) == 1 else None
    if not isinstance(point, Group) or point.left != "(" or len(given) != len(point.items) or len(given) < 2:
        return given
    places = {thing.name: thing.thing for thing in given if isinstance(thing, Named) and thing.kind == "variable"}
    if len(places) < len(given):
        return given
    order = sorted(places) if all(len(name) == 1 for name in places) else list(places)
    return (Group("(", point.right, tuple(places[name] for name in order)),)


def _match(wanted: tuple[Thing, ...], given: tuple[Thing, ...], same: Callable[[Thing, Thing], bool]) -> bool:
    """Whether each wanted thing can be paired with its own given one (augmenting paths)."""
    pairs: dict[int, int] = {}  # given -> wanted
    known: dict[tuple[int, int], bool] = {}

    def fits(row: int, column: int) -> bool:
        if (row, column) not in known:
            known[row, column] = same(wanted[row], given[column])
        return known[row, column]

    def assign(row: int, seen: set[int]) -> bool:
        # The same place first: lists mostly come in the order of the gold.
        for column in sorted(range(len(given)), key=lambda column: column != row):
            if column not in seen and fits(row, column):
                seen.add(column)
                if column not in pairs or assign(pairs[column], seen):
                    pairs[column] = row
                    return True
        return False

    return all(assign(row, set()) for row in range(len(wanted)))


def _bare(thing: Thing) -> Thing:
    """What is given, without a name or the working before it."""
    if isinstance(thing, Named):
        return _bare(thing.thing)
    if isinstance(thing, Equation) and thing.thing is not None:
        number = not any(symbols(tree) for tree in thing.left)
        unit = thing.thing.unit if isinstance(thing.thing, Value) else ""
        ends = [*thing.right, *(_in_numbers(unit, tree) for tree in thing.right)]
        if number and not any(same_function(a, b) for a in thing.left for b in ends):
            return thing  # 3 = 5, 3 = x + 1
        return thing.thing
    return thing


def _is_rounded(answer: Approximate, tolerance: Fraction) -> bool:
    r"""Whether both sides of the sign are about the same: ``7 \\approx 5`` offers two answers, and is none."""
    thing = _bare(answer.thing)
    if not isinstance(thing, Value) or symbols(thing.trees[0]) != symbols(answer.rounded.trees[0]):
        return False
    return bool(symbols(thing.trees[0])) or about_equal(thing.trees[0], answer.rounded.trees[0], tolerance)


class _Comparison:
    """Compares one thing with one thing."""

    def __init__(self, rule: Rule, gold: str) -> None:
        stated = dict(rule.tolerances).get(gold)
        self.tolerance = Fraction(stated) if stated else None
        self.names_matter = False
        self.reason = ""

    def same(self, gold: Thing, answer: Thing) -> bool:
        if isinstance(gold, Approximate):
            return self.same(gold.thing, answer) or self.same(gold.rounded, answer)
        if isinstance(answer, Approximate):
            if self.same(gold, answer.thing):
                return _is_rounded(answer, Fraction(1, 10))
            return _is_rounded(answer, Fraction(1, 100)) and self.same(gold, answer.rounded)
        if isinstance(gold, Named):
            return self._named(gold, answer)
        if isinstance(gold, Equation):
            return isinstance(answer, Equation | Named) and self._equation(gold, answer)
        if isinstance(gold, Inequality) and isinstance(answer, Inequality) and self._inequality(gold, answer):
            return True
        answer = _bare(answer)
        if self._as_sets(gold, answer):
            return True
        if isinstance(gold, Value) and isinstance(answer, Value):
            return self._value(gold, answer)
        if isinstance(gold, Group) and isinstance(answer, Group):
            return self._group(gold, answer)
        if isinstance(gold, Matrix):
            return self._matrix(gold, answer)
        if isinstance(gold, Ratio) or isinstance(answer, Ratio):
            return self._ratio(gold, answer)
        if isinstance(gold, Based) or isinstance(answer, Based):
            return self._based(gold, answer)
        if isinstance(gold, Known) and isinstance(answer, Known):
            return gold.name == answer.name
        if isinstance(gold, Union) and isinstance(answer, Union):
            return len(gold.parts) == len(answer.parts) and _match(gold.parts, answer.parts, self.same)
        return False

    def _named(self, gold: Named, answer: Thing) -> bool:
        if isinstance(answer, Named):
            answer = _with_argument_of(gold, answer)
            if gold.kind == answer.kind == "function" and _argument(gold) != _argument(answer):
                self.reason = "another argument"
                return False
            agree = self._names_agree(gold, answer)
            if agree and self.same(gold.thing, answer.thing):
                return True
            if self.names_matter and not agree:
                return False
        elif not isinstance(answer, Equation) and self.same(gold.thing, answer):
            return True
        return isinstance(answer, Named | Equation) and self._equation(gold, answer)

    def _names_agree(self, gold: Named, answer: Named) -> bool:
        if gold.name == answer.name:
            return True
        if self.names_matter:
            self.reason = "another name"
            return False
        if gold.kind == answer.kind == "variable":
            # m_max and m: an index may be left out. k and n: another quantity.
            first, second = (re.split(r"[_']", thing.name)[0] for thing in (gold, answer))
            if first != second:
                self.reason = "another name"
            return first == second
        return True

    def _equation(self, gold: Named | Equation, answer: Named | Equation) -> bool:
        for left, right in zip(_sides(gold), _sides(answer), strict=False):
            if left and right and any(same_equation(a, b) for a in left for b in right):
                return True
        return False

    def _inequality(self, gold: Inequality, answer: Inequality) -> bool:
        if len(gold.signs) != 1 or len(answer.signs) != 1:
            return False
        if (gold.signs[0] == r"\ne") != (answer.signs[0] == r"\ne"):
            return False
        strict = {"<", ">"}
        if (gold.signs[0] in strict) != (answer.signs[0] in strict):
            return False
        return any(
            same_up_to_factor(a, b, positive=gold.signs[0] != r"\ne") for a in _excess(gold) for b in _excess(answer)
        )

    def _as_sets(self, gold: Thing, answer: Thing) -> bool:
        """Sets of real numbers, unless both are plain brackets, whose brackets and places must agree."""
        telling = Union | Meet | Without | Inequality | Known
        if not isinstance(gold, telling) and not isinstance(answer, telling):
            return False
        first, second = real_set(gold), real_set(answer)
        return first is not None and second is not None and _same_set(first, second)

    def _value(self, gold: Value, answer: Value) -> bool:
        return any(self._tree(gold, a, answer, b) for a in gold.trees for b in answer.trees)

    def _tree(self, gold: Value, a: Tree, answer: Value, b: Tree) -> bool:
        if symbols(a) or symbols(b):
            if symbols(a) != symbols(b) and not symbols(a):
                return False
            return any(same_function(a, one) for one in _exchanged(a, b))
        if self.tolerance is not None:
            first, second = exact(a), exact(b)
            if first is not None and second is not None:
                return abs(first - second) <= self.tolerance
        fraction = answer.unit == "%" != gold.unit and compare_numbers(b, _ONE) < 0  # 0.5% is not 0.5
        if not fraction and same_number(a, b):
            return self._units_agree(gold.unit, answer.unit)
        return self._same_converted(gold.unit, a, answer.unit, b)

    def _units_agree(self, gold: str, answer: str) -> bool:
        if not gold or not answer or gold == answer or "%" in (gold, answer):
            return True
        first, second = ({word.rstrip("s") for word in unit.casefold().split()} for unit in (gold, answer))
        if first <= second or second <= first:  # degrees, and degrees Celsius
            return True
        self.reason = "another unit"
        return False

    def _same_converted(self, gold_unit: str, a: Tree, answer_unit: str, b: Tree) -> bool:
        """50% is 0.5, but 500% is not 5: whole golds above 1 are counts of per cents. 90 degrees are pi/2."""
        if answer_unit == "%" and gold_unit != "%":
            value = exact(a)
            counts = value is not None and value.denominator == 1 and abs(value) > 1
            return not counts and same_number(a, _hundredth(b))
        if gold_unit == "%" and answer_unit != "%":
            return same_number(_hundredth(a), b)
        if "deg" in (gold_unit, answer_unit) and gold_unit != answer_unit:
            return same_number(_in_numbers(gold_unit, a), _in_numbers(answer_unit, b))
        return False

    def _group(self, gold: Group, answer: Group) -> bool:
        if (gold.left, gold.right) != (answer.left, answer.right):
            self.reason = "other brackets"
            return False
        if len(gold.items) != len(answer.items):
            self.reason = "another number of places"
            return False
        if gold.left == "{":
            return _match(gold.items, answer.items, self.same)
        return all(self.same(a, b) for a, b in zip(gold.items, answer.items, strict=True))

    def _matrix(self, gold: Matrix, answer: Thing) -> bool:
        rows: tuple[tuple[Thing, ...], ...]
        if isinstance(answer, Matrix):
            rows = answer.rows
        elif isinstance(answer, Group) and answer.left == "(" and all(len(row) == 1 for row in gold.rows):
            rows = tuple((item,) for item in answer.items)  # a column vector, written as a point
        else:
            return False
        if [len(row) for row in rows] != [len(row) for row in gold.rows]:
            return False
        return all(
            self.same(a, b)
            for gold_row, row in zip(gold.rows, rows, strict=True)
            for a, b in zip(gold_row, row, strict=True)
        )

    def _ratio(self, gold: Thing, answer: Thing) -> bool:
        if isinstance(gold, Ratio) and isinstance(answer, Ratio):
            if gold.written == answer.written:
                return True
            if _TIME.fullmatch(gold.written) or len(gold.parts) != len(answer.parts):
                return False
            if gold.parts[-1].unit:  # 7:30 p.m.
                return all(self._value(a, b) for a, b in zip(gold.parts, answer.parts, strict=True))
            scale = [(a.trees[0], b.trees[0]) for a, b in zip(gold.parts, answer.parts, strict=True)]
            (top, bottom), *rest = scale
            return all(same_function(("mul", top, b), ("mul", a, bottom)) for a, b in rest)
        if isinstance(gold, Ratio) and _TIME.fullmatch(gold.written):
            return False
        first, second = _quotient(gold), _quotient(answer)
        return first is not None and second is not None and same_function(first, second)

    def _based(self, gold: Thing, answer: Thing) -> bool:
        if isinstance(gold, Based):
            if isinstance(answer, Based):
                return gold.base == answer.base and gold.digits.lstrip("0") == answer.digits.lstrip("0")
            digits = gold.digits
        elif isinstance(answer, Based) and answer.base == 10:
            gold, answer, digits = answer, gold, answer.digits
        else:
            return False
        tree: Tree = ("num", Fraction(int(digits)), None)
        return isinstance(answer, Value) and self._value(Value((tree,)), answer)


def _argument(function: Named) -> str:
    return function.name.partition("(")[2]


def _with_argument_of(gold: Named, answer: Named) -> Named:
    """``f(t) = 1/t`` with the argument of ``f(x)``: the name of a bound variable is free."""
    first, second = (re.fullmatch(r"(\w+)\((\w)\)", thing.name) for thing in (gold, answer))
    if not first or not second or first[2] == second[2] or not isinstance(answer.thing, Value):
        return answer
    trees = answer.thing.trees
    if any(first[2] in symbols(tree) for tree in trees):
        return answer
    renamed = tuple(substitute(tree, second[2], ("sym", first[2])) for tree in trees)
    return Named(f"{second[1]}({first[2]})", answer.kind, Value(renamed, answer.thing.unit))


def _sides(thing: Named | Equation) -> list[tuple[Tree, ...]]:
    """The difference of both sides; for a function's name also with the name read as one symbol, ``y``."""
    right = thing.right if isinstance(thing, Equation) else None
    if isinstance(thing, Named):
        if not isinstance(thing.thing, Value):
            return [(), ()]
        right = thing.thing.trees
    assert right is not None
    plain = tuple(("add", a, ("neg", b)) for a in thing.left for b in right)
    if isinstance(thing, Named) and thing.kind == "function":
        return [tuple(("add", ("sym", "y"), ("neg", b)) for b in right), plain]
    return [plain, plain]


def _excess(thing: Inequality) -> list[Tree]:
    """What is greater, less what is smaller."""
    greater, smaller = thing.sides if thing.signs[0] in (">", r"\ge", r"\ne") else reversed(thing.sides)
    return [("add", a, ("neg", b)) for a in greater for b in smaller]


_INTEGRATION = re.compile(r"[cC]_\d")


def _exchanged(gold: Tree, answer: Tree) -> Iterator[Tree]:
    """The answer, and with constants of integration exchanged where the gold is a sum with one in a term."""
    yield answer
    names = sorted(name for name in symbols(gold) if _INTEGRATION.fullmatch(name))
    if not 2 <= len(names) <= 4 or gold[0] != "add" or symbols(gold) != symbols(answer):
        return
    terms = [[name for name in names if name in symbols(term)] for term in gold[1:]]
    if any(len(term) > 1 for term in terms) or not any(symbols(term) - set(names) for term in gold[1:]):
        return
    for order in itertools.permutations(names):
        tree = answer
        for name, other in zip(names, order, strict=True):
            tree = substitute(tree, name, ("sym", f"new {other}"))
        for name in names:
            tree = substitute(tree, f"new {name}", ("sym", name))
        yield tree


def _hundredth(tree: Tree) -> Tree:
    """A hundredth, with the digits that were written."""
    if tree[0] == "num":
        return ("num", tree[1] / 100, None if tree[2] is None else tree[2] / 100)
    return ("div", tree, ("num", Fraction(100), None))


def _in_numbers(unit: str, tree: Tree) -> Tree:
    """A number of per cents as a share, one of degrees in radians, any other as it is."""
    if unit == "deg":
        return ("mul", tree, ("div", ("const", "pi"), ("num", Fraction(180), None)))
    return _hundredth(tree) if unit == "%" else tree


def _quotient(thing: Thing) -> Tree | None:
    if isinstance(thing, Ratio) and len(thing.parts) == 2:
        return ("div", thing.parts[0].trees[0], thing.parts[1].trees[0])
    if isinstance(thing, Value) and not thing.unit:
        return thing.trees[0]
    return None


def _same_set(first: RealSet, second: RealSet) -> bool:
    return len(first) == len(second) and all(a.same(b) for a, b in zip(first, second, strict=True))
