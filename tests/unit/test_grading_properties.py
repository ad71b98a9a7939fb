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
    for answer in (
        rf"\textbf{{({letter})}}\ {value}", rf"\text{{({letter}) }} {value}", rf"({letter}) {value}",
        rf"\textbf{{({letter}) {value}}}", rf"\mathrm{{({letter})}}~{value}",
    ):  # fmt: skip
        for task in ("amc23", "math500"):
            assert judge(str(value), answer, rule_of(task)).verdict == "right", (task, answer)
            assert judge(str(value + 1), answer, rule_of(task)).verdict == "wrong", (task, answer)
        right(rf"\text{{({letter})}}", answer)
        wrong(rf"\text{{({other})}}", answer)
    for answer in (rf"\text{{Option {letter}}}", rf"\text{{{letter})}}", f"choice {letter}"):
        right(rf"\text{{({letter})}}", answer)
        wrong(rf"\text{{({other})}}", answer)
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
    for answer in (f"({digits})_{base}", f"{digits}_{{({base})}}", rf"{digits}_{{\text{{base }}{base}}}"):
        right(gold, answer)
        wrong(gold, answer.replace(digits, digits + "1"))
    right(gold, rf"{digits} \text{{ (base {base})}}")
    wrong(gold, rf"{digits} \text{{ (base {base + 1})}}")


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


@cases(st.integers(10, 9999), st.integers(2, 9))
def test_what_is_written_around_a_number(value, times):
    for before in (r"\text{The answer is }", r"\text{Answer: }", "Answer: ", r"\text{The sum is: }", r"\text{all }"):
        right(str(value), f"{before}{value}")
        wrong(str(value + 1), f"{before}{value}")
    for before in (r"\text{The answer is not }", r"\text{at least }", r"\text{not }", r"\text{It is less than }"):
        wrong(str(value), f"{before}{value}")
    right(str(value), rf"{value}^{{\text{{th}}}}")
    right(str(value), rf"x = {value} \text{{ only}}")
    right(str(value), rf"{value} \checkmark")
    right(f"{value}e{times}", rf"{value}\text{{e}}{times}")
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
