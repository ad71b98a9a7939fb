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
    r"\mapsto", r"\notin", r"^\top", r"\mathbf{i}", r"\sim", r"\cup\{",
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


def told_apart(gold: str, other: str, *answers: str, task: str | None = None) -> None:
    """Each answer is right where the gold is asked for, and wrong where the other is."""
    for answer in answers:
        judgement = judge(gold, answer, rule_of(task))
        assert judgement.verdict == "right", (gold, answer, judgement.reason)
        assert judge(other, answer, rule_of(task)).verdict == "wrong", (other, answer)


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


@cases(st.integers(-50, 50), st.integers(1, 50), st.booleans(), st.booleans())
def test_sets_by_their_conditions(low, width, left_closed, right_closed):
    high = low + width
    left, right_bracket = "[" if left_closed else "(", "]" if right_closed else ")"
    gold = f"{left}{low},{high}{right_bracket}"
    above, below = (r"\ge" if left_closed else ">"), (r"\leq" if right_closed else "<")
    right(gold, rf"x {above} {low} \text{{ and }} x {below} {high}")
    right(gold, rf"x {above} {low}, x {below} {high}")
    right(gold, rf"\{{x \mid {low} {'<=' if left_closed else '<'} x {below} {high}\}}")
    right(gold, rf"\{{x \in \mathbb{{R}} : x {above} {low} \land x {below} {high}\}}")
    right(gold, ("[" if left_closed else "]") + f"{low}, {high}" + ("]" if right_closed else "["))
    right(gold, rf"{low} {'<=' if left_closed else '<'} f(x) {below} {high}")
    wrong(gold, rf"x {above} {low} \text{{ or }} x {below} {high}")
    wrong(gold, rf"\{{x \mid x {above} {high}\}}")
    wrong(gold, rf"x {above} {low}, y {below} {high}")
    outside = rf"(-\infty,{low}) \cup ({high},\infty)"
    right(outside, rf"x < {low} \text{{ or }} x > {high}")
    right(outside, rf"x < {low}, x > {high}")
    right(outside, rf"\mathbb{{R}} \setminus [{low},{high}]")
    right(outside, rf"(-\infty,{low}) \text{{ or }} ({high},\infty)")
    wrong(outside, rf"x < {low} \text{{ and }} x > {high}")
    wrong(outside, rf"\mathbb{{R}} \setminus ({low},{high})")
    wrong(outside, rf"(-\infty,{low}) \text{{ or }} {high + 1}")
    holed = rf"({low},{low + 1}) \cup ({low + 1},{high + 1})"
    right(holed, rf"({low},{high + 1}) \setminus \{{{low + 1}\}}")
    right(holed, rf"{low} < x < {high + 1}, x \ne {low + 1}")
    wrong(holed, rf"({low},{high + 1}) \setminus \{{{high + 2}\}}")
    right(rf"(-\infty,{low}) \cup \{{{high}\}}", rf"x < {low} \text{{ or }} x = {high}")
    wrong(f"({high},{low})", rf"({low},{high}) \cup ({high},{low})")


@cases(st.integers(1, 9999), st.sampled_from("ABCDE"), st.sampled_from("ABCDE"))
def test_choices(value, letter, other):
    """The letter of a choice beside its value is neither a factor nor a second answer."""
    assume(letter != other)
    with_value = [
        rf"\textbf{{({letter})}}\ {value}", rf"\text{{({letter}) }} {value}", rf"({letter}) {value}",
        rf"\textbf{{({letter}) {value}}}", rf"\mathrm{{({letter})}}~{value}", rf"(\text{{{letter}}})\ {value}",
        rf"\text{{{letter}. }} {value}", rf"{letter}) {value}",
    ]  # fmt: skip
    for task in ("amc23", "math500"):
        told_apart(str(value), str(value + 1), *with_value, rf"{value} \text{{ ({letter})}}", task=task)
    alone = [rf"\text{{Option {letter}}}", rf"\text{{{letter})}}", f"choice {letter}", rf"\text{{Graph {letter}}}"]
    told_apart(rf"\text{{({letter})}}", rf"\text{{({other})}}", *with_value, *alone)
    for both in (
        rf"({letter}) {value} \text{{ or }} ({other}) {value}", rf"\text{{({letter})}}, {value}",
        rf"\text{{({letter}) is wrong}}", rf"\text{{({letter})}}\ {value} \text{{ or something else}}",
    ):  # fmt: skip
        wrong(rf"\text{{({letter})}}", both)


@cases(st.lists(NONZERO, min_size=2, max_size=4, unique=True))
def test_points_by_their_coordinates(values):
    gold = f"({','.join(map(str, values))})"
    named = [f"{name} = {value}" for name, value in zip("abcd", values, strict=False)]
    right(gold, ", ".join(named))
    right(gold, ", ".join(named[::-1]))
    right(gold, r" \text{ and } ".join(named))
    right(gold, f"P({','.join(map(str, values))})")
    turned = [f"{name} = {value}" for name, value in zip("abcd", values[::-1], strict=False)]
    wrong(gold, ", ".join(turned))
    wrong(gold, ", ".join(f"a = {value}" for value in values))


@cases(st.lists(st.integers(1000, 999_999), min_size=2, max_size=5, unique=True))
def test_lists_of_thousands(values):
    gold = ",".join(map(str, values))
    right(gold, ", ".join(f"{value:,}" for value in values))
    right(gold, r" \text{ and } ".join(f"{value:,}" for value in values))
    wrong(gold, ", ".join(f"{value:,}" for value in (*values[:-1], values[-1] + 1)))
    wrong(gold, ", ".join(f"{value:,}" for value in values[1:]))


@cases(st.lists(st.integers(-20, 20), min_size=2, max_size=3), NONZERO)
def test_multiples_of_matrices(cells, factor):
    rows = " \\\\ ".join(str(factor * cell) for cell in cells)
    gold = rf"\begin{{pmatrix}} {rows} \end{{pmatrix}}"
    inner = r" \\ ".join(map(str, cells))
    right(gold, rf"{factor}\begin{{bmatrix}} {inner} \end{{bmatrix}}")
    right(gold, rf"{factor} \cdot \left[\begin{{array}}{{c}} {inner} \end{{array}}\right]")
    right(gold, rf"\left(\begin{{array}}{{r}} {rows} \end{{array}}\right)")
    assume(any(cells))
    wrong(gold, rf"{factor + 1}\begin{{pmatrix}} {inner} \end{{pmatrix}}")
    wrong(gold, rf"-{factor}\begin{{pmatrix}} {inner} \end{{pmatrix}}".replace("--", ""))


@cases(st.integers(4, 9), st.text("0123", min_size=2, max_size=6).filter(lambda digits: digits[0] != "0"))
def test_bases(base, digits):
    gold = f"{digits}_{{{base}}}"
    answers = [f"({digits})_{base}", f"{digits}_{{({base})}}", rf"{digits}_{{\text{{base }}{base}}}"]
    answers += [rf"{digits} \text{{ (base {base})}}", rf"{digits}\ (\text{{base }}{base})"]
    told_apart(gold, f"{digits}_{{{base + 1}}}", *answers)
    told_apart(gold, f"{digits}1_{{{base}}}", *answers)
    right(gold, rf"{digits} \text{{ in base {base}}}")
    right(digits, rf"{digits}\text{{ bases}}")


@cases(NONZERO, st.integers(-99, 99), st.sampled_from("tnz"))
def test_the_argument_of_a_function(a, b, name):
    gold = rf"f(x)=\frac{{{a}}}{{x}}{b:+d}"
    right(gold, rf"f({name}) = \frac{{{a}}}{{{name}}}{b:+d}")
    right(gold, rf"f(x) = \frac{{{a}}}{{x}}{b:+d}, x > 0")
    right(gold, rf"f(x) = \frac{{{a}}}{{x}}{b:+d} \quad (x > 0)")
    right(gold, rf"f(x) = \frac{{{a}}}{{x}}{b:+d}\ \forall x \in \mathbb{{R}}^+")
    wrong(gold, rf"f({name}) = \frac{{{a}}}{{x}}{b:+d}")
    wrong(gold, rf"f(2x) = \frac{{{a}}}{{x}}{b:+d}")
    wrong(gold, rf"f({name}) = \frac{{{a}}}{{{name}}}{b + 1:+d}")


@cases(NONZERO, st.integers(-99, 99), st.sampled_from("fgh"))
def test_maps(a, b, name):
    gold = rf"f(x)=\frac{{{a}}}{{x}}{b:+d}"
    right(gold, rf"x \mapsto \frac{{{a}}}{{x}}{b:+d}")
    right(gold, rf"{name}\colon t \mapsto \frac{{{a}}}{{t}}{b:+d}")
    right(gold, rf"f: \mathbb{{R}}^+ \to \mathbb{{R}},\ f(x) = \frac{{{a}}}{{x}}{b:+d}")
    right(gold, rf"\text{{the function }} f(x) = \frac{{{a}}}{{x}}{b:+d}")
    wrong(gold, rf"x \mapsto \frac{{{a}}}{{x}}{b + 1:+d}")
    wrong(gold, rf"f(x) \mapsto \frac{{{a}}}{{x}}{b:+d}")
    wrong(gold, rf"\text{{the inverse of the function }} f(x) = \frac{{{a}}}{{x}}{b:+d}")


@cases(NONZERO, NONZERO)
def test_derivatives_on_one_line(a, b):
    gold = rf"\frac{{d x}}{{d t}}={a} x{b:+d}"
    right(gold, rf"dx/dt = {a}x{b:+d}")
    right(gold, rf"{2 * a}x - 2\,dx/dt = {-2 * b}")
    wrong(gold, rf"dx/dt = {a}x{b + 1:+d}")
    wrong(gold, rf"dt/dx = {a}x{b:+d}")
    wrong(gold, rf"x/t = {a}x{b:+d}")
    right(rf"\ddot{{\theta}}={a} \theta", rf"d^2\theta/dt^2 = {a}\theta")


@cases(st.integers(0, 179), st.integers(1, 59))
def test_minutes_of_angle(degrees, minutes):
    gold = rf"({Fraction(60 * degrees + minutes, 60)})^\circ"
    right(gold, rf"{degrees}^\circ {minutes}'")
    right(gold, rf"m\angle ABC = {degrees}^{{\circ}}{minutes}^{{\prime}}")
    wrong(gold, rf"{degrees}^\circ {minutes + 1}'")
    wrong(gold, rf"{degrees}^\circ {minutes}''")


@cases(st.integers(-50, 50), st.integers(1, 50), st.integers(1, 50))
def test_sets_by_what_they_leave_out(low, width, gap):
    high, last = low + width, low + width + gap
    outside = rf"(-\infty,{low}) \cup ({high},\infty)"
    right(outside, rf"x \notin [{low},{high}]")
    right(outside, rf"x \not\in [{low},{high}]")
    right(outside, rf"]-\infty,{low}[ \,\cup\, ]{high},+\infty[")
    wrong(outside, rf"x \notin ({low},{high})")
    wrong(outside, rf"x \in [{low},{high}]")
    wrong(outside, rf"]-\infty,{low}] \cup ]{high},+\infty[")
    holed = rf"({low},{high}) \cup ({high},{last})"
    right(holed, rf"({low},{last}) - \{{{high}\}}")
    right(holed, rf"x \in ]{low},{high}[ \cup ]{high},{last}[")
    wrong(holed, rf"({low},{last}) - \{{{last}\}}")
    wrong(holed, rf"({low},{last})")
    numbers = f"{low}, {high}, {last}"
    right(numbers, rf"\{{{last}\}} \cup \{{{low}, {high}\}}")
    wrong(numbers, rf"\{{{last}\}} \cup \{{{low}\}}")


@cases(st.integers(2, 99), st.sampled_from(["integers", "positive integers", "natural numbers"]))
def test_conditions_with_their_kind_of_number(bound, kind):
    gold = rf"n \geqslant {bound}"
    right(gold, rf"\text{{all {kind} }} n \ge {bound}")
    right(gold, rf"\text{{all {kind} }} n \text{{ with }} n \ge {bound}")
    right(rf"[{bound},\infty)", rf"\text{{all real numbers }} x \ge {bound}")
    wrong(gold, rf"\text{{all {kind} }} n > {bound}")
    wrong(gold, rf"\text{{no {kind} }} n \ge {bound}")
    wrong(rf"[{bound},\infty)", rf"\text{{all {kind} }} n \ge {bound}")


@cases(st.lists(st.integers(-20, 20), min_size=3, max_size=3), st.integers(2, 9))
def test_vectors(cells, factor):
    a, b, c = cells
    assume(any(cells))
    gold = rf"\begin{{pmatrix}} {a} \\ {b} \\ {c} \end{{pmatrix}}"
    right(gold, rf"({a}, {b}, {c})^T")
    right(gold, rf"\begin{{bmatrix}} {a} & {b} & {c} \end{{bmatrix}}^{{\top}}")
    right(gold, rf"\frac{{1}}{{{factor}}}({factor * a}, {factor * b}, {factor * c})")
    right(gold, rf"{a}\mathbf{{i}}{b:+d}\mathbf{{j}}{c:+d}\mathbf{{k}}")
    right(gold, rf"{a}\hat{{i}} {b:+d}\,\hat{{\jmath}} {c:+d} \hat k")
    wrong(gold, rf"\begin{{bmatrix}} {a} & {b} & {c} \end{{bmatrix}}")
    wrong(gold, rf"\begin{{bmatrix}} {a} \\ {b} \\ {c} \end{{bmatrix}}^T")
    wrong(gold, rf"{a}\mathbf{{i}}{b:+d}\mathbf{{j}}{c + 1:+d}\mathbf{{k}}")
    wrong(gold, rf"{factor}({a}, {b}, {c})")


@cases(NONZERO, st.sampled_from(["a=b", r"AB = CD", r"\angle BEA_1 = \angle AEB_1", "f(0)=f(1)"]))
def test_one_value_for_several_names(value, names):
    gold = f"{value},{value}"
    right(gold, f"{names} = {value}")
    right(f"({value},{value})", f"a = b = {value}")
    right(str(value), f"{names} = {value}")
    wrong(gold, f"{names} = {value + 1}")
    wrong(gold, f"x = {value} = {value}")
    wrong(f"{value},{value},{value}", f"{names} = {value}")


@cases(st.sampled_from([2, 3, 6, 7, 11]), st.integers(2, 9))
def test_logarithms_without_a_base(number, factor):
    """They have the base of the gold, or are natural."""
    gold = rf"\log_{{10}} {number**factor}"
    right(gold, rf"{factor}\log {number}")
    right(rf"\log {number**factor}", rf"{factor}\ln {number}")
    wrong(gold, rf"{factor}\ln {number}")
    wrong(rf"\ln {number**factor}", rf"{factor}\lg {number}")
    wrong(gold, rf"{factor + 1}\log {number}")


@cases(st.integers(1, 9), st.sampled_from([30, 45, 60, 120, 135]))
def test_complex_numbers_by_their_angle(size, degrees):
    gold = rf"{size}\cos {degrees}^\circ + {size}i\sin {degrees}^\circ"
    right(gold, rf"{size}\,\mathrm{{cis}}\,{degrees}^\circ")
    right(gold, rf"{size}\operatorname{{cis}}\left(\frac{{{degrees}\pi}}{{180}}\right)")
    wrong(gold, rf"{size}\,\mathrm{{cis}}({degrees + 1}^\circ)")
    wrong(gold, rf"{size + 1}\,\mathrm{{cis}}\,{degrees}^\circ")


@cases(st.integers(10, 9999), st.integers(2, 9))
def test_what_is_written_around_a_number(value, times):
    leads = (r"\text{The answer is }", r"\text{Answer: }", "Answer: ", r"\text{The sum is: }", r"\text{all }")
    told_apart(str(value), str(value + 1), *(f"{before}{value}" for before in leads))
    for before in (r"\text{The answer is not }", r"\text{at least }", r"\text{not }", r"\text{It is less than }"):
        wrong(str(value), f"{before}{value}")
    right(str(value), rf"{value}^{{\text{{th}}}}")
    right(str(value), rf"x = {value} \text{{ only}}")
    right(str(value), rf"{value} \checkmark")
    told_apart(str(value), str(times), rf"|A \cup B| = {value}", rf"f(x)_{{\max}} = {value}", rf"[ABC] = {value}")
    right(f"{value}e{times}", rf"{value}\text{{e}}{times}")
    right(f"{value}e{times}", rf"\sim {value} \times 10^{{{times}}}\,J")
    right(f"{min(value, 999)}000", rf"{min(value, 999)}\thinspace 000")
    wrong(str(value), rf"{value}x")
    wrong(str(value), rf"{value}\,x")
    wrong(str(value), rf"{value} \sim {times * value}")
    # What an equation or a rounding says must hold, or there are two answers.
    wrong(str(value), rf"{value} \approx {times * value}")
    wrong(str(value), rf"{value} \ldots {times * value}")
    wrong(f"({value},1)", rf"{times} = ({value},1)")
    wrong(f"({value},1)", rf"({value},1) \approx {times}")
    wrong(f"x+{value}", f"{times} = x+{value}")
    wrong(f"n+{value + 1}", rf"1 + \ldots + n+{value}".replace("n+", "n + "))


@cases(st.integers(10**6, 10**12))
def test_a_whole_gold_is_not_rounded(value):
    digits = len(str(value))
    assume(value % 100)  # otherwise the two digits that are cut off below are zeros, and nothing was rounded
    wrong(str(value), rf"{value / 10 ** (digits - 1):.{digits - 3}f} \times 10^{{{digits - 1}}}")
    right(str(value), rf"{value / 10 ** (digits - 1):.{digits - 1}f} \times 10^{{{digits - 1}}}")


@cases(st.integers(1, 9), st.integers(1, 9))
def test_constants_of_integration_may_be_exchanged(a, b):
    gold = rf"{a}t+C_{{1}}e^{{{b}t}}+C_{{2}}e^{{-{b}t}}"
    right(gold, rf"{a}t+C_2e^{{{b}t}}+C_1e^{{-{b}t}}")
    wrong(gold, rf"{a}t+C_1e^{{{b}t}}+C_1e^{{-{b}t}}")
    wrong(gold, rf"{a}t+E_2e^{{{b}t}}+E_1e^{{-{b}t}}")
    wrong(rf"{a}C_1+{a + b}C_2", rf"{a}C_2+{a + b}C_1")


HEDGES = [
    "%s, 23", r"%s \text{ or } 23", r"\{%s, 23\}", "23 = %s", r"\approx 23 = %s", r"%s \ldots 23", r"\text{not } %s",
    r"\neq %s", r"\text{The answer is not } %s", "> %s", "(A) 23 (B) %s", r"23 \Rightarrow %s", r"%s \text{ if } x>0",
    r"%s + \ldots", r"23 \quad %s", r"%s \quad 23", r"\boxed{23} %s", r"%s \text{ is wrong}", "%s ? 23",
    r"\text{either } %s \text{ or } 23",
]  # fmt: skip


@pytest.mark.parametrize("gold", audit.EXAMPLES)
def test_two_answers_are_none(gold):
    """Whatever stands beside the gold: what offers another answer too, or takes it back, is not right."""
    for hedge in HEDGES:
        if r"%s \quad" in hedge and gold == r"\text{(B)}":
            continue  # the letter of a choice, and its text
        answer = hedge.replace("%s", gold)
        assert judge(gold, answer, GENERAL).verdict != "right", answer


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
    answers = (rf"{value}\text{{ {unit}}}", rf"{value}\ \mathrm{{{unit}}}", rf"{value}.0 \mbox{{ {unit}}}")
    told_apart(str(value), str(value + 1), *answers)
    right(rf"{value}\text{{ {unit}}}", str(value))
    check("math500", rf"{value} \text{{ {unit}}}", "unit")


@cases(st.integers(1, 99), st.integers(1, 99))
def test_functions_of_two_numbers(a, b):
    told_apart(str(max(a, b)), str(max(a, b) + 1), rf"\max({a}, {b})", rf"\max\{{{a}, {b}\}}")
    told_apart(str(math.gcd(a, b)), str(-math.gcd(a, b)), rf"\gcd({a}, {b})", rf"\gcd({b}, {a})")
    wrong(f"({a},{b})", rf"\max({a}, {b})")


@cases(st.integers(1, 99))
def test_percent(value):
    right(str(value), rf"{value}\%")
    right(rf"{value}\%", rf"\frac{{{value}}}{{100}}")
    right(f"0.{value:02d}", rf"{value}\%")
    right(rf"{value}\%", rf"\frac{{{value}}}{{100}} = {value}\%")
    right(rf"\frac{{{value}\pi}}{{180}}", rf"\frac{{{value}\pi}}{{180}} = {value}^\circ")
    wrong(rf"{value}\%", rf"\frac{{{value + 1}}}{{100}} = {value}\%")
    right(rf"\frac{{{value}}}{{700}}", rf"{value / 7:.8f}\%")
    wrong(f"0.{value:02d}", rf"0.{value:02d}\%")
    wrong(rf"{value}\%", rf"{value + 1}\%")
    wrong(str(value + 1), rf"{100 * (value + 1)}\%")


@cases(st.text(string.ascii_letters, min_size=2, max_size=12))
def test_words(word):
    gold = rf"\text{{{word}}}"
    for answer in (word, word.swapcase(), rf"\text{{ {word} }}", rf"\textbf{{{word.upper()}}}."):
        right(gold, answer)
    assume(word.casefold() not in ("not", "or", "and"))
    for answer in (rf"\text{{It is {word}}}", rf"f \text{{ is {word}}}", rf"\text{{The graph is a {word}.}}"):
        right(gold, answer)
        wrong(gold, answer.replace("is ", "is not "))
        wrong(gold, answer.replace("is ", "is neither odd nor "))
    wrong(gold, rf"\text{{Nobody says that it is {word}}}")
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
