"""The published grader is Math-Verify and nothing else; the pool keeps order; the command keeps its word."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from methods.errors import UserError
from reuse_bench.main import app
from tasks.grading import GradeRequest, audit, grade_many
from tasks.grading.audit import EXAMPLES, MEASURES, probes

pytestmark = pytest.mark.slow

CASES = json.loads((Path(__file__).parents[1] / "data" / "grading_cases.json").read_text())
ROOT = Path(__file__).parents[2]

# Run apart, in a process where nothing of ours is loaded, in which the library is as its makers left it; but for its
# alarm, which on a busy machine turns right answers into wrong ones.
PLAIN = """
import json, sys
from math_verify import LatexExtractionConfig, parse, verify
for line in sys.stdin:
    gold, response = json.loads(line)
    golds = parse("\\\\boxed{" + gold + "}", [LatexExtractionConfig()], parsing_timeout=None)
    print(json.dumps(verify(golds, parse(response, parsing_timeout=None), timeout_seconds=None)))
"""


def plain(pairs: list[tuple[str, str]]) -> list[bool]:
    lines = "".join(json.dumps(pair) + "\n" for pair in pairs)
    done = subprocess.run([sys.executable, "-c", PLAIN], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def compare(pairs: list[tuple[str, str]]) -> None:
    expected = plain(pairs)
    grades = grade_many([GradeRequest(gold, response) for gold, response in pairs])
    for (gold, response), right, grade in zip(pairs, expected, grades, strict=True):
        assert (grade.published == "right") == right, (gold, response, grade)


def test_published_verdicts_are_those_of_math_verify():
    pairs = [(case["gold"], f"We get $\\boxed{{{case['prediction']}}}$.") for case in CASES]
    pairs += [
        (case["gold"], f"The final answer is ${case['prediction']}$. I hope it is correct.") for case in CASES[::4]
    ]
    pairs += [("5", "no box, but 5"), ("5", ""), ("5", "x = 5, y = 6"), ("1,2", r"$\boxed{1}$ and $\boxed{2}$")]
    compare(pairs)


@pytest.mark.slow
def test_published_verdicts_are_those_of_math_verify_on_many():
    compare([(probe.gold, probe.response) for gold in EXAMPLES for probe in probes("examples", gold)])


# Run apart: what the parser makes of each line, as its makers left it, or with the faster parts.
TREES = """
import sys
from latex2sympy2_extended import latex2sympy2
from sympy import srepr
if len(sys.argv) > 1:
    from tasks.grading import published
    published._predict_in_two_stages()
    published._read_numbers_at_once()
for line in sys.stdin:
    try:
        print(srepr(latex2sympy2.latex2sympy(line.rstrip(), is_real=True, normalization_config=None)))
    except Exception as caught:
        print(type(caught).__name__)
"""


def test_the_faster_parts_of_the_parser_make_the_same_trees():
    numbers = ["0", "7", "073", "007.50", "00", "7.", ".5", "2025", "1.0", "17.0000001", "0.031", "0.0", "1,234", "1e5"]
    numbers += ["7%", "9" * 30, "9" * 31, "98765432109876543210.12345678901234567890", "3.14159265358979323846", "٣"]
    around = ["--%s", "+%s", "%sx", r"\frac{%s}{12}", r"-\frac{12}{%s}", "x^{%s}", "(%s, 4)", "%s, 3"]
    texts = [sign + number for number in numbers for sign in ("", "-")]
    texts += [form.replace("%s", number) for form in around for number in ("7", "073", "2.50")]
    texts += EXAMPLES
    found = [
        subprocess.run(
            [sys.executable, "-c", TREES, *arguments],
            input="\n".join(texts),
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for arguments in ([], ["faster"])
    ]
    assert len(found[0]) == len(texts)
    assert list(zip(texts, found[1], strict=True)) == list(zip(texts, found[0], strict=True))


def test_known_faults_of_the_published_grader_are_kept():
    """We compare with published numbers, so the verdicts must be the published ones, faults and all."""
    asked = [
        GradeRequest("3e8", r"$\boxed{3\times10^8}$"),
        GradeRequest(r"\frac{1}{2^{99}}", r"$\boxed{\frac{1}{2^{98}}}$"),
        GradeRequest("2107", r"$\boxed{2\,107}$"),
    ]
    grades = grade_many(asked)
    assert [grade.published for grade in grades] == ["wrong", "right", "wrong"]
    assert [grade.audited for grade in grades] == ["right", "wrong", "right"]


def test_order_duplicates_and_progress():
    numbers = [3, 1, 2, 3, 3, 1, 5, 4] * 5
    asked = [GradeRequest(str(number), rf"$\boxed{{{number}}}$") for number in numbers]
    asked[7] = GradeRequest("4", r"$\boxed{5}$")
    asked[9] = GradeRequest("2", "93=2", "chain")
    seen: list[int] = []
    grades = grade_many(asked, workers=2, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == len(asked)
    for number, (request, grade) in enumerate(zip(asked, grades, strict=True)):
        assert grade.audited == ("wrong" if number == 7 else "right")
        assert grade.extracted == ("5" if number == 7 else request.gold)


def test_nothing_to_grade():
    assert grade_many([]) == []


@pytest.mark.parametrize("options", [{"workers": 0}, {"timeout": 0}, {"timeout": -1}, {"timeout": float("nan")}])
def test_senseless_options_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        grade_many([], **options)


# --- the command ---------------------------------------------------------------------------------------------

LINES = [
    json.dumps({"gold": "073", "response": r"So $\boxed{73}$.", "task": "aime24"}),
    "this is no JSON",
    json.dumps({"gold": "3e8", "response": r"So $\boxed{3\times10^8}$."}),
    json.dumps({"gold": 5, "response": "5"}),
    json.dumps(["gold", "response"]),
    json.dumps({"gold": "5"}),
    json.dumps({"gold": "5", "response": "x", "tsak": "aime24"}),
    json.dumps({"gold": "5", "response": "x", "task": 7}),
    "",
    "[" * 100_000,
    '{"gold": "5", "response": "\udc80"}',
    json.dumps({"gold": "2", "response": "93=2", "task": "tiny_sum4", "finished": False}),
    json.dumps({"gold": "5", "response": "it is 5"}),
]
VERDICTS = [
    {"extracted": "73", "published": "right", "audited": "right", "reason": None},
    {"extracted": r"3\times10^8", "published": "wrong", "audited": "right", "reason": None},
    {"extracted": "2", "published": "wrong", "audited": "wrong", "reason": "truncated"},
    {"extracted": None, "published": "right", "audited": "wrong", "reason": "no box"},
]


def _run(*arguments: str, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "reuse_bench.main", "grade", *arguments]
    return subprocess.run(command, input=text, capture_output=True, env=environment, timeout=600)


def _bytes() -> bytes:
    return "\n".join(LINES).encode(errors="surrogateescape")


def test_command_grades_lines_and_names_malformed_ones():
    done = _run(text=_bytes())
    assert [json.loads(line) for line in done.stdout.splitlines()] == VERDICTS
    said = done.stderr.decode()
    assert [line.split(":")[1].strip() for line in said.splitlines()] == [
        f"line {number}" for number in (2, 4, 5, 6, 7, 8, 10, 11)
    ]
    assert "field 'gold' is missing or no text" in said
    assert "unknown field 'tsak'" in said
    assert done.returncode == 1


def test_command_reads_a_file(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_bytes((LINES[0] + "\n\n" + LINES[2] + "\n").encode())
    done = _run(str(path))
    assert [json.loads(line) for line in done.stdout.splitlines()] == VERDICTS[:2]
    assert done.stderr == b""
    assert done.returncode == 0


def test_command_without_its_file(tmp_path):
    done = _run(str(tmp_path / "none.jsonl"))
    assert done.returncode == 2
    assert b"none.jsonl: cannot be read" in done.stderr


def test_command_with_nothing_to_read():
    result = CliRunner().invoke(app, ["grade"], input="")
    assert (result.exit_code, result.stdout) == (0, "")


def test_command_says_what_is_missing(monkeypatch):
    from tasks.grading import pool

    start = subprocess.Popen
    monkeypatch.setattr(pool, "_workers", pool._Workers())
    broken = "import sys; sys.modules['math_verify'] = None; from tasks.grading.worker import main; main()"
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: start([command[0], "-c", broken], **options))
    result = CliRunner().invoke(app, ["grade"], input=LINES[0])
    assert isinstance(result.exception, UserError)
    assert "math_verify" in str(result.exception)
    assert "requirements/install.py" in str(result.exception)


@pytest.mark.slow
def test_command_interrupted():
    command = [sys.executable, "-m", "reuse_bench.main", "grade", "--workers", "1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    assert process.stdin
    process.stdin.write(b"\n" * 1_000_000)  # more than a pipe holds: when this is done, it is reading
    process.send_signal(signal.SIGINT)
    assert process.wait(600) == 3


@pytest.mark.slow
def test_audit(tmp_path):
    """Without data the audit runs on examples, says what it left out, and finds no fault in the audited grader."""
    result = CliRunner().invoke(app, ["grade", "--audit", "--json", "--data-dir", str(tmp_path)])
    assert result.exit_code == 0, result.stdout
    document = json.loads(result.stdout)
    assert len(document["left_out"]) == 6
    assert all(row["audited"] == row["probes"] for row in document["rows"])
    assert {row["measure"] for row in document["rows"]} == set(MEASURES)
    assert sum(row["published"] for row in document["rows"]) < sum(row["probes"] for row in document["rows"])


def _without_expressions(rates: str) -> list[str]:
    """Lines of docs/grading-rates.md without those that the expressions of the six sets count in."""
    lines = rates[rates.index("## By kind of gold") :].splitlines()
    return [line for line in lines if line.startswith("| examples |") or not re.search(r"\| (expression|all) \|", line)]


@pytest.mark.slow
@pytest.mark.skipif("REUSE_BENCH_DATA" not in os.environ, reason="REUSE_BENCH_DATA names no folder with the six sets")
def test_the_rates_in_the_documents_are_those_that_the_command_prints(monkeypatch):
    """Of the expressions of the six sets only what stands in its own box is asked, which is right in both graders: the
    other 1,600 of 23,607 answers take Math-Verify as long as the rest. tests/benchmarks/test_grading.py asks them too.
    """
    probes = audit.probes

    def quick(task: str, gold: str) -> list[audit.Probe]:
        found = probes(task, gold)
        return [one for one in found if task == "examples" or one.kind != "expression" or one.form == "own box"]

    monkeypatch.setattr(audit, "probes", quick)
    result = CliRunner().invoke(app, ["grade", "--audit", "--markdown"])
    assert result.exit_code == 0
    stated = _without_expressions((ROOT / "docs" / "grading-rates.md").read_text())
    assert _without_expressions(result.stdout) == stated
    assert len(stated) > 90


@pytest.mark.slow
@pytest.mark.skipif("REUSE_BENCH_DATA" not in os.environ, reason="REUSE_BENCH_DATA names no folder with the sets")
def test_numbers_written_in_two_ways_by_their_data_sets():
    """Golds that nobody here wrote, and that Math-Verify gives the same value, are equal; with other values, not."""
    import sympy
    from math_verify import LatexExtractionConfig, parse

    from tasks.datasets import data_dir
    from tasks.grading.audited import judge
    from tasks.grading.rules import rule_of

    written: set[str] = set()
    for path in (*sorted(data_dir().glob("*.jsonl")), data_dir().parent / "train" / "math_train.jsonl"):
        if path.exists():
            answers = (json.loads(line)["answer"] for line in path.read_text().splitlines())
            written.update(answer.strip("$") for answer in answers if answer and not re.search(r"[_:%]|\\\$", answer))
    numeric = re.compile(r"(?:\\(?:[dt]?frac|sqrt|pi|cdot|left|right|,|!)|[\d\s{}()\[\].+/^,-])+")
    values: dict[str, list[str]] = {}
    for gold in sorted(gold for gold in written if len(gold) < 40 and numeric.fullmatch(gold))[::2]:
        parsed = parse(f"\\boxed{{{gold}}}", [LatexExtractionConfig()], parsing_timeout=None)
        if parsed and isinstance(parsed[0], sympy.Expr) and (value := parsed[0].doit().evalf(20)).is_number:
            values.setdefault(str(value), []).append(gold)
    alike = [(golds[0], other) for golds in values.values() for other in golds[1:]]
    heads = [golds[0] for golds in values.values()]
    assert len(alike) > 40
    assert len(heads) > 300
    rule = rule_of("math500")
    assert [pair for pair in alike if judge(*pair, rule).verdict != "right"] == []
    assert [pair for pair in itertools.pairwise(heads) if judge(*pair, rule).verdict != "wrong"] == []
