"""The claims of the paper on its own tables and on results; the rules themselves."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from leaderboard import claims, published, tables
from methods.errors import UserError
from reuse_bench.main import app
from tests.synthetic import synthetic_store

pytestmark = pytest.mark.slow

FIGURES = {
    "early-best": (5, 6),
    "late-best": (5, 6),
    "late-beats-clipped": (6, 6),
    "heldout-best": (17, 24),
    "macro-best": (4, 4),
    "macro-close-at-8": (2, 2),
    "early-or-late-best": (10, 12),
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return synthetic_store(
        tmp_path_factory.mktemp("claims"), tasks={"tiny_sum3": (20, 4), "tiny_sum4": (20, 4)}, updates=32
    )


def printed():
    return {outcome.claim.id: outcome for outcome in claims.evaluate(claims.shipped(), claims.Printed())}


def test_all_seven_claims_hold_on_the_published_tables_with_their_figures():
    found = printed()
    assert {name: (one.count("yes"), len(one.settings)) for name, one in found.items()} == FIGURES
    assert {one.verdict for one in found.values()} == {"holds"}


def test_the_stated_numbers_are_those_of_the_tables():
    found = printed()
    assert [(s["points"], s["found"]) for s in found["late-beats-clipped"].stated] == [(8.4, 8.4)]
    assert [s["found"] for s in found["macro-best"].stated] == [0.8, 3.2, 1.3, 1.9]
    assert [s["found"] for s in found["macro-close-at-8"].stated] == [-0.5, -0.2]
    assert found["heldout-best"].summary == "17 of 24"


def test_counts_agree_with_a_count_by_hand():
    """Pandas' own ranking of the raw file, without the rules."""
    import pandas as pd

    wide = pd.read_csv(published.FOLDER / published.HELDOUT_FILE)
    wide = wide[wide["rollout_reuse"].isin([16, 32])]
    best = 0
    for _, block in wide.groupby(["model", "rollout_reuse"]):
        scores = block.set_index("method")[list(published.TASKS)]
        best += int((scores.loc["ReSPO"] > scores.drop("ReSPO").max()).sum())
    assert best == 17


def test_every_printed_macro_average_is_the_mean_of_its_row():
    table = published.heldout()
    wide = table.pivot(index=["model", "reuse", "method"], columns="task", values="percent")
    assert ((wide[list(published.TASKS)].mean(axis=1) - wide[published.MACRO]).abs() <= 0.05 + 1e-9).all()
    assert len(wide) == 24


def answer(tmp_path, statuses):
    """Does ReSPO lead GRPO and REINFORCE on the macro average? Five seeds, and it does by far."""
    store = synthetic_store(
        tmp_path, methods=("grpo", "respo", "reinforce"), reuses=(8,), seeds=range(5), updates=32, statuses=statuses
    )
    one = rule(
        table="heldout", measures=[published.MACRO], method="respo", rivals=["grpo", "reinforce"], **{"in": "1/1"}
    )
    (outcome,) = claims.evaluate([claims.ClaimsFile(paper="x", claims=[one])], claims.Reproduced(tables.load(store)))
    return outcome.settings[0].answer


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ({}, "yes"),
        ({("reinforce", 8, 0): "collapsed"}, "yes"),
        ({("respo", 8, 0): "collapsed"}, "unsure"),
        ({("grpo", 8, 0): "failed"}, "unsure"),
    ],
    ids=["all done", "a rival collapsed and is behind", "its own run collapsed", "a rival's run failed"],
)
def test_what_runs_without_a_score_do_to_a_claim(tmp_path, statuses, expected):
    assert answer(tmp_path, statuses) == expected


def rule(**changes):
    return claims.Claim.model_validate(
        {
            "id": "x",
            "statement": "x",
            "table": "training",
            "measures": ["late"],
            "method": "a",
            "rivals": ["b"],
            "in": "2/3",
        }
        | changes
    )


class Given:
    """A source with stated leads."""

    def __init__(self, *leads):
        self.leads = leads

    def settings(self, table):
        return [("m", n, "late") for n in range(len(self.leads))]

    def lead(self, table, setting, method, rivals, family):
        found = self.leads[setting[1]]
        return None if found is None else claims.Lead(*found)


SURE, LOST, UNSURE = (0.1, 0.05, 0.2), (-0.1, -0.2, -0.05), (0.1, -0.1, 0.3)


@pytest.mark.parametrize(
    ("leads", "verdict"),
    [
        ((SURE, SURE, LOST), "holds"),
        ((SURE, SURE, UNSURE), "holds"),
        ((SURE, UNSURE, LOST), "inconclusive"),
        ((SURE, None, LOST), "inconclusive"),
        ((SURE, LOST, LOST), "fails"),
        ((None, LOST, LOST), "fails"),
        ((UNSURE, UNSURE, UNSURE), "inconclusive"),
        ((None, None, None), "no data"),
        ((), "no data"),
    ],
)
def test_the_verdict_needs_enough_sure_settings(leads, verdict):
    (outcome,) = claims.evaluate([claims.ClaimsFile(paper="p", claims=[rule()])], Given(*leads))
    assert outcome.verdict == verdict


def test_a_tie_is_not_a_lead_and_a_bound_is_within():
    tie = (0.0, 0.0, 0.0)
    (strict,) = claims.evaluate([claims.ClaimsFile(paper="p", claims=[rule()])], Given(tie, tie))
    assert strict.verdict == "fails"
    behind = (-0.005, -0.005, -0.005)
    within = claims.ClaimsFile(paper="p", claims=[rule(behind_by_at_most=0.5)])
    assert claims.evaluate([within], Given(behind, tie))[0].verdict == "holds"
    assert claims.evaluate([within], Given((-0.006,) * 3, tie, (-0.006,) * 3))[0].verdict == "fails"


@pytest.mark.parametrize(("points", "verdict"), [(10, "holds"), (12, "holds"), (30, "fails")])
def test_a_stated_lead_must_lie_in_the_interval(points, verdict):
    stated = {"model": "m", "reuse": 0, "measure": "late", "points": points}
    one = claims.ClaimsFile(paper="p", claims=[rule(leads=[stated])])
    assert claims.evaluate([one], Given(SURE, SURE, SURE))[0].verdict == verdict


def test_the_largest_lead_must_be_where_it_is_stated():
    stated = {"model": "m", "reuse": 0, "measure": "late", "points": 10}
    one = claims.ClaimsFile(paper="p", claims=[rule(largest=stated)])
    bigger = (0.5, 0.4, 0.6)
    assert claims.evaluate([one], Given(SURE, SURE, SURE))[0].verdict == "holds"
    assert claims.evaluate([one], Given(SURE, bigger, SURE))[0].verdict == "fails"


def test_the_bounds_of_a_lead_hold_for_all_comparisons_of_its_claim(tiny):
    """Bonferroni over settings and rivals: with bounds for one comparison, one claim of many would hold by chance."""
    source = claims.Reproduced(tables.load(tiny))
    rivals = ["grpo", "gspo", "vespo"]
    one = rule(table="heldout", measures="benchmarks", method="respo", rivals=rivals, **{"in": "1/1"})
    (outcome,) = claims.evaluate([claims.ClaimsFile(paper="p", claims=[one])], source)
    assert len(outcome.settings) == 6
    for found in outcome.settings:
        key = (found.model, found.reuse, found.measure)
        cells = {k[-1]: records for k, records in tables.load(tiny).cells().items() if k[2:4] == key[:2]}
        expected = [
            tables.compare_cells(cells["respo"], cells[rival], [found.measure], level=1 - 0.05 / 18) for rival in rivals
        ]
        assert found.lead.low == pytest.approx(min(bound.low for bound in expected))
        assert found.lead.high == pytest.approx(min(bound.high for bound in expected))


def test_results_need_more_than_noise(tiny):
    source = claims.Reproduced(claims.protocols_for_claims(tables.load(tiny), []))
    found = {one.claim.id: one for one in claims.evaluate(claims.shipped(), source)}
    assert set(found) == set(FIGURES)
    assert {len(found["early-best"].settings), len(found["heldout-best"].settings)} == {3, 4}
    assert found["early-or-late-best"].as_json()["figures"]["needed"] == 5
    assert found["heldout-best"].verdict in ("inconclusive", "fails")


@pytest.mark.slow
def test_clear_results_hold(tmp_path):
    """Eight seeds and a method that is far ahead: the same rules say so."""
    from tests import synthetic

    before = dict(synthetic.LIFT)
    synthetic.LIFT.update(respo=6.0, vespo=0.0, gspo=0.0, grpo=0.0)
    try:
        store = synthetic_store(
            tmp_path, tasks={"tiny_sum3": (40, 8), "tiny_sum4": (40, 8)}, updates=128, seeds=range(8)
        )
    finally:
        synthetic.LIFT.clear()
        synthetic.LIFT.update(before)
    source = claims.Reproduced(tables.load(store))
    verdicts = {one.claim.id: one.verdict for one in claims.evaluate(claims.shipped(), source)}
    assert verdicts["macro-best"] == "holds"
    assert verdicts["heldout-best"] == "holds"
    assert verdicts["late-best"] == "holds"


def test_one_seed_decides_nothing(tmp_path):
    store = synthetic_store(tmp_path, tasks={"tiny_sum3": (20, 4), "tiny_sum4": (20, 4)}, updates=32, seeds=(0,))
    outcomes = claims.evaluate(claims.shipped(), claims.Reproduced(tables.load(store)))
    assert {one.verdict for one in outcomes} == {"inconclusive"}


def test_a_missing_method_is_no_data(tmp_path):
    store = synthetic_store(tmp_path, tasks={"tiny_sum3": (20, 4)}, updates=32, methods=("grpo", "respo"))
    outcomes = {o.claim.id: o for o in claims.evaluate(claims.shipped(), claims.Reproduced(tables.load(store)))}
    assert outcomes["early-best"].verdict == "no data"
    assert outcomes["late-beats-clipped"].verdict == "no data"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("claims: [", "line 1"),
        ("paper: x\nclaims: []\npaper: y", "line 3: field paper is given twice"),
        ("paper: x", "claims"),
        (
            "paper: x\nclaims: [{id: a, statement: b, table: heldout, measures: [x], method: m, rivals: [n], in: 3/2}]",
            "in",
        ),
        (
            "paper: x\nclaims: [{id: a, statement: b, table: heldout, measures: [x], method: m, rivals: [], in: 1/2}]",
            "rivals",
        ),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path, text, message):
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        claims.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_command_prints_what_the_issue_asks(tiny):
    run = CliRunner()
    found = run.invoke(app, ["claims", "--source", "published", "--json"])
    assert found.exit_code == 0
    document = json.loads(found.stdout)
    assert len(document) == 7
    assert {tuple(one) for one in document} == {("id", "statement", "verdict", "figures")}
    assert {one["verdict"] for one in document} == {"holds"}
    again = run.invoke(app, ["claims", "--source", "results", "--protocol", "tiny", "--records", str(tiny), "--json"])
    assert again.exit_code == 0
    assert {one["verdict"] for one in json.loads(again.stdout)} <= {"holds", "fails", "inconclusive", "no data"}
    assert "17 of 24" in run.invoke(app, ["claims", "--source", "published"]).stdout


def test_an_unknown_protocol_is_named(tiny):
    with pytest.raises(UserError, match="--protocol nope"):
        claims.protocols_for_claims(tables.load(tiny), ["nope"])
