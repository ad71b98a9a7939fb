"""Tables against what the records and their samples say, computed here another way."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from harness.curves import early_score, late_score
from harness.records import iter_records, record_folder
from leaderboard import published, tables
from methods.errors import UserError
from tests.synthetic import synthetic_store

STATUSES = {("gspo", 32, 1): "collapsed", ("grpo", 32, 2): "failed"}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    store = synthetic_store(tmp_path_factory.mktemp("tables"), reuses=(8, 32), updates=64, statuses=STATUSES, base=True)
    return tables.load(store)


@pytest.fixture(scope="module")
def heldout(results):
    return tables.heldout(results)


def row(table, **key):
    for name, value in key.items():
        table = table[table[name] == value]
    assert len(table) == 1
    return table.iloc[0]


def samples_of(results, record_path, record, task):
    return pd.read_parquet(record_folder(record_path) / record.evaluation[task].samples.path)


def test_scores_are_those_of_the_samples(results):
    table = tables.scores(results, grader="audited")
    for path, record in list(iter_records(results.store))[::5]:
        for task in record.evaluation:
            rows = samples_of(results, path, record, task)
            expected = (rows["audited"] == "right").groupby(rows["problem_id"]).mean().mean()
            found = row(table, record=record.id, task=task)
            assert found["score"] == pytest.approx(expected)
            assert found["errors"] == (rows["audited"] == "error").sum()


def test_the_macro_average_is_the_plain_mean_of_the_benchmarks(heldout):
    cell = heldout[(heldout["method"] == "respo") & (heldout["reuse"] == 8)].set_index("task")["score"]
    assert cell[published.MACRO] == pytest.approx(cell.drop(published.MACRO).mean())
    assert len(cell) == 7


def test_a_cell_averages_its_seeds_and_has_an_interval(results, heldout):
    by_seed = tables.scores(results)
    by_seed = by_seed[(by_seed["method"] == "vespo") & (by_seed["reuse"] == 8) & (by_seed["task"] == "tiny_sum4")]
    found = row(heldout, method="vespo", reuse=8, task="tiny_sum4")
    assert found["score"] == pytest.approx(by_seed["score"].mean())
    assert found["low"] < found["score"] < found["high"]
    assert (found["seeds"], found["runs"], found["leaves_out"]) == (3, 3, "")


def test_failed_and_collapsed_runs_are_counted_and_named(heldout):
    found = row(heldout, method="gspo", reuse=32, task=published.MACRO)
    assert (found["seeds"], found["runs"], found["done"], found["collapsed"]) == (2, 3, 2, 1)
    assert "of 3 runs, 1 collapsed" in found["leaves_out"]
    assert row(heldout, method="grpo", reuse=32, task=published.MACRO)["failed"] == 1


def test_the_base_model_is_a_row_and_no_competitor(heldout):
    base = heldout[heldout["method"] == tables.BASE]
    assert len(base) == 7
    assert not base["leader"].any()
    assert not base["tied"].any()
    assert (base["leaves_out"] == "").all()


def test_a_checkpoint_from_elsewhere_is_not_called_the_base_model(results):
    (base,) = (record for _, record in results.records if record.kind == "base")
    assert tables.title(base) == "Base model"
    assert tables.title(base.model_copy(update={"kind": "external"})) == "Trained elsewhere"


def test_every_block_has_one_leader_who_is_the_highest(heldout):
    for _, block in heldout[heldout["method"] != tables.BASE].groupby(["reuse", "task"]):
        assert block["leader"].sum() == 1
        leader = block[block["leader"]].iloc[0]
        assert leader["score"] == block["score"].max()
        assert leader["tied"]
        others = block[~block["leader"]]
        assert ((others["p_holm"] < 0.05) == ~others["tied"]).all()


def collapsing(tmp_path, *cells, status="collapsed"):
    """N = 8, five seeds, with the given (method, seed) collapsed; ReSPO is the highest, REINFORCE the lowest."""
    statuses = {(method, 8, seed): status for method, seed in cells}
    methods = ("reinforce", "grpo", "respo")
    return tables.load(
        synthetic_store(tmp_path, methods=methods, reuses=(8,), seeds=range(5), updates=64, statuses=statuses)
    )


def macro(results):
    table = tables.heldout(results)
    return table[table["task"] == published.MACRO].set_index("method", drop=False)


def marks(table):
    rows = tables.as_rows(table)
    return {one["method"]: tables.mark(one, rows) for one in rows}


def test_the_runs_that_came_through_do_not_make_a_method_the_leader(tmp_path):
    """Without the rule ReSPO would be best: one of its five runs has no score, and the others are the highest."""
    whole = macro(collapsing(tmp_path / "whole"))
    assert whole["score"].idxmax() == whole[whole["leader"]].index[0] == "respo"
    assert marks(whole)["respo"] == "best"
    found = macro(collapsing(tmp_path / "collapsed", ("respo", 1)))
    assert found["score"].idxmax() == "respo"
    assert found.loc["respo", ["seeds", "runs", "ranked", "leader", "tied"]].tolist() == [4, 5, False, False, True]
    assert found[found["leader"]].index.tolist() == ["grpo"]
    # Nobody is told apart from what the other runs of ReSPO promise, so that nobody is best.
    assert marks(found)["respo"] == ""
    assert "best" not in marks(found).values()


def test_a_method_that_collapses_can_be_told_to_be_behind(tmp_path):
    found = collapsing(tmp_path / "low", ("reinforce", 1))
    pair = row(tables.comparisons(found), first="reinforce", second="respo", task=published.MACRO)
    assert pair["difference"] < 0
    assert pair["leaves_out"] == ""
    assert pair["separated"]
    assert marks(macro(found)) == {"reinforce": "", "grpo": "", "respo": "best"}


def test_and_never_to_be_ahead(tmp_path):
    found = collapsing(tmp_path, ("respo", 1))
    pair = row(tables.comparisons(found), first="reinforce", second="respo", task=published.MACRO)
    assert pair["leaves_out"] == "ReSPO: of 5 runs, 1 collapsed, and the score is of the others"
    assert pair["p_holm"] < 0.05
    assert not pair["separated"]


def test_a_run_that_failed_could_have_ended_anyhow(tmp_path):
    pairs = tables.comparisons(collapsing(tmp_path, ("reinforce", 1), status="failed"))
    with_failed = (pairs["first"] == "reinforce") | (pairs["second"] == "reinforce")
    assert with_failed.sum() == 2 * 7
    assert not pairs[with_failed]["separated"].any()
    assert (pairs[~with_failed]["leaves_out"] == "").all()


def test_a_collapsed_run_loses_to_every_other(tmp_path):
    chance = {
        name: row(
            tables.comparisons(collapsing(tmp_path / name, *cells)), first="reinforce", second="respo", task="tiny_sum5"
        )["improvement"]
        for name, cells in {"whole": (), "one": (("respo", 1),), "both": (("respo", 1), ("reinforce", 0))}.items()
    }
    assert chance["whole"] == 0
    # Each of the five runs of REINFORCE beats the collapsed one of ReSPO; one that collapsed too is its equal.
    assert chance["one"] == pytest.approx(5 / 25)
    assert chance["both"] == pytest.approx((4 + 0.5) / 25)


def test_training_scores_of_collapsed_runs_are_not_ranked(tmp_path):
    table = tables.training(collapsing(tmp_path, ("respo", 1)))
    for measure, seeds, ranked in (("early", 5, True), ("late", 4, False), ("mean", 5, False)):
        found = row(table, method="respo", measure=measure)
        assert (found["seeds"], found["ranked"]) == (seeds, ranked), measure
        assert found["leader"] <= ranked
    assert row(table, method="respo", measure="early")["leader"]


def test_holms_family_is_one_table(results):
    from statsmodels.stats.multitest import multipletests

    pairs = tables.comparisons(results)
    assert len(pairs) == 2 * 6 * 7
    for kind in (True, False):
        family = pairs[(pairs["task"] == published.MACRO) == kind]
        assert family["p_holm"].to_numpy() == pytest.approx(multipletests(family["p_value"], method="holm")[1])


def test_the_leader_in_training_is_told_apart_among_all_pairs(results):
    """Which method is highest is told by the same scores, so that comparisons with it alone would be too few."""
    from statsmodels.stats.multitest import multipletests

    cells = results.cells()
    table = tables.training(results)
    for measure, family in table[table["score"].notna()].groupby("measure"):
        p_values: dict[tuple[int, str, str], float] = {}
        for reuse, group in family.groupby("reuse"):
            for first, second in combinations(sorted(group["method"]), 2):
                one, two = (
                    next(cells[key] for key in cells if key[3:] == (reuse, method)) for method in (first, second)
                )
                p_values[reuse, first, second] = tables.compare_training(one, two, measure).p_value
        adjusted = dict(zip(p_values, multipletests(list(p_values.values()), method="holm")[1], strict=True))
        for reuse, group in family.groupby("reuse"):
            leader = group[group["leader"]].iloc[0]["method"]
            for method, p_holm in group[~group["leader"]].set_index("method")["p_holm"].items():
                assert p_holm == pytest.approx(adjusted[(reuse, *sorted((method, leader)))])


def test_what_is_undecided_is_less_than_what_could_have_been_found(results):
    """At the level that the family asks for: at that of one comparison, 5 points would be called undecided beside
    "4 would have been found"."""
    pairs = tables.comparisons(results)
    undecided = pairs[(pairs["p_holm"] >= tables.SIGNIFICANCE) & pairs["detectable"].notna()]
    assert len(undecided) > 20
    assert (undecided["difference"].abs() < undecided["detectable"]).all()
    # Here as it would be at the level of one comparison: the difference that the test is about.
    alone = undecided["high"] - undecided["difference"] + 0.8416 * undecided["error"]
    assert (undecided["difference"].abs() > alone).any()
    assert (undecided["detectable"] > alone).all()


def test_one_seed_separates_nobody(tmp_path):
    results = tables.load(synthetic_store(tmp_path, reuses=(8,), seeds=(0,), updates=64))
    assert not tables.comparisons(results)["separated"].any()
    assert tables.heldout(results)["tied"].all()
    training = tables.training(results)
    assert training["low"].isna().all()
    assert training["tied"].all()


def test_rank_stability_of_a_block_is_repeatable(results):
    found = tables.stability(results)
    assert found[["reuse", "methods", "problems"]].to_numpy().tolist() == [[8, 4, 384], [32, 2, 384]]
    assert found["stability"].between(-1, 1).all()
    pd.testing.assert_frame_equal(found, tables.stability(results))


def test_training_scores_follow_from_the_curves(results):
    table = tables.training(results)
    found = row(table, method="respo", reuse=8, measure="late")
    values = []
    for path, record in results.records:
        if tables.cell_key(record)[3:] == (8, "respo"):
            lines = [json.loads(line) for line in (record_folder(path) / "updates.jsonl").read_text().splitlines()]
            values.append(np.mean([line["score"] for line in lines if 56 <= line["update"] <= 64]))
    assert found["score"] == pytest.approx(np.mean(values))
    assert found["seeds"] == 3


def test_windows_weight_rollout_batches_by_policy_updates():
    lines = [{"update": n + 1, "rollout": n // 2 + 1, "score": (n // 2) / 10} for n in range(8)]
    assert early_score(lines, (1, 3)) == pytest.approx(0.1)
    assert late_score(lines, (4, 8)) == pytest.approx((0.1 + 2 * 0.2 + 2 * 0.3) / 5)
    assert late_score(lines, (4, 9)) is None
    assert early_score([], (1, 3)) is None


def test_curves_have_a_band_where_two_seeds_are_there(results):
    table = tables.curves(results)
    full = table[(table["method"] == "respo") & (table["reuse"] == 8)]
    assert full["update"].tolist() == list(range(1, 65))
    assert ((full["low"] <= full["mean"]) & (full["mean"] <= full["high"])).all()
    cut = table[(table["method"] == "grpo") & (table["reuse"] == 32)]
    assert cut["seeds"].tolist() == [3] * 32 + [2] * 32


def test_published_rows_are_never_ours():
    assert set(published.heldout()["kind"]) == {"published"}
    assert set(published.training()["kind"]) == {"published"}
    assert len(published.heldout()) == 24 * 7
    assert len(published.training()) == 24
    assert published.model_key("Qwen/Qwen3-1.7B-Base") == published.model_key("Qwen3-1.7B") == "qwen3-1.7b"
    assert published.sources()[published.HELDOUT_FILE]["interval"] == published.NO_INTERVAL


def test_published_values_and_verdicts_stand_beside_results_of_the_same_cell(tmp_path):
    store = synthetic_store(
        tmp_path,
        protocol="qwen3-1.7b",
        models=("qwen3-1.7b-base",),
        reuses=(32,),
        tasks={"aime25": (30, 4), "math500": (50, 4)},
        updates=64,
    )
    results = tables.load(store)
    found = row(tables.heldout(results), method="respo", task="math500")
    assert found["published"] == pytest.approx(0.729)
    assert found["verdict"] in ("reproduced", "contradicted", "inconclusive")
    inside = found["check_low"] <= found["published"] <= found["check_high"]
    assert (found["verdict"] == "contradicted") == (not inside)
    assert row(tables.training(results), method="respo", measure="late")["published"] == pytest.approx(0.276)
    assert tables.heldout(results, k=4)["published"].isna().all()


def test_pass_at_k_grows_with_k_and_needs_the_samples(results):
    one, four = (tables.heldout(results, k=k).set_index([*tables.CELL, "task"])["score"] for k in (1, 4))
    assert (four.dropna() > one.dropna()).all()
    with pytest.raises(UserError, match="pass@5"):
        tables.heldout(results, k=5)


def test_tables_do_not_depend_on_the_order_of_files(results):
    shuffled = tables.Results(results.store, tuple(reversed(results.records)))
    ordered = tables.Results(results.store, tuple(sorted(shuffled.records, key=lambda r: r[0])))
    one = tables.heldout(results).sort_values([*tables.CELL, "task"]).reset_index(drop=True)
    two = tables.heldout(ordered).sort_values([*tables.CELL, "task"]).reset_index(drop=True)
    pd.testing.assert_frame_equal(one.drop(columns="records"), two.drop(columns="records"))


def test_an_empty_store_gives_empty_tables(tmp_path):
    results = tables.load(tmp_path)
    for make in (tables.runs, tables.scores, tables.heldout, tables.training, tables.comparisons, tables.curves):
        assert len(make(results)) == 0
    with pytest.raises(UserError, match="no such folder"):
        tables.load(tmp_path / "nothing")


def test_other_problems_under_one_name_are_refused(tmp_path):
    synthetic_store(tmp_path, reuses=(8,), methods=("grpo",), tasks={"t": (10, 4)}, updates=64)
    synthetic_store(tmp_path, reuses=(8,), methods=("gspo",), tasks={"t": (11, 4)}, updates=64)
    with pytest.raises(UserError, match="task t has other problems"):
        tables.heldout(tables.load(tmp_path))
