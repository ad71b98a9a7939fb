"""Protocols: what is fixed about a run, what one may change, and how a change is noticed.

A protocol is one YAML file. Everything in it that can change a result is its *meaning* and enters its digest. The
sections ``runtime`` (machines, parallelism, logging) and ``planning`` (sizes and speeds, for estimates) do not, nor do
titles, notes and the sources of the values. A run is ``closed`` when its meaning is that of a protocol that this
package ships, and ``open`` otherwise; `deviations` in `harness.grid` lists the differences.

Each section says in ``stated`` where its values come from: one text for all fields, or one a field, with ``"*"`` for
the rest. "not stated" means that the published sources do not give the value and what is used in its place.
"""

from __future__ import annotations

import difflib
import hashlib
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.records import canonical_json
from methods.errors import UserError

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
Positive = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


def _ascending(values: list[int]) -> list[int]:
    if len(set(values)) != len(values):
        raise ValueError("a value occurs twice")
    return sorted(values)


Ascending = AfterValidator(_ascending)
"""A set of integers: the order in the file means nothing."""
Number = float | None

FREE_SECTIONS = ("runtime", "planning")
"""Sections that one may change without leaving the protocol."""

_SILENT_FIELDS = frozenset({"stated", "title", "notes"})
_OPEN_MARK = ".open-"
_PACKAGE = "harness"
_FOLDER = "protocols"
MAX_NESTING = 50
"""Levels of YAML in YAML; a protocol has four."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Section(_Part):
    """A part of the meaning: each of its fields has a source."""

    stated: str | dict[str, str]

    @model_validator(mode="after")
    def _every_field_has_a_source(self) -> Self:
        if isinstance(self.stated, dict):
            fields = set(type(self).model_fields) - _SILENT_FIELDS
            unknown = set(self.stated) - fields - {"*"}
            if unknown:
                raise ValueError(f"stated names {', '.join(sorted(unknown))}, which is no field of the section")
            missing = fields - set(self.stated)
            if missing and "*" not in self.stated:
                raise ValueError(f"stated gives no source for {', '.join(sorted(missing))}")
        return self

    def source_of(self, field: str) -> str:
        """Where the value of ``field`` comes from."""
        if isinstance(self.stated, str):
            return self.stated
        return self.stated.get(field, self.stated.get("*", "not stated"))


class BaseModelSpec(_Section):
    """A base model. ``source`` is a hub name, a folder, or ``builtin:tiny`` for the one this project makes."""

    name: Name
    source: str
    revision: str | None = Field(description="commit of the hub repository; None: resolved when fetched, and recorded")


class Data(_Section):
    """Training prompts.

    A run sees the filtered set in seeded shuffles, one after another, until it has exactly as many prompts as its
    updates need.
    """

    train: str
    prompt_template: str
    chat_template: bool
    max_prompt_tokens: Positive

    @model_validator(mode="after")
    def _template_has_a_place(self) -> Self:
        if self.prompt_template.count("{problem}") != 1:
            raise ValueError("prompt_template must contain {problem} exactly once")
        return self

    def render(self, problem: str) -> str:
        """The user's text for one problem, before any chat template."""
        return self.prompt_template.replace("{problem}", problem)


class Rollout(_Section):
    """How responses for training are drawn. ``top_k`` None means no such limit."""

    temperature: Annotated[float, Field(gt=0)]
    top_p: Annotated[float, Field(gt=0, le=1)]
    top_k: Positive | None
    responses_per_prompt: Annotated[int, Field(gt=1)]
    max_response_tokens: Positive


class Overlong(_Part):
    """A penalty added to the reward, linear in the response's length: 0 at ``start`` tokens, ``penalty`` at ``end``."""

    start: Positive
    end: Positive
    penalty: Annotated[float, Field(lt=0)]

    @model_validator(mode="after")
    def _grows(self) -> Self:
        if self.end <= self.start:
            raise ValueError("end must be greater than start")
        return self

    def __call__(self, tokens: int) -> float:
        """What is added to the reward of a response of that many tokens."""
        return self.penalty * min(max(tokens - self.start, 0) / (self.end - self.start), 1.0)


class Reward(_Section):
    """``grader``: which judge gives the verdict.

    ``chain`` also asks for the end token. ``chance`` tosses a coin whatever the answer is: what a method gains under it
    has not come from the reward.
    """

    grader: Literal["published", "audited", "chain", "chance"]
    right: float
    wrong: float
    overlong: Overlong | None

    @model_validator(mode="after")
    def _right_is_better(self) -> Self:
        if self.right <= self.wrong:
            raise ValueError(f"right ({self.right:g}) must be greater than wrong ({self.wrong:g})")
        return self


class Advantage(_Section):
    """``group_norm``: (reward - mean) / standard deviation inside the responses to one prompt."""

    estimator: Literal["group_norm"]


class Update(_Section):
    """A policy update: ``prompts_per_update`` times the responses per prompt, drawn from the rollout batch.

    The reuse ratio N counts updates per rollout batch; every response is used once (one epoch).
    """

    prompts_per_update: Positive
    updates: Positive
    epochs: Literal[1]
    mini_batches: Literal["shuffled responses"]
    precision: Literal["bf16"]


class Optimiser(_Section):
    """AdamW. ``warmup_ratio`` is the share of the updates in which the rate rises linearly from 0."""

    name: Literal["adamw"]
    learning_rate: Annotated[float, Field(gt=0)]
    betas: tuple[Share, Share]
    epsilon: Annotated[float, Field(gt=0)]
    weight_decay: Annotated[float, Field(ge=0)]
    warmup_ratio: Share
    schedule: Literal["constant"]
    gradient_clip: Annotated[float, Field(gt=0)]


class Regularisation(_Section):
    """Terms beside the policy loss; a 0 switches the term off. There is no reference model, so ``kl`` is 0."""

    kl: Annotated[float, Field(ge=0, le=0)]
    entropy: Annotated[float, Field(ge=0)]


class Checkpoints(_Section):
    """Save points in policy updates. The final checkpoint is evaluated, never the best one."""

    every_updates: Positive
    evaluate: Literal["final"]


class TaskSpec(_Part):
    """A held-out task: how many problems it has, and how many samples are drawn for each."""

    problems: Positive
    samples: Positive


class Evaluation(_Section):
    """How the final checkpoint is asked."""

    tasks: Annotated[dict[Name, TaskSpec], Field(min_length=1)]
    temperature: Annotated[float, Field(ge=0)]
    top_p: Annotated[float, Field(gt=0, le=1)]
    max_tokens: Positive
    chat_template: bool


class Scoring(_Section):
    """Windows of the training score, in policy updates, both ends included.

    A rollout batch's score counts once for each of its updates inside the window. ``early`` is summarised by its
    maximum, ``late`` by its mean.
    """

    early: tuple[Positive, Positive]
    late: tuple[Positive, Positive]


class Collapse(_Section):
    """When a run ends early, as a result: a loss that is not finite, or no right answer for too long.

    ``score_at_most`` and ``for_updates`` belong together; without them only a loss that is not finite ends a run.
    """

    non_finite_loss: Literal[True]
    score_at_most: Share | None
    for_updates: Positive | None

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.score_at_most is None) != (self.for_updates is None):
            raise ValueError("score_at_most and for_updates must both be given, or neither")
        return self


class Seeds(_Section):
    """Run seeds. ``replicates`` are further seeds of single cells, run when they are asked for."""

    default: Annotated[list[Count], Field(min_length=1), Ascending]
    replicates: dict[str, dict[int, Annotated[list[Count], Ascending]]] = Field(
        description="method -> reuse ratio -> seeds"
    )


class Methods(_Section):
    """The losses with their hyperparameters, as the protocol runs them."""

    hyperparameters: Annotated[dict[Name, dict[str, Number]], Field(min_length=1)]


class Reuse(_Section):
    """N: policy updates per rollout batch."""

    ratios: Annotated[list[Positive], Field(min_length=1), Ascending]


class Runtime(_Part):
    """Machines, parallelism and logging: nothing here changes what is computed, up to rounding.

    On a machine without GPUs the counts are of pretend GPUs: one for the trainer, one for the engine.
    """

    nodes: Positive = 1
    trainer_gpus: Positive = Field(description="GPUs of the trainer on each node")
    colocate: bool = Field(description="trainer and engines take turns on the same GPUs")
    engines: Positive
    tensor_parallel: Positive = 1
    engine_memory_share: Annotated[float, Field(gt=0, lt=1)] = 0.9
    engine_eager: bool = False
    prefix_caching: bool = True
    zero_stage: Literal[0, 1, 2, 3] = 2
    adam_offload: bool = False
    trainer_sleeps: bool = Field(default=False, description="trainer states go to host memory while engines generate")
    gradient_checkpointing: bool = False
    packing: bool = Field(default=False, description="no padding inside a micro-batch; needs flash attention")
    attention: str = "flash_attention_2"
    train_micro_batch: Positive
    rollout_micro_batch: Positive
    sync_backend: Literal["nccl", "gloo"] = "nccl"
    rollout_log_probs: bool = Field(
        default=True, description="engine log-probabilities are recorded beside the trainer's"
    )
    resumable: bool = Field(default=True, description="optimiser, schedule and data position are saved too")
    save_every_updates: Positive | None = Field(
        default=None, description="more save points than the protocol's, to lose less when a machine dies"
    )
    keep_intermediate_weights: bool = False
    evaluation_gpus: Positive = 1
    evaluation_memory_share: Annotated[float, Field(gt=0, lt=1)] = 0.9
    tensorboard: bool = False

    @property
    def trainers(self) -> int:
        """Trainer processes, one a GPU."""
        return self.nodes * self.trainer_gpus

    @property
    def gpus(self) -> int:
        """GPUs that one cell holds while it trains."""
        return self.trainers if self.colocate else self.trainers + self.engines * self.tensor_parallel

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.colocate and self.trainers != self.engines * self.tensor_parallel:
            raise ValueError(
                f"colocate needs nodes x trainer_gpus ({self.trainers}) equal to engines x tensor_parallel "
                f"({self.engines * self.tensor_parallel})"
            )
        if self.trainer_sleeps and not self.colocate:
            raise ValueError("trainer_sleeps needs colocate")
        if self.packing and "flash_attention" not in self.attention:
            raise ValueError("packing needs a flash attention")
        return self

    def with_gpus(self, gpus: int) -> Runtime:
        """The same on another number of GPUs per cell.

        Raises:
            UserError: the number cannot be split between trainer and engines.
        """
        if self.colocate:
            fits = gpus > 0 and gpus % self.tensor_parallel == 0 and gpus % self.nodes == 0
            trainers, engines = gpus, gpus // self.tensor_parallel
            need = f"a multiple of {self.tensor_parallel} (GPUs per engine)"
        else:
            trainers = self.trainers
            rest = gpus - trainers
            fits = rest > 0 and rest % self.tensor_parallel == 0
            engines = rest // self.tensor_parallel
            need = f"{trainers} for the trainer and a multiple of {self.tensor_parallel} for the engines"
        if not fits:
            raise UserError(f"runtime: gpus per cell: {gpus} cannot be split: it must be {need}")
        document = self.model_dump() | {"trainer_gpus": trainers // self.nodes, "engines": engines}
        return Runtime.model_validate(document)


class Architecture(_Part):
    """Sizes of a Qwen3 decoder, for estimates. ``intermediate`` is the width of the MLP, or of one expert's."""

    layers: Positive
    hidden: Positive
    heads: Positive
    kv_heads: Positive
    head_dim: Positive
    intermediate: Positive
    experts: Count = 0
    experts_per_token: Count = 0
    vocabulary: Positive
    tied_embeddings: bool

    def _layer(self, experts: int) -> int:
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads) + 2 * self.head_dim
        mlp = 3 * self.hidden * self.intermediate * max(experts, 1) + self.hidden * self.experts
        return attention + mlp + 2 * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters."""
        embeddings = self.vocabulary * self.hidden * (1 if self.tied_embeddings else 2)
        return self.layers * self._layer(self.experts) + embeddings + self.hidden

    @property
    def active_parameters(self) -> int:
        """Parameters that are multiplied with one token: its own experts, and the output head."""
        return self.layers * self._layer(self.experts_per_token) + self.vocabulary * self.hidden + self.hidden

    @property
    def largest_block(self) -> int:
        """Parameters that ZeRO-3 gathers at once: the MLP, with all of its experts."""
        return 3 * self.hidden * self.intermediate * max(self.experts, 1) + self.hidden * self.experts

    @property
    def layer_activations(self) -> int:
        """Numbers that one token leaves inside a layer for its backward pass, with flash attention."""
        attention = 2 * self.head_dim * (self.heads + self.kv_heads)
        return 6 * self.hidden + attention + max(self.experts_per_token, 1) * (4 * self.intermediate + self.hidden)

    def touched_parameters(self, tokens: float) -> float:
        """Parameters that a decoding step reads for that many tokens, each with experts of its own."""
        if not self.experts:
            return float(self.active_parameters)
        expert = 3 * self.hidden * self.intermediate
        missed = math.pow(1 - self.experts_per_token / self.experts, tokens)
        hit = self.experts * (1 - missed)
        return self.active_parameters + self.layers * expert * (hit - self.experts_per_token)

    @property
    def kv_values_per_token(self) -> int:
        """Numbers that the key-value cache keeps for one token."""
        return 2 * self.layers * self.kv_heads * self.head_dim


class Planning(_Part):
    """What the estimates of `reuse-bench plan` rest on, for one base model.

    Measured seconds replace the model of the time that a cell takes; without them, everything that the model needs
    must be given.
    """

    architecture: Architecture
    training_seconds: Annotated[float, Field(gt=0)] | None = None
    evaluation_seconds: Annotated[float, Field(gt=0)] | None = None
    gpu: str | None = Field(default=None, description="kind of GPU, by its name in harness/plan.py")
    training_response_tokens: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="mean length of responses while training"
    )
    evaluation_response_tokens: Annotated[float, Field(gt=0)] | None = None
    prompt_tokens: Annotated[float, Field(gt=0)] | None = None
    training_efficiency: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="share of the GPU's peak FLOPs in forward and backward passes"
    )
    prefill_efficiency: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="share of the GPU's peak FLOPs while reading prompts and computing log-probabilities"
    )
    decode_efficiency: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="share of the GPU's memory bandwidth while generating"
    )
    notes: str

    @model_validator(mode="after")
    def _measured_or_modelled(self) -> Self:
        measured = ("training_seconds", "evaluation_seconds")
        needed = measured if self.gpu is None else set(type(self).model_fields) - set(measured)
        missing = sorted(name for name in needed if getattr(self, name) is None)
        if missing:
            raise ValueError(f"the estimate also needs {', '.join(missing)}")
        return self


class Protocol(_Part):
    """One protocol file, validated."""

    id: Name
    version: Positive
    title: str
    notes: str = ""
    models: Annotated[list[BaseModelSpec], Field(min_length=1)]
    methods: Methods
    reuse: Reuse
    seeds: Seeds
    data: Data
    rollout: Rollout
    reward: Reward
    advantage: Advantage
    update: Update
    optimiser: Optimiser
    regularisation: Regularisation
    checkpoints: Checkpoints
    evaluation: Evaluation
    scoring: Scoring
    collapse: Collapse
    runtime: Runtime
    planning: dict[Name, Planning] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _arithmetic(self) -> Self:
        updates = self.update.updates
        for ratio in self.reuse.ratios:
            if updates % ratio:
                raise ValueError(f"reuse.ratios: {ratio} does not divide update.updates ({updates})")
            if self.checkpoints.every_updates % ratio:
                raise ValueError(
                    f"reuse.ratios: {ratio} does not divide checkpoints.every_updates "
                    f"({self.checkpoints.every_updates}): saves happen between rollout batches"
                )
        if updates % self.checkpoints.every_updates:
            raise ValueError(
                f"checkpoints.every_updates: {self.checkpoints.every_updates} does not divide update.updates "
                f"({updates}): the last update would not be saved"
            )
        for name, (first, last) in (("early", self.scoring.early), ("late", self.scoring.late)):
            if not 1 <= first <= last <= updates:
                raise ValueError(f"scoring.{name}: {first}..{last} is no window inside 1..{updates}")
        if self.reward.overlong and self.reward.overlong.end != self.rollout.max_response_tokens:
            raise ValueError(
                f"reward.overlong.end: {self.reward.overlong.end} must equal rollout.max_response_tokens "
                f"({self.rollout.max_response_tokens})"
            )
        names = [model.name for model in self.models]
        if len(set(names)) != len(names):
            raise ValueError("models: a name occurs twice")
        unknown = set(self.planning) - set(names)
        if unknown:
            raise ValueError(f"planning: {', '.join(sorted(unknown))} is none of the models")
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of the meaning. The formatting of the file, and what one may change, leave it as it is."""
        return hashlib.sha256(canonical_json(self.meaning())).hexdigest()

    def meaning(self) -> dict[str, Any]:
        """The fields that can change a result, as plain JSON values."""
        return {key: value for key, value in _spoken(self).items() if key not in FREE_SECTIONS}

    def model(self, name: str) -> BaseModelSpec:
        """The base model of that name.

        Raises:
            UserError: the protocol has none of that name.
        """
        for model in self.models:
            if model.name == name:
                return model
        raise UserError(unknown_value("model", name, [model.name for model in self.models], f"protocol {self.id}"))

    @property
    def responses_per_update(self) -> int:
        """Responses in the mini-batch of one policy update."""
        return self.update.prompts_per_update * self.rollout.responses_per_prompt

    @property
    def prompts(self) -> int:
        """Prompts that a whole run consumes, whatever its reuse ratio."""
        return self.update.prompts_per_update * self.update.updates

    @property
    def max_tokens(self) -> int:
        """Longest prompt and response together."""
        return self.data.max_prompt_tokens + self.rollout.max_response_tokens

    def rollouts(self, reuse: int) -> int:
        """Rollout batches in a run."""
        return self.update.updates // reuse

    def prompts_per_rollout(self, reuse: int) -> int:
        """Prompts in one rollout batch."""
        return self.update.prompts_per_update * reuse

    def with_overrides(self, overrides: Mapping[str, Any]) -> Protocol:
        """The protocol with other values, by dotted names: ``{"runtime.engines": 2}``.

        An entry of a list goes by its number, from 0: ``models.0.source``.

        A variant that means something else than the protocol of its id is renamed (``tiny.open-1a2b3c4d``), so that
        its runs and records never lie among those of the protocol.

        Raises:
            UserError: no field of that name, or a value that the field does not take.
        """
        document = self.model_dump(mode="python")
        for name, value in overrides.items():
            parts = name.split(".")
            place: Any = document
            for index, part in enumerate(parts):
                known: list[Any] = sorted(place) if isinstance(place, dict) else []
                key: Any = part
                if isinstance(place, list):
                    known, key = list(range(len(place))), int(part) if part.isdecimal() else part
                if key not in known:
                    where = ".".join(parts[:index]) or "the protocol"
                    raise UserError(unknown_value("field", part, known, where))
                if index == len(parts) - 1:
                    place[key] = value
                place = place[key]
        document["id"] = self.base_id
        return _named_apart(_validate(document, f"protocol {self.base_id} as changed"))

    @property
    def base_id(self) -> str:
        """The id without the mark of an open variant."""
        return self.id.split(_OPEN_MARK)[0]


def _spoken(part: BaseModel) -> dict[str, Any]:
    """JSON values of the fields, without sources, titles and notes."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(item) for key, item in value.items() if key not in _SILENT_FIELDS}
        return [strip(item) for item in value] if isinstance(value, list) else value

    stripped = strip(part.model_dump(mode="json"))
    assert isinstance(stripped, dict)
    return stripped


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and values of a nested mapping; lists count as values."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from leaves(item, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def differences(stated: Protocol, used: Protocol) -> list[str]:
    """How the meaning of ``used`` differs from that of ``stated``, one line a field; empty when it does not."""
    before, after = (dict(leaves(protocol.meaning())) for protocol in (stated, used))
    del before["id"], after["id"]
    lines = []
    for name in [*before, *(name for name in after if name not in before)]:
        if name not in after:
            lines.append(f"{name}: {before[name]!r} is left out")
        elif name not in before:
            lines.append(f"{name}: {after[name]!r} is added")
        elif before[name] != after[name]:
            lines.append(f"{name}: {after[name]!r} instead of {before[name]!r}")
    return lines


def drift(protocol: Protocol) -> list[str]:
    """How a protocol differs from the one of its id that this package ships, one line a field; empty: not at all."""
    if protocol.base_id not in available():
        return [f"protocol: {protocol.id} is not one that reuse-bench ships"]
    return differences(_shipped(protocol.base_id), protocol)


def _named_apart(protocol: Protocol) -> Protocol:
    if protocol.id not in available() or not differences(_shipped(protocol.id), protocol):
        return protocol
    return protocol.model_copy(update={"id": f"{protocol.id}{_OPEN_MARK}{protocol.digest[:8]}"})


def collapse_reason(rule: Collapse, losses: Sequence[float | None], scores: Sequence[float]) -> str | None:
    """Why a run with these losses and scores (one of each an update, in order) has collapsed; None if it has not.

    A loss that JSON could not carry (None) counts as not finite.
    """
    for update, loss in enumerate(losses, start=1):
        if loss is None or loss != loss or abs(loss) == float("inf"):
            return f"the loss of update {update} is not finite"
    if rule.score_at_most is not None and rule.for_updates is not None:
        streak = 0
        for update, score in enumerate(scores, start=1):
            streak = streak + 1 if score <= rule.score_at_most else 0
            if streak >= rule.for_updates:
                first = update - streak + 1
                return f"the score stayed at or below {rule.score_at_most:g} from update {first} to {update}"
    return None


def available() -> list[str]:
    """Ids of the protocols that this package ships."""
    folder = resources.files(_PACKAGE) / _FOLDER
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_protocol(name: str | Path) -> Protocol:
    """The protocol of that id, or the one in that YAML file (renamed when it is a variant of a shipped one).

    Raises:
        UserError: no such protocol or file, or a field that is missing, unknown or wrong.
    """
    text = str(name)
    if text in available():
        return _shipped(text)
    if not text.endswith((".yaml", ".yml")) and "/" not in text:
        known = available()
        raise UserError(
            unknown_value("protocol", text, known, "this package") + ", or the path of a .yaml file of your own"
        )
    return _named_apart(_from_document(read_yaml(Path(name)), text))


@cache
def _shipped(name: str) -> Protocol:
    entry = resources.files(_PACKAGE) / _FOLDER / f"{name}.yaml"
    protocol = parse_protocol(entry.read_text(encoding="utf-8"), f"{name}.yaml")
    if protocol.id != name:
        raise UserError(f"{name}.yaml: field id: {protocol.id!r} must be the file's name, {name!r}")
    return protocol


class _StrictLoader(yaml.SafeLoader):
    """Plain YAML without three traps.

    A key given twice is an error: the first value would vanish without a word. So is a reference to an anchor: a few
    lines of them stand for more values than fit in memory, or for a value that contains itself. So is deep nesting:
    the time to read it grows with its square.
    """

    nesting = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        wrong = None
        if self.check_event(yaml.AliasEvent):
            wrong = "references (*) are not read: repeat the value"
        elif self.nesting == MAX_NESTING:
            wrong = f"it is nested more than {MAX_NESTING} levels deep"
        if wrong:
            where = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, wrong, where)
        self.nesting += 1
        node = super().compose_node(parent, index)
        self.nesting -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(None, None, "a field's name is no text", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"field {key} is given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def load_yaml(content: str, origin: str) -> Any:
    """What YAML text says; ``origin`` names it in errors.

    Raises:
        UserError: it is no YAML, gives a field twice, refers to an anchor, or is nested too deeply.
    """
    try:
        return yaml.load(content, _StrictLoader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise UserError(f"{origin}: {line}{error.problem}: mend the YAML") from error
    except (yaml.YAMLError, ValueError) as error:  # a character that is none; a date that does not exist
        raise UserError(f"{origin}: {' '.join(str(error).split())}: mend the YAML") from error


def read_yaml(path: Path) -> Any:
    """What a YAML file of somebody says.

    Raises:
        UserError: it cannot be read, or as `load_yaml`.
    """
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UserError(f"{path}: cannot be read ({reason}): give the path of a YAML file") from error
    return load_yaml(content, str(path))


def parse_protocol(content: str, origin: str) -> Protocol:
    """A protocol from YAML text; ``origin`` names it in errors.

    Raises:
        UserError: no YAML, or a field that is missing, unknown or wrong.
    """
    return _from_document(load_yaml(content, origin), origin)


def _from_document(document: Any, origin: str) -> Protocol:
    if not isinstance(document, dict):
        raise UserError(f"{origin}: the file holds no fields: see `reuse-bench show protocol tiny` for what it needs")
    return _validate(document, origin)


def _validate(document: dict[str, Any], origin: str) -> Protocol:
    try:
        return Protocol.model_validate(document)
    except ValidationError as error:
        raise UserError(_sentence(error, origin)) from error


def _sentence(error: ValidationError, origin: str) -> str:
    """The first of pydantic's complaints, as one sentence: file, field, value and the way out."""
    # An unknown field explains a missing one (a typing error causes both), so it comes first.
    first = min(error.errors(), key=lambda item: item["type"] != "extra_forbidden")
    where = ".".join(str(part) for part in first["loc"])
    more = error.error_count() - 1
    rest = f" ({more} more like this)" if more else ""
    if first["type"] == "extra_forbidden":
        known = _fields_at(first["loc"][:-1])
        way_out = f"the fields there are {', '.join(known)}" if known else "remove it"
        close = difflib.get_close_matches(str(first["loc"][-1]), known, 1)
        if close:
            way_out = f"did you mean {close[0]}?"
        return f"{origin}: field {where} = {first['input']!r} is unknown: {way_out}{rest}"
    if first["type"] == "missing":
        return f"{origin}: field {where} is missing: add it{rest}"
    message = first["msg"].removeprefix("Value error, ")
    if not where:
        return f"{origin}: {message}{rest}"
    value = "" if isinstance(first["input"], dict) else f" = {first['input']!r}"
    return f"{origin}: field {where}{value}: {message[0].lower()}{message[1:]}: mend the value{rest}"


def _fields_at(path: Sequence[int | str]) -> list[str]:
    """Names of the fields of the section at ``path``; empty where the path leaves the models."""
    place: Any = Protocol
    for part in path:
        if isinstance(place, type) and issubclass(place, BaseModel):
            if part not in place.model_fields:
                return []
            place = place.model_fields[str(part)].annotation
        else:
            inner = [item for item in get_args(place) if isinstance(item, type) and issubclass(item, BaseModel)]
            place = inner[0] if inner else None
    if not (isinstance(place, type) and issubclass(place, BaseModel)):
        place = next((item for item in get_args(place) if isinstance(item, type) and issubclass(item, BaseModel)), None)
    return sorted(place.model_fields) if place else []


def unknown_value(kind: str, value: object, known: Sequence[object], where: str) -> str:
    """One sentence for a value that is not among the known ones, with the nearest of them."""
    names = [str(item) for item in known]
    close = difflib.get_close_matches(str(value), names, 1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return f"{kind} {value!r} is unknown in {where}{hint}: known are {', '.join(names) or 'none'}"
