"""Records that are false and sealed like true ones: what an honest-looking forgery contradicts is found and named."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness import provenance, records, scoring, verify
from harness.curves import read_updates, training_summary
from harness.evaluation import request_seed
from harness.grid import Cell
from harness.protocol import load_protocol
from harness.verification import files
from harness.verification.checked import Finding
from tests.synthetic import synthetic_store

pytestmark = pytest.mark.slow

CELL = Path("smoke/tiny-qwen3/n2")
RECORD = CELL / "grpo" / "seed0.json"
Document = dict[str, Any]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods with two seeds each, and the base model."""
    return synthetic_store(
        tmp_path_factory.mktemp("good"),
        protocol="smoke",
        methods=("grpo", "gspo"),
        reuses=(2,),
        seeds=(0, 1),
        base=True,
    )


@pytest.fixture
def store(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "store"))


def findings(store: Path, level: str = "error") -> list[Finding]:
    return [finding for finding in verify.verify(store).findings if finding.level == level]


def fields(store: Path) -> set[str]:
    return {finding.field for finding in findings(store)}


def edit(store: Path, change: Callable[[Document], object], path: Path = RECORD) -> None:
    """Change a record and seal it again, as a forger would."""
    document = json.loads((store / path).read_bytes())
    change(document)
    document.pop("field_digests")
    record = records.Record.model_validate(document)
    (store / path).write_bytes(records.canonical_json(record.sealed().model_dump(mode="json")))


def folder_of(path: Path) -> Path:
    return path.with_suffix("")


def put_samples(store: Path, rows: pd.DataFrame, task: str, path: Path = RECORD, identity: Any = None) -> None:
    """Put other rows into a record, with everything that follows from them."""
    target = store / folder_of(path) / "samples" / f"{task}.parquet"
    scoring.write_samples(rows, target, identity)
    seal_samples(store, task, path)


def seal_samples(store: Path, task: str, path: Path = RECORD) -> None:
    folder = store / folder_of(path)
    target = folder / "samples" / f"{task}.parquet"
    old = records.read_record(store / path).evaluation[task]
    found = scoring.task_result(scoring.read_samples(target), task, old.sampling, records.file_ref(target, folder))
    edit(store, lambda d: d["evaluation"].update({task: found.model_dump(mode="json")}), path)


def put_curve(store: Path, lines: list[Document], path: Path = RECORD) -> None:
    folder = store / folder_of(path)
    target = folder / "updates.jsonl"
    # Other white space than ours: the bytes differ, the content does not.
    target.write_text("".join(json.dumps(line, separators=(" ,", " : ")) + "\n" for line in lines))
    scoring_windows = load_protocol("smoke").scoring
    summary = training_summary(
        read_updates(target),
        early=scoring_windows.early,
        late=scoring_windows.late,
        reuse=2,
        curve=records.file_ref(target, folder),
    )
    edit(store, lambda d: d.update(training=summary.model_dump(mode="json")), path)


def a_task(store: Path) -> str:
    return sorted(records.read_record(store / RECORD).evaluation)[0]


def test_the_true_records_pass(good: Path) -> None:
    assert findings(good) == []


def test_samples_of_another_model_written_anew_are_found(store: Path) -> None:
    """The better method's responses under this record's seeds: no byte of the file is the same, no verdict is false."""
    task = a_task(store)
    other = CELL / "gspo" / "seed1.json"
    rows = scoring.read_samples(store / folder_of(other) / "samples" / f"{task}.parquet")
    seed = Cell("smoke", "tiny-qwen3", 2, "grpo", 0).seeds.evaluation
    rows["seed"] = [
        request_seed(seed, task, name, int(sample))
        for name, sample in zip(rows["problem_id"], rows["sample"], strict=True)
    ]
    put_samples(store, rows, task)
    (finding,) = findings(store)
    assert finding.field == f"evaluation.{task}.samples"
    assert "the same as in" in finding.message


def test_the_curve_of_another_run_written_anew_is_found(store: Path) -> None:
    put_curve(store, read_updates(store / CELL / "gspo" / "seed0" / "updates.jsonl"))
    (finding,) = findings(store)
    assert (finding.field, "the same as in" in finding.message) == ("training.curve", True)


def test_the_curve_of_another_seed_is_found_by_its_first_rollout_batch(store: Path) -> None:
    """Changed in one digit of each loss, so that it is no copy."""
    lines = read_updates(store / CELL / "gspo" / "seed1" / "updates.jsonl")
    put_curve(store, [line | {"loss": line["loss"] + 1e-6} for line in lines])
    assert {finding.field for finding in findings(store)} == {"training.curve"}
    assert all("the first rollout batch scores" in finding.message for finding in findings(store))


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda lines: lines[-1].update(score=float("nan")), "is no number of JSON"),
        (lambda lines: lines[-1].update(score=float("inf")), "is no number of JSON"),
        (lambda lines: [line.update(score=1.5) for line in lines[-2:]], "above 1"),
        (lambda lines: lines[-1].update(score=0.9), "another score than rollout"),
        (lambda lines: lines[-1].update(rollout=1), "is of rollout 1 instead of"),
    ],
    ids=["nan", "infinite", "above one", "two scores of one batch", "another rollout"],
)
def test_scores_that_no_curve_can_have_are_found(store: Path, change: Callable[[Any], object], part: str) -> None:
    lines = read_updates(store / folder_of(RECORD) / "updates.jsonl")
    change(lines)
    target = store / folder_of(RECORD) / "updates.jsonl"
    target.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ref = records.file_ref(target, target.parent).model_dump()
    edit(store, lambda d: d["training"].update(curve=ref))
    assert any(part in finding.message and finding.field == "training.curve" for finding in findings(store))


STATEMENTS: dict[str, tuple[str, Callable[[Document], object]]] = {
    "trained elsewhere, in the closed division": ("division", lambda d: d.update(kind="external")),
    "a base model with a checkpoint": ("checkpoint", lambda d: d.update(kind="base", method=None, reuse=None)),
    "a plugin under a built-in name": ("method.origin", lambda d: d["method"].update(origin="mine 1.0")),
    "another title": ("method.title", lambda d: d["method"].update(title="ReSPO")),
    "negative cost": ("cost.gpu_hours", lambda d: d["cost"].update(gpu_hours=-1.0)),
    "more time than there was": ("cost", lambda d: d["cost"].update(training_seconds=1e308)),
    "no start": ("attempts", lambda d: d.update(attempts=[])),
    "a start before the record's": (
        "attempts.0.started",
        lambda d: d["attempts"][0].update(started="2026-10-01T08:00:00+00:00"),
    ),
    "an end after the record's": (
        "attempts.0.ended",
        lambda d: d["attempts"][0].update(ended="2026-11-02T08:00:00+00:00"),
    ),
    "starts that overlap": (
        "attempts.1.started",
        lambda d: d.update(attempts=[d["attempts"][0], d["attempts"][0]]),
    ),
    "an end that is not the status": ("attempts.0.outcome", lambda d: d["attempts"][0].update(outcome="collapsed")),
    "other updates than the curve": ("attempts.0.last_update", lambda d: d["attempts"][0].update(last_update=1)),
    "updates backwards": ("attempts.0.first_update", lambda d: d["attempts"][0].update(first_update=99)),
    "another set": ("data.T.digest", lambda d: data_of(d).update(digest="0" * 64)),
    "no set": ("data.T", lambda d: d["data"].remove(data_of(d))),
    "a negative seed": ("seeds.run", lambda d: d["seeds"].update(run=-1)),
}


def data_of(document: Document) -> Any:
    return next(one for one in document["data"] if one["name"] == sorted(document["evaluation"])[0])


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_that_contradicts_the_others_is_found(store: Path, name: str) -> None:
    field, change = STATEMENTS[name]
    edit(store, change)
    assert field.replace(".T", f".{a_task(store)}") in fields(store)


@pytest.mark.parametrize("status", ["done", "failed"])
def test_true_records_of_unlucky_runs_pass(store: Path, tmp_path: Path, status: str) -> None:
    """Killed after its last update; trained to the end, and then the evaluation failed."""
    statuses = {("vespo", 2, 0): status}
    synthetic_store(store, protocol="smoke", methods=("vespo",), reuses=(2,), seeds=(0,), statuses=statuses)
    outcome = {"done": "interrupted", "failed": "completed"}[status]
    edit(store, lambda d: d["attempts"][0].update(outcome=outcome, ended=None), CELL / "vespo" / "seed0.json")
    assert findings(store) == []


def test_a_time_that_has_not_come_is_a_note(store: Path) -> None:
    """The clock that is wrong may be the one of the machine that verifies."""
    edit(store, lambda d: d["provenance"].update(ended="2999-01-01T00:00:00+00:00"))
    assert "provenance.ended" in {finding.field for finding in findings(store, "note")}


def test_two_runs_with_one_checkpoint_are_found(store: Path) -> None:
    other = records.read_record(store / CELL / "gspo" / "seed1.json").checkpoint
    assert other is not None
    edit(store, lambda d: d["checkpoint"].update(digest=other.digest))
    assert fields(store) == {"checkpoint.digest"}


def test_a_seed_that_is_missing_below_others_is_a_note(store: Path) -> None:
    (store / RECORD).unlink()
    shutil.rmtree(store / folder_of(RECORD))
    found = [one for one in findings(store, "note") if one.field == "seeds.run"]
    assert [one.path for one in found] == [(CELL / "grpo" / "seed1.json").as_posix()]
    assert "no record of seed 0" in found[0].message


@pytest.mark.parametrize("what", ["record", "folder", "samples", "file", "method"])
def test_links_are_found_wherever_they_are(store: Path, tmp_path: Path, what: str) -> None:
    place = {
        "record": store / RECORD,
        "folder": store / folder_of(RECORD),
        "samples": store / folder_of(RECORD) / "samples",
        "file": store / folder_of(RECORD) / "updates.jsonl",
        "method": store / CELL / "grpo",
    }[what]
    outside = tmp_path / "outside"
    place.rename(outside)
    place.symlink_to(outside)
    assert any("link" in finding.message for finding in findings(store))


def test_a_huge_file_is_named_and_not_read(store: Path) -> None:
    target = store / folder_of(RECORD) / "updates.jsonl"
    os.truncate(target, files.LARGEST_FILE + 1)
    (finding,) = [one for one in findings(store) if one.field == "training.curve.bytes"]
    assert "is not read" in finding.message
    os.truncate(store / CELL / "gspo" / "seed0.json", files.LARGEST_RECORD + 1)
    assert any("is not read" in one.message and one.path.endswith("gspo/seed0.json") for one in findings(store))


def test_a_file_with_more_rows_than_stated_is_not_read(store: Path) -> None:
    task = a_task(store)
    target = store / folder_of(RECORD) / "samples" / f"{task}.parquet"
    table = pq.read_table(target)
    pq.write_table(pa.concat_tables([table, table]), target)
    ref = records.file_ref(target, store / folder_of(RECORD)).model_dump()
    edit(store, lambda d: d["evaluation"][task].update(samples=ref))
    (finding,) = findings(store)
    assert (finding.field, "rows" in finding.message) == (f"evaluation.{task}.samples", True)


def test_a_column_that_does_not_belong_is_found(store: Path) -> None:
    """Texts of problems, say, which are not ours to publish."""
    task = a_task(store)
    target = store / folder_of(RECORD) / "samples" / f"{task}.parquet"
    table = pq.read_table(target)
    pq.write_table(table.append_column("prompt", pa.array(["x"] * table.num_rows)), target)
    seal_samples(store, task)
    (finding,) = findings(store)
    assert "column 'prompt'" in finding.message


@pytest.mark.parametrize("key", ["checkpoint", "data", "seed", "task", "max_tokens"])
def test_a_sample_file_that_names_another_evaluation_is_found(store: Path, key: str) -> None:
    task = a_task(store)
    record = records.read_record(store / RECORD)
    result = record.evaluation[task]
    assert record.checkpoint is not None
    (data,) = [one.digest for one in record.data if one.name == task]
    plan = {"task": task, "temperature": result.sampling.temperature, "top_p": result.sampling.top_p}
    plan["max_tokens"] = result.sampling.max_tokens
    identity: Document = {"checkpoint": record.checkpoint.digest, "data": data, "seed": record.seeds.evaluation}
    identity["plan"] = plan
    rows = scoring.read_samples(store / folder_of(RECORD) / "samples" / f"{task}.parquet")
    put_samples(store, rows, task, identity=identity)
    assert findings(store) == []
    (identity if key in identity else plan)[key] = "other"
    put_samples(store, rows, task, identity=identity)
    (finding,) = findings(store)
    assert finding.message.startswith(f"the file is of {key} 'other'")


def test_packages_unlike_the_lock_are_named() -> None:
    lock = b"# pinned\n--extra-index-url x\ntorch==2.13.0\nPy_Yaml==6.0 ; python_version > '3'\na==1\nb==1\nc==1\n"
    assert (
        provenance.unlike_lock({"torch": "2.13.0+cu129", "py-yaml": "6.0", "a": "1", "b": "1", "c": "1"}, [lock]) == []
    )
    found = provenance.unlike_lock({"torch": "2.12.0", "py-yaml": "6.0.1"}, [lock])
    assert found == [
        "torch is 2.12.0 instead of 2.13.0",
        "Py_Yaml is 6.0.1 instead of 6.0",
        "a is missing instead of 1",
        "and 2 more",
    ]
