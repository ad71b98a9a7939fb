"""All six sets through lm-eval on vLLM, with a tiny random model: stored samples, scores, interruption, replicas."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.evaluation import (
    EngineOptions,
    TaskPlan,
    evaluate_checkpoint,
    record_results,
    request_seed,
)
from harness.outside import choose, evaluate_outside
from harness.protocol import load_protocol
from harness.records import file_ref, read_record
from harness.scoring import COLUMNS, PROMPT_COLUMN, pass_at_1, read_samples, task_result
from harness.seeds import derived_seed
from methods.errors import UserError
from tasks import datasets
from tests import chat_model

pytestmark = [
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.stack,
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("REUSE_BENCH_DATA"), reason="REUSE_BENCH_DATA names no data folder"),
]

PROMPT = "{problem}\n\nReason step by step and put your final answer within \\boxed{}."
PLANS = [
    TaskPlan(task, samples=3, temperature=1.0, top_p=0.7, max_tokens=24, prompt=PROMPT, chat_template=True)
    for task in datasets.BENCHMARKS
]
RUN_SEED, LIMIT, TOTAL = 5, 2, 6 * 2 * 3
SEED = derived_seed(RUN_SEED, "evaluation")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A random Qwen3 with bytes as tokens, tied embeddings and a chat template."""
    torch = pytest.importorskip("torch")
    from transformers import Qwen3Config, Qwen3ForCausalLM

    folder = tmp_path_factory.mktemp("model")
    chat_model.save_tokenizer(folder)
    config = Qwen3Config(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def evaluate(model: Path, out: Path, **changes) -> dict[str, Path]:
    arguments = {"tasks": PLANS, "seed": SEED, "limit": LIMIT, **changes}
    return evaluate_checkpoint(model, arguments.pop("tasks"), out, **arguments)


@pytest.fixture(scope="module")
def interrupted(model, tmp_path_factory):
    """An evaluation that was interrupted among its responses; what it had then is in the journal."""
    out = tmp_path_factory.mktemp("out")

    def interrupt(done: int, total: int, what: str) -> None:
        assert total == TOTAL
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(model, out, progress=interrupt)
    journal = (out / ".work" / "journal-0.jsonl").read_text()
    assert not list(out.glob("*.parquet"))
    return out, journal


@pytest.fixture(scope="module")
def continued(model, interrupted):
    """The same evaluation, continued to its end."""
    out, journal = interrupted
    reports: list[tuple[int, int, str]] = []
    evaluate(model, out, progress=lambda *report: reports.append(report))
    return out, journal, reports


def test_samples_hold_everything(continued):
    out, _, reports = continued
    assert sorted(path.stem for path in out.glob("*.parquet")) == sorted(datasets.BENCHMARKS)
    assert reports[-1][:2] == (TOTAL, TOTAL)
    for plan in PLANS:
        samples = read_samples(out / f"{plan.task}.parquet")
        problems = datasets.evaluation_problems(plan.task).problems[:LIMIT]
        assert list(samples.columns) == [*COLUMNS, PROMPT_COLUMN]
        assert list(samples["problem_id"]) == [one.id for one in problems for _ in range(3)]
        for row in samples.itertuples():
            problem = next(one for one in problems if one.id == row.problem_id)
            content = PROMPT.replace("{problem}", problem.problem)
            turn = f"<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n"
            assert row.prompt == f"<|im_start|>system\nYou are helpful.<|im_end|>\n{turn}"
            assert row.prompt_sha256 == hashlib.sha256(row.prompt.encode()).hexdigest()
            assert row.seed == request_seed(SEED, plan.task, problem.id, row.sample)
            assert (row.finish_reason == "length") == (row.response_tokens == plan.max_tokens)
            assert row.gold == problem.answer
    # Random bytes: three samples of one problem under one seed each are three texts.
    assert read_samples(out / "math500.parquet")["response"].is_unique


def test_what_was_drawn_before_the_interruption_is_kept(continued):
    out, journal, _ = continued
    drawn = [json.loads(line) for line in journal.splitlines()[1:] if line.endswith("}")]
    assert drawn
    kept = {row.response for plan in PLANS for row in read_samples(out / f"{plan.task}.parquet").itertuples()}
    assert {entry["response"] for entry in drawn} <= kept
    assert not (out / ".work").exists()


def test_two_replicas_draw_the_same_samples(model, continued, tmp_path):
    out, _, _ = continued
    files = evaluate(model, tmp_path, engine=EngineOptions(replicas=2))
    for plan in PLANS:
        one, two = read_samples(out / f"{plan.task}.parquet"), read_samples(files[plan.task])
        same = (one["response"] == two["response"]).mean()
        assert same == 1.0, f"{plan.task}: only {same:.0%} of the responses agree"


def test_complete_files_are_not_drawn_again_and_others_refused(model, continued, tmp_path):
    out, _, _ = continued
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    before = {path.name: path.stat().st_mtime_ns for path in copy.glob("*.parquet")}
    evaluate(model, copy, progress=lambda *_: pytest.fail("an engine was started"))
    assert {path.name: path.stat().st_mtime_ns for path in copy.glob("*.parquet")} == before
    with pytest.raises(UserError, match=rf"field seed: {SEED} is not 6"):
        evaluate(model, copy, seed=6)
    with pytest.raises(UserError, match=r"field limit: 2 is not None"):
        evaluate(model, copy, limit=None)


def test_record_copy_has_no_prompts_and_gives_the_same_scores(continued, tmp_path):
    out, _, _ = continued
    results = record_results({plan.task: out / f"{plan.task}.parquet" for plan in PLANS}, PLANS, tmp_path)
    theirs = json.loads((out / "lm_eval.json").read_text())
    for plan in PLANS:
        path = tmp_path / "samples" / f"{plan.task}.parquet"
        samples = read_samples(path)
        assert list(samples.columns) == list(COLUMNS)
        assert results[plan.task] == task_result(samples, plan.task, plan.sampling, file_ref(path, tmp_path))
        for grader in ("published", "audited"):
            assert theirs[plan.task][grader] == results[plan.task].scores[grader].pass_at_1
            assert pass_at_1(samples, grader) == theirs[plan.task][grader]


def test_a_context_that_is_too_short_is_said_in_one_sentence(model, tmp_path):
    long = TaskPlan("aime25", samples=1, temperature=1.0, top_p=1.0, max_tokens=4096, chat_template=True)
    with pytest.raises(UserError, match=r"do not fit into the model's 4096 tokens"):
        evaluate(model, tmp_path, tasks=[long], limit=1)


def test_a_checkpoint_from_elsewhere_is_recorded_in_the_open_division(model, continued, tmp_path):
    out, *_ = continued
    protocol = load_protocol("qwen3-1.7b")
    outside = choose(protocol, str(model), "someones", None, "trained with X on Y, commit Z")
    files, path = evaluate_outside(
        outside, protocol, PLANS, out, seed=RUN_SEED, limit=LIMIT, engine=EngineOptions(), store=tmp_path
    )
    assert path is not None
    record = read_record(path)
    assert (record.kind, record.division, record.status) == ("external", "open", "done")
    assert record.notes["stated_provenance"] == "trained with X on Y, commit Z"
    assert any("trained elsewhere" in line for line in record.deviations)
    assert any(f"first {LIMIT} problems" in line for line in record.deviations)
    for task in datasets.BENCHMARKS:
        samples = read_samples(files[task])
        assert record.evaluation[task].scores["published"].pass_at_1 == pytest.approx(pass_at_1(samples, "published"))
