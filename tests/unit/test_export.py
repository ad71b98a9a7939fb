"""Exported files hold the tables, in every format, and the change report shows what a pull request does."""

from __future__ import annotations

import json
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pandas as pd
import pytest
from typer.testing import CliRunner

from harness import verify
from harness.migrations import upgrade
from harness.records import Record, canonical_json, content_id, iter_records, json_schema, read_record
from harness.verification.checked import Finding
from leaderboard import export, tables
from methods.errors import UserError
from reuse_bench.main import app
from tests.synthetic import synthetic_store

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return synthetic_store(
        tmp_path_factory.mktemp("export"), reuses=(8,), tasks={"a": (10, 4), "b": (12, 4)}, updates=16, seeds=(0, 1)
    )


@pytest.fixture(scope="module")
def found(store):
    return export.export_tables(tables.load(store), samples=True)


def test_every_described_table_is_there(found):
    assert set(found) == set(export.DESCRIPTIONS)
    assert len(found["samples"]) == 8 * (40 + 48)
    assert len(found["problems"]) == 8 * 22
    assert len(found["updates"]) == 8 * 16


def test_scores_can_be_recomputed_from_the_exported_samples(found):
    samples = found["samples"]
    mean = (samples["audited"] == "right").groupby([samples["record"], samples["task"]]).mean()
    scores = found["scores"][found["scores"]["grader"] == "audited"].set_index(["record", "task"])["score"]
    for key, value in mean.items():
        assert scores[key] == pytest.approx(value)


def test_all_formats_hold_the_same_rows(found, tmp_path):
    written = export.write(found, tmp_path, export.FORMATS)
    assert len(written) == 2 * len(found) + 2
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in written)
    lite = sqlite3.connect(tmp_path / "reuse-bench.sqlite")
    duck = duckdb.connect(str(tmp_path / "reuse-bench.duckdb"), read_only=True)
    for name, table in found.items():
        rows = len(table)
        assert len(pd.read_csv(tmp_path / f"{name}.csv")) == rows
        assert len(pd.read_parquet(tmp_path / f"{name}.parquet")) == rows
        assert lite.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone() == (rows,)
        assert duck.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone() == (rows,)
    query = "SELECT AVG(score) FROM heldout WHERE method = 'respo' AND task = 'a' AND grader = 'published'"
    expected = found["heldout"].query("method == 'respo' and task == 'a' and grader == 'published'")["score"].iloc[0]
    assert lite.execute(query).fetchone()[0] == pytest.approx(expected)
    assert duck.execute(query).fetchone()[0] == pytest.approx(expected)
    assert lite.execute("SELECT COUNT(*) FROM tables").fetchone() == (len(found),)
    again = pd.read_csv(tmp_path / "heldout.csv")["score"]
    assert (again.to_numpy() == found["heldout"]["score"].to_numpy()).all()


def test_the_command_writes_what_is_asked(store, tmp_path):
    run = CliRunner()
    done = run.invoke(app, ["export", "--records", str(store), "--output", str(tmp_path / "out"), "--format", "sqlite"])
    assert done.exit_code == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["reuse-bench.sqlite"]
    with pytest.raises(UserError, match="--format xls"):
        export.write({"one": pd.DataFrame()}, tmp_path, ["csv", "xls"])
    assert not (tmp_path / "one.csv").exists()


def test_fields_of_others_that_no_table_can_hold_are_left_out(tmp_path):
    store = synthetic_store(tmp_path / "store", methods=("grpo", "respo"), reuses=(8,), seeds=(0,))
    for path, odd in zip(sorted(store.rglob("updates.jsonl")), ({"z": True}, {"z": 1.5}), strict=True):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        odd |= {"Score": 1, "\ud800": 2, "": 3, "two words": 4, "index": 5}
        path.write_text("".join(f"{json.dumps(line | odd)}\n" for line in lines))
    tables_of = export.export_tables(tables.load(store))
    assert {"score", "index", "z"} <= set(tables_of["updates"].columns)
    assert not {"Score", "", "two words"} & set(tables_of["updates"].columns)
    export.write(tables_of, tmp_path / "out", export.FORMATS)


def test_two_exports_into_one_folder_take_turns(tmp_path, monkeypatch):
    inside = []

    def slowly(found, path):
        inside.append(path)
        time.sleep(0.1)
        path.write_text("whole")
        assert inside.pop() == path
        assert not inside

    monkeypatch.setattr(export, "_to_sqlite", slowly)
    with ThreadPoolExecutor() as pool:
        for one in [pool.submit(export.write, {}, tmp_path, ["sqlite"]) for _ in range(3)]:
            assert one.result() == [tmp_path / "reuse-bench.sqlite"]
    assert [path.name for path in tmp_path.iterdir()] == ["reuse-bench.sqlite"]


def test_the_change_report_names_records_scores_and_findings(store, tmp_path):
    old = synthetic_store(tmp_path / "old", reuses=(8,), tasks={"a": (10, 4), "b": (12, 4)}, updates=16, seeds=(0,))
    report = verify.verify(store)
    text = export.changes(tables.load(old), tables.load(store), report)
    assert "| added | tiny/tiny-qwen3/n8/grpo/seed1.json | done | closed |" in text
    assert "seed0.json | done" not in text
    assert "1 seeds" not in text
    assert "### Verification" in text
    cells = [line for line in text.splitlines() if "N = 8 respo" in line]
    assert len(cells) == 1
    same = export.changes(tables.load(store), tables.load(store), report)
    assert "No average changes." in same
    assert "None." in same


def test_hostile_text_cannot_break_out_of_the_report():
    report = verify.Report(findings=[Finding("a|b", "<script>", "x\n# heading [l](javascript:y) `z` @someone")])
    text = export.findings(report)
    (line,) = [line for line in text.splitlines() if "script" in line]
    assert "<script>" not in line
    assert "\\# heading \\[l\\]" in line
    assert "a\\|b" in line
    assert "\\@someone" in line


def test_the_schema_accepts_records_and_refuses_what_is_not_one(store):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for path, _ in iter_records(store):
        validator.validate(json.loads(path.read_bytes()))
    document = json.loads(path.read_bytes())
    for change in ({"extra": 1}, {"status": "maybe"}, {"schema_version": 2}, {"kind": None}):
        assert not validator.is_valid(document | change)
    del document["protocol"]
    assert not validator.is_valid(document)
    shown = CliRunner().invoke(app, ["show", "schema"])
    assert json.loads(shown.stdout) == schema


def old_document(store):
    """A record of an invented version 0, which called ``reuse`` ``n``."""
    path, record = next(iter_records(store))
    document = record.model_dump(mode="json")
    document["schema_version"] = 0
    document["n"] = document.pop("reuse")
    document.pop("field_digests")
    document["id"] = content_id(document)
    return path, record, document


def rename(document):
    document = dict(document)
    document["reuse"] = document.pop("n")
    return document | {"field_digests": {}}


def test_an_older_record_is_brought_up_to_date(store, monkeypatch):
    path, record, document = old_document(store)
    before = canonical_json(document)
    found = upgrade(document, path, migrations={0: rename}, target=1)
    migrated = Record.model_validate(found)
    assert migrated.reuse == record.reuse
    assert migrated.notes["migrated_from"] == {"schema_version": 0, "id": document["id"]}
    assert migrated.id == content_id(found)
    assert migrated.field_digests == migrated.digests_of_fields()
    assert canonical_json(document) == before


def test_migrations_follow_one_another(store):
    path, _, document = old_document(store)
    second = {0: rename, 1: lambda d: d | {"added": True}}
    found = upgrade(document, path, migrations=second, target=2)
    assert (found["schema_version"], found["added"]) == (2, True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 99}, "99 is newer .*upgrade reuse-bench"),
        ({"schema_version": "1"}, "no version"),
        ({"schema_version": True}, "no version"),
        ({"status": "failed"}, "was changed after"),
    ],
)
def test_what_cannot_be_migrated_is_refused(store, change, message):
    path, _, document = old_document(store)
    with pytest.raises(UserError, match=message):
        upgrade(document | change, path, migrations={0: rename}, target=1)
    with pytest.raises(UserError, match="no way up from version 0"):
        upgrade(document, path, migrations={}, target=1)


def test_a_record_of_today_stays_readable(tmp_path):
    """A record written under schema version 1 lies in the test data: every later version must read it."""
    from pathlib import Path

    path = Path(__file__).parents[1] / "data" / "record_v1.json"
    assert read_record(path).schema_version == 1


def test_a_damaged_record_is_one_sentence(store, tmp_path):
    path = tmp_path / "seed0.json"
    for content, message in ((b"{", "cannot be read as JSON"), (b"[]", "no JSON object"), (b"{}", "schema_version")):
        path.write_bytes(content)
        with pytest.raises(UserError, match=message) as caught:
            read_record(path)
        assert "\n" not in str(caught.value)
