"""Protocol `small`: its arithmetic, its model by folder, its prompts, and the part of a set that it asks."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from harness import training
from harness.grid import Cell, deviations
from harness.models import resolve_model
from harness.openrlhf.arguments import TrainingPaths, training_arguments
from harness.plan import estimate
from harness.protocol import load_protocol
from harness.records import canonical_json
from harness.verify import verify
from leaderboard.pages.boards import Board, task_title
from methods.errors import UserError
from tasks import datasets
from tests import synthetic, word_problems
from tests.synthetic import synthetic_store

SMALL = load_protocol("small")
MODEL = SMALL.models[0].name
PART = "math500_first100"


def test_a_cell_is_estimated_at_under_an_hour() -> None:
    for reuse in SMALL.reuse.ratios:
        found = estimate(SMALL, Cell("small", MODEL, reuse, "grpo", 0))
        assert found.seconds < 3600
        assert found.gpu_hours == 0


def test_every_cell_is_a_command(tmp_path: Path) -> None:
    paths = TrainingPaths(*[tmp_path] * 6)
    for reuse in SMALL.reuse.ratios:
        arguments = training_arguments(SMALL, Cell("small", MODEL, reuse, "grpo", 0), paths)
        assert "--data.apply_chat_template" in arguments
        assert arguments[arguments.index("--rollout.batch_size") + 1] == str(3 * reuse)


class TestModelByFolder:
    """Where no hub can be reached."""

    def test_a_folder_takes_the_place_of_the_hub(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text("{}")
        (tmp_path / "model.safetensors").touch()
        changed = SMALL.with_overrides({"models.0.source": str(tmp_path)})
        assert resolve_model(changed.model(MODEL)) == tmp_path
        assert changed.id.startswith("small.open-")
        (line,) = deviations(changed, Cell(changed.id, MODEL, 4, "grpo", 0))
        assert str(tmp_path) in line

    def test_no_hub_is_one_sentence_with_the_way_out(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        constants = pytest.importorskip("huggingface_hub.constants")
        # A port that nobody answers, and an empty cache.
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
        with pytest.raises(UserError) as caught:
            resolve_model(SMALL.model(MODEL))
        said = str(caught.value)
        assert SMALL.models[0].source in said
        assert "--set models.0.source=FOLDER" in said
        assert "HF_HOME" in said
        assert "\n" not in said


@pytest.mark.slow  # imports transformers
class TestLlama:
    def test_the_stated_sizes_are_those_of_the_model(self) -> None:
        """Counted on a model without memory; a Qwen3 has norms of queries and keys that a Llama lacks."""
        torch = pytest.importorskip("torch")
        transformers = pytest.importorskip("transformers")
        sizes = SMALL.planning[MODEL].architecture
        with torch.device("meta"):
            llama = transformers.LlamaForCausalLM(
                transformers.LlamaConfig(
                    vocab_size=sizes.vocabulary,
                    hidden_size=sizes.hidden,
                    intermediate_size=sizes.intermediate,
                    num_hidden_layers=sizes.layers,
                    num_attention_heads=sizes.heads,
                    num_key_value_heads=sizes.kv_heads,
                    head_dim=sizes.head_dim,
                    tie_word_embeddings=sizes.tied_embeddings,
                )
            )
        counted = sum(one.numel() for one in llama.parameters())
        assert counted == 134_515_008
        assert sizes.parameters - counted == sizes.layers * 2 * sizes.head_dim

    def test_prompts_are_capped_with_their_template(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        from tests import chat_model

        chat_model.save_tokenizer(tmp_path)
        monkeypatch.setenv(datasets.DATA_VARIABLE, str(tmp_path))
        problems = {one.problem: one.answer for one in word_problems.put("gsm8k", tmp_path).problems}
        lengths = sorted(_in_template(SMALL.data.render(problem)) for problem in problems)
        protocol = SMALL.with_overrides({"data.max_prompt_tokens": lengths[2]})
        training.write_prompts(protocol, Cell(protocol.id, MODEL, 4, "grpo", 0), tmp_path, tmp_path / "prompts.jsonl")
        rows = [json.loads(line) for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
        counts = json.loads((tmp_path / "prompts.json").read_text())
        assert (counts["available"], counts["kept"], counts["rows"]) == (6, 3, SMALL.prompts)
        assert {_in_template(row["input"]) for row in rows} == set(lengths[:3])
        for row in rows:
            problem = row["input"].partition("\n\n")[0]
            assert json.loads(row["label"])["gold"] == problems[problem]


def _in_template(text: str) -> int:
    """Tokens of a prompt in the template of `tests.chat_model`, where a token is a byte or a mark."""
    around = "system\nYou are helpful.\n" + "user\n" + "\n" + "assistant\n"
    return len((around + text).encode()) + 5


class TestPartOfASet:
    FIELD = f"evaluation.{PART}.problem_ids"

    @pytest.fixture
    def part(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[datasets.Problem]:
        """The part of a set of 500 made-up problems that lies in the data folder as MATH-500, accepted by hand."""
        lines = [{"problem": f"problem {number}", "answer": str(number)} for number in range(500)]
        file = tmp_path / "math500.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        origin = {"accepted": datasets.digest(datasets.read_problems(file, "math500"))}
        datasets.describe_file(file).write_bytes(canonical_json(origin))
        monkeypatch.setenv(datasets.DATA_VARIABLE, str(tmp_path))
        return list(datasets.evaluation_problems(PART).problems)

    def found(self, folder: Path) -> set[str]:
        store = synthetic_store(folder, protocol="small", models=(MODEL,), methods=("grpo",), reuses=(4,), seeds=(0,))
        return {one.level for one in verify(store).findings if one.field == self.FIELD}

    def test_its_name_and_title_say_that_it_is_one(self) -> None:
        assert task_title(PART) == "MATH-500 (100 of 500)"
        assert task_title("gsm8k_test_first100") == "GSM8K (100 of 1,319)"
        assert Board("small", 1, MODEL, "closed", (), "", Path()).small

    def test_verify_finds_other_problems(self, part: list[datasets.Problem], tmp_path: Path) -> None:
        assert self.found(tmp_path / "store") == {"error"}

    def test_verify_takes_the_right_ones(
        self, part: list[datasets.Problem], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        made_up = synthetic._questions
        ids = [one.id for one in part]

        def questions(task: str, problems: int) -> tuple[list[str], list[str], list[str], str]:
            others, prompts, golds, digest = made_up(task, problems)
            return (ids if task == PART else others), prompts, golds, digest

        monkeypatch.setattr(synthetic, "_questions", questions)
        assert len(ids) == 100
        assert self.found(tmp_path / "store") == set()

    def test_what_could_not_be_compared_is_not_taken_for_right_later(
        self, part: list[datasets.Problem], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """Golds that are not those of the set: verified without the set and remembered, then with it."""
        made_up, digests = synthetic._questions, synthetic._data_digest
        ids, digest = [one.id for one in part], datasets.evaluation_problems(PART).digest

        def questions(task: str, problems: int) -> tuple[list[str], list[str], list[str], str]:
            if task != PART:
                return made_up(task, problems)
            _, prompts, golds, _ = made_up(task, problems)
            pairs = canonical_json([list(pair) for pair in zip(ids, prompts, strict=True)])
            return ids, prompts, golds, hashlib.sha256(pairs).hexdigest()

        monkeypatch.setattr(synthetic, "_questions", questions)
        monkeypatch.setattr(synthetic, "_request_seeds", synthetic._request_seeds.__wrapped__)  # of other ids
        monkeypatch.setattr(
            synthetic, "_data_digest", lambda task, rows: digest if task == PART else digests(task, rows)
        )
        store = synthetic_store(
            tmp_path / "store", protocol="small", models=(MODEL,), methods=("grpo",), reuses=(4,), seeds=(0,)
        )
        with monkeypatch.context() as without:
            without.setenv(datasets.DATA_VARIABLE, str(tmp_path / "nothing"))
            first, again = (verify(store, cache_folder=tmp_path / "cache") for _ in range(2))
        assert [f"{one.field} {one.message}" for one in first.findings if one.level == "error"] == []
        assert (first.cached, again.cached) == (0, 1)
        assert again.findings == first.findings
        assert any("golds not compared" in one.message for one in again.findings)
        later = verify(store, cache_folder=tmp_path / "cache")
        assert {one.field for one in later.findings if one.level == "error"} == {f"evaluation.{PART}.samples"}

    def test_verify_says_when_the_set_is_not_at_hand(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv(datasets.DATA_VARIABLE, str(tmp_path / "nothing"))
        assert self.found(tmp_path / "store") == {"note"}
