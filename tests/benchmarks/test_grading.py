"""Throughput of both graders together, against a plain loop over Math-Verify alone on the same responses."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time

import pytest

from tasks.grading import Grade, GradeRequest, grade_many, grade_one
from tasks.grading.audit import EXAMPLES, probes

RESPONSES = int(os.environ.get("REUSE_BENCH_RESPONSES", "20000"))
ROUNDS = 4
# A plain loop needs minutes for all responses. Its speed is taken from a random part, whose size is set here.
PLAIN_RESPONSES = int(os.environ.get("REUSE_BENCH_PLAIN_RESPONSES", "600"))

PLAIN = """
import json, logging, sys, time
from math_verify import LatexExtractionConfig, parse, verify
logging.disable(logging.CRITICAL)
# Without its alarm, which takes no time, but on a busy machine turns right answers into wrong ones.
grade = lambda g, r: verify(
    parse("\\\\boxed{" + g + "}", [LatexExtractionConfig()], parsing_timeout=None),
    parse(r, parsing_timeout=None),
    timeout_seconds=None,
)
grade("1", "\\\\boxed{1}")  # loading is not timed
for line in sys.stdin:
    pairs = json.loads(line)
    start = time.perf_counter()
    right = sum(grade(gold, response) for gold, response in pairs)
    print(json.dumps([time.perf_counter() - start, right]), flush=True)
"""

SENTENCES = (
    "We start from the definition and write $a_{k+1} = 2a_k - {n}$ for every $k \\geq 1$.",
    "Substituting $x = {n}$ gives $\\frac{x^2 + {n}}{2} = {m}$, so the first case is impossible.",
    "By symmetry it is enough to look at the {n} arrangements in which the first place is fixed.",
    "Hence the sum of the remaining terms is \\(\\sum_{i=1}^{{n}} i = {m}\\), which is more than {n}.",
    "Let us check this: ${n} + {m} = {n} + {m}$ holds.",
    "Wait, I should double-check the case where the two values coincide.",
    "Therefore\n\\[ y = \\sqrt{{m}} \\cdot {n} \\]\nand we can go on with the second condition.",
)


def golds() -> list[tuple[str | None, str]]:
    """Those of the six sets where they are at hand; otherwise numbers and examples of every kind."""
    if "REUSE_BENCH_DATA" in os.environ:
        from tasks.datasets import BENCHMARKS, load

        return [(task, problem.answer) for task in BENCHMARKS for problem in load(task).problems]
    source = random.Random(5)
    numbers = [str(source.randint(0, 2000)) for _ in range(500)]
    fractions = [rf"\frac{{{source.randint(1, 99)}}}{{{source.randint(2, 99)}}}" for _ in range(200)]
    decimals = [f"{source.uniform(0, 100):.2f}" for _ in range(100)]
    return [(None, gold) for gold in (*numbers, *fractions, *decimals, *EXAMPLES)]


def _sentence(source: random.Random) -> str:
    small, large = str(source.randint(2, 99)), str(source.randint(99, 999))
    return source.choice(SENTENCES).replace("{n}", small).replace("{m}", large)


def realistic(count: int) -> list[GradeRequest]:
    """Responses as models write them: two in five right, two in five wrong, the rest malformed or without a box.

    Sixteen samples a problem agree in their answers more often than not, and never in their words.
    """
    source = random.Random(2026)
    made: list[GradeRequest] = []
    problems = golds()
    source.shuffle(problems)
    while len(made) < count:
        task, gold = problems[len(made) // 16 % len(problems)]
        made_from_gold = probes(task or "", gold)
        right = [probe.answer for probe in made_from_gold if probe.right][:4]
        wrong = [probe.answer for probe in made_from_gold if not probe.right][:5] or ["0"]
        for _ in range(16):
            text = "\n\n".join(
                source.choice(SENTENCES)
                .replace("{n}", str(source.randint(2, 99)))
                .replace("{m}", str(source.randint(99, 999)))
                for _ in range(source.randint(4, 30))
            )
            sort = source.random()
            answers = right if sort < 0.4 else wrong
            # The first form is the usual one, each further one half as frequent.
            (answer,) = source.choices(answers, [2.0**-rank for rank in range(len(answers))])
            if sort < 0.8:
                ending = f"The final answer is $\\boxed{{{answer}}}$."
            elif sort < 0.85:
                ending = f"So we get $\\boxed{{{answer}"
            elif sort < 0.9:
                ending = f"$\\boxed{{\\frac{{{answer}}}$ and so on and so on"
            else:
                ending = f"So the answer is {answer}."
            made.append(GradeRequest(gold, f"{text}\n\n{ending}", task))
    return made[:count]


@pytest.mark.slow
def test_three_times_a_plain_loop(benchmark):
    """Both take turns, so that other work on the machine slows both alike."""
    asked = realistic(RESPONSES)
    assert len({request.response for request in asked}) == RESPONSES
    source = random.Random(1)
    size = RESPONSES // ROUNDS
    parts = [asked[start : start + size] for start in range(0, RESPONSES, size)]
    samples = [source.sample(range(len(part)), min(PLAIN_RESPONSES // ROUNDS, len(part))) for part in parts]
    plain_seconds, plain_right, rounds = 0.0, [], iter(range(ROUNDS))
    process = subprocess.Popen([sys.executable, "-c", PLAIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    grade_one(asked[0])  # both are timed without loading
    grades: list[list[Grade]] = []

    def plain_first():
        nonlocal plain_seconds
        number = next(rounds)
        part = [(parts[number][index].gold, parts[number][index].response) for index in samples[number]]
        process.stdin.write(json.dumps(part) + "\n")
        process.stdin.flush()
        seconds, right = json.loads(process.stdout.readline())
        plain_seconds += seconds
        plain_right.append(right)
        return (parts[number],), {"workers": 2}

    benchmark.pedantic(lambda *a, **k: grades.append(grade_many(*a, **k)), setup=plain_first, rounds=ROUNDS)
    process.stdin.close()
    process.wait()
    plain = sum(map(len, samples)) / plain_seconds
    ours = RESPONSES / sum(benchmark.stats.stats.data)
    ratio = ours / plain
    benchmark.extra_info.update(plain_per_second=plain, ours_per_second=ours, ratio=ratio)
    print(f"\nboth graders {ours:.0f} a second, plain Math-Verify {plain:.0f}: {ratio:.1f} times")
    for got, sample, right in zip(grades, samples, plain_right, strict=True):
        assert sum(got[index].published == "right" for index in sample) == right
    assert ratio >= 3


@pytest.mark.slow
def test_first_verdict_comes_soon(benchmark):
    """Starting a process and loading Math-Verify, once a caller."""
    from tasks.grading import pool

    def cold():
        pool._idle.clear()
        start = time.perf_counter()
        assert grade_one(GradeRequest("5", r"\boxed{5}")).audited == "right"
        return time.perf_counter() - start

    benchmark.pedantic(cold, rounds=3)
    assert benchmark.stats.stats.min < 10
