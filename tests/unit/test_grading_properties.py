"""Generated golds: equal forms are right, changed values are wrong, and nothing makes the grader fall over."""

from __future__ import annotations

import math
import string
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tasks.grading import audit
from tasks.grading.audited import judge
from tasks.grading.rules import rule_of

pytestmark = pytest.mark.slow

GENERAL = rule_of(None)
NONZERO = st.integers(-99, 99).filter(bool)
PIECES = [
    *"0123456789xyznabeikCf+-*/^_!'|=<>,:;.%()[]{}$ ~\\&", r"\frac", r"\sqrt", r"\pi", r"\infty", r"\pm", r"\mp",
    r"\cup", r"\in", r"\le", r"\ge", r"\ne", r"\approx", r"\{", r"\}", r"\left(", r"\right]", r"\text{", r"\text{ or }",
    r"\mathbb{R}", r"\mathrm{cm}", r"\begin{pmatrix}", r"\end{pmatrix}", r"\\", r"\sin", r"\log", r"\lfloor",
    r"\rfloor", r"\binom", r"\overline{", r"^\circ", r"\cdot", r"\times", r"\ldots", r"\setminus", r"\boxed{",
    "10^", "1e9", "99", "x=", "and", "½", "²", "∞", "−", "\u0000", "\ud83d", "é",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


def cases(*strategies: st.SearchStrategy, examples: int = 20):
    """`given`, without a deadline: the first call of a function may take long."""
    return lambda test: settings(deadline=None, max_examples=examples)(given(*strategies)(test))


def right(gold: str, answer: str) -> None:
    judgement = judge(gold, answer, GENERAL)
    assert judgement.verdict == "right", (gold, answer, judgement.reason)


def wrong(gold: str, answer: str) -> None:
    assert judge(gold, answer, GENERAL).verdict == "wrong", (gold, answer)


def check(task: str, gold: str, kind: str) -> None:
    """Every probe of the audit holds, and there are some of both sorts."""
    probes = audit.probes(task, gold)
    assert {probe.kind for probe in probes} == {kind}
    assert {probe.right for probe in probes} == {True, False}
    for probe in probes:
        judgement = judge(probe.gold, probe.answer, rule_of(probe.task))
        assert audit.as_expected(probe, judgement.verdict), (probe, judgement)


@cases(st.integers(-(10**12), 10**12), st.sampled_from(["aime24", "amc23", "math500", "gsm8k", "minerva_math"]))
def test_integers(value, task):
    check(task, str(value), "integer")


@cases(st.integers(-999, 999), NONZERO.map(abs))
def test_fractions(top, bottom):
    value = Fraction(top, bottom)
    assume(value.denominator > 1)
    gold = rf"{'-' if value < 0 else ''}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"
    check("math500", gold, "fraction")
    mixed, rest = divmod(abs(value.numerator), value.denominator)
    if mixed and value > 0:
        right(gold, f"{mixed} {rest}/{value.denominator}")


@cases(st.decimals(-9999, 9999, places=3, allow_nan=False))
def test_decimals(value):
    assume(int(value * 1000) % 10 and abs(value) >= 1)
    check("minerva_math", str(value), "decimal")


@cases(st.integers(1000, 9998), st.integers(-40, 40))
def test_scientific_notation(digits, exponent):
    assume(digits % 10 != 9 and digits % 10 != 0 and exponent)
    check("minerva_math", f"{digits // 1000}.{digits % 1000:03d}e{exponent}", "scientific")


@cases(st.integers(-300, 300), st.integers(-300, 300))
def test_powers_of_ten_apart_are_different_however_small(first, second):
    """No absolute tolerance: the smallest numbers are told apart too."""
    assume(first != second)
    wrong(f"3.7e{first}", rf"3.7 \times 10^{{{second}}}")


@cases(st.integers(10**6, 10**9), st.integers(2, 9))
def test_decimals_stand_for_fractions_only_when_rounded_right(top, bottom):
    value = Fraction(top * bottom + 1, bottom)
    shown = f"{float(value):.4f}"
    gold = rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
    right(gold, shown)
    wrong(gold, str(Fraction(shown) + 1))


@cases(st.lists(st.integers(-999, 999), min_size=2, max_size=7, unique=True), st.randoms())
def test_lists(values, source):
    assume(not all(abs(value) >= 100 for value in values[1:]))
    gold = ",".join(map(str, values))
    check("olympiadbench", gold, "list")
    shuffled = list(values)
    source.shuffle(shuffled)
    right(gold, r"\{" + ", ".join(f"{value}.0" for value in shuffled) + r"\}")
    right(gold, " \\text{ or } ".join(f"x={value}" for value in shuffled))


@cases(st.lists(NONZERO, min_size=2, max_size=5, unique=True))
def test_tuples(values):
    check("olympiadbench", f"({','.join(map(str, values))})", "tuple or interval")


@cases(st.integers(-50, 50), st.integers(1, 50), st.booleans(), st.booleans())
def test_intervals(low, width, left_closed, right_closed):
    left, right_bracket = "[" if left_closed else "(", "]" if right_closed else ")"
    high = low + width
    gold = f"{left}{low},{high}{right_bracket}"
    smaller, greater = (r"\le" if left_closed else "<"), (r"\le" if right_closed else "<")
    right(gold, rf"{low} {smaller} x {greater} {high}")
    right(gold, rf"x \in \left{left}{2 * low}/2, {high}.0\right{right_bracket}")
    other = "<" if left_closed else r"\le"
    wrong(gold, rf"{low} {other} x {greater} {high}")
    wrong(gold, rf"{low} {smaller} x {greater} {high + 1}")
    wrong(gold, rf"\{{{low},{high}\}}")
    union = rf"{left}{low},{high}{right_bracket}\cup({high + 1},\infty)"
    right(union, rf"({high + 1},\infty)\cup{left}{low},{high}{right_bracket}")
    wrong(union, gold)


@cases(NONZERO, NONZERO, NONZERO)
def test_polynomials(a, b, c):
    gold = f"{c}(x{a:+d})(x{b:+d})"
    right(gold, f"{c}x^2{c * (a + b):+d}x{a * b * c:+d}")
    right(gold, rf"\frac{{{2 * c}x^2}}{{2}} {c * (a + b):+d} \cdot x {a * b * c:+d}")
    wrong(gold, f"{c}x^2{c * (a + b):+d}x{a * b * c + 1:+d}")
    wrong(gold, f"{c}y^2{c * (a + b):+d}y{a * b * c:+d}")
    wrong(gold, f"{c}x^3{c * (a + b):+d}x{a * b * c:+d}")


@cases(st.integers(1, 99), st.sampled_from([2, 3, 5, 6, 7, 10, 11, 13]), NONZERO)
def test_radicals(outside, inside, added):
    gold = rf"{added}+{outside}\sqrt{{{inside}}}"
    right(gold, rf"\sqrt{{{outside**2 * inside}}}{added:+d}")
    right(gold, rf"{added}+{outside} \cdot {inside}^{{1/2}}")
    right(gold, rf"\frac{{{added * inside}+{outside * inside}\sqrt{inside}}}{{{inside}}}" if inside < 10 else gold)
    right(gold, f"{added + outside * math.sqrt(inside):.9f}")
    wrong(gold, rf"{added}-{outside}\sqrt{{{inside}}}")
    wrong(gold, rf"{added}+{outside}\sqrt{{{inside + 1}}}")
    wrong(gold, f"{added + outside * math.sqrt(inside) + 1e-7:.9f}")


@cases(st.integers(1, 9), st.integers(1, 9))
def test_trigonometry(size, rate):
    gold = rf"{size}\sin({rate}x)\cos({rate}x)"
    right(gold, rf"\frac{{{size}}}{{2}}\sin {2 * rate}x")
    right(gold, rf"\frac{{{size}\tan {rate}x}}{{1+\tan^2 {rate}x}}")
    wrong(gold, rf"\frac{{{size}}}{{2}}\cos {2 * rate}x")
    wrong(gold, rf"{size}\sin {2 * rate}x")


@cases(st.integers(1, 9), st.integers(2, 9))
def test_whole_number_formulas(a, b):
    right(rf"\lfloor \frac{{n+{a * b}}}{{{b}}} \rfloor", rf"{a}+\left\lfloor \frac{{n}}{{{b}}} \right\rfloor")
    wrong(rf"\lfloor \frac{{n+{a * b}}}{{{b}}} \rfloor", rf"{a}+\lceil \frac{{n}}{{{b}}} \rceil")
    right(rf"\binom{{n+{a}}}{{{a}}}", rf"\frac{{(n+{a})!}}{{n!\,{a}!}}")
    wrong(rf"\binom{{n+{a}}}{{{a}}}", rf"\frac{{(n+{a})!}}{{n!}}+1")


@cases(NONZERO, NONZERO, st.integers(-99, 99), NONZERO)
def test_equations(a, b, c, factor):
    gold = f"{a}x{b:+d}y={c}"
    right(gold, f"{a * factor}x{b * factor:+d}y{-c * factor:+d}=0")
    right(gold, rf"y=\frac{{{c}-({a})x}}{{{b}}}")
    wrong(gold, f"{a * factor}x{b * factor:+d}y{-c * factor + 1:+d}=0")
    wrong(gold, f"{a}x{b:+d}z={c}")
    wrong(gold, f"{a}x{b:+d}y")


@cases(st.integers(2, 999), st.sampled_from(["cm", "km/h", "degrees", "square feet", "mph", "minutes", "apples"]))
def test_units(value, unit):
    for answer in (rf"{value}\text{{ {unit}}}", rf"{value}\ \mathrm{{{unit}}}", rf"{value}.0 \mbox{{ {unit}}}"):
        right(str(value), answer)
        wrong(str(value + 1), answer)
    right(rf"{value}\text{{ {unit}}}", str(value))
    check("math500", rf"{value} \text{{ {unit}}}", "unit")


@cases(st.integers(1, 99))
def test_percent(value):
    right(str(value), rf"{value}\%")
    right(rf"{value}\%", rf"\frac{{{value}}}{{100}}")
    right(f"0.{value:02d}", rf"{value}\%")
    wrong(rf"{value}\%", rf"{value + 1}\%")
    wrong(str(value + 1), rf"{100 * (value + 1)}\%")


@cases(st.text(string.ascii_letters, min_size=2, max_size=12))
def test_words(word):
    gold = rf"\text{{{word}}}"
    for answer in (word, word.swapcase(), rf"\text{{ {word} }}", rf"\textbf{{{word.upper()}}}."):
        right(gold, answer)
    assume(word.casefold() not in ("not", "or", "and"))
    wrong(gold, rf"\text{{{word}{word}}}")
    wrong(gold, rf"\text{{not {word}}}")


@cases(TEXTS, TEXTS, examples=200)
def test_no_answer_makes_it_fall_over(gold, answer):
    for task in ("math500", "aime24"):
        assert judge(gold, answer, rule_of(task)).verdict in ("right", "wrong", "error")
    assert judge(answer, answer, GENERAL).verdict == ("right" if answer.strip() else "error")


@cases(TEXTS, examples=100)
def test_a_fixed_number_is_not_any_random_text(answer):
    """31337 is never among what the pieces make but when it is written."""
    assert judge("31337", answer, GENERAL).verdict != "right"


@pytest.mark.parametrize("gold", audit.EXAMPLES)
def test_examples_of_the_audit(gold):
    for probe in audit.probes("examples", gold):
        judgement = judge(probe.gold, probe.answer, GENERAL)
        assert audit.as_expected(probe, judgement.verdict), (probe, judgement)
