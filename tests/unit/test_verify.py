"""Verification finds every change of a record or of its files, and names it."""

from __future__ import annotations

import json
import re
import shutil
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from harness import provenance, records, scoring, verify
from harness.curves import read_updates
from harness.verification import closed, samples
from harness.verification.checked import Checked, Judged
from methods.errors import UserError
from methods.registry import source_digest
from reuse_bench.main import app
from tests.synthetic import synthetic_store

RECORD = Path("smoke/tiny-qwen3/n2/grpo/seed0.json")
CHANGES = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """One record, exactly as the smallest protocol asks."""
    return synthetic_store(
        tmp_path_factory.mktemp("good"), protocol="smoke", methods=("grpo",), reuses=(2,), seeds=(0,)
    )


@pytest.fixture
def store(good, tmp_path):
    return Path(shutil.copytree(good, tmp_path / "store"))


def errors(store):
    return [finding for finding in verify.verify(store).findings if finding.level == "error"]


def fields(store):
    return {finding.field for finding in errors(store)}


def edit(store, change, path=RECORD):
    """Change a record and seal it again, as a forger would."""
    document = json.loads((store / path).read_bytes())
    change(document)
    document.pop("field_digests")
    record = records.Record.model_validate(document)
    (store / path).write_bytes(records.canonical_json(record.sealed().model_dump(mode="json")))


def test_a_good_record_passes_and_is_counted(good):
    report = verify.verify(good)
    assert report.ok
    assert (report.records, report.files) == (1, 1 + len(list(good.glob("**/*.parquet"))))
    assert report.samples == sum(len(pd.read_parquet(path)) for path in good.glob("**/*.parquet"))
    assert {finding.field for finding in report.findings} == {"provenance.commit"}


@CHANGES
@given(data=st.data())
def test_any_byte_of_any_file_is_found_and_named(good, data):
    files = sorted(path for path in good.rglob("*") if path.is_file())
    file = data.draw(st.sampled_from(files))
    content = bytearray(file.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    original = file.read_bytes()
    try:
        file.write_bytes(bytes(content))
        found = errors(good)
    finally:
        file.write_bytes(original)
    assert found
    assert file.relative_to(good).as_posix() in {finding.path for finding in found}


@CHANGES
@given(data=st.data())
def test_a_file_cut_short_or_made_longer_is_found(good, data):
    file = data.draw(st.sampled_from(sorted(path for path in good.rglob("*") if path.is_file())))
    original = file.read_bytes()
    keep = data.draw(st.integers(0, len(original) - 1))
    extra = data.draw(st.binary(min_size=1, max_size=20))
    try:
        for content in (original[:keep], original + extra):
            file.write_bytes(content)
            assert file.relative_to(good).as_posix() in {finding.path for finding in errors(good)}
    finally:
        file.write_bytes(original)


def leaves(value, place=()):
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*place, key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, (*place, index))
    else:
        yield place, value


def other(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return value[:-1] + ("0" if value[-1:] != "0" else "1")
    if value is None:
        return "x"
    return [1] if isinstance(value, list) else {"x": 1}


@CHANGES
@given(data=st.data())
def test_any_field_of_a_record_is_found_and_named(good, data):
    path = good / RECORD
    original = path.read_bytes()
    document = json.loads(original)
    place, value = data.draw(st.sampled_from(list(leaves(document))))
    target = document
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = other(value)
    try:
        path.write_bytes(records.canonical_json(document))
        found = errors(good)
    finally:
        path.write_bytes(original)
    named = {finding.field.split(".")[0] for finding in found}
    wanted = place[1] if place[0] == "field_digests" else place[0]
    assert wanted in named or any(f"field {'.'.join(map(str, place))}" in finding.message for finding in found)


@CHANGES
@given(data=st.data())
def test_a_removed_field_is_found(good, data):
    path = good / RECORD
    original = path.read_bytes()
    document = json.loads(original)
    del document[data.draw(st.sampled_from(sorted(document)))]
    try:
        path.write_bytes(records.canonical_json(document))
        assert errors(good)
    finally:
        path.write_bytes(original)


def task_of(document):
    return document["evaluation"][
        "tiny_sum3" if "tiny_sum3" in document["evaluation"] else next(iter(document["evaluation"]))
    ]


FORGERIES = {
    "training.early_score": lambda d: d["training"].update(early_score=0.99),
    "training.late_score": lambda d: d["training"].update(late_score=0.99),
    "training.mean_score": lambda d: d["training"].update(mean_score=0.99),
    "training.final_score": lambda d: d["training"].update(final_score=0.99),
    "training.updates": lambda d: d["training"].update(updates=9),
    "training.rollouts": lambda d: d["training"].update(rollouts=9),
    "training.response_tokens": lambda d: d["training"].update(response_tokens=1),
    "training.updates_per_rollout": lambda d: d["training"].update(updates_per_rollout=4),
    "training.collapse": lambda d: d["training"].update(collapse="no"),
    "training.curve.path": lambda d: d["training"]["curve"].update(path="other.jsonl"),
    "protocol.digest": lambda d: d["protocol"].update(digest="0" * 64),
    "protocol.version": lambda d: d["protocol"].update(version=2),
    "protocol.id": lambda d: d["protocol"].update(id="other"),
    "deviations": lambda d: d.update(deviations=["optimiser.learning_rate: 1"]),
    "provenance.dirty": lambda d: d["provenance"].update(dirty=True, diff_sha256="0" * 64),
    "provenance.commit": lambda d: d["provenance"].update(commit=None),
    "provenance.lock_sha256": lambda d: d["provenance"].update(lock_sha256=None),
    "provenance.packages.math-verify": lambda d: d["provenance"]["packages"].pop("math-verify"),
    "provenance.ended": lambda d: d["provenance"].update(ended="2020-01-01T00:00:00+00:00"),
    "provenance.started": lambda d: d["provenance"].update(started="yesterday"),
    "attempts.0.started": lambda d: d["attempts"][0].update(started="2026-11-01T08:00:00"),
    "method.hyperparameters": lambda d: d["method"]["hyperparameters"].update(clip_low=0.3),
    "method": lambda d: d.update(method=None),
    "reuse": lambda d: d.update(reuse=3),
    "seeds.training": lambda d: d["seeds"].update(training=1),
    "seeds.rollout": lambda d: d["seeds"].update(rollout=1),
    "seeds.evaluation": lambda d: d["seeds"].update(evaluation=1),
    "model.name": lambda d: d["model"].update(name="other"),
    "model.source": lambda d: d["model"].update(source="other"),
    "checkpoint.update": lambda d: d["checkpoint"].update(update=4),
    "checkpoint": lambda d: d.update(checkpoint=None),
    "status": lambda d: d.update(status="collapsed"),
    "failure": lambda d: d.update(failure="x"),
    "evaluation": lambda d: d.update(evaluation={}),
    "evaluation.T": lambda d: d["evaluation"].pop(task_of(d)["task"]),
    "evaluation.T.task": lambda d: task_of(d).update(task="other"),
    "evaluation.T.problems": lambda d: task_of(d).update(problems=99),
    "evaluation.T.scores.published.pass_at_1": lambda d: task_of(d)["scores"]["published"].update(pass_at_1=0.99),
    "evaluation.T.scores.audited.right": lambda d: task_of(d)["scores"]["audited"].update(right=999),
    "evaluation.T.scores.audited.wrong": lambda d: task_of(d)["scores"]["audited"].update(wrong=999),
    "evaluation.T.scores.published.errors": lambda d: task_of(d)["scores"]["published"].update(errors=999),
    "evaluation.T.right_per_problem.published": lambda d: task_of(d)["right_per_problem"]["published"].reverse(),
    "evaluation.T.problem_ids": lambda d: task_of(d)["problem_ids"].reverse(),
    "evaluation.T.truncated": lambda d: task_of(d).update(truncated=999),
    "evaluation.T.mean_response_tokens": lambda d: task_of(d).update(mean_response_tokens=1.0),
    "evaluation.T.prompts_digest": lambda d: task_of(d).update(prompts_digest="0" * 64),
    "evaluation.T.sampling.temperature": lambda d: task_of(d)["sampling"].update(temperature=0.1),
    "evaluation.T.sampling.max_tokens": lambda d: task_of(d)["sampling"].update(max_tokens=3),
    "evaluation.T.samples.path": lambda d: task_of(d)["samples"].update(path="samples/other.parquet"),
    "evaluation.T.samples.sha256": lambda d: task_of(d)["samples"].update(sha256="0" * 64),
    "evaluation.T.samples.bytes": lambda d: task_of(d)["samples"].update(bytes=1),
}


@pytest.mark.parametrize("field", FORGERIES)
def test_a_sealed_forgery_is_found_by_what_is_recomputed(store, field):
    document = json.loads((store / RECORD).read_bytes())
    task = task_of(document)["task"]
    edit(store, FORGERIES[field])
    found = fields(store)
    assert "id" not in found
    assert any(name == field.replace(".T", f".{task}") or name.startswith(f"{field}.") for name in found), found


def forge_samples(store, change):
    """Change the rows of one sample file, and everything in the record that follows from them."""
    document = json.loads((store / RECORD).read_bytes())
    task = task_of(document)["task"]
    path = store / RECORD.with_suffix("") / "samples" / f"{task}.parquet"
    rows = scoring.read_samples(path)
    change(rows)
    scoring.write_samples(rows, path)
    old = records.Record.model_validate(document).evaluation[task]
    ref = records.file_ref(path, store / RECORD.with_suffix(""))
    new = scoring.task_result(rows, task, old.sampling, ref)
    edit(store, lambda d: d["evaluation"].update({task: new.model_dump(mode="json")}))
    return f"evaluation.{task}"


def test_samples_that_do_not_follow_from_the_seeds_are_found(store):
    def change(rows):
        rows.loc[3, "seed"] = 7

    field = forge_samples(store, change)
    (finding,) = errors(store)
    assert finding.field == f"{field}.samples"
    assert "row 3" in finding.message


def test_a_gold_that_is_not_the_data_sets_is_found(store):
    def change(rows):
        first = rows["problem_id"] == rows["problem_id"].iloc[0]
        rows.loc[first, "gold"] = "x"

    field = forge_samples(store, change)
    assert f"{field}.samples" in fields(store)


def test_other_prompts_than_in_another_record_are_found(store):
    """Each record agrees with its own samples; only beside each other do they differ."""
    synthetic_store(store, protocol="smoke", methods=("gspo",), reuses=(2,), seeds=(0,))
    assert errors(store) == []
    field = forge_samples(store, lambda rows: rows.__setitem__("prompt_sha256", "0" * 64))
    (finding,) = errors(store)
    assert (finding.field, finding.path) == (f"{field}.prompts_digest", RECORD.as_posix().replace("grpo", "gspo"))
    assert finding.message == f"other prompts than in {RECORD.as_posix()}"


def installed_grader(store):
    from importlib import metadata

    installed = metadata.version("math-verify")
    edit(store, lambda d: d["provenance"]["packages"].update({"math-verify": installed}))


def test_many_verdicts_that_the_graders_do_not_give_are_found(store):
    """A lifted score: half of what is called right is not. Twenty of them are looked at, so one in a million passes."""
    installed_grader(store)
    field = forge_samples(store, lambda rows: rows.__setitem__("audited", "right"))
    assert fields(store) == {f"{field}.scores.audited"}


def test_a_single_verdict_is_found_when_all_are_judged_again(store):
    installed_grader(store)

    def change(rows):
        rows.loc[rows.index[rows["audited"] == "wrong"][0], "audited"] = "right"

    field = forge_samples(store, change)
    found = [one for one in verify.verify(store, regrade=True).findings if one.level == "error"]
    assert [one.field for one in found] == [f"{field}.scores.audited"]
    edit(store, lambda d: d["provenance"]["packages"].update({"math-verify": "0.0.1"}))
    notes = [f.message for f in verify.verify(store, regrade=True).findings if f.level == "note"]
    assert any("not judged again" in message for message in notes)


@pytest.mark.slow
def test_a_response_that_no_grader_can_finish_with_is_no_way_to_a_score(store, monkeypatch):
    """Both graders give up on it. Stored as right that is false; stored as wrong, or given up on before, it is not."""
    from tasks import grading
    from tasks.grading import GradeRequest
    from tests.grading_hostile import HOSTILE

    installed_grader(store)
    seconds = 0.2  # it would only take longer
    monkeypatch.setattr(grading, "grade_many", partial(grading.grade_many, timeout=seconds))
    monkeypatch.setattr(grading, "DEFAULT_TIMEOUT", seconds)
    monkeypatch.setattr(samples, "MORE_TIME", 1)
    one = Checked("seed0.json", records.read_record(store / RECORD))
    endless = GradeRequest("7", HOSTILE["factorial of factorial"], "math500", True)
    easy = GradeRequest("7", "\\boxed{7}", "math500", True)
    for row, (request, stored) in enumerate(
        [(endless, "wrong"), (endless, "error"), (easy, "error"), (easy, "right"), (endless, "right")]
    ):
        one.judged.append(Judged("math500", row, request, stored, stored, "samples"))
    samples.judge_again([one], None)
    assert sorted((found.field, found.message) for found in one.findings) == [
        ("evaluation.math500.scores.audited", "row 4 is stored as right, and judged error now"),
        ("evaluation.math500.scores.published", "row 4 is stored as right, and judged error now"),
    ]


def test_a_number_that_no_table_can_hold_is_an_error(store):
    document = json.loads((store / RECORD).read_bytes()) | {"notes": {"count": 10**30}}
    document["id"] = records.content_id(document)
    (store / RECORD).write_bytes(records.canonical_json(document))
    assert errors(store)
    with pytest.raises(UserError, match=rf"{RECORD.name}.* has more than 64 bits"):
        records.read_record(store / RECORD)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ('"x": ' + "1" * 5000, "has more than 64 bits"),
        ('"score": 1' + "0" * 400, "has more than 64 bits"),
        ('"x": ' + "[" * 100_000 + "]" * 100_000, "no JSON"),
        ('"loss": "x"', "field loss is 'x', no number"),
        ('"loss": 1, "loss": 2', "field 'loss' is given twice"),
        (", ".join(f'"x{i}": 1' for i in range(600)), "it has 6.. fields"),
        ('"loss": true', "field loss is True, no number"),
        ('"gradient_norm": [1]', "field gradient_norm is .*, no number"),
        ('"gradient_norm": Infinity', "Infinity is no number of JSON"),
        ('"gradient_norm": 1e999', "field gradient_norm is inf, beyond all measure"),
        ('"score": 1e308', "field score is 1e.308, beyond all measure"),
    ],
)
def test_a_curve_of_values_that_are_no_numbers_is_refused_by_line_and_field(store, field, said):
    path = store / RECORD.with_suffix("") / "updates.jsonl"
    first, *rest = path.read_text().splitlines(keepends=True)
    others = {name: value for name, value in json.loads(first).items() if name != field.split('"')[1]}
    path.write_text(json.dumps(others)[:-1] + f", {field}}}\n" + "".join(rest))
    edit(store, lambda d: d["training"].update(curve=records.file_ref(path, path.parent).model_dump()))
    assert "training.curve" in fields(store)
    with pytest.raises(UserError, match=f"updates.jsonl: line 1: .*{said}"):
        read_updates(path)


def test_a_report_of_curves_without_diagnostics_is_refused_and_without_a_norm_left_blank(store):
    from leaderboard import tables
    from leaderboard.report import report

    path = store / RECORD.with_suffix("") / "updates.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    protocol = records.read_record(store / RECORD).protocol.id
    for without in ("gradient_norm", "log_weight"):
        changed = [{key: value for key, value in line.items() if key != without} for line in lines]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in changed))
        if without == "gradient_norm":
            assert "N = " in report(tables.load(store), protocol, "command")
        else:
            with pytest.raises(UserError, match=r"updates\.jsonl: line 1: field log_weight"):
                report(tables.load(store), protocol, "command")


def test_a_curve_with_a_missing_update_is_found(store):
    path = store / RECORD.with_suffix("") / "updates.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3] + lines[4:]))
    edit(store, lambda d: d["training"].update(curve=records.file_ref(path, path.parent).model_dump()))
    assert "training.curve" in fields(store)
    with pytest.raises(UserError, match="line 4: field update is 5 instead of 4"):
        read_updates(path)


def test_missing_extra_and_linked_files_are_found(store):
    folder = store / RECORD.with_suffix("")
    (folder / "updates.jsonl").rename(folder / "notes.txt")
    (folder / "link").symlink_to("/etc/passwd")
    (store / "stray.json").write_text("{}")
    paths = {finding.path for finding in errors(store)}
    base = RECORD.with_suffix("").as_posix()
    assert paths == {f"{base}/updates.jsonl", f"{base}/notes.txt", f"{base}/link", "stray.json"}


@pytest.mark.parametrize(
    "path", ["../seed0.json", "/etc/passwd", "samples/../../x", "a/./b", ".hidden", "a\nb", "a//b"]
)
def test_a_path_that_leaves_the_folder_is_refused(store, path):
    document = json.loads((store / RECORD).read_bytes())
    document["training"]["curve"]["path"] = path
    (store / RECORD).write_bytes(records.canonical_json(document))
    assert any("field training.curve.path" in finding.message for finding in errors(store))


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        b'{"schema_version": 1, "notes": {"x": NaN}}',
        b'{"schema_version": 1, "notes": {"x": "\\ud800"}}',
        b"[" * 100_000,
        b'{"schema_version": 1, "notes": ' + b'{"x":' * 5000 + b"1" + b"}" * 5001,
        b'{"schema_version": 1e999}',
        b"\xff\xfe",
        b"",
        b"null",
    ],
    ids=["nan", "surrogate", "deep list", "deep object", "huge", "not utf-8", "empty", "null"],
)
def test_hostile_json_is_an_error_and_no_crash(store, content):
    other = synthetic_store(store, protocol="smoke", methods=("gspo",), reuses=(2,), seeds=(0,))
    (store / RECORD).write_bytes(content)
    report = verify.verify(other)
    assert report.records == 2
    assert {finding.path for finding in report.findings if finding.level == "error"} == {RECORD.as_posix()}
    with pytest.raises(UserError, match=re.escape(str(store / RECORD))):
        records.read_record(store / RECORD)


def test_hostile_notes_in_a_whole_record_are_an_error(store):
    text = (store / RECORD).read_text()
    (store / RECORD).write_text(text.replace('"synthetic": true', '"synthetic": NaN'))
    assert errors(store)
    with pytest.raises(UserError, match="NaN is no number of JSON"):
        records.read_record(store / RECORD)


@pytest.mark.parametrize("given", ["seed0.json", "../grpo/seed0.json", "..", "../../n2", "."])
def test_a_path_from_inside_the_store_names_the_same_records(good, monkeypatch, given):
    monkeypatch.chdir((good / RECORD).parent)
    report = verify.verify(Path(given))
    assert report.ok, report.findings
    assert report.records == 1


def test_a_record_in_anothers_place_is_found(store):
    target = store / RECORD.with_name("seed5.json")
    (store / RECORD).rename(target)
    (store / RECORD.with_suffix("")).rename(target.with_suffix(""))
    assert any("belongs at" in finding.message for finding in errors(store))


def test_copies_and_shared_seeds_between_records_are_found(store):
    """A run given twice, under two seeds, is one run."""
    folder = store / RECORD.with_suffix("")
    shutil.copytree(folder, folder.with_name("seed1"))
    document = json.loads((store / RECORD).read_bytes())
    document["seeds"]["run"] = 1
    document.pop("field_digests")
    record = records.Record.model_validate(document).sealed()
    (store / RECORD.with_name("seed1.json")).write_bytes(records.canonical_json(record.model_dump(mode="json")))
    found = {finding.field for finding in errors(store) if "the same as in" in finding.message}
    assert {"seeds.training", "seeds.rollout", "seeds.evaluation", "training.curve"} <= found
    assert any(name.startswith("evaluation.") for name in found)


def test_source_and_lock_are_compared_with_the_commit(store, monkeypatch):
    """A commit that this checkout has: the recorded hashes must be those of its files."""
    lock = b"locked==1\n"

    def file_at(commit, path, repository=None):
        if path.startswith("methods/"):
            return (provenance.REPOSITORY / path).read_bytes()
        return lock if path.startswith("requirements/") or path == "pyproject.toml" else None

    monkeypatch.setattr(provenance, "file_at", file_at)
    closed._locks_at.cache_clear()
    closed._source_at.cache_clear()
    try:
        assert closed._source_at("c", "grpo") == source_digest("grpo")
        assert fields(store) == {"provenance.lock_sha256"}
        edit(store, lambda d: d["provenance"].update(lock_sha256=provenance.joint_digest([lock, lock])))
        (finding,) = verify.verify(store).findings
        assert finding.field == "provenance.packages"
        assert "locked is missing instead of 1" in finding.message
        edit(store, lambda d: d["provenance"]["packages"].update(locked="1"))
        assert verify.verify(store).findings == []
        edit(store, lambda d: d["method"].update(source_sha256="1" * 64))
        assert fields(store) == {"method.source_sha256"}
    finally:
        closed._locks_at.cache_clear()
        closed._source_at.cache_clear()


def test_open_records_say_how_they_deviate(store):
    edit(store, lambda d: d.update(division="open"))
    assert fields(store) == {"deviations"}
    edit(store, lambda d: d.update(deviations=["provenance.dirty: a dirty tree"]))
    assert fields(store) == set()


def test_failed_and_collapsed_runs_are_results(tmp_path):
    statuses = {("grpo", 8, 0): "failed", ("gspo", 8, 0): "collapsed"}
    store = synthetic_store(tmp_path, methods=("grpo", "gspo"), reuses=(8,), seeds=(0,), statuses=statuses, base=True)
    assert errors(store) == []
    edit(store, lambda d: d.update(status="done"), Path("tiny/tiny-qwen3/n8/gspo/seed0.json"))
    assert "status" in fields(store)


def test_what_was_found_right_is_remembered_until_anything_changes(store, tmp_path):
    cache = tmp_path / "cache"
    assert verify.verify(store, cache_folder=cache).cached == 0
    again = verify.verify(store, cache_folder=cache)
    assert (again.cached, again.ok) == (1, True)
    path = next(store.glob("**/*.parquet"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    assert not verify.verify(store, cache_folder=cache).ok
    (cache / "verified.json").write_text("damaged")
    assert not verify.verify(store, cache_folder=cache).ok


def test_a_folder_or_one_record_of_a_store_can_be_verified(store):
    for path in (RECORD, RECORD.parent, Path("smoke"), Path("smoke/tiny-qwen3")):
        report = verify.verify(store / path)
        assert (report.records, report.ok) == (1, True), path
        assert {finding.path for finding in report.findings} == {RECORD.as_posix()}
    for path in (store / "nothing", store.parent):
        with pytest.raises(UserError, match=r"nothing to verify|holds no records"):
            verify.verify(path)


def test_the_command_names_what_differs_and_fails(store):
    run = CliRunner()
    assert run.invoke(app, ["verify", str(store), "--no-cache"]).exit_code == 0
    path = store / RECORD.with_suffix("") / "updates.jsonl"
    path.write_bytes(path.read_bytes() + b" ")
    found = run.invoke(app, ["verify", str(store), "--no-cache"])
    assert found.exit_code == 1
    assert "updates.jsonl" in found.stdout
    document = json.loads(run.invoke(app, ["verify", str(store), "--no-cache", "--json"]).stdout)
    assert document["ok"] is False
    assert document["findings"]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["qwen3-1.7b", "qwen3-30b-a3b"])
def test_a_cell_of_the_papers_size_passes(tmp_path, monkeypatch, protocol):
    """As all of its protocol asks for; tests/benchmarks/test_verify.py takes the time of the whole grid."""
    # The real sets may be here; these problems are made up.
    monkeypatch.setenv("REUSE_BENCH_DATA", str(tmp_path / "no data"))
    store = synthetic_store(
        tmp_path, protocol=protocol, models=(f"{protocol}-base",), methods=("respo",), reuses=(32,), seeds=(0,)
    )
    assert errors(store) == []


@pytest.mark.parametrize(
    ("field", "value", "part"),
    [
        ("scores", {}, "scores lacks"),
        ("right_per_problem", {}, "right_per_problem lacks"),
        ("right_per_problem", {"published": [], "audited": []}, "counts 0 problems"),
        ("right_per_problem", {"published": [10**9] * 4, "audited": [0] * 4}, "cannot give"),
    ],
)
def test_a_record_whose_counts_do_not_fit_is_damaged(tmp_path: Path, field: str, value: object, part: str) -> None:
    store = synthetic_store(tmp_path, methods=("grpo",), reuses=(8,), seeds=(0,), tasks={"tiny_sum3": (4, 2)})
    (path,) = store.glob("*/*/n8/grpo/seed0.json")
    document = json.loads(path.read_bytes())
    document["evaluation"]["tiny_sum3"][field] = value
    path.write_bytes(records.canonical_json({**document, "id": records.content_id(document)}))
    with pytest.raises(UserError, match=rf"seed0\.json: field evaluation\.tiny_sum3.*{part}"):
        records.read_record(path)


def test_a_memory_that_cannot_be_written_costs_no_verdict(store, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("a file where the folder would be")
    report = verify.verify(store, cache_folder=blocked)
    assert report.records
    assert report.ok
