from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import evaluation
from harness.evaluation import EngineOptions, EvaluationError, TaskPlan, evaluate_checkpoint, request_seed
from harness.lm_eval_vllm import Completion, Journal, Request
from harness.protocol import available, load_protocol
from harness.scoring import COLUMNS, read_samples
from methods.errors import UserError
from tasks import chain, datasets
from tasks.lm_eval import functions
from tests.unit.test_scoring import table

PLAN = TaskPlan("tiny_sum3", samples=2, temperature=1.0, top_p=1.0, max_tokens=8)


@pytest.fixture
def model(tmp_path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def child(tmp_path: Path, monkeypatch, body: str) -> None:
    """Let the evaluation start this program in place of the engine."""
    script = tmp_path / "child.py"
    script.write_text(body)
    monkeypatch.setattr(evaluation, "CHILD", (str(script),))
    monkeypatch.setattr(evaluation, "POLL_SECONDS", 0.01)


ANSWERS = """
import json, sys
from pathlib import Path
import pandas as pd
from harness.evaluation import TaskPlan
from harness.scoring import write_samples
from tasks import datasets

job = json.loads(Path(sys.argv[1]).read_text())
out, scores = Path(job["out"]), {}
for plan in map(lambda one: TaskPlan(**one), job["plans"]):
    problems = datasets.evaluation_problems(plan.task).problems
    rows = []
    for index in job["indices"][plan.task]:
        for sample in range(plan.samples):
            verdict = "right" if sample == 0 else "wrong"
            rows.append(dict(problem_id=problems[index].id, sample=sample, seed=index, prompt_sha256="a" * 64,
                gold="1", response=f"{index} {sample}", finish_reason="stop", response_tokens=3, extracted=None,
                published=verdict, audited=verdict, reason=None, prompt="p"))
    write_samples(pd.DataFrame(rows), out / f"{plan.task}.parquet")
    scores[plan.task] = {"problems": len(job["indices"][plan.task]), "published": SCORE, "audited": 0.5}
(out / "scores.json").write_text(json.dumps(scores))
"""


# Seeds


def test_request_seeds_are_fixed_and_distinct():
    # A change here changes every published sample.
    assert request_seed(0, "aime25", "aime25-0123456789", 0) == 6129911172591393792
    seeds = {
        request_seed(seed, task, f"{task}-{problem}", sample)
        for seed in range(3)
        for task in ("aime25", "aime24")
        for problem in range(30)
        for sample in range(16)
    }
    assert len(seeds) == 3 * 2 * 30 * 16
    assert all(0 <= seed < 2**63 for seed in seeds)


@given(st.text(), st.text(), st.text())
def test_names_cannot_run_into_one_another(task, problem, more):
    if more and "\0" not in task + problem + more:
        assert request_seed(1, task + more, problem, 0) != request_seed(1, task, more + problem, 0)


# Plans


@pytest.mark.parametrize("name", available())
def test_plans_follow_the_protocol(name):
    protocol = load_protocol(name)
    plans = evaluation.plans_from_protocol(protocol)
    assert [plan.task for plan in plans] == list(protocol.evaluation.tasks)
    for plan in plans:
        assert plan.samples == protocol.evaluation.tasks[plan.task].samples
        assert plan.problems == protocol.evaluation.tasks[plan.task].problems
        assert plan.max_tokens == protocol.evaluation.max_tokens
        assert plan.prompt.count("{problem}") == 1
        if plan.task in chain.TINY_TASKS:
            assert plan.problems == chain.HELD_OUT_PROBLEMS
        elif part := datasets.subsets().get(plan.task):
            assert plan.problems == part.problems
        else:
            assert plan.problems == datasets.entry(plan.task).rows


def test_tasks_can_be_chosen():
    protocol = load_protocol("tiny")
    (plan,) = evaluation.plans_from_protocol(protocol, ["tiny_sum5", "tiny_sum5"])
    assert plan.task == "tiny_sum5"
    with pytest.raises(UserError, match=r"--tasks: 'aime25' is no task of protocol tiny: known are tiny_sum3"):
        evaluation.plans_from_protocol(protocol, ["aime25"])


def test_every_task_has_its_file_for_lm_eval():
    names = {path.stem for path in functions.FOLDER.glob("reuse_*.yaml")}
    tasks = {functions.lm_eval_name(task) for task in datasets.evaluation_tasks()}
    assert names == tasks | {"reuse_math", "reuse_tiny"}
    for name in tasks:
        text = (functions.FOLDER / f"{name}.yaml").read_text()
        assert text == f"include: _base.yaml\ntask: {name}\ndataset_kwargs:\n  name: {name.removeprefix('reuse_')}\n"


# Shards


@given(st.dictionaries(st.sampled_from("abc"), st.integers(1, 20), min_size=1), st.integers(1, 8))
def test_replicas_share_every_problem_once(counts, replicas):
    shards = evaluation._shards(counts, replicas)
    assert all(shard and all(shard.values()) for shard in shards)
    for task, count in counts.items():
        dealt = [index for shard in shards for index in shard.get(task, [])]
        assert sorted(dealt) == list(range(count))
    sizes = [sum(map(len, shard.values())) for shard in shards]
    assert max(sizes) - min(sizes) <= len(counts)


# Journal


def journal_with(path: Path, identity: str, samples: int) -> list[Request]:
    journal = Journal(path, identity)
    requests = [Request("t", "p", number, "1", "prompt", number, "{}") for number in range(samples)]
    for one in requests:
        journal.add(one, Completion(f"answer {one.sample} \u2028\n", "stop", 3))
    return requests


def test_a_journal_gives_back_what_was_finished(tmp_path):
    requests = journal_with(tmp_path / "journal-0.jsonl", "model", 3)
    again = Journal(tmp_path / "journal-1.jsonl", "model")  # another replica reads it too
    assert [again.completions[one.key].response for one in requests] == [f"answer {i} \u2028\n" for i in range(3)]
    assert replace(requests[0], options='{"top_p": 0.5}').key not in again.completions


@given(cut=st.integers(1, 60))
def test_a_line_that_was_cut_short_is_dropped(cut, tmp_path_factory):
    path = tmp_path_factory.mktemp("journal") / "journal-0.jsonl"
    requests = journal_with(path, "model", 2)
    path.write_bytes(path.read_bytes()[:-cut])
    journal = Journal(path, "model")
    assert requests[0].key in journal.completions
    assert requests[1].key not in journal.completions
    journal.add(requests[1], Completion("new", "length", 4))
    assert Journal(path, "model").completions[requests[1].key] == Completion("new", "length", 4)


def test_a_journal_of_another_checkpoint_is_not_read(tmp_path):
    path = tmp_path / "journal-0.jsonl"
    journal_with(path, "model", 2)
    assert not Journal(path, "other").completions
    assert json.loads(path.read_text()) == {"identity": "other"}


# The whole, with a stand-in for the engine


@pytest.mark.parametrize("replicas", [1, 3])
def test_samples_are_joined_checked_and_named(model, tmp_path, monkeypatch, replicas):
    child(tmp_path, monkeypatch, ANSWERS.replace("SCORE", "0.5"))
    files = evaluate_checkpoint(model, [PLAN], tmp_path / "out", seed=0, engine=EngineOptions(replicas=replicas))
    samples = read_samples(files["tiny_sum3"])
    assert list(samples["problem_id"].drop_duplicates()) == [f"tiny_sum3-{i}" for i in range(64)]
    assert list(samples["response"][:4]) == ["0 0", "0 1", "1 0", "1 1"]
    assert json.loads((tmp_path / "out" / "lm_eval.json").read_text()) == {
        "tiny_sum3": {"published": 0.5, "audited": 0.5}
    }
    assert evaluation.seconds_taken(tmp_path / "out") > 0
    assert not (tmp_path / "out" / ".work").exists()


def test_a_score_of_lm_eval_that_is_not_ours_stops(model, tmp_path, monkeypatch):
    child(tmp_path, monkeypatch, ANSWERS.replace("SCORE", "0.25"))
    with pytest.raises(EvaluationError, match=r"lm-eval's published score 0\.25 is not ours, 0\.5"):
        evaluate_checkpoint(model, [PLAN], tmp_path / "out", seed=0)
    assert not list((tmp_path / "out").glob("*.parquet"))


def test_missing_samples_stop(model, tmp_path, monkeypatch):
    child(tmp_path, monkeypatch, ANSWERS.replace("SCORE", "0.5").replace("range(plan.samples)", "range(1)"))
    with pytest.raises(EvaluationError, match="64 samples instead of 128"):
        evaluate_checkpoint(model, [PLAN], tmp_path / "out", seed=0)


def test_a_crash_names_the_log(model, tmp_path, monkeypatch):
    child(tmp_path, monkeypatch, "raise SystemExit(7)")
    with pytest.raises(EvaluationError, match=r"ended with code 7; the log is .*log\.txt"):
        evaluate_checkpoint(model, [PLAN], tmp_path / "out", seed=0)


def test_a_crash_of_one_replica_ends_the_others_and_is_the_one_that_is_told(model, tmp_path, monkeypatch):
    child(tmp_path, monkeypatch, "import sys, time; time.sleep(600) if 'replica-0' in sys.argv[1] else sys.exit(7)")
    with pytest.raises(EvaluationError, match="ended with code 7"):
        evaluate_checkpoint(model, [PLAN], tmp_path / "out", seed=0, engine=EngineOptions(replicas=2))


def test_an_interruption_ends_the_child(model, tmp_path, monkeypatch):
    body = "import os, sys, time; open(sys.argv[1] + '.pid', 'w').write(str(os.getpid())); time.sleep(600)"
    child(tmp_path, monkeypatch, body)
    pid_file = tmp_path / "out" / ".work" / "replica-0" / "job.json.pid"

    def interrupt(*_) -> None:
        if pid_file.exists() and pid_file.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_checkpoint(model, [PLAN], tmp_path / "out", seed=0, progress=interrupt)
    assert not Path(f"/proc/{pid_file.read_text()}").exists()


@pytest.mark.slow
def test_a_killed_parent_takes_the_engine_with_it(model, tmp_path):
    script = tmp_path / "child.py"
    script.write_text(
        "import os, subprocess, sys, time\n"
        "from harness.lifetime import end_with_parent\n"
        "end_with_parent()\n"
        "engine = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open(sys.argv[1] + '.pids', 'w').write(f'{os.getpid()} {engine.pid}\\n')\n"
        "time.sleep(600)\n"
    )
    parent = (
        "from pathlib import Path\n"
        "from harness import evaluation\n"
        f"evaluation.CHILD = ({str(script)!r},)\n"
        f"plan = evaluation.TaskPlan('tiny_sum3', 2, 1.0, 1.0, 8)\n"
        f"evaluation.evaluate_checkpoint(Path({str(model)!r}), [plan], Path({str(tmp_path / 'out')!r}), seed=0)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent])
    pids = tmp_path / "out" / ".work" / "replica-0" / "job.json.pids"
    wait_until(lambda: pids.exists() and pids.read_text().endswith("\n"))
    process.kill()
    process.wait()
    wait_until(lambda: not any(is_running(int(pid)) for pid in pids.read_text().split()))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(true, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited for too long"
        time.sleep(0.1)


def test_the_number_of_problems_must_be_the_protocols(model, tmp_path):
    with pytest.raises(UserError, match="task tiny_sum3: 64 problems instead of the protocol's 65"):
        evaluate_checkpoint(model, [replace(PLAN, problems=65)], tmp_path, seed=0)


@pytest.mark.parametrize("name", ["nowhere", "./nowhere", "/nowhere/at/all"])
def test_a_model_that_does_not_exist_is_said(tmp_path, name, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError) as caught:
        evaluate_checkpoint(name, [PLAN], tmp_path, seed=0)
    assert "nowhere" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_calls(model, tmp_path):
    with pytest.raises(ValueError, match="each once"):
        evaluate_checkpoint(model, [PLAN, PLAN], tmp_path, seed=0)
    other = replace(PLAN, task="tiny_sum4", chat_template=True)
    with pytest.raises(ValueError, match="chat_template"):
        evaluate_checkpoint(model, [PLAN, other], tmp_path, seed=0)
    with pytest.raises(UserError, match="--limit: 0"):
        evaluate_checkpoint(model, [PLAN], tmp_path, seed=0, limit=0)


def test_a_record_copy_has_no_prompts(tmp_path):
    from harness.scoring import read_identity, write_samples

    source, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
    write_samples(table([["right", "wrong"]]), source, {"seed": 3})
    evaluation.record_copy(source, target)
    assert list(read_samples(target).columns) == list(COLUMNS)
    assert b"secret text" not in target.read_bytes()
    assert read_identity(target) == {"seed": 3}
    pd.testing.assert_frame_equal(read_samples(target), read_samples(source).drop(columns="prompt"))


def test_a_record_says_what_training_and_held_out_sets_share():
    held_out = chain.held_out_problems("tiny_sum4")[5]
    train = [*chain.training_problems()[:50], {**held_out, "id": "t", "problem": f" {held_out['problem']}\n"}]
    note = evaluation.overlap_note(train, [PLAN, replace(PLAN, task="tiny_sum4")])
    assert note["pairs"] == {
        "tiny_sum4": [{"train": "t", "test": held_out["id"], "score": 1.0, "kind": "exact"}],
    }
    assert evaluation.overlap_note(chain.training_problems(), [PLAN])["pairs"] == {}


def test_replicas_get_their_own_gpus(monkeypatch):
    options = EngineOptions(replicas=2, tensor_parallel=2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert [evaluation._environment(n, 2, options)["CUDA_VISIBLE_DEVICES"] for n in range(2)] == ["4,5", "6,7"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert [evaluation._environment(n, 2, options)["CUDA_VISIBLE_DEVICES"] for n in range(2)] == ["0,1", "2,3"]
    assert "CUDA_VISIBLE_DEVICES" not in evaluation._environment(0, 1, options)


def test_the_child_finds_this_code(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    paths = evaluation._environment(0, 1, EngineOptions())["PYTHONPATH"].split(":")
    assert paths == [str(Path(evaluation.__file__).parents[1]), "/elsewhere"]
    assert "vllm" not in sys.modules, "the engine belongs to the child process alone"
