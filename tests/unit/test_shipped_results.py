"""The records in ``results/``: they verify, their page can be built again, the document says what they say."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from harness.curves import read_updates
from harness.grid import cells
from harness.protocol import load_protocol
from harness.records import canonical_json, iter_records
from harness.verification.checked import Finding
from harness.verify import verify
from leaderboard import compare, site, tables
from reuse_bench.main import app

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
CONTROL = "tiny-random-reward"


def test_the_whole_grid_of_the_tiny_protocol_is_there() -> None:
    present = {record.relative_path().with_suffix("").as_posix() for _, record in iter_records(RESULTS)}
    wanted = {cell.id for name in ("tiny", CONTROL) for cell in cells(load_protocol(name))}
    assert wanted - present == set()
    assert {record.division for _, record in iter_records(RESULTS)} == {"closed"}
    # Frozen: records of another meaning of the protocol are of another protocol.
    assert {record.protocol.digest for _, record in iter_records(RESULTS)} == {
        load_protocol(name).digest for name in ("tiny", CONTROL)
    }


def test_seeds_share_their_first_rollout_batch() -> None:
    """Common random numbers: the first score of a seed is that of the same responses under every method and N."""
    first = Counter()
    for _, record in iter_records(RESULTS):
        if record.protocol.id == "tiny" and record.method and record.training:
            curve = RESULTS / record.relative_path().with_suffix("") / record.training.curve.path
            first[record.reuse, record.seeds.run, read_updates(curve)[0]["score"]] += 1
    methods = len(load_protocol("tiny").methods.hyperparameters)
    assert set(first.values()) == {methods}


def test_what_collapsed_is_shown_with_its_runs_and_ranked_nowhere() -> None:
    """REINFORCE loses its policy in some runs of every N: the means of the others must not look like the rest."""
    found = tables.load(RESULTS, protocol="tiny")
    for table, column in ((tables.heldout(found), "task"), (tables.training(found), "measure")):
        rows = tables.as_rows(table)
        collapsed = [row for row in rows if row["collapsed"] and row[column] != "early"]
        assert {row["method"] for row in collapsed} == {"reinforce"}
        assert {row["reuse"] for row in collapsed} == {8, 16, 32}
        for row in collapsed:
            block = [one for one in rows if one["reuse"] == row["reuse"] and one[column] == row[column]]
            assert not row["ranked"]
            assert not row["leader"]
            assert tables.mark(row, block) == ""
            assert "collapsed" in row["leaves_out"]


def test_they_are_small() -> None:
    assert sum(path.stat().st_size for path in RESULTS.rglob("*") if path.is_file()) < 30e6


def test_nothing_in_them_names_the_machine() -> None:
    for path in RESULTS.rglob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert "/root" not in text, path
        assert "/home/" not in text, path


@pytest.mark.slow
def test_they_verify() -> None:
    report = verify(RESULTS)
    assert [finding for finding in report.findings if finding.level == "error"] == []
    assert report.records == len(list(iter_records(RESULTS)))


REAL = Path("tiny/tiny-qwen3/n32/respo/seed0.json")
CHANGES = settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of the records with its files, where it may be changed."""
    store = tmp_path_factory.mktemp("real")
    (store / REAL).parent.mkdir(parents=True)
    shutil.copy(RESULTS / REAL, store / REAL)
    shutil.copytree(RESULTS / REAL.with_suffix(""), store / REAL.with_suffix(""))
    return store


def named_by(store: Path, file: Path, content: bytes) -> list[Finding]:
    """What verification says when a file has this content; the file is put back."""
    original = file.read_bytes()
    try:
        file.write_bytes(content)
        return [one for one in verify(store).findings if one.level == "error"]
    finally:
        file.write_bytes(original)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["*.json", "*.jsonl", "*.parquet"])
@CHANGES
@given(data=st.data())
def test_any_changed_byte_of_a_real_record_is_found_and_its_file_named(
    real: Path, kind: str, data: st.DataObject
) -> None:
    file = data.draw(st.sampled_from(sorted(real.rglob(kind))))
    content = bytearray(file.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    assert file.relative_to(real).as_posix() in {one.path for one in named_by(real, file, bytes(content))}


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    inner = [leaf for key, item in items for leaf in leaves(item, (*place, key))]
    yield from inner or [place]


@pytest.mark.slow
@CHANGES
@given(data=st.data())
def test_any_changed_field_of_a_real_record_is_found_and_named(real: Path, data: st.DataObject) -> None:
    document = json.loads((real / REAL).read_bytes())
    place = data.draw(st.sampled_from([leaf for leaf in leaves(document) if leaf[0] != "field_digests"]))
    target = document
    for key in place[:-1]:
        target = target[key]
    old = target[place[-1]]
    target[place[-1]] = (not old) if isinstance(old, bool) else old + 1 if isinstance(old, int | float) else f"{old}x"
    found = named_by(real, real / REAL, canonical_json(document))
    dotted = ".".join(map(str, place))
    assert place[0] in {one.field.split(".")[0] for one in found} or any(
        f"field {dotted}" in one.message for one in found
    )


@pytest.mark.slow
def test_their_page_is_built_again_to_the_byte(tmp_path: Path) -> None:
    for name, workers in (("one", 1), ("two", 2)):
        site.build(RESULTS, tmp_path / name, workers=workers)
    one, two = ((tmp_path / name / "SHA256SUMS").read_bytes() for name in ("one", "two"))
    assert one == two
    assert len(one.splitlines()) > 100


@pytest.mark.slow
def test_the_document_is_what_the_records_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(app, ["report", "--protocol", "tiny", "--control", CONTROL])
    assert done.exit_code == 0, done.output
    assert (ROOT / "docs" / "tiny-results.md").read_text(encoding="utf-8") == done.stdout


@pytest.mark.slow
def test_the_worked_example_says_what_the_records_say() -> None:
    """Every number of the prose of docs/statistics.md on these records; its tables are run by test_documents."""
    text = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")
    prose = " ".join(text.partition("## A worked example")[2].partition("## Sources")[0].split())
    found = tables.load(RESULTS, protocol="tiny")
    asked = compare.compare("vespo", "respo", found, reuse=8)
    rows = {row.task: row for row in asked.blocks[0].rows}
    pairs = tables.comparisons(found)
    whole = pairs[pairs["task"] != tables.MACRO]
    pair = whole[(whole["first"] == "respo") & (whole["second"] == "vespo") & (whole["reuse"] == 8)].set_index("task")
    sure = whole[whole["separated"]]
    assert ((sure["first"] == "reinforce") | (sure["second"] == "reinforce")).all()
    stability = tables.stability(found).set_index("reuse")["stability"][8]
    for sentence in (
        f"VESPO is surely ahead, by {100 * rows['tiny_sum4'].difference:.1f} points",
        f"it is {100 * rows['tiny_sum3'].difference:.1f} points ahead and nothing is sure",
        f"The macro average is {100 * rows[tables.MACRO].difference:.1f} points apart",
        f"the last line says that {100 * rows[tables.MACRO].detectable:.1f} would have been found",
        f"its family is the table, {len(whole)} comparisons",
        f"the 4.4 points have an adjusted p of {pair['p_holm']['tiny_sum4']:.2f}",
        f"What {len(whole)} comparisons of three seeds can tell apart is REINFORCE, in {len(sure)} of them",
        f"The rank stability of the block is {stability:.2f}",
    ):
        assert sentence in prose
    assert rows["tiny_sum4"].verdict == "first"
    assert rows["tiny_sum3"].verdict == rows[tables.MACRO].verdict == "undecided"
