from __future__ import annotations

import hashlib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import scoring
from harness.records import Sampling, file_ref
from methods.errors import UserError
from tasks.datasets import manifest

VERDICTS = ["right", "wrong", "error"]


def table(verdicts: list[list[str]], audited: list[list[str]] | None = None) -> pd.DataFrame:
    """Samples of problems p0, p1, ...; one list of verdicts a problem."""
    rows = []
    for problem, (ours, theirs) in enumerate(zip(audited or verdicts, verdicts, strict=True)):
        for sample, (one, two) in enumerate(zip(ours, theirs, strict=True)):
            rows.append(
                {
                    "problem_id": f"p{problem}",
                    "sample": sample,
                    "seed": 2**62 + problem * 100 + sample,
                    "prompt_sha256": hashlib.sha256(f"p{problem}".encode()).hexdigest(),
                    "gold": "1",
                    "response": f"\\boxed{{{sample}}} \U0001f600",
                    "finish_reason": "length" if sample else "stop",
                    "response_tokens": 10 * sample,
                    "extracted": str(sample) if sample else None,
                    "published": two,
                    "audited": one,
                    "reason": None,
                    "prompt": "secret text",
                }
            )
    return pd.DataFrame(rows)


@pytest.fixture
def stored(tmp_path) -> Path:
    path = tmp_path / "toy.parquet"
    scoring.write_samples(table([["right", "wrong"], ["error", "wrong"], ["right", "right"]]), path, {"seed": 1})
    return path


def test_round_trip(stored):
    samples = scoring.read_samples(stored)
    written = table([["right", "wrong"], ["error", "wrong"], ["right", "right"]])
    for name in (*scoring.COLUMNS, "prompt"):
        found, expected = samples[name].tolist(), written[name].tolist()
        assert [None if pd.isna(one) else one for one in found] == [None if pd.isna(one) else one for one in expected]
    assert scoring.read_identity(stored) == {"seed": 1}


def test_the_same_rows_give_the_same_bytes(stored, tmp_path):
    again = tmp_path / "again.parquet"
    scoring.write_samples(scoring.read_samples(stored), again, {"seed": 1})
    assert again.read_bytes() == stored.read_bytes()


@settings(max_examples=30)
@given(
    st.integers(1, 6).flatmap(
        lambda k: st.lists(st.lists(st.sampled_from(VERDICTS), min_size=k, max_size=k), min_size=1, max_size=8)
    )
)
def test_pass_at_1_is_the_mean_of_the_problems_means(verdicts):
    samples = table(verdicts)
    exact = sum((Fraction(one.count("right"), len(one)) for one in verdicts), Fraction(0)) / len(verdicts)
    assert scoring.pass_at_1(samples, "published") == pytest.approx(float(exact), abs=1e-15)
    # With as many samples for each problem it is also the plain mean, as numpy has it.
    assert scoring.pass_at_1(samples, "published") == pytest.approx(np.mean(samples["published"] == "right"))


def test_task_result(stored, tmp_path):
    sampling = Sampling(temperature=1.0, top_p=0.7, max_tokens=64, samples_per_problem=2)
    audited = [["right", "right"], ["error", "wrong"], ["wrong", "right"]]
    scoring.write_samples(table([["right", "wrong"], ["error", "wrong"], ["right", "right"]], audited), stored)
    samples = scoring.read_samples(stored)
    result = scoring.task_result(samples, "toy", sampling, file_ref(stored, tmp_path))
    assert result.problems == 3
    assert result.problem_ids == ["p0", "p1", "p2"]
    assert result.right_per_problem == {"published": [1, 0, 2], "audited": [2, 0, 1]}
    assert result.scores["published"].model_dump() == {"pass_at_1": 0.5, "right": 3, "wrong": 2, "errors": 1}
    assert result.scores["audited"].model_dump() == {"pass_at_1": 0.5, "right": 3, "wrong": 2, "errors": 1}
    assert result.truncated == 3
    assert result.mean_response_tokens == 5.0
    assert result.samples.sha256 == hashlib.sha256(stored.read_bytes()).hexdigest()
    with pytest.raises(UserError, match="6 rows are not 3 for each of 3 problems"):
        scoring.task_result(samples, "toy", sampling.model_copy(update={"samples_per_problem": 3}), result.samples)


def test_prompts_digest_is_of_the_prompts_only():
    one, two = table([["right", "wrong"]]), table([["wrong", "wrong"]])
    assert scoring.prompts_digest(one) == scoring.prompts_digest(two)
    changed = one.assign(prompt_sha256="0" * 64)
    assert scoring.prompts_digest(one) != scoring.prompts_digest(changed)


def _rewrite(path: Path, change) -> None:
    pq.write_table(pa.Table.from_pandas(change(pq.read_table(path).to_pandas()), preserve_index=False), path)


def _set(column, row, value):
    def change(frame):
        frame[column] = frame[column].astype(object)
        frame.loc[row, column] = value
        return frame if column not in ("sample", "response_tokens") else frame.astype({column: "int32"})

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda frame: frame.drop(columns="gold"), "column gold is missing"),
        (lambda frame: frame.astype({"sample": "int64"}), "column sample has type int64 instead of int32"),
        (lambda frame: frame.iloc[:0], "it has no rows"),
        (_set("published", 3, "correct"), "column published, row 3: 'correct' is none of error, right, wrong"),
        (_set("finish_reason", 2, "abort"), "column finish_reason, row 2: 'abort' is none of length, stop"),
        (_set("response", 1, None), "column response, row 1 is empty"),
        (_set("response_tokens", 1, -1), "column response_tokens, row 1: -1 is negative"),
        (_set("sample", 3, 5), "column sample, row 3: 5 instead of 1"),
        (lambda frame: frame.iloc[:-1], "problem 'p2' has 1 samples, the first problem 2"),
        (lambda frame: frame.iloc[[0, 2, 3, 4, 5, 1]], "column problem_id, row 5: 'p0' occurs in two places"),
    ],
)
def test_a_damaged_file_is_refused_by_name(stored, change, said):
    _rewrite(stored, change)
    with pytest.raises(UserError) as caught:
        scoring.read_samples(stored)
    assert said in str(caught.value)
    assert str(stored) in str(caught.value)
    assert "\n" not in str(caught.value)


def _not_utf8(count: int) -> pa.Array:
    offsets = np.arange(count + 1, dtype=np.int32).tobytes()
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(b"\xff" * count)])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows.set_column(5, "response", _not_utf8(len(rows))), "it is no parquet file (.*Invalid UTF8"),
        (lambda rows: rows.append_column("gold", rows["gold"]), "it is no parquet file (.*gold"),
    ],
)
def test_what_pandas_would_fall_over_is_refused_by_name(stored, change, said):
    pq.write_table(change(pq.read_table(stored)), stored)
    with pytest.raises(UserError, match=said.replace("(", "\\(")) as caught:
        scoring.read_samples(stored)
    assert str(stored) in str(caught.value)


def test_what_a_stranger_wrote_beside_the_columns_is_not_read(stored):
    expected = scoring.read_samples(stored)
    rows = pq.read_table(stored)
    rows = rows.append_column("time", pa.array([2**62] * len(rows), pa.timestamp("ms")))
    for metadata in (b"{", b'{"index_columns": ["gold"], "columns": [], "column_indexes": []}'):
        pq.write_table(rows.replace_schema_metadata({b"pandas": metadata, b"reuse_bench": b"[1]"}), stored)
        pd.testing.assert_frame_equal(scoring.read_samples(stored), expected)
        with pytest.raises(UserError, match="says nothing about its origin"):
            scoring.read_identity(stored)


def test_what_is_no_parquet_file_is_refused(tmp_path, stored):
    half = tmp_path / "half.parquet"
    half.write_bytes(stored.read_bytes()[:-100])
    for path, said in ((half, "it is no parquet file"), (tmp_path / "none.parquet", "is missing")):
        with pytest.raises(UserError, match=said):
            scoring.read_samples(path)
    with pytest.raises(UserError, match="says nothing about its origin"):
        scoring.read_identity(half)


def test_unanswerable_problems_are_counted_apart(stored, tmp_path, monkeypatch):
    described = replace(manifest()["olympiadbench"], unanswerable=frozenset({"p0", "elsewhere"}))
    monkeypatch.setattr(scoring, "manifest", lambda: {"olympiadbench": described})
    sampling = Sampling(temperature=1.0, top_p=0.7, max_tokens=64, samples_per_problem=2)
    result = scoring.task_result(scoring.read_samples(stored), "x", sampling, file_ref(stored, tmp_path))
    assert scoring.unanswerable_note({"olympiadbench": result, "toy": result}) == {
        "unanswerable": {
            "olympiadbench": {
                "problems": 1,
                "right": {"published": 1, "audited": 1},
                "pass_at_1_of_others": {"published": 0.5, "audited": 0.5},
            }
        }
    }
    assert scoring.unanswerable_note({"toy": result}) == {}
