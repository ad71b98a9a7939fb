"""What training prepares, reads and judges without the training stack: prompts, seeds, save points, how it ended."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness import runner, training
from harness.grid import Cell
from harness.protocol import load_protocol
from harness.run_directory import RunDirectory
from harness.seeds import derived_seed
from harness.tiny_model import directory_digest
from methods.errors import UserError
from tasks import chain

TINY = load_protocol("tiny")
CELL = Cell("tiny", "tiny-qwen3", 32, "grpo", 0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<eos>"}')
    return folder


def prompts(cell: Cell, model: Path, path: Path) -> list[dict[str, str]]:
    training.write_prompts(TINY, cell, model, path)
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_exactly_as_many_prompts_as_the_updates_need(model: Path, tmp_path: Path) -> None:
    rows = prompts(CELL, model, tmp_path / "prompts.jsonl")
    assert len(rows) == TINY.update.prompts_per_update * TINY.update.updates
    labels = [json.loads(row["label"]) for row in rows]
    assert [label["row"] for label in labels] == list(range(len(rows)))
    assert {label["eos"] for label in labels} == {"<eos>"}
    assert all(label["gold"] == chain.answer(row["input"][:-1]) for row, label in zip(rows, labels, strict=True))


def test_no_prompt_comes_again_before_all_have_come(model: Path, tmp_path: Path) -> None:
    many = TINY.with_overrides({"update.updates": 1024, "checkpoints.every_updates": 1024})
    training.write_prompts(many, CELL, model, tmp_path / "prompts.jsonl")
    texts = [json.loads(line)["input"] for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    size = chain.TRAIN_PROBLEMS
    assert len(texts) == 2 * size
    assert len(set(texts[:size])) == len(set(texts[size:])) == size
    assert texts[:size] != texts[size:]


def test_prompts_depend_on_the_seed_alone(model: Path, tmp_path: Path) -> None:
    first = prompts(CELL, model, tmp_path / "a.jsonl")
    assert prompts(replace(CELL, method="respo", reuse=8), model, tmp_path / "b.jsonl") == first
    assert prompts(replace(CELL, seed=1), model, tmp_path / "c.jsonl") != first


@pytest.mark.slow  # imports transformers
def test_the_prompt_cap_filters_and_says_so_when_nothing_is_left(model: Path, tmp_path: Path) -> None:
    from tests.tiny_tokenizer import save

    save(model)
    short = TINY.with_overrides({"data.max_prompt_tokens": 5})
    training.write_prompts(short, CELL, model, tmp_path / "prompts.jsonl")
    counts = json.loads((tmp_path / "prompts.json").read_text())
    lengths = {len(json.loads(line)["input"]) for line in (tmp_path / "prompts.jsonl").read_text().splitlines()}
    assert lengths == {5}
    assert counts["available"] == chain.TRAIN_PROBLEMS
    assert counts["kept"] == sum(len(problem["problem"]) <= 5 for problem in chain.training_problems())
    none = TINY.with_overrides({"data.max_prompt_tokens": 1})
    with pytest.raises(UserError, match=r"data\.max_prompt_tokens = 1: no prompt of chain is that short"):
        training.write_prompts(none, CELL, model, tmp_path / "prompts.jsonl")


@pytest.mark.parametrize(("latest", "updates"), [(None, 0), ("global_step3", 96), ("best_global_step3", 0)])
def test_where_a_run_would_resume(tmp_path: Path, latest: str | None, updates: int) -> None:
    run = RunDirectory(tmp_path)
    if latest:
        (run.checkpoints / "_actor").mkdir(parents=True)
        (run.checkpoints / "_actor" / "latest").write_text(latest)
    assert training.resume_point(run, CELL) == updates


def checkpoint(run: RunDirectory, *names: str) -> set[str]:
    folder = run.checkpoints / "_actor"
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "states.pt").write_text("states")
    return {path.name for path in folder.glob("*")}


def test_only_the_complete_checkpoint_is_left(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    checkpoint(run, "global_step2", "global_step4", "global_step6")
    (run.checkpoints / "_actor" / "latest").write_text("global_step4")
    training.drop_incomplete_checkpoints(run)
    assert checkpoint(run) == {"global_step4", "latest"}
    assert (run.checkpoints / "_actor" / "global_step4" / "states.pt").exists()


def test_a_first_checkpoint_that_was_cut_short_leaves_nothing(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    checkpoint(run, "global_step2")
    training.drop_incomplete_checkpoints(run)
    assert not (run.checkpoints / "_actor").exists()
    training.drop_incomplete_checkpoints(run)


def test_a_wrong_hyperparameter_stops_before_anything_is_started(tmp_path: Path) -> None:
    changed = TINY.with_overrides({"methods.hyperparameters.grpo": {"clip_hihg": 0.3}})
    with pytest.raises(UserError, match=r"methods\.hyperparameters\.grpo: .*clip_hihg"):
        training.worker_spec(changed, CELL, RunDirectory(tmp_path))


@pytest.fixture
def ended(tmp_path: Path) -> RunDirectory:
    """A training that has ended as it should."""
    run = RunDirectory.of(tmp_path, CELL)
    run.final.mkdir(parents=True)
    (run.final / "model.safetensors").write_bytes(b"weights")
    run.worker.write_text(json.dumps({"source_sha256": training.worker_spec(TINY, CELL, run).source_sha256}))
    lines = [json.dumps({"update": number, "score": 0.5}) for number in range(1, TINY.update.updates + 1)]
    run.updates.write_text("".join(f"{line}\n" for line in lines))
    return run


def judged(run: RunDirectory, collapse: str | None = None) -> training.TrainingResult:
    return training._judge(TINY, run, training.worker_spec(TINY, CELL, run), collapse)


def test_a_training_that_did_what_was_asked_counts(ended: RunDirectory) -> None:
    result = judged(ended)
    assert (result.updates, result.collapse) == (TINY.update.updates, None)
    assert result.checkpoint_digest == directory_digest(ended.final)


def test_a_worker_with_another_loss_or_none_does_not_count(ended: RunDirectory) -> None:
    ended.worker.write_text(json.dumps({"source_sha256": "0" * 64}))
    with pytest.raises(training.TrainingError, match=f"did not report the loss {CELL.method}"):
        judged(ended)
    ended.worker.unlink()
    with pytest.raises(training.TrainingError, match="did not report the loss"):
        judged(ended)


def test_a_training_is_continued_with_the_loss_that_began_it_only(ended: RunDirectory, tmp_path: Path) -> None:
    checkpoint(ended, "global_step4")
    latest = ended.checkpoints / "_actor" / "latest"
    latest.write_text("global_step4")
    training.check_same_loss(TINY, CELL, ended)
    ended.worker.write_text(json.dumps({"source_sha256": "0" * 64}))
    with pytest.raises(UserError, match=r"worker\.json: field source_sha256: .* of method grpo \(000000000000\)"):
        training.check_same_loss(TINY, CELL, ended)
    job = runner.CellJob(TINY, CELL, runner.Places(tmp_path, tmp_path / "results"))
    for begin in (
        lambda: training.train_cell(TINY, CELL, ended, tmp_path, ""),
        lambda: runner.check_inputs([job], evaluating=False),
    ):
        with pytest.raises(UserError, match="bring that source back, or remove"):
            begin()
    ended.worker.write_text("{")
    with pytest.raises(UserError, match=r"worker\.json: it is damaged"):
        training.check_same_loss(TINY, CELL, ended)
    latest.unlink()  # nothing of it would be kept
    training.check_same_loss(TINY, CELL, ended)


def test_too_few_updates_or_no_checkpoint_do_not_count(ended: RunDirectory) -> None:
    lines = ended.updates.read_text().splitlines(keepends=True)
    ended.updates.write_text("".join(lines[:-1]))
    with pytest.raises(training.TrainingError, match=r"ended after 255 policy updates in place of 256"):
        judged(ended)
    collapsed = judged(ended, "the loss of update 255 is not finite")
    assert (collapsed.updates, collapsed.checkpoint_digest) == (255, None)
    ended.updates.write_text("".join(lines))
    (ended.final / "model.safetensors").unlink()
    with pytest.raises(training.TrainingError, match="left no final checkpoint"):
        judged(ended)


def test_the_last_error_line_is_found_in_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("start\n\x1b[36m(pid=1)\x1b[0m ValueError: head_dim 16 is not supported\n  at exit\n")
    message = training._last_error(log, 1)
    assert "ValueError: head_dim 16 is not supported" in message
    assert str(log) in message


def test_derived_seeds_differ_and_stay() -> None:
    seeds = {derived_seed(0, "rollout", row, sample) for row in range(64) for sample in range(8)}
    assert len(seeds) == 64 * 8
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert derived_seed(0, "rollout", 1, 2) == 337840989
