r"""An audit of both graders: golds rewritten into forms that are equal, and changed into answers that are not.

The probes are made from the text of a gold by string surgery and exact fractions, not by the code that compares
answers, so that a fault there does not hide itself. What each probe expects follows from how it was made.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Literal, get_args

from tasks.grading.pool import DEFAULT_TIMEOUT, grade_many
from tasks.grading.repairs import repaired
from tasks.grading.rules import rule_of
from tasks.grading.types import Grade, GradeRequest

# Golds of our own, for an audit without any data set.
EXAMPLES: tuple[str, ...] = (
    "17", "-4", "2025", "360000", "0", r"\frac{3}{7}", r"-\frac{5}{12}", r"\frac{9}{8}", "2.75", "0.031", "-12.5",
    "6.1e-7", "2.5e12", "8e-3", r"4\sqrt{7}", r"\frac{1+\sqrt{5}}{2}", r"\frac{\pi}{6}", r"3^{17}-1", r"\binom{12}{5}",
    r"\ln 3", r"2+5i", "x^2-3x+1", r"\frac{n(n-1)}{2}", r"2^{n}-n", r"\sqrt{a^2+b^2}", r"\frac{1}{k+1}",
    r"\lfloor n/3\rfloor", r"e^{-2t}\cos(3t)", "2,3,7", r"-1,\frac{1}{2},4", r"1\pm\sqrt{3}", r"\{0,5\}", "(3,-1)",
    r"(\frac{1}{2},4,0)", "(1,2),(2,1)", "[0,4)", r"(-\infty,3]", r"(-\infty,-1)\cup(2,\infty)", "y=3x-2",
    "x^2+y^2=9", r"n\ge 4", r"\text{odd}", r"\text{(B)}", r"35^\circ", r"12\%", r"\$4.50", r"18\text{ cm}", "3:5",
    "1011_2", r"\begin{pmatrix} 1 \\ -2 \end{pmatrix}",
)  # fmt: skip


Measure = Literal["own box", "rewritten", "perturbed", "malformed", "unboxed"]
MEASURES: tuple[Measure, ...] = get_args(Measure)


@dataclass(frozen=True)
class Probe:
    """One answer whose right verdict is known. ``kind``: of the gold; ``form``: how the answer was made."""

    task: str
    kind: str
    form: str
    gold: str
    answer: str
    right: bool

    @property
    def measure(self) -> Measure:
        """What it measures."""
        named: dict[str, Measure] = {"own box": "own box", "malformed": "malformed", "unboxed": "unboxed"}
        return named.get(self.form, "rewritten" if self.right else "perturbed")

    @property
    def response(self) -> str:
        """A response that ends with the answer: in a box, in one that is never closed, or in none."""
        end = {"malformed": f"$\\boxed{{{self.answer}", "unboxed": f"${self.answer}$."}
        answer = end.get(self.form, f"$\\boxed{{{self.answer}}}$.")
        return f"Working it out step by step gives the result.\n\nThe final answer is {answer}"


@dataclass(frozen=True)
class Row:
    """Counts of one measure of one set and kind, and how many each grader judges as expected or cannot judge."""

    task: str
    kind: str
    measure: Measure
    probes: int
    published: int
    audited: int
    published_errors: int
    audited_errors: int


_NUMERALS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class FormRow:
    """Counts of probes of one kind made in one way, over all sets. ``right``: what they should be judged."""

    kind: str
    form: str
    right: bool
    probes: int
    published: int
    audited: int


_Made = tuple[str, str, bool]  # form, answer, right

_INTEGER = re.compile(r"-?\d+(?:\.0+)?")
_DECIMAL = re.compile(r"(-?)(\d*)\.(\d+)")
_SCIENTIFIC = re.compile(r"(-?)(\d+)(?:\.(\d+))?e([+-]?\d+)")
_FRACTION = re.compile(r"(-?)\\[dt]?frac\s*(?:\{(\d+)\}|(\d))\s*(?:\{(\d+)\}|(\d))")
_THOUSANDS = re.compile(r"(?:\\\$)?\d{1,3}(?:,(?:\\!\s*)?\d{3})+")
_BASED = re.compile(r"(\d+)_\{?(\d)\}?")
_NAMED = re.compile(r"([A-Za-z](?:\([a-z]\)|_\{?[a-z]\}?)?)\s*=\s*([^=,;]+)")
_UNIT = re.compile(r"(\d[\d.]*)\s*(\^\s*\{?\\circ\}?|\\?%|\\(?:text|mbox)\{[^{}]*\}(?:\^2)?)")


def probes(task: str, gold: str) -> list[Probe]:
    """The gold in its own box, and what can be made of it."""
    text = re.sub(r"(?<!\\)\$|\\quad|\\left(?![a-z])|\\right(?![a-z])", "", repaired(gold)).strip().rstrip(".").strip()
    kind, made = _kind(text, task)
    seen: set[str] = set()
    result = [Probe(task, kind, "own box", gold, re.sub(r"(?<!\\)\$", "", gold).strip(), True)]
    for form, answer, right in made:
        if answer not in seen:
            seen.add(answer)
            result.append(Probe(task, kind, form, gold, answer, right))
    return result


def spoiled(task: str, gold: str) -> list[Probe]:
    """The gold in a box that is never closed, and in none. By our rules neither is an answer."""
    own, *_ = probes(task, gold)
    return [replace(own, form=form, right=False) for form in ("malformed", "unboxed")]


def run(
    asked: list[Probe],
    *,
    workers: int | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    progress: Callable[[int], None] | None = None,
) -> list[Grade]:
    """Grades of the probes, in order."""
    requests = [GradeRequest(probe.gold, probe.response, probe.task) for probe in asked]
    return grade_many(requests, workers=workers, timeout=timeout, progress=progress)


def as_expected(probe: Probe, verdict: str) -> bool:
    """Whether a verdict is what the probe expects; an error never is."""
    return verdict == ("right" if probe.right else "wrong")


def rows(asked: Iterable[Probe], grades: Iterable[Grade]) -> list[Row]:
    """Counts by set, kind and measure, in the order of first appearance."""
    counts: dict[tuple[str, str, Measure], Counter[str]] = {}
    for probe, grade in zip(asked, grades, strict=True):
        counter = counts.setdefault((probe.task, probe.kind, probe.measure), Counter())
        counter["probes"] += 1
        for name, verdict in (("published", grade.published), ("audited", grade.audited)):
            counter[name] += as_expected(probe, verdict)
            counter[f"{name}_errors"] += verdict == "error"
    return [Row(*key, *(counter[field.name] for field in fields(Row)[len(key) :])) for key, counter in counts.items()]


def forms(asked: Iterable[Probe], grades: Iterable[Grade]) -> list[FormRow]:
    """Counts by kind and form of what stands in a box, those first that the published grader misses most often."""
    counts: dict[tuple[str, str, bool], Counter[str]] = {}
    for probe, grade in zip(asked, grades, strict=True):
        if probe.measure in ("malformed", "unboxed"):
            continue
        counter = counts.setdefault((probe.kind, probe.form, probe.right), Counter())
        counter["probes"] += 1
        counter["published"] += as_expected(probe, grade.published)
        counter["audited"] += as_expected(probe, grade.audited)
    found = [
        FormRow(*key, counter["probes"], counter["published"], counter["audited"]) for key, counter in counts.items()
    ]
    return sorted(found, key=lambda row: row.published - row.probes)


def _kind(text: str, task: str) -> tuple[str, list[_Made]]:
    if _INTEGER.fullmatch(text):
        return "integer", list(_integer(int(Fraction(text)), competition=rule_of(task).family == "integer"))
    if match := _SCIENTIFIC.fullmatch(text):
        return "scientific", list(_scientific(match))
    if match := _DECIMAL.fullmatch(text):
        return "decimal", list(_decimal(match, coarse=any(gold == text for gold, _ in rule_of(task).tolerances)))
    if match := _FRACTION.fullmatch(text):
        sign, *parts = match.groups()
        top, bottom = (int(part) for part in parts if part)
        return "fraction", list(_fraction(-top if sign else top, bottom))
    if _THOUSANDS.fullmatch(text):
        value = int(re.sub(r"\D", "", text))
        return "integer", list(_integer(value, competition=False))
    if match := _BASED.fullmatch(text):
        return "base", list(_based(match.group(1), int(match.group(2))))
    if match := _UNIT.fullmatch(text):
        return "unit", list(_unit(match.group(1), match.group(2)))
    if re.search(r"\\begin\{", text):
        return "matrix", list(_matrix(text))
    if re.fullmatch(r"\\text\{\(?[A-Za-z]+\)?\}", text):
        return "words", list(_words(text[6:-1]))
    parts = _listed(text)
    if len(parts) > 1 and not re.search(r"[a-z]_|where", text):
        return "list", list(_list(parts))
    if re.fullmatch(r"[(\[].*[)\]]", text) and len(inner := _listed(text[1:-1])) > 1 and "cup" not in text:
        return "tuple or interval", list(_tuple(text, inner))
    if r"\cup" in text:
        return "union", list(_union(text))
    if (match := _NAMED.fullmatch(text)) is not None:
        return "equation", list(_named(match.group(1), match.group(2).strip()))
    if text.count("=") == 1 and not re.search(r"[<>,]|where", text):
        return "equation", list(_equation(*text.split("=")))
    if re.search(
        r"=|<|>|\\[lg]eq?(?:slant)?(?![a-z])|\\in(?![a-z])|\\pm|:|\\%|\\text|\\\$|_\d|\\\{|where|\\mbox", text
    ):
        return "other", []
    return "expression", list(_expression(text))


def _listed(text: str) -> list[str]:
    """Pieces between commas outside all brackets."""
    pieces, depth, start = [], 0, 0
    for index, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0 and text[index - 1 : index] != "\\":
            pieces.append(text[start:index].strip())
            start = index + 1
    return [*pieces, text[start:].strip()]


def _thousands(number: int, separator: str) -> str:
    return f"{number:,}".replace(",", separator)


def _integer(value: int, *, competition: bool) -> Iterator[_Made]:
    yield "plain", str(value), True
    yield "decimal point", f"{value}.0", True
    yield "full stop", f"{value}.", True
    yield "bold", rf"\mathbf{{{value}}}", True
    yield "named", f"x = {value}", True
    yield "fraction", rf"\frac{{{2 * value}}}{{2}}", True
    if competition:
        yield "degrees", rf"{value}^\circ", True
        yield "leading zero", f"{value:04d}", True
    if abs(value) >= 1000:
        for separator in (",", "{,}", r"\,", r",\!", " "):
            yield "thousands", _thousands(value, separator), True
    yield "off by one", str(value + 1), False
    yield "off by one", str(value - 1), False
    yield "off by a little", f"{value}.0000001", False
    yield "half more", f"{value}.5", False
    yield "one answer more", f"{value}, {value + 1}", False
    if value:
        yield "other sign", str(-value), False
        yield "ten times", str(10 * value), False
        yield "times pi", rf"{value}\pi", False


def _fraction(top: int, bottom: int) -> Iterator[_Made]:
    sign = "-" if top < 0 else ""
    size = abs(top)
    yield "slash", f"{top}/{bottom}", True
    yield "dfrac", rf"{sign}\dfrac{{{size}}}{{{bottom}}}", True
    yield "tfrac", rf"{sign}\tfrac{{{size}}}{{{bottom}}}", True
    yield "sign on top", rf"\frac{{{top}}}{{{bottom}}}", True
    yield "unreduced", rf"{sign}\frac{{{3 * size}}}{{{3 * bottom}}}", True
    yield "ten digits", f"{top / bottom:.10g}", True
    whole, rest = divmod(size, bottom)
    if whole and rest:
        yield "mixed number", rf"{sign}{whole}\frac{{{rest}}}{{{bottom}}}", True
        yield "mixed number, other whole", rf"{sign}{whole + 1}\frac{{{rest}}}{{{bottom}}}", False
    yield "top off by one", rf"\frac{{{top + 1}}}{{{bottom}}}", False
    yield "bottom off by one", rf"\frac{{{top}}}{{{bottom + 1}}}", False
    yield "other sign", rf"\frac{{{-top}}}{{{bottom}}}", False
    if abs(top) != bottom:
        yield "upside down", rf"\frac{{{bottom}}}{{{top}}}", False
    if abs(Fraction(f"{top / bottom:.2f}") - Fraction(top, bottom)) * 100_000 > abs(Fraction(top, bottom)):
        yield "two decimals", f"{top / bottom:.2f}", False


def _decimal(match: re.Match[str], *, coarse: bool) -> Iterator[_Made]:
    sign, whole, part = match.groups()
    value = Fraction(f"{sign}{whole or 0}.{part}")
    yield "trailing zero", f"{sign}{whole}.{part}0", True
    yield "leading zero", f"{sign}{whole or 0}.{part}", True
    yield "fraction", rf"\frac{{{value.numerator}}}{{{value.denominator}}}", True
    digits = (whole + part).lstrip("0")
    exponent = len(digits) - 1 - len(part)
    yield "powers of ten", rf"{sign}{digits[0]}.{digits[1:] or 0} \times 10^{{{exponent}}}", True
    last = int(whole + part) + (5 if coarse else 1)
    changed = f"{last:0{len(part) + 1}d}"
    yield "last digit", f"{sign}{changed[: -len(part)]}.{changed[-len(part) :]}", False
    yield "other sign", f"{'' if sign else '-'}{whole}.{part}", False
    yield "point moved", f"{float(value * 10):.10g}", False
    # Nearer than this it may stand for the gold, by our rules.
    if (rounded := f"{float(value):.2g}") and abs(Fraction(rounded) - value) * 100_000 > abs(value):
        yield "rounded", rounded, False


def _scientific(match: re.Match[str]) -> Iterator[_Made]:
    sign, whole, part, power = match.groups()
    mantissa = f"{sign}{whole}.{part}" if part else f"{sign}{whole}"
    exponent = int(power)
    yield "times", rf"{mantissa} \times 10^{{{exponent}}}", True
    yield "cdot", rf"{mantissa} \cdot 10^{{{exponent}}}", True
    yield "letter", f"{mantissa}E{exponent:+03d}", True
    yield "typed", f"{mantissa}*10^({exponent})" if exponent < 0 else f"{mantissa}*10^{exponent}", True
    yield "unicode", f"{mantissa} × 10^{{{exponent}}}", True
    shifted = Fraction(mantissa) * 10
    yield "shifted", rf"{float(shifted):.12g} \times 10^{{{exponent - 1}}}", True
    value = Fraction(mantissa) * Fraction(10) ** exponent
    if abs(exponent) <= 12:
        plain = f"{value.numerator}" if value.denominator == 1 else f"{float(value):.{len(part or '') - exponent}f}"
        yield "written out", plain, True
        if value.denominator == 1 and value >= 1000:
            yield "written out, thousands", _thousands(value.numerator, "{,}"), True
    yield "with a unit", rf"{mantissa} \times 10^{{{exponent}}} \text{{ m}}", True
    yield "exponent off by one", rf"{mantissa} \times 10^{{{exponent + 1}}}", False
    yield "exponent off by one", rf"{mantissa} \times 10^{{{exponent - 1}}}", False
    yield "other sign of exponent", rf"{mantissa} \times 10^{{{-exponent}}}", False
    step = Fraction(10) ** -len(part or "")
    yield "last digit", rf"{float(Fraction(mantissa) + step):.10g} \times 10^{{{exponent}}}", False
    yield "zero", "0", False


def _unit(value: str, unit: str) -> Iterator[_Made]:
    yield "without", value, True
    yield "with", f"{value} {unit}", True
    yield "decimal", f"{float(value)}", True
    changed = f"{float(value) + 1:g}"
    yield "other value", f"{changed} {unit}", False
    yield "other value without", changed, False
    if "%" in unit:
        yield "as a number", f"{float(value) / 100:g}", True


def _words(words: str) -> Iterator[_Made]:
    yield "bare", words, True
    yield "upper case", rf"\text{{{words.upper()}}}", True
    yield "lower case", rf"\text{{{words.lower()}}}", True
    yield "bold", rf"\textbf{{{words}}}", True
    yield "negated", rf"\text{{not {words}}}", False
    yield "another", r"\text{north by northwest}", False
    yield "a number", "7", False


def _list(parts: list[str]) -> Iterator[_Made]:
    yield "spaced", ", ".join(parts), True
    yield "backwards", ", ".join(parts[::-1]), True
    yield "braces", rf"\{{{', '.join(parts[1:] + parts[:1])}\}}", True
    yield "and", ", ".join(parts[:-1]) + r" \text{ and } " + parts[-1], True
    yield "one too few", ", ".join(parts[1:]), False
    yield "one too many", ", ".join([*parts, "987654"]), False
    yield "one twice", ", ".join([*parts, parts[0]]), False
    if all(re.fullmatch(r"-?\d+", part) for part in parts):
        changed = [*parts[:-1], str(int(parts[-1]) + 1)]
        if sorted(changed) != sorted(parts):
            yield "one off by one", ", ".join(changed), False
        yield "as a tuple", f"({', '.join(parts)})", False


def _tuple(text: str, inner: list[str]) -> Iterator[_Made]:
    left, right = text[0], text[-1]
    body = ", ".join(inner)
    yield "left and right", rf"\left{left} {body} \right{right}", True
    yield "tight", f"{left}{','.join(inner)}{right}", True
    if len(inner) == 2 and inner != inner[::-1]:
        yield "swapped", f"{left}{inner[1]}, {inner[0]}{right}", False
    yield "set braces", rf"\{{{body}\}}", False
    yield "other bracket", f"{'[' if left == '(' else '('}{body}{right}", False
    yield "one place more", f"{left}{body}, 1{right}", False
    if "infty" not in inner[0]:
        yield "first place changed", f"{left}{inner[0]}+1, {', '.join(inner[1:])}{right}", False


def _union(text: str) -> Iterator[_Made]:
    parts = [part.strip() for part in text.split(r"\cup")]
    yield "backwards", r" \cup ".join(parts[::-1]), True
    yield "member of", r"x \in " + r" \cup ".join(parts), True
    yield "one part only", parts[0], False
    changed = re.sub(r"\((?=-?\d)|(?<=\d)\)", lambda bracket: {"(": "[", ")": "]"}[bracket.group()], text, count=1)
    if changed != text:
        yield "other bracket", changed, False


def _matrix(text: str) -> Iterator[_Made]:
    yield "brackets", text.replace("pmatrix", "bmatrix"), True
    yield "unspaced", re.sub(r"\s*(\\\\|&)\s*", r"\1", text), True
    yield "changed", re.sub(r"(\\begin\{\w+\})\s*", r"\1 987+", text), False
    yield "a row more", text.replace(r"\end{", r"\\ 0 \end{"), False


def _named(name: str, value: str) -> Iterator[_Made]:
    yield "without name", value, True
    yield "named", f"{name} = {value}", True
    yield "off by one", f"{name} = {value}+1", False
    yield "off by one without name", f"{value}+1", False
    yield "other sign", rf"{name} = -\left({value}\right)", False


def _equation(left: str, right: str) -> Iterator[_Made]:
    left, right = left.strip(), right.strip()
    yield "sides swapped", f"{right} = {left}", True
    yield "doubled", rf"2\left({left}\right) = 2\left({right}\right)", True
    yield "right side off by one", f"{left} = {right} + 1", False
    if right != "0":
        yield "other sign", rf"{left} = -\left({right}\right)", False


def _based(digits: str, base: int) -> Iterator[_Made]:
    yield "braces", f"{digits}_{{{base}}}", True
    yield "without base", digits, True
    yield "words", rf"{digits}_{{\text{{{_NUMERALS[base]}}}}}", True
    yield "other base", f"{digits}_{base + 1}", False
    yield "other digits", f"{int(digits) + 1}_{base}", False
    yield "in decimal", str(int(digits, base)), False


def _expression(text: str) -> Iterator[_Made]:
    yield "in brackets", rf"\left({text}\right)", True
    yield "twice its half", rf"2 \cdot \frac{{{text}}}{{2}}", True
    yield "sum turned", rf"-1 + \left({text}\right) + 1", True
    yield "named", f"Q = {text}", True
    yield "off by one", f"{text} + 1", False
    yield "doubled", rf"2\left({text}\right)", False
    yield "other sign", rf"-\left({text}\right)", False
    yield "squared", rf"\left({text}\right)^2 + 3", False
