"""What bfloat16 does to log W on the tiny protocol: ``python -m tests.crosscheck.bf16_log_weight``.

One trainer keeps float32 parameters and makes policy updates on one rollout batch, as `tiny` does (AdamW, its rate, its
mini-batches, the loss of GRPO). Before the first and after some updates, log W of a held-back mini-batch of
responses is computed twice: in float32, and by copies of the parameters rounded to bfloat16, which is what OpenRLHF's
trainer computes with. Prints a Markdown table.
"""

from __future__ import annotations

import copy
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness.protocol import load_protocol
from harness.tiny_model import tiny_model
from methods import LossInputs, get
from tasks import chain

SHOWN = (1, 2, 4, 8, 16, 31)
MINI_BATCH = 64


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    protocol = load_protocol("tiny")
    folder = tiny_model()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    policy = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    problems = chain.training_problems()[: MINI_BATCH // 8 * (max(SHOWN) + 1)]
    prompts = [protocol.data.render(one["problem"]) for one in problems for _ in range(8)]
    tokens, mask, prompt_width = _sample(policy, tokenizer, prompts, protocol.rollout.max_response_tokens)
    texts = tokenizer.batch_decode(tokens[:, prompt_width:], skip_special_tokens=True)
    texts = [text.replace(" ", "") for text in texts]
    golds = [one["answer"] for one in problems for _ in range(8)]
    right = torch.tensor([float(text.endswith(f"={gold}")) for text, gold in zip(texts, golds, strict=True)])
    reward = right.view(-1, 8)
    advantage = ((reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-9)).flatten()

    optimizer = torch.optim.AdamW(
        policy.parameters(),
        lr=protocol.optimiser.learning_rate,
        betas=protocol.optimiser.betas,
        weight_decay=protocol.optimiser.weight_decay,
    )
    grpo = get("grpo")()
    held = slice(0, MINI_BATCH)
    low = _rounded(policy)
    old = {
        "float32": _log_probs(policy, tokens[held], mask[held], prompt_width),
        "bfloat16": _log_probs(low, tokens[held], mask[held], prompt_width),
    }
    with torch.no_grad():
        parts = [_token_log_probs(policy, part, prompt_width) for part in tokens.split(MINI_BATCH)]
    before = torch.cat(parts)
    lengths = mask[held].sum(1)
    print(f"pass rate of the base model {right.mean():.3f}; mean response length {lengths.float().mean():.1f}")
    forward = old["bfloat16"] - old["float32"]
    print(f"log-probability of a response, bfloat16 less float32: standard deviation {forward.std():.3f}\n")
    print(
        "| updates | sd of log W, float32 | sd of bfloat16 less float32 | per token "
        "| outside GSPO's bounds, float32 | bfloat16 |"
    )
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for update in range(1, max(SHOWN) + 1):
        rows = slice(update * MINI_BATCH, (update + 1) * MINI_BATCH)
        log_probs = _token_log_probs(policy, tokens[rows], prompt_width)
        inputs = LossInputs(log_probs, before[rows], advantage[rows, None].expand_as(log_probs), mask[rows])
        loss = grpo(inputs).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        if update in SHOWN:
            exact = _log_probs(policy, tokens[held], mask[held], prompt_width) - old["float32"]
            rounded = _log_probs(_rounded(policy), tokens[held], mask[held], prompt_width) - old["bfloat16"]
            error = rounded - exact
            outside = [
                ((value / lengths < -3e-4) | (value / lengths > 4e-4)).float().mean() for value in (exact, rounded)
            ]
            print(
                f"| {update} | {exact.std():.3f} | {error.std():.3f} | {(error / lengths).std():.1e} "
                f"| {100 * outside[0]:.0f} % | {100 * outside[1]:.0f} % |"
            )
    sys.stdout.flush()


def _rounded(policy: torch.nn.Module) -> torch.nn.Module:
    return copy.deepcopy(policy).to(torch.bfloat16)


@torch.no_grad()
def _sample(policy, tokenizer, prompts, most):  # type: ignore[no-untyped-def]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True, return_token_type_ids=False)
    tokens = policy.generate(**inputs, do_sample=True, temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=most)
    width = inputs["input_ids"].shape[1]
    ended = (tokens[:, width:] == tokenizer.eos_token_id).int()
    mask = (ended.cumsum(1) - ended == 0).float()
    return tokens, mask, width


def _token_log_probs(policy, tokens, width):  # type: ignore[no-untyped-def]
    attention = torch.cat([(tokens[:, :width] != 0).long(), torch.ones_like(tokens[:, width:])], dim=1)
    positions = (attention.cumsum(1) - 1).clamp(min=0)
    logits = policy(input_ids=tokens, attention_mask=attention, position_ids=positions).logits[:, width - 1 : -1]
    return logits.float().log_softmax(-1).gather(-1, tokens[:, width:, None]).squeeze(-1)


@torch.no_grad()
def _log_probs(policy, tokens, mask, width):  # type: ignore[no-untyped-def]
    return (_token_log_probs(policy, tokens, width) * mask).sum(1)


if __name__ == "__main__":
    main()
