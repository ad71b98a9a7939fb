"""Protocols: the published values, the digest, drift, and what a wrong file is told."""

from __future__ import annotations

import json
import math
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from harness.protocol import (
    MAX_NESTING,
    Collapse,
    Overlong,
    Protocol,
    Runtime,
    available,
    collapse_reason,
    differences,
    drift,
    leaves,
    load_protocol,
    load_yaml,
    parse_protocol,
)
from methods import available as installed_methods
from methods import get
from methods.errors import UserError
from reuse_bench.commands.protocols import parse_overrides, sources
from reuse_bench.main import app

PAPER = ("qwen3-1.7b", "qwen3-30b-a3b")

# Written down from the publication, by hand and once more: not read from the protocol files.
PUBLISHED = {
    "reuse.ratios": [8, 16, 32],
    "data.max_prompt_tokens": 1024,
    "data.chat_template": True,
    "rollout.temperature": 1.0,
    "rollout.top_p": 1.0,
    "rollout.top_k": None,
    "rollout.responses_per_prompt": 8,
    "reward.right": 1.0,
    "reward.wrong": -1.0,
    "advantage.estimator": "group_norm",
    "update.prompts_per_update": 32,
    "update.updates": 1024,
    "update.epochs": 1,
    "optimiser.name": "adamw",
    "optimiser.learning_rate": 1e-6,
    "optimiser.weight_decay": 0.1,
    "optimiser.warmup_ratio": 0.05,
    "optimiser.schedule": "constant",
    "optimiser.gradient_clip": 1.0,
    "regularisation.kl": 0.0,
    "regularisation.entropy": 0.0,
    "checkpoints.every_updates": 256,
    "checkpoints.evaluate": "final",
    "evaluation.temperature": 1.0,
    "evaluation.top_p": 0.7,
    "evaluation.max_tokens": 16384,
    "evaluation.tasks.aime25.problems": 30,
    "evaluation.tasks.aime25.samples": 16,
    "evaluation.tasks.aime24.problems": 30,
    "evaluation.tasks.aime24.samples": 16,
    "evaluation.tasks.amc23.problems": 40,
    "evaluation.tasks.amc23.samples": 16,
    "evaluation.tasks.olympiadbench.problems": 674,
    "evaluation.tasks.olympiadbench.samples": 4,
    "evaluation.tasks.minerva_math.problems": 272,
    "evaluation.tasks.minerva_math.samples": 4,
    "evaluation.tasks.math500.problems": 500,
    "evaluation.tasks.math500.samples": 4,
    "scoring.early": [1, 256],
    "scoring.late": [896, 1024],
    "methods.hyperparameters.grpo.clip_low": 0.2,
    "methods.hyperparameters.grpo.clip_high": 0.2,
    "methods.hyperparameters.grpo.dual_clip": None,
    "methods.hyperparameters.gspo.clip_low": 3e-4,
    "methods.hyperparameters.gspo.clip_high": 4e-4,
    "methods.hyperparameters.vespo.k_pos": 2.0,
    "methods.hyperparameters.vespo.lambda_pos": 3.0,
    "methods.hyperparameters.vespo.k_neg": 3.0,
    "methods.hyperparameters.vespo.lambda_neg": 2.0,
    "methods.hyperparameters.respo.alpha_pos": 2.0,
    "methods.hyperparameters.respo.beta_pos": 0.5,
    "methods.hyperparameters.respo.lambda_pos": 2.0,
    "methods.hyperparameters.respo.alpha_neg": 1.0,
    "methods.hyperparameters.respo.beta_neg": 0.5,
    "methods.hyperparameters.respo.lambda_neg": 2.0,
}
OWN = {
    "qwen3-1.7b": {"rollout.max_response_tokens": 15360, "reward.overlong": None},
    "qwen3-30b-a3b": {
        "rollout.max_response_tokens": 8192,
        "reward.overlong.start": 4096,
        "reward.overlong.end": 8192,
        "reward.overlong.penalty": -1.0,
    },
}
# What nobody states, so that the file must say "not stated".
UNSTATED = (
    "data.prompt_template",
    "reward.grader",
    "update.mini_batches",
    "update.precision",
    "optimiser.betas",
    "optimiser.epsilon",
    "seeds.default",
    "collapse.score_at_most",
    "collapse.for_updates",
    "collapse.non_finite_loss",
)


def text_of(name: str) -> str:
    return (resources.files("harness") / "protocols" / f"{name}.yaml").read_text(encoding="utf-8")


def document_of(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(text_of(name))
    return document


@pytest.mark.parametrize("name", PAPER)
def test_published_values(name: str) -> None:
    found = dict(leaves(load_protocol(name).meaning()))
    expected = PUBLISHED | OWN[name]
    assert {field: found[field] for field in expected} == expected


@pytest.mark.parametrize("name", PAPER)
def test_every_value_has_a_source_and_unstated_ones_say_so(name: str) -> None:
    protocol = load_protocol(name)
    said = sources(protocol)
    for field, _ in leaves(protocol.meaning()):
        if field not in ("id", "version", "models"):
            assert said[".".join(field.split(".")[:2])].strip(), field
    for field in UNSTATED:
        assert "not stated" in said[field], field
    assert "not stated" in said[f"models.{protocol.models[0].name}.revision"]
    # and a value that is stated does not say the opposite
    for field in ("rollout.temperature", "optimiser.learning_rate", "scoring.late", "update.updates"):
        assert "not stated" not in said[field]


def test_the_control_differs_from_tiny_in_its_reward_only() -> None:
    tiny, control = document_of("tiny"), document_of("tiny-random-reward")
    assert control["reward"].pop("grader") == "chance"
    assert tiny["reward"].pop("grader") == "chain"
    assert control["methods"]["hyperparameters"]["grpo"] == tiny["methods"]["hyperparameters"]["grpo"]
    same = set(tiny) - {"id", "title", "notes", "methods", "reuse"}
    assert {name for name in same if tiny[name] != control[name]} == set()


def test_shipped_protocols() -> None:
    assert available() == ["qwen3-1.7b", "qwen3-30b-a3b", "small", "smoke", "tiny", "tiny-random-reward"]
    tiny = load_protocol("tiny")
    assert (tiny.update.prompts_per_update, tiny.rollout.responses_per_prompt, tiny.update.updates) == (8, 8, 256)
    assert tiny.optimiser.learning_rate == 3e-4
    assert list(tiny.evaluation.tasks) == [f"tiny_sum{digits}" for digits in range(3, 9)]
    assert load_protocol("smoke").reuse.ratios == [2, 4]


@pytest.mark.parametrize("name", ["qwen3-1.7b", "qwen3-30b-a3b", "small", "smoke", "tiny"])
def test_methods_are_installed_and_their_defaults_are_those_of_the_protocol(name: str) -> None:
    for method, hyperparameters in load_protocol(name).methods.hyperparameters.items():
        assert method in installed_methods()
        assert get(method)().hyperparameters == hyperparameters


@pytest.mark.parametrize("name", ["qwen3-1.7b", "qwen3-30b-a3b", "small", "smoke", "tiny"])
def test_tasks_and_training_sets_exist_with_the_stated_counts(name: str) -> None:
    from tasks import chain
    from tasks.datasets import subsets

    train = load_protocol(name).data.train
    sets = yaml.safe_load((resources.files("tasks") / "manifest.yaml").read_text(encoding="utf-8"))["sets"]
    assert train == chain.TRAIN_TASK or sets[train]["role"] == "train"
    for task, spec in load_protocol(name).evaluation.tasks.items():
        if task in chain.TINY_TASKS:
            assert spec.problems <= len(chain.held_out_problems(task))
        elif part := subsets().get(task):
            assert part.problems == spec.problems < sets[part.of]["rows"]
        else:
            assert sets[task]["rows"] == spec.problems


def test_overlong_penalty() -> None:
    penalty = load_protocol("qwen3-30b-a3b").reward.overlong
    assert penalty is not None
    assert [penalty(tokens) for tokens in (0, 4096, 5120, 6144, 8192)] == [0.0, 0.0, -0.25, -0.5, -1.0]


class TestDigest:
    def test_is_that_of_the_meaning_only(self) -> None:
        document = document_of("tiny")
        reordered = yaml.safe_dump(dict(reversed(list(document.items()))), default_flow_style=True)
        commented = "# a comment\n" + text_of("tiny").replace("learning_rate: 3.0e-4", "learning_rate: 0.00030")
        for text in (reordered, commented):
            assert parse_protocol(text, "x.yaml").digest == load_protocol("tiny").digest

    @pytest.mark.parametrize("field", ["title", "notes"])
    def test_words_do_not_change_it(self, field: str) -> None:
        document = document_of("tiny") | {field: "other words"}
        assert Protocol.model_validate(document).digest == load_protocol("tiny").digest

    def test_sources_do_not_change_it(self) -> None:
        document = document_of("tiny")
        document["rollout"]["stated"] = "somewhere else"
        document["models"][0]["stated"] = "somewhere else"
        assert Protocol.model_validate(document).digest == load_protocol("tiny").digest

    def test_hardware_does_not_change_it(self) -> None:
        changed = load_protocol("tiny").with_overrides(
            {"runtime.engines": 3, "runtime.zero_stage": 3, "runtime.tensorboard": True, "runtime.attention": "sdpa"}
        )
        assert changed.digest == load_protocol("tiny").digest
        assert changed.id == "tiny"
        assert drift(changed) == []

    def test_everything_but_machines_plans_and_words_is_meaning(self) -> None:
        """Named here one by one: a section that is left out by mistake would go unnoticed in all that is derived."""
        assert set(load_protocol("tiny").meaning()) == {
            *("id", "version", "models", "methods", "reuse", "seeds", "data", "rollout", "reward", "advantage"),
            *("update", "optimiser", "regularisation", "checkpoints", "evaluation", "scoring", "collapse"),
        }

    def test_the_order_of_seeds_and_ratios_means_nothing(self) -> None:
        backwards = {"seeds.default": [2, 0, 1], "reuse.ratios": [32, 8, 16]}
        assert load_protocol("tiny").with_overrides(backwards).digest == load_protocol("tiny").digest

    @pytest.mark.parametrize("name", ["tiny", "qwen3-30b-a3b"])
    def test_every_meaningful_number_changes_it(self, name: str) -> None:
        """Doubles or flips each number in turn; arithmetic that refuses the change is a fine answer too."""
        protocol = load_protocol(name)
        changed = refused = 0
        for field, value in leaves(protocol.meaning()):
            if field in ("id", "models") or not isinstance(value, (bool, int, float)):
                continue
            other: Any = (not value) if isinstance(value, bool) else value * 2 or 1
            document = protocol.model_dump(mode="python")
            place = document
            *parents, last = field.split(".")
            for part in parents:
                place = place[part if part in place else int(part)]
            place[last if last in place else int(last)] = other
            try:
                variant = Protocol.model_validate(document)
            except ValueError:
                refused += 1
                continue
            changed += 1
            assert variant.digest != protocol.digest, field
            assert any(line.startswith(f"{field}:") for line in differences(protocol, variant)), field
        assert changed > 25
        assert refused < changed / 2


class TestOpenVariants:
    def test_is_renamed_and_says_how_it_differs(self) -> None:
        variant = load_protocol("tiny").with_overrides({"rollout.temperature": 0.7})
        assert variant.id.startswith("tiny.open-")
        assert variant.base_id == "tiny"
        assert drift(variant) == ["rollout.temperature: 0.7 instead of 1.0"]

    def test_same_change_same_name_and_back_again(self) -> None:
        tiny = load_protocol("tiny")
        variant = tiny.with_overrides({"rollout.temperature": 0.7})
        assert variant.id == tiny.with_overrides({"rollout.temperature": 0.7, "runtime.engines": 2}).id
        assert variant.id != tiny.with_overrides({"rollout.temperature": 0.8}).id
        back = variant.with_overrides({"rollout.temperature": 1.0})
        assert (back.id, back.digest) == ("tiny", tiny.digest)

    def test_file_that_borrows_a_shipped_id(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.yaml"
        path.write_text(text_of("tiny").replace("top_p: 1.0", "top_p: 0.9", 1))
        protocol = load_protocol(path)
        assert protocol.id.startswith("tiny.open-")
        assert drift(protocol) == ["rollout.top_p: 0.9 instead of 1.0"]

    def test_protocol_of_ones_own(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.yaml"
        path.write_text(text_of("tiny").replace("id: tiny", "id: mine", 1))
        assert load_protocol(str(path)).id == "mine"
        assert drift(load_protocol(path)) == ["protocol: mine is not one that reuse-bench ships"]

    def test_a_removed_part_is_named(self) -> None:
        document = load_protocol("qwen3-30b-a3b").model_dump(mode="python")
        document["reward"]["overlong"] = None
        del document["methods"]["hyperparameters"]["vespo"]
        lines = differences(load_protocol("qwen3-30b-a3b"), Protocol.model_validate(document))
        assert "methods.hyperparameters.vespo.k_pos: 2.0 is left out" in lines
        assert "reward.overlong.start: 4096 is left out" in lines


class TestWrongFiles:
    @pytest.mark.parametrize(
        ("old", "new", "expected"),
        [
            ("temperature: 1.0", "temprature: 1.0", ["rollout.temprature", "1.0", "did you mean temperature?"]),
            ("temperature: 1.0", "temperature: hot", ["rollout.temperature", "'hot'"]),
            ("temperature: 1.0", "temperature: 0", ["rollout.temperature", "0", "greater than 0"]),
            ("temperature: 1.0", "temperature: .nan", ["rollout.temperature", "nan"]),
            ("  temperature: 1.0\n", "", ["rollout.temperature", "missing"]),
            ("ratios: [8, 16, 32]", "ratios: [8, 24]", ["reuse.ratios", "24", "256"]),
            ("ratios: [8, 16, 32]", "ratios: [8, 8]", ["reuse.ratios", "twice"]),
            ("ratios: [8, 16, 32]", "ratios: [128]", ["reuse.ratios", "128", "checkpoints.every_updates"]),
            ("late: [193, 256]", "late: [193, 257]", ["scoring.late", "193..257", "1..256"]),
            ("every_updates: 64", "every_updates: 96", ["checkpoints.every_updates", "96", "256"]),
            ("grader: chain", "grader: me", ["reward.grader", "'me'"]),
            ("kl: 0", "kl: 0.1", ["regularisation.kl", "0.1"]),
            ('prompt_template: "{problem}"', "prompt_template: Say hello", ["data", "{problem}"]),
            (
                "revision: null\n    stated: this protocol",
                "revision: null\n    stated: {name: us}",
                ["models.0", "source"],
            ),
            ("id: tiny", "id: Tiny/../x", ["field id", "Tiny/../x"]),
        ],
    )
    def test_one_sentence_with_file_field_and_value(self, old: str, new: str, expected: list[str]) -> None:
        text = text_of("tiny")
        assert old in text
        with pytest.raises(UserError) as caught:
            parse_protocol(text.replace(old, new, 1), "mine.yaml")
        message = str(caught.value)
        assert message.startswith("mine.yaml: ")
        assert "\n" not in message
        for part in expected:
            assert part in message

    def test_field_given_twice(self) -> None:
        text = text_of("tiny").replace("temperature: 1.0", "temperature: 1.0\n  temperature: 0.5", 1)
        with pytest.raises(UserError, match=r"mine.yaml: line \d+: field temperature is given twice"):
            parse_protocol(text, "mine.yaml")

    @pytest.mark.parametrize("text", ["", "[]", "just words"])
    def test_no_fields(self, text: str) -> None:
        with pytest.raises(UserError, match="holds no fields"):
            parse_protocol(text, "mine.yaml")

    def test_no_yaml(self) -> None:
        with pytest.raises(UserError, match=r"mine.yaml: line 1: .*mend the YAML"):
            parse_protocol("a: [1", "mine.yaml")

    def test_no_objects_from_yaml(self) -> None:
        with pytest.raises(UserError):
            parse_protocol("id: !!python/object/apply:os.getcwd []", "mine.yaml")

    def test_unknown_name(self) -> None:
        with pytest.raises(UserError, match=r"protocol 'tinny' .*did you mean tiny\?.*qwen3-1.7b"):
            load_protocol("tinny")

    def test_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"none.yaml.*No such file"):
            load_protocol(tmp_path / "none.yaml")

    def test_file_that_is_no_text(self, tmp_path: Path) -> None:
        path = tmp_path / "x.yaml"
        path.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(UserError, match="not UTF-8"):
            load_protocol(path)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("rollout.heat", 1),
            ("rollout.temperature.x", 1),
            ("nothing", 1),
            ("rollout.top_p", 2),
            ("models.1.source", "x"),
            ("models.source", "x"),
            ("models.-1.source", "x"),
        ],
    )
    def test_wrong_override(self, name: str, value: object) -> None:
        with pytest.raises(UserError):
            load_protocol("tiny").with_overrides({name: value})

    @settings(max_examples=40, deadline=None)
    @given(
        st.dictionaries(
            st.sampled_from(sorted(document_of("tiny"))),
            st.none() | st.integers(-1, 9) | st.text("ab:{}[]\n", max_size=4),
            max_size=2,
        )
    )
    def test_any_damage_is_a_user_error_or_valid(self, damage: dict[str, Any]) -> None:
        text = yaml.safe_dump(document_of("tiny") | damage)
        try:
            parse_protocol(text, "x.yaml")
        except UserError as error:
            assert str(error).startswith("x.yaml: ")  # noqa: PT017


class TestCollapse:
    RULE = Collapse(non_finite_loss=True, score_at_most=0.01, for_updates=3, stated="test")
    LENIENT = Collapse(non_finite_loss=True, score_at_most=None, for_updates=None, stated="test")

    @pytest.mark.parametrize("loss", [None, math.nan, math.inf, -math.inf])
    def test_non_finite_loss(self, loss: float | None) -> None:
        assert collapse_reason(self.LENIENT, [0.1, loss], [0.5, 0.5]) == "the loss of update 2 is not finite"

    def test_flat_score(self) -> None:
        assert collapse_reason(self.RULE, [0.0] * 4, [0.3, 0.0, 0.01, 0.0]) == (
            "the score stayed at or below 0.01 from update 2 to 4"
        )
        assert collapse_reason(self.RULE, [0.0] * 5, [0.0, 0.0, 0.3, 0.0, 0.0]) is None
        assert collapse_reason(self.LENIENT, [0.0] * 5, [0.0] * 5) is None

    def test_half_a_rule(self) -> None:
        with pytest.raises(ValueError, match="both"):
            Collapse(non_finite_loss=True, score_at_most=0.1, for_updates=None, stated="test")


class TestRuntime:
    @pytest.mark.parametrize("gpus", [1, 2, 4, 16])
    def test_colocated(self, gpus: int) -> None:
        runtime = load_protocol("qwen3-1.7b").runtime.with_gpus(gpus)
        assert (runtime.gpus, runtime.trainers, runtime.engines) == (gpus, gpus, gpus)

    def test_apart(self) -> None:
        runtime = load_protocol("tiny").runtime.with_gpus(5)
        assert (runtime.gpus, runtime.trainers, runtime.engines) == (5, 1, 4)

    @pytest.mark.parametrize(("name", "gpus"), [("tiny", 1), ("qwen3-30b-a3b", 3), ("qwen3-1.7b", 0)])
    def test_impossible(self, name: str, gpus: int) -> None:
        with pytest.raises(UserError, match=f"{gpus} cannot be split"):
            load_protocol(name).runtime.with_gpus(gpus)

    def test_contradictions(self) -> None:
        base = {"trainer_gpus": 2, "engines": 1, "train_micro_batch": 1, "rollout_micro_batch": 1}
        for wrong in (
            {"colocate": True},
            {"colocate": False, "trainer_sleeps": True},
            {"colocate": False, "packing": True, "attention": "eager"},
        ):
            with pytest.raises(ValueError, match="needs"):
                Runtime.model_validate(base | wrong)


def test_a_right_answer_must_earn_more_than_a_wrong_one() -> None:
    for wrong in (1.0, 2.0):
        with pytest.raises(UserError, match=r"field reward: .*right \(1\) must be greater than wrong"):
            load_protocol("tiny").with_overrides({"reward.wrong": wrong})


def test_overlong_must_grow() -> None:
    with pytest.raises(ValueError, match="greater than start"):
        Overlong(start=10, end=10, penalty=-1)


class TestCommands:
    def test_list(self) -> None:
        rows = json.loads(CliRunner().invoke(app, ["list", "protocols", "--json"]).output)
        assert {row["id"]: row["digest"] for row in rows} == {name: load_protocol(name).digest for name in available()}
        assert "qwen3-30b-a3b" in CliRunner().invoke(app, ["list", "protocols"]).output

    def test_show(self) -> None:
        shown = json.loads(CliRunner().invoke(app, ["show", "protocol", "qwen3-1.7b", "--json"]).output)
        assert shown["division"] == "closed"
        assert shown["deviations"] == []
        assert shown["meaning"]["update"]["updates"] == 1024
        assert "not stated" in shown["sources"]["optimiser.betas"]
        assert "closed" in CliRunner().invoke(app, ["show", "protocol", "qwen3-1.7b"]).output

    def test_show_a_variant(self) -> None:
        arguments = ["show", "protocol", "tiny", "--set", "optimiser.betas=[0.9, 0.99]", "--set", "runtime.engines=2"]
        shown = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
        assert shown["division"] == "open"
        assert shown["deviations"] == ["optimiser.betas: [0.9, 0.99] instead of [0.9, 0.95]"]
        assert shown["runtime"]["engines"] == 2
        assert "optimiser.betas: [0.9, 0.99] instead of [0.9, 0.95]" in CliRunner().invoke(app, arguments).output

    @pytest.mark.parametrize("setting", ["rollout.temperature", "=1", "a=[1"])
    def test_settings_that_are_none(self, setting: str) -> None:
        with pytest.raises(UserError):
            parse_overrides([setting])


@pytest.mark.parametrize(
    "content",
    [
        "a: &a [1, 2]\nb: [*a, *a]\n",
        "a: &a [*a]\n",
        "? [a]\n: 1\n",
        "id: 2020-99-99\n",
        "a: \x00\n",
        "[" * 5000,
        "[" * (MAX_NESTING + 1) + "]" * (MAX_NESTING + 1),
        "- " * 5000 + "1",
        "!!python/object/apply:os.getcwd []\n",
    ],
)
def test_hostile_yaml_is_refused_by_name(content: str) -> None:
    with pytest.raises(UserError, match=r"^mine\.yaml: .*mend the YAML"):
        parse_protocol(content, "mine.yaml")


def test_yaml_may_be_nested_as_far_as_is_said() -> None:
    deepest = load_yaml("[" * MAX_NESTING + "]" * MAX_NESTING, "x")
    for _ in range(MAX_NESTING - 1):
        (deepest,) = deepest
    assert deepest == []
