"""What the diagnostics of a policy update cost, against the rest of the update with the smallest model there is.

Any larger model takes longer for an update, and the diagnostics do not.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import pytest
import torch

from harness.openrlhf.step_log import StepLog
from harness.tiny_model import SYMBOLS, TinyRecipe, tiny_model
from methods import LossInputs, get
from methods.diagnostics import response_rows, summarise

pytestmark = [pytest.mark.slow, pytest.mark.stack]

RESPONSES, PROMPT_TOKENS, SHORTEST, LONGEST = 64, 6, 18, 44
"""A policy update of the tiny protocol: its responses have 31 tokens on average, and seldom more than 44."""

LIMIT = 0.02
TURNS = 60


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> torch.nn.Module:
    """The tiny protocol's base model, as it is trained: bfloat16, eager attention. It need not have learnt anything."""
    transformers = pytest.importorskip("transformers", reason="the training stack is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REUSE_BENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        folder = tiny_model(TinyRecipe(steps=1))
    load = transformers.AutoModelForCausalLM.from_pretrained
    return load(folder, dtype=torch.bfloat16, attn_implementation="eager").train()


@pytest.mark.parametrize("name", ["grpo", "respo"])
def test_diagnostics_take_no_more_than_two_hundredths_of_an_update(
    name: str, model: torch.nn.Module, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Turn by turn in one process: forward, loss, backward, clip, AdamW; then the diagnostics up to their line."""
    generator = torch.Generator().manual_seed(0)
    shape = (RESPONSES, PROMPT_TOKENS + LONGEST)
    sequences = torch.randint(2, len(SYMBOLS), shape, generator=generator)
    lengths = torch.randint(SHORTEST, LONGEST + 1, (RESPONSES, 1), generator=generator)
    action_mask = (torch.arange(LONGEST) < lengths).long()
    attention_mask = torch.cat([torch.ones(RESPONSES, PROMPT_TOKENS, dtype=torch.long), action_mask], dim=1)
    advantages = torch.randn(RESPONSES, 1, generator=generator).expand(RESPONSES, LONGEST).contiguous()
    method, log = get(name)(), StepLog(tmp_path / "updates.jsonl", "update", 0)

    def log_probs() -> torch.Tensor:
        logits = model(input_ids=sequences, attention_mask=attention_mask).logits[:, PROMPT_TOKENS - 1 : -1].float()
        return logits.log_softmax(-1).gather(-1, sequences[:, PROMPT_TOKENS:, None]).squeeze(-1)

    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        old = log_probs().detach() + 0.02 * torch.randn(action_mask.shape, generator=generator)
        updates, diagnostics = [], []
        for turn in range(TURNS):
            started = time.perf_counter()
            inputs = LossInputs(log_probs(), old, advantages, action_mask, old)
            outputs = method(inputs)
            outputs.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad()
            done = time.perf_counter()
            log.write({"update": turn + 1, **summarise(torch.cat([response_rows(inputs, outputs)]))})
            updates.append(done - started)
            diagnostics.append(time.perf_counter() - done)
    finally:
        torch.set_num_threads(threads)
    spent, update = median(diagnostics), median(updates)
    with capsys.disabled():
        print(f"\n{name}: diagnostics {1e3 * spent:.2f} ms, update {1e3 * update:.1f} ms: {100 * spent / update:.2f} %")
    assert len((tmp_path / "updates.jsonl").read_text().splitlines()) == TURNS
    assert spent / update <= LIMIT
