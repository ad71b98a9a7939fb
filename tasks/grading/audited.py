"""The audited grader: reads the box, and compares what stands in it with the gold by stated rules.

docs/grading.md argues every rule.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
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
    Named,
    Ratio,
    Thing,
    Union,
    Value,
    plain_words,
    read,
)
from tasks.grading.extract import last_box
from tasks.grading.latex import Tree, Unreadable
from tasks.grading.realsets import RealSet, real_set
from tasks.grading.repairs import repaired
from tasks.grading.rules import Rule, rule_of
from tasks.grading.types import RIGHT, Judgement, error, wrong
from tasks.grading.values import (
    Undecided,
    Undefined,
    about_equal,
    exact,
    same_equation,
    same_function,
    same_number,
    same_up_to_factor,
    symbols,
)

MAX_CHARACTERS = 10_000
_REMEMBERED = 50_000
_INTEGER = re.compile(r"[+-]?\d{1,30}")
_TIME = re.compile(r"\d{1,2}:\d\d")
_MARKUP = re.compile(r"(?<!\\)\$")
_HUNDRED: Tree = ("num", Fraction(100), None)


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
    gold, answer = gold.strip(), answer.strip()
    if not gold:
        return error("the gold is empty")
    as_written, gold = gold, repaired(gold)
    if _INTEGER.fullmatch(gold) and _INTEGER.fullmatch(answer):
        return RIGHT if int(gold) == int(answer) else wrong("not equal")
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
        given = _united(read(answer, several=len(wanted) > 1))
    except Unreadable as caught:
        return wrong(f"not understood: {caught}")
    given = _without_domains(given, wanted)
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


def _united(answer: Answer) -> tuple[Thing, ...]:
    """The things listed; inequalities told apart by "or" are one set."""
    if answer.alternatives and all(isinstance(thing, Inequality) for thing in answer.things):
        return (Union(answer.things),)
    return answer.things


def _without_domains(given: tuple[Thing, ...], wanted: tuple[Thing, ...]) -> tuple[Thing, ...]:
    r"""Without ``k \in \mathbb{Z}`` beside the answers, unless the gold says it too."""

    def is_domain(thing: Thing) -> bool:
        return isinstance(thing, Named) and isinstance(thing.thing, Known) and thing.kind == "variable"

    if any(is_domain(thing) for thing in wanted):
        return given
    return tuple(thing for thing in given if not is_domain(thing)) or given


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
        numbers = not any(symbols(tree) for tree in (*thing.left, *thing.right))
        if numbers and not any(same_number(a, b) for a in thing.left for b in thing.right):
            return thing  # 3 = 5
        return thing.thing
    return thing


def _is_rounded(answer: Approximate) -> bool:
    r"""Whether both sides of the sign are about the same: ``7 \approx 5`` offers two answers, and is none."""
    thing = _bare(answer.thing)
    if not isinstance(thing, Value) or symbols(thing.trees[0]) or symbols(answer.rounded.trees[0]):
        return False
    return about_equal(thing.trees[0], answer.rounded.trees[0])


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
            return self.same(gold, answer.thing) or (_is_rounded(answer) and self.same(gold, answer.rounded))
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
        telling = Union | Inequality | Known
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
            return same_function(a, b)
        if self.tolerance is not None:
            first, second = exact(a), exact(b)
            if first is not None and second is not None:
                return abs(first - second) <= self.tolerance
        if same_number(a, b):
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
            return not counts and same_number(a, ("div", b, _HUNDRED))
        if gold_unit == "%" and answer_unit != "%":
            return same_number(("div", a, _HUNDRED), b)
        if "deg" in (gold_unit, answer_unit) and gold_unit != answer_unit:
            radians: Tree = ("div", ("const", "pi"), ("num", Fraction(180), None))
            first = ("mul", a, radians) if gold_unit == "deg" else a
            second = ("mul", b, radians) if answer_unit == "deg" else b
            return same_number(first, second)
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


def _quotient(thing: Thing) -> Tree | None:
    if isinstance(thing, Ratio) and len(thing.parts) == 2:
        return ("div", thing.parts[0].trees[0], thing.parts[1].trees[0])
    if isinstance(thing, Value) and not thing.unit:
        return thing.trees[0]
    return None


def _same_set(first: RealSet, second: RealSet) -> bool:
    return len(first) == len(second) and all(a.same(b) for a, b in zip(first, second, strict=True))
