"""`reuse-bench compare`: methods, records, and printed numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scipy import stats
from typer.testing import CliRunner

from leaderboard import compare, published, statistics, tables
from methods.errors import UserError
from reuse_bench.main import app
from tests.synthetic import synthetic_store

pytestmark = pytest.mark.slow

TASKS = {"aime25": (30, 8), "math500": (60, 4)}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return synthetic_store(
        tmp_path_factory.mktemp("compare"),
        protocol="qwen3-1.7b",
        models=("qwen3-1.7b-base",),
        reuses=(8, 32),
        tasks=TASKS,
        updates=64,
    )


@pytest.fixture(scope="module")
def results(store):
    return tables.load(store)


def test_two_methods_are_compared_in_every_block(results):
    found = compare.compare("respo", "grpo", results)
    assert [(block.reuse, len(block.rows)) for block in found.blocks] == [(8, 3), (32, 3)]
    pairs = tables.comparisons(results)
    for block in found.blocks:
        for row in block.rows:
            same = pairs[
                (pairs["reuse"] == block.reuse)
                & (pairs["task"] == row.task)
                & (pairs["first"] == "grpo")
                & (pairs["second"] == "respo")
            ].iloc[0]
            assert row.difference == pytest.approx(-same["difference"])
            assert (row.low, row.high) == pytest.approx((-same["high"], -same["low"]))
            assert row.p_holm >= row.p_value


def test_the_words_say_what_the_numbers_say(results):
    for block in compare.compare("respo", "grpo", results).blocks:
        for row in block.rows:
            if row.verdict == "undecided":
                assert row.p_holm >= 0.05
                assert row.words.startswith("undecided")
                few = "the data are too few" in row.words
                assert few == (row.detectable >= 1)
                assert few != ("would have been found" in row.words)
            else:
                ahead = "respo" if row.verdict == "first" else "grpo"
                assert row.p_holm < 0.05
                assert row.words.startswith(f"{ahead} is ahead")


def test_no_difference_is_larger_than_all_of_the_scale():
    """Three seeds that scatter much: no score differs from another by more than 100 points."""
    shipped = tables.load(Path(__file__).resolve().parents[2] / "results")
    blocks = compare.compare("grpo", "gspo", shipped, reuse=16).blocks
    words = [row.words for block in blocks for row in block.rows if row.task == "tiny_sum3"]
    assert words == ["undecided: 19.9 points apart; the data are too few to find a difference of any size"]


def test_what_would_have_been_found_is_at_the_level_of_all_rows(results):
    """Four rows of single benchmarks are judged together, and two macro averages."""
    cells = results.cells()
    for block in compare.compare("respo", "grpo", results).blocks:
        key = ("qwen3-1.7b", "closed", "qwen3-1.7b-base", block.reuse)
        for row in block.rows:
            tasks, among = (list(TASKS), 2) if row.task == published.MACRO else ([row.task], 4)
            level = 1 - 0.05 / among
            alone = tables.compare_cells(cells[(*key, "respo")], cells[(*key, "grpo")], tasks, level=level)
            power = alone.error * stats.norm.ppf(0.8)
            assert row.detectable == pytest.approx(alone.high - alone.difference + power)
            assert row.verdict != "undecided" or abs(row.difference) < row.detectable


def test_flipped_problems_are_those_that_change_their_majority(results):
    block = compare.compare("respo", "grpo", results, reuse=8).blocks[0]
    row = next(row for row in block.rows if row.task == "math500")
    cells = results.cells()
    key = ("qwen3-1.7b", "closed", "qwen3-1.7b-base", 8)
    first, second = (tables.matrices(cells[(*key, name)], ["math500"])[0].mean(axis=0) for name in ("respo", "grpo"))
    ids = sorted(cells[(*key, "respo")][0].evaluation["math500"].problem_ids)
    expected = {ids[i] for i in range(60) if (first[i] > 0.5) != (second[i] > 0.5)}
    assert {flip.problem for flip in row.flips} == expected
    changes = [abs(flip.first - flip.second) for flip in row.flips]
    assert changes == sorted(changes, reverse=True)


def test_two_records_are_compared_as_two_checkpoints(results, store):
    base = "qwen3-1.7b/qwen3-1.7b-base/n8"
    found = compare.compare(f"{base}/respo/seed0.json", f"{base}/grpo/seed0.json", results)
    (block,) = found.blocks
    assert found.kind == "records"
    assert "other seeds may differ" in block.words
    records = {path.relative_to(store).as_posix(): record for path, record in results.records}
    shares = []
    for name in ("respo", "grpo"):
        result = records[f"{base}/{name}/seed0.json"].evaluation["math500"]
        order = sorted(range(60), key=result.problem_ids.__getitem__)
        shares.append([result.right_per_problem["published"][i] / 4 for i in order])
    row = next(row for row in block.rows if row.task == "math500")
    assert row.p_value == pytest.approx(stats.ttest_rel(*shares).pvalue, rel=1e-6)


def test_records_are_found_by_their_id(results):
    one, two = results.records[0][1], results.records[1][1]
    found = compare.compare(one.id[:12], two.id[:12], results)
    assert found.kind == "records"


def test_a_method_is_held_against_its_printed_numbers(results):
    found = compare.compare("respo", "published", results, reuse=32)
    (block,) = found.blocks
    table = published.heldout()
    for row in block.rows:
        printed = table[
            (table["model"] == "Qwen3-1.7B")
            & (table["reuse"] == 32)
            & (table["method"] == "respo")
            & (table["task"] == row.task)
        ]["score"].iloc[0]
        assert row.second == printed
        assert row.difference == pytest.approx(row.first - printed)
        # The bounds are those of one further run of ours, less the printed number: zero outside is contradicted.
        assert (row.verdict == "contradicted") == (not row.low <= 0 <= row.high)
    turned = compare.compare("published", "respo", results, reuse=32).blocks[0]
    for one, two in zip(block.rows, turned.rows, strict=True):
        assert (two.low, two.high) == pytest.approx((-one.high, -one.low))
        assert two.verdict == one.verdict


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("respo", "nope", "nope: .* no results of that method"),
        ("respo", "respo", "compared with itself"),
        ("published", "published", "both are printed"),
        ("respo", "published:grpo", "its own printed numbers"),
        ("respo", "x/y.json", "no such record"),
        ("respo", "qwen3-1.7b/qwen3-1.7b-base/n8/respo/seed0.json", "two of a kind"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(results, first, second, message):
    with pytest.raises(UserError, match=message):
        compare.compare(first, second, results)


def test_cells_that_are_not_there_are_named(results):
    with pytest.raises(UserError, match="with N = 16"):
        compare.compare("respo", "grpo", results, reuse=16)


def test_one_seed_is_undecided(tmp_path):
    results = tables.load(synthetic_store(tmp_path, reuses=(8,), seeds=(0,), tasks=TASKS, updates=64))
    (block,) = compare.compare("respo", "grpo", results).blocks
    assert {row.verdict for row in block.rows} == {"undecided"}
    assert all(statistics.ONE_SEED in row.words for row in block.rows)


def test_the_command_prints_tables_and_json(store):
    run = CliRunner()
    arguments = ["compare", "respo", "grpo", "--records", str(store)]
    shown = run.invoke(app, arguments)
    assert shown.exit_code == 0
    assert "flipped" in shown.stdout
    document = json.loads(run.invoke(app, [*arguments, "--json"]).stdout)
    assert len(document["blocks"]) == 2
    assert document["blocks"][0]["rows"][0]["verdict"] in ("first", "second", "undecided")
