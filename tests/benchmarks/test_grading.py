"""Throughput of both graders together, against a plain loop over Math-Verify alone on the same responses."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from reuse_bench.main import app
from tasks.grading import Grade, GradeRequest, grade_many, grade_one
from tasks.grading.audit import EXAMPLES, probes

RESPONSES = int(os.environ.get("REUSE_BENCH_RESPONSES", "20000"))
ROUNDS = 4
# A plain loop needs minutes for all responses. Its speed is taken from a random part, whose size is set here.
PLAIN_RESPONSES = int(os.environ.get("REUSE_BENCH_PLAIN_RESPONSES", "600"))

PLAIN = """
import json, logging, sys, time
from math_verify import LatexExtractionConfig, parse, verify
class Errors(logging.Handler):
    count = 0  # exceptions that Math-Verify swallows, and turns into "wrong"
    def emit(self, record):
        self.count += record.getMessage().startswith("Error")
errors = Errors()
logging.getLogger("math_verify").addHandler(errors)
logging.getLogger("math_verify").setLevel(logging.DEBUG)
logging.getLogger("math_verify").propagate = False
# Without its alarm, which takes no time, but on a busy machine turns right answers into wrong ones.
grade = lambda g, r: verify(
    parse("\\\\boxed{" + g + "}", [LatexExtractionConfig()], parsing_timeout=None),
    parse(r, parsing_timeout=None),
    timeout_seconds=None,
)
grade("1", "\\\\boxed{1}")  # loading is not timed
for line in sys.stdin:
    pairs = json.loads(line)
    start, used = time.perf_counter(), time.process_time()
    right = [grade(gold, response) for gold, response in pairs]
    print(json.dumps([time.perf_counter() - start, time.process_time() - used, right, errors.count]), flush=True)
    errors.count = 0
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
    sentence = source.choice(SENTENCES)
    return sentence.replace("{n}", str(source.randint(2, 99))).replace("{m}", str(source.randint(99, 999)))


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
            text = "\n\n".join(_sentence(source) for _ in range(source.randint(4, 30)))
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


def _processor_seconds(but: int) -> float:
    """What this process and all that it started have used, but for one of them."""
    own = psutil.Process()
    total = own.cpu_times()
    seconds = total.user + total.system
    for process in own.children(recursive=True):
        if process.pid != but:
            times = process.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
    return seconds


@pytest.mark.slow
def test_three_times_a_plain_loop(benchmark):
    """Both take turns, so that other work on the machine slows both alike.

    The ratio of the times on the clock is what is claimed. The ratio of the processor times is printed beside it:
    twice that is what two cores that do nothing else would show.
    """
    asked = realistic(RESPONSES)
    assert len({request.response for request in asked}) == RESPONSES
    source = random.Random(1)
    size = -(-RESPONSES // ROUNDS)
    parts = [asked[start : start + size] for start in range(0, RESPONSES, size)]
    samples = [source.sample(range(len(part)), min(PLAIN_RESPONSES // ROUNDS, len(part))) for part in parts]
    rounds = iter(range(ROUNDS))
    process = subprocess.Popen([sys.executable, "-c", PLAIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    grade_many(asked[:2], workers=2)  # both are timed without loading
    plain: list[list[Any]] = []
    grades: list[list[Grade]] = []
    used: list[float] = []

    def plain_loop(part):
        process.stdin.write(json.dumps([(request.gold, request.response) for request in part]) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    # Its parser learns, and a loop over all responses has learnt for most of them; ours is timed from the start.
    plain_loop(source.sample(asked, min(PLAIN_RESPONSES, RESPONSES)))

    def plain_first():
        number = next(rounds)
        plain.append(plain_loop([parts[number][index] for index in samples[number]]))
        return (parts[number],), {}

    def ours(part):
        before = _processor_seconds(but=process.pid)
        grades.append(grade_many(part, workers=2))
        used.append(_processor_seconds(but=process.pid) - before)

    benchmark.pedantic(ours, setup=plain_first, rounds=ROUNDS)
    process.stdin.close()
    process.wait()
    sampled = sum(map(len, samples))
    plain_rate, rate = sampled / sum(one[0] for one in plain), RESPONSES / sum(benchmark.stats.stats.data)
    plain_used, our_used = 1000 * sum(one[1] for one in plain) / sampled, 1000 * sum(used) / RESPONSES
    ratio, used_ratio = rate / plain_rate, plain_used / our_used
    errors = {
        "published": sum(grade.published == "error" for part in grades for grade in part),
        "audited": sum(grade.audited == "error" for part in grades for grade in part),
        "time limit": sum("time limit" in (grade.reason or "") for part in grades for grade in part),
        "plain": sum(one[3] for one in plain),
    }
    benchmark.extra_info.update(
        plain_per_second=plain_rate, ours_per_second=rate, ratio=ratio, processor_ratio=used_ratio, errors=errors
    )
    print(
        f"\nboth graders {rate:.0f} a second, plain Math-Verify {plain_rate:.0f}: {ratio:.1f} times"
        f"\nprocessor seconds for 1,000: both graders {our_used:.2f}, plain Math-Verify {plain_used:.2f}: "
        f"{used_ratio:.1f} times, {2 * used_ratio:.1f} on two idle cores"
        f"\nerrors: published {errors['published']}, audited {errors['audited']}, of these by the time limit "
        f"{errors['time limit']}, of {RESPONSES}; swallowed by plain Math-Verify {errors['plain']}, of {sampled}"
    )
    for got, sample, (_, _, right, _) in zip(grades, samples, plain, strict=True):
        assert [got[index].published == "right" for index in sample] == right
    assert ratio >= 3


@pytest.mark.slow
def test_first_verdict_comes_soon(benchmark):
    """Starting a process and loading Math-Verify, once a caller."""
    from tasks.grading import pool

    def cold():
        pool._workers.clear()
        start = time.perf_counter()
        assert grade_one(GradeRequest("5", r"\boxed{5}")).audited == "right"
        return time.perf_counter() - start

    benchmark.pedantic(cold, rounds=3)
    assert benchmark.stats.stats.min < 10


@pytest.mark.slow
@pytest.mark.skipif("REUSE_BENCH_DATA" not in os.environ, reason="REUSE_BENCH_DATA names no folder with the six sets")
def test_the_rates_in_the_documents_are_those_of_all_answers() -> None:
    """No time is taken; here because of the minutes that it may need. tests/unit leaves out what takes longest."""
    result = CliRunner().invoke(app, ["grade", "--audit", "--markdown"])
    assert result.exit_code == 0
    assert result.stdout == (Path(__file__).parents[2] / "docs" / "grading-rates.md").read_text()
