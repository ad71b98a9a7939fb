"""Are two expression trees the same value, the same function, the same equation?

Rational arithmetic is exact. Everything else is computed to 50 digits, and to 200 or 1,000 where digits cancel or get
lost; where that does not decide, `Undecided` is raised rather than a guess made. Functions are compared at fixed
pseudo-random points, which decides for the elementary functions that occur in answers (a Schwartz-Zippel test).
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath  # type: ignore[import-untyped]
from mpmath import mp, mpc, mpf

from tasks.grading.latex import Tree

RELATIVE_TOLERANCE = Fraction(1, 100_000)
_LADDER = (50, 200, 1000)  # digits
_SPARE = 25  # digits that rounding may have spoilt
_ENOUGH = 12  # digits that must agree at least
_MAX_BITS = 1 << 18
_HUGE = mpf(2) ** 40
_POINTS = 6
_INTEGER_POINTS = 24

Value = Any  # mpf or mpc


class Undecided(ArithmeticError):  # noqa: N818
    """Beyond what can be computed here."""


class Undefined(ArithmeticError):  # noqa: N818
    """The expression has no finite value (division by zero, infinity)."""


class _Irrational(Exception):  # noqa: N818
    """Not within exact rational arithmetic."""


class _Lost(Exception):  # noqa: N818
    """Too few digits: terms cancel, or a term vanishes beside another."""


def symbols(tree: Tree) -> frozenset[str]:
    """Names of the free symbols."""
    if tree[0] == "sym":
        return frozenset((tree[1],))
    if tree[0] in ("num", "const"):
        return frozenset()
    return frozenset().union(*(symbols(part) for part in tree[1:] if isinstance(part, tuple)))


def substitute(tree: Tree, name: str, value: Tree) -> Tree:
    """The tree with a symbol replaced."""
    if tree == ("sym", name):
        return value
    if tree[0] in ("num", "const", "sym"):
        return tree
    return tuple(substitute(part, name, value) if isinstance(part, tuple) else part for part in tree)


def _parts(tree: Tree) -> Iterator[Tree]:
    yield tree
    for part in tree[1:]:
        if isinstance(part, tuple):
            yield from _parts(part)


# --- exact -----------------------------------------------------------------------------------------------------------


def exact(tree: Tree) -> Fraction | None:
    """The rational value of a tree; None when it is irrational, symbolic or too large to write out.

    Raises:
        Undefined: division by zero.
    """
    try:
        return _exact(tree)
    except _Irrational:
        return None


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _exact(tree: Tree) -> Fraction:
    kind = tree[0]
    if kind == "num":
        return Fraction(tree[1])
    if kind == "neg":
        return -_exact(tree[1])
    if kind == "add":
        return sum((_exact(part) for part in tree[1:]), Fraction(0))
    if kind == "mul":
        result = Fraction(1)
        for part in tree[1:]:
            result *= _exact(part)
            if _bits(result) > _MAX_BITS:
                raise _Irrational
        return result
    if kind == "div":
        divisor = _exact(tree[2])
        if divisor == 0:
            raise Undefined
        return _exact(tree[1]) / divisor
    if kind == "pow":
        return _exact_power(_exact(tree[1]), _exact(tree[2]))
    if kind == "fun":
        return _exact_function(tree[1], [_exact(part) for part in tree[2:]])
    raise _Irrational


def _exact_power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        root = _exact_root(base, exponent.denominator)
        return _exact_power(root, Fraction(exponent.numerator))
    if base == 0 and exponent <= 0:
        raise Undefined
    if base in (0, 1):
        return base
    if base == -1:
        return Fraction(1) if exponent.numerator % 2 == 0 else base
    if _bits(base) * abs(exponent) > _MAX_BITS:
        raise _Irrational
    return base ** int(exponent)


def _exact_root(base: Fraction, degree: int) -> Fraction:
    if degree > 64 or base < 0:
        raise _Irrational
    parts = []
    for part in (base.numerator, base.denominator):
        root = round(part ** (1 / degree)) if part < 1 << 50 else math.isqrt(part) if degree == 2 else -1
        if root < 0 or root**degree != part:
            raise _Irrational
        parts.append(root)
    return Fraction(parts[0], parts[1])


def _exact_function(name: str, arguments: list[Fraction]) -> Fraction:
    first = arguments[0]
    whole = all(argument.denominator == 1 for argument in arguments)
    if name == "floor":
        return Fraction(math.floor(first))
    if name == "ceil":
        return Fraction(math.ceil(first))
    if name == "abs":
        return abs(first)
    if name in ("max", "min"):
        return max(arguments) if name == "max" else min(arguments)
    if name in ("gcd", "lcm") and whole:
        return Fraction((math.gcd if name == "gcd" else math.lcm)(*(int(argument) for argument in arguments)))
    if name == "root" and arguments[1].denominator == 1 and arguments[1] > 0:
        degree = int(arguments[1])
        if first < 0 and degree % 2:
            return -_exact_root(-first, degree)
        return _exact_root(first, degree)
    if name == "factorial" and whole and 0 <= first <= 20_000:
        return Fraction(math.factorial(int(first)))
    if name == "binomial" and whole and 0 <= arguments[1] <= first <= 20_000:
        return Fraction(math.comb(int(first), int(arguments[1])))
    raise _Irrational


# --- numeric ---------------------------------------------------------------------------------------------------------


class _Evaluator:
    """Values at one point, to the working precision of mpmath."""

    def __init__(self, point: dict[str, Fraction], digits: int, last: bool) -> None:
        self.point = point
        self.digits = digits
        self.tiny = mpf(10) ** -(digits - 12)
        self.last = last  # no more digits to be had: what cancels is zero
        self.lost = 0.0  # digits lost by cancellation
        self.vague = False  # whether a term vanished beside another: what looks equal may not be
        self.complex = False  # whether a root or logarithm left the real numbers

    def __call__(self, tree: Tree) -> Value:
        value = self._value(tree)
        if not mpmath.isfinite(value):
            raise Undefined
        if abs(value) > mpf(2) ** (1 << 45):
            raise Undecided("too large to compute")
        return value

    def _value(self, tree: Tree) -> Value:
        kind = tree[0]
        if kind == "num":
            return mpf(tree[1].numerator) / tree[1].denominator
        if kind == "sym":
            value = self.point[tree[1]]
            return mpf(value.numerator) / value.denominator
        if kind == "const":
            if tree[1] == "inf":
                raise Undefined
            return {"pi": +mp.pi, "e": +mp.e, "i": mpc(0, 1)}[tree[1]]
        if kind == "neg":
            return -self(tree[1])
        if kind == "add":
            return self._sum([self(part) for part in tree[1:]])
        if kind == "mul":
            result = mpf(1)
            for part in tree[1:]:
                result *= self(part)
            return result
        if kind == "div":
            divisor = self(tree[2])
            if divisor == 0:
                raise Undefined
            return self(tree[1]) / divisor
        if kind == "pow":
            return self._power(self(tree[1]), self(tree[2]))
        return self._function(tree[1], [self(part) for part in tree[2:]])

    def _sum(self, terms: list[Value]) -> Value:
        total = sum(terms, mpf(0))
        largest = max(abs(term) for term in terms)
        if largest == 0:
            return total
        self.vague |= any(term != 0 and abs(term) < largest * self.tiny for term in terms)
        if abs(total) < largest * self.tiny:
            if not self.last:
                raise _Lost
            if self.vague:
                raise Undecided("terms of too different size")
            return mpf(0)
        self.lost += max(0, mpmath.mag(largest) - mpmath.mag(total)) * math.log10(2)
        return total

    def near(self, a: Value, b: Value) -> bool:
        """Whether two values computed here are equal but for rounding."""
        if not _near(a, b, _sound(self.digits, self.lost, self.last)):
            return False
        if self.vague:
            if self.last:
                raise Undecided("terms of too different size")
            raise _Lost
        return True

    def _power(self, base: Value, exponent: Value) -> Value:
        if base == 0:
            if mpmath.re(exponent) <= 0:
                raise Undefined
            return mpf(0)
        if abs(exponent) * (abs(mpmath.log(abs(base), 2)) + 5) > _HUGE:
            raise Undecided("too large to compute")
        result = mpmath.power(base, exponent)
        if isinstance(result, mpc) and not isinstance(base, mpc) and not isinstance(exponent, mpc):
            self.complex = True
        return result

    def _function(self, name: str, arguments: list[Value]) -> Value:
        first = arguments[0]
        if name == "root":
            degree = arguments[1]
            if not isinstance(first, mpc) and first < 0 and degree == int(degree) and int(degree) % 2:
                return -mpmath.power(-first, 1 / degree)
            if degree == 0:
                raise Undefined
            return self._power(first, 1 / degree)
        if name in ("ln", "log"):
            if first == 0:
                raise Undefined
            if not isinstance(first, mpc) and first < 0:
                self.complex = True
            base = mpmath.log(arguments[1]) if name == "log" else mpf(1)
            if base == 0:
                raise Undefined
            return mpmath.log(first) / base
        if name == "abs":
            return abs(first)
        if any(isinstance(argument, mpc) for argument in arguments) and name not in ("sin", "cos", "tan"):
            raise Undecided(f"{name} of a complex number")
        if name in ("max", "min"):
            return max(arguments) if name == "max" else min(arguments)
        if name in ("floor", "ceil"):
            return self._step(name, first)
        if name in ("factorial", "binomial"):
            if any(abs(argument) > mpf(10) ** 9 for argument in arguments):
                raise Undecided("too large to compute")
            try:
                return mpmath.gamma(first + 1) if name == "factorial" else mpmath.binomial(*arguments)
            except ValueError as caught:
                raise Undefined from caught
        if name in ("gcd", "lcm"):
            if not all(mpmath.isint(argument) and abs(argument) < mpf(10) ** 30 for argument in arguments):
                raise Undecided(f"{name} of numbers that are not whole")
            return mpf((math.gcd if name == "gcd" else math.lcm)(*(int(argument) for argument in arguments)))
        return self._elementary(name, first)

    def _step(self, name: str, first: Value) -> Value:
        nearest = mpmath.nint(first)
        if first != nearest and abs(first - nearest) < self.tiny * max(mpf(1), abs(first)):
            if not self.last:
                raise _Lost
            return nearest
        return mpmath.floor(first) if name == "floor" else mpmath.ceil(first)

    def _elementary(self, name: str, first: Value) -> Value:
        if abs(first) > mpf(10) ** 15 and name in ("sin", "cos", "tan", "cot", "sec", "csc"):
            raise Undecided("angle too large to compute")
        if abs(first) > _HUGE:
            raise Undecided("too large to compute")
        function = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot", "arcsinh": "asinh"}
        try:
            value = getattr(mpmath, function.get(name, name))(first)
        except (ZeroDivisionError, ValueError) as caught:
            raise Undefined from caught
        if isinstance(value, mpc) and not isinstance(first, mpc):
            self.complex = True
        # sin(pi) and its like: a value that is zero but for rounding.
        if value != 0 and abs(value) < self.tiny * max(mpf(1), abs(first)) < mpf(1):
            if self.last:
                return mpf(0)
            if abs(first) > 1:
                raise _Lost
        return value


def _sound(digits: int, lost: float, last: bool) -> int:
    """How many digits are left to compare."""
    left = digits - math.ceil(lost)
    if left < _SPARE + _ENOUGH:
        raise Undecided("too few digits") if last else _Lost
    return left


def _near(a: Value, b: Value, digits: int) -> bool:
    return bool(abs(a - b) <= mpf(10) ** (_SPARE - digits) * max(abs(a), abs(b)))


def _laddered(decide: Callable[[int, bool], Any]) -> Any:
    """Run a decision with more digits until none is lost."""
    for digits in _LADDER:
        with mp.workdps(digits):
            try:
                return decide(digits, digits == _LADDER[-1])
            except _Lost:
                continue
            except (ZeroDivisionError, OverflowError) as caught:
                raise Undefined from caught
    raise Undecided("too few digits")


# --- numbers ---------------------------------------------------------------------------------------------------------


def literal(tree: Tree) -> tuple[Fraction, Fraction | None] | None:
    """Value and worth of the last digit of a written number: 2.50, -3e8, 1.5 x 10^-3. None for anything else."""
    if tree[0] == "num":
        return tree[1], tree[2]
    if tree[0] == "neg":
        inner = literal(tree[1])
        return (-inner[0], inner[1]) if inner else None
    if tree[0] == "mul" and len(tree) == 3 and tree[1][0] == "num" and tree[2][0] == "pow":
        base, exponent = exact(tree[2][1]), exact(tree[2][2]) if not symbols(tree[2][2]) else None
        if base == 10 and exponent is not None and exponent.denominator == 1 and abs(exponent) <= 3000:
            scale = Fraction(10) ** int(exponent)
            value = tree[1][1] * scale
            quantum = tree[1][2]
            return value, None if quantum is None else quantum * scale
    return None


def _has_decimals(tree: Tree, digits: int) -> bool:
    """Whether a decimal fraction with so many significant digits stands somewhere in the tree."""
    return any(
        part[0] == "num" and part[2] is not None and abs(part[1]) >= part[2] * 10 ** (digits - 1)
        for part in _parts(tree)
    )


def _rounds_to(value: Fraction, written: Fraction, quantum: Fraction) -> bool:
    """Whether a number is ``written`` when rounded, or cut off, at digits worth ``quantum``."""
    difference = abs(value) - abs(written)
    quantum = max(quantum, abs(value) / 10**15)  # more digits than a computer's usual numbers have
    return value * written >= 0 and (abs(difference) * 2 <= quantum or 0 <= difference < quantum)


def same_number(gold: Tree, answer: Tree) -> bool:
    """Whether two trees without symbols have the same value.

    Equal means equal. Only a decimal fraction may stand for a number that it does not equal: when it is that number
    rounded or cut off at the digits it shows, and the relative difference is at most `RELATIVE_TOLERANCE`.

    Raises:
        Undefined: one of them has no finite value.
        Undecided: neither equal nor different within what can be computed.
    """
    first, second = exact(gold), exact(answer)
    if first is not None and second is not None:
        return first == second or _same_rounded(first, second, literal(gold), literal(answer))

    def decide(digits: int, last: bool) -> bool:
        evaluator = _Evaluator({}, digits, last)
        a, b = evaluator(gold), evaluator(answer)
        if evaluator.near(a, b):
            return True
        if (isinstance(a, mpc) and isinstance(b, mpc)) or isinstance(a, mpc) != isinstance(b, mpc):
            return _approximates(gold, answer, a, b)
        one, two = literal(gold), literal(answer)
        if one is None and two is None:
            return _approximates(gold, answer, a, b)
        return _same_rounded(_fraction(a), _fraction(b), one, two)

    return bool(_laddered(decide))


def _fraction(value: Value) -> Fraction:
    if abs(value) > mpf(2) ** 4000 or (value != 0 and abs(value) < mpf(2) ** -4000):
        return Fraction(0) if abs(value) < 1 else Fraction(2) ** 4000
    sign, mantissa, exponent, _ = value._mpf_
    return Fraction(-int(mantissa) if sign else int(mantissa)) * Fraction(2) ** int(exponent)


def _same_rounded(
    first: Fraction,
    second: Fraction,
    one: tuple[Fraction, Fraction | None] | None,
    two: tuple[Fraction, Fraction | None] | None,
) -> bool:
    whole = one is not None and one[1] is None and first.denominator == 1  # as it is written, and so exact
    if whole or abs(first - second) > RELATIVE_TOLERANCE * abs(first):
        return False
    coarse = one[1] if one else None
    fine = two[1] if two else None
    if coarse is not None and fine is not None and fine == coarse:
        return False  # as many digits, other digits
    if coarse is not None and (fine is None or coarse > fine) and not (two and two[1] is None):
        return _rounds_to(second, first, coarse)
    if fine is not None and (coarse is None or fine > coarse) and not (one and one[1] is None and coarse is not None):
        return _rounds_to(first, second, fine)
    return False


def _approximates(gold: Tree, answer: Tree, a: Value, b: Value) -> bool:
    """An expression with decimals of six digits or more may stand for an exact one."""
    if _has_decimals(gold, 6) == _has_decimals(answer, 6):
        return False
    return bool(abs(a - b) <= mpf(RELATIVE_TOLERANCE.numerator) / RELATIVE_TOLERANCE.denominator * abs(a))


# --- functions -------------------------------------------------------------------------------------------------------

_DISCRETE = {"floor", "ceil", "factorial", "binomial", "gcd", "lcm"}


def _is_discrete(tree: Tree) -> bool:
    """Whether the symbols stand for whole numbers: under a factorial, or in the exponent of a negative number."""
    for part in _parts(tree):
        if part[0] == "fun" and part[1] in _DISCRETE and symbols(part):
            return True
        if part[0] == "pow" and symbols(part[2]) and not symbols(part[1]):
            base = exact(part[1])
            if base is not None and base < 0:
                return True
    return False


def is_complex(tree: Tree) -> bool:
    """Whether the imaginary unit stands in the tree."""
    return any(part == ("const", "i") for part in _parts(tree))


def _has_absolute(tree: Tree) -> bool:
    return any(part[0] == "fun" and part[1] == "abs" and symbols(part) for part in _parts(tree))


@lru_cache(maxsize=100_000)
def _coordinate(name: str, number: int, discrete: bool, signed: bool) -> Fraction:
    source = random.Random(f"{name}:{number}")
    if discrete:
        return Fraction(source.randint(1, 12 + 2 * number))
    # Inside the unit interval and outside in turn: some formulas are real on one side only.
    low, high = ((0, 1), (1, 4), (0, 4))[number % 3]
    value = low + Fraction(source.randint(10**8, 10**9 - 10**8), 10**9) * (high - low)
    return -value if signed and source.random() < 0.5 else value


def _points(names: frozenset[str], discrete: bool, signed: bool) -> Iterator[dict[str, Fraction]]:
    for number in itertools.count():
        yield {name: _coordinate(name, number, discrete, signed) for name in names}


def same_function(gold: Tree, answer: Tree) -> bool:
    """Whether two trees agree wherever the gold is defined.

    Symbols stand for positive real numbers; for whole ones beside factorials, binomials, floors and powers of
    negative numbers; for real ones of either sign beside absolute values.

    Raises:
        Undecided: too few points where the gold can be computed.
    """
    if not symbols(gold) and not symbols(answer):
        return same_number(gold, answer)
    return _compare_at_points(gold, answer, lambda pairs, digits: all(_near(a, b, digits) for a, b in pairs))


def _compare_at_points(
    gold: Tree, answer: Tree, agree: Callable[[list[tuple[Value, Value]], int], bool], count: int | None = None
) -> bool:
    names = symbols(gold) | symbols(answer)
    discrete = _is_discrete(gold) or _is_discrete(answer)
    signed = not discrete and (_has_absolute(gold) or _has_absolute(answer))
    wanted = count or (_INTEGER_POINTS if discrete else _POINTS)

    def decide(digits: int, last: bool) -> bool:
        real: list[tuple[Value, Value]] = []
        other: list[tuple[Value, Value]] = []
        vague, lost = False, 0.0
        for point in itertools.islice(_points(names, discrete, signed), 4 * wanted):
            if len(real) >= wanted:
                break
            evaluator = _Evaluator(point, digits, last)
            try:
                a = evaluator(gold)
            except (Undefined, ZeroDivisionError):
                continue
            try:
                b = evaluator(answer)
            except (Undefined, ZeroDivisionError):
                return False
            vague |= evaluator.vague
            lost = max(lost, evaluator.lost)
            (other if evaluator.complex else real).append((a, b))
        pairs = real if len(real) >= min(3, wanted) else real + other
        if len(pairs) < min(3, wanted):
            raise Undecided("too few points where the gold is defined")
        same = agree(pairs, _sound(digits, lost, last))
        if same and vague:
            raise Undecided("terms of too different size") if last else _Lost
        return same

    return bool(_laddered(decide))


def same_up_to_factor(gold: Tree, answer: Tree, positive: bool = False) -> bool:
    """Whether one tree is a constant other than zero (a positive one) times the other: gold = 0 iff answer = 0."""

    def agree(pairs: list[tuple[Value, Value]], digits: int) -> bool:
        if any(a == 0 or b == 0 for a, b in pairs):
            return all(a == 0 and b == 0 for a, b in pairs)
        ratios = [a / b for a, b in pairs]
        if positive and not (isinstance(ratios[0], mpf) and ratios[0] > 0):
            return False
        return all(_near(ratios[0], ratio, digits) for ratio in ratios)

    return symbols(gold) == symbols(answer) and _compare_at_points(gold, answer, agree)


def same_equation(gold: Tree, answer: Tree) -> bool:
    """Whether gold = 0 and answer = 0 have the same solutions.

    True when they differ by a constant factor, or when both are linear in a common symbol and give it the same value.
    """
    if symbols(gold) != symbols(answer):
        return False
    if same_up_to_factor(gold, answer):
        return True
    for name in sorted(symbols(gold)):
        first, second = _solve_linear(gold, name), _solve_linear(answer, name)
        if first is None or second is None or _vanishes(first):
            continue  # a factor that is zero says nothing about the rest
        return same_function(first, second)
    return False


def _vanishes(tree: Tree) -> bool:
    return same_function(("num", Fraction(0), None), tree)


def _solve_linear(tree: Tree, name: str) -> Tree | None:
    """-b/a, where the tree is a x + b in the symbol."""
    at = [substitute(tree, name, ("num", Fraction(value), None)) for value in (1, 2, 3)]
    slope = ("add", at[1], ("neg", at[0]))
    try:
        if not same_function(slope, ("add", at[2], ("neg", at[1]))):
            return None
    except ArithmeticError:
        return None
    constant = ("add", at[0], ("neg", slope))
    return ("neg", ("div", constant, slope))


def about_equal(a: Tree, b: Tree, tolerance: Fraction) -> bool:
    """Whether two numbers differ by a share at most: what may stand on both sides of an approximate equality."""

    def decide(digits: int, last: bool) -> bool:
        x, y = (_Evaluator({}, digits, last)(tree) for tree in (a, b))
        return bool(abs(x - y) * tolerance.denominator <= abs(x) * tolerance.numerator)

    return bool(_laddered(decide))


def compare_numbers(a: Tree, b: Tree) -> int:
    """-1, 0 or 1, as a is less than, equal to or greater than b.

    Raises:
        Undefined, Undecided: as `same_number`, and for numbers that are not real.
    """
    first, second = exact(a), exact(b)
    if first is not None and second is not None:
        return (first > second) - (first < second)

    def decide(digits: int, last: bool) -> int:
        evaluator = _Evaluator({}, digits, last)
        x, y = evaluator(a), evaluator(b)
        if isinstance(x, mpc) or isinstance(y, mpc):
            raise Undecided("order of complex numbers")
        return 0 if evaluator.near(x, y) else int(x > y) - int(x < y)

    return int(_laddered(decide))
