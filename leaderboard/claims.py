"""What a paper says, as data: one rule per claim, run on printed tables, on reproduced results, on the tiny grid.

A claim looks at *settings* (model, N, measure). In each, the *lead* is the method's score less that of its best rival.
The claim asks that the method lead (or be behind by at most so much) in a share of the settings. On printed numbers a
setting is a yes or a no. On results it is a yes where the whole interval of the lead is on the right side, a no where
all of it is on the wrong side, and unsure otherwise; a setting without data is unsure too. The claim holds when enough
settings are a yes, fails when even all unsure ones would not be enough, and is inconclusive in between.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from harness.protocol import read_yaml
from harness.records import Record
from leaderboard import published, statistics, tables
from methods.errors import UserError

FOLDER = Path(__file__).parent / "claims"
Verdict = Literal["holds", "fails", "inconclusive", "no data"]
Answer = Literal["yes", "no", "unsure"]
Table = Literal["training", "heldout"]
BENCHMARKS = "benchmarks"
PRINTED_DIGIT = 0.0005
"""Half of the last printed digit of a percentage, as a share: what rounding can move a stated number by."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _fraction(value: Any) -> Any:
    """``17/24`` -> (17, 24)."""
    if isinstance(value, str) and value.count("/") == 1:
        first, second = value.split("/")
        if first.strip().isdigit() and second.strip().isdigit() and 0 < int(first) <= int(second):
            return int(first), int(second)
    raise ValueError(f"{value!r} is no share such as 17/24")


class Stated(_Part):
    """A lead that the paper states as a number, in percentage points, for one setting."""

    model: str
    reuse: int
    measure: str
    points: float


class Claim(_Part):
    """One sentence of a paper. See the module's first lines for what the fields mean."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    statement: str
    table: Table
    measures: Literal["benchmarks"] | Annotated[list[str], Field(min_length=1)]
    reuse: list[int] | None = Field(default=None, description="N; all of them where it is left out")
    method: str
    rivals: Annotated[list[str], Field(min_length=1)]
    behind_by_at_most: Annotated[float, Field(ge=0)] | None = Field(default=None, description="percentage points")
    share: Annotated[tuple[int, int], BeforeValidator(_fraction)] = Field(alias="in")
    largest: Stated | None = Field(default=None, description="the largest lead of all settings")
    leads: list[Stated] = Field(default_factory=list)


class ClaimsFile(_Part):
    """All claims of one paper."""

    paper: str
    claims: Annotated[list[Claim], Field(min_length=1)]


@dataclass(frozen=True)
class Lead:
    """The method's score less its best rival's, with simultaneous bounds; they coincide for printed numbers."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Setting:
    """One (model, N, measure) and what it answers to a claim."""

    model: str
    reuse: int
    measure: str
    lead: Lead | None
    answer: Answer


@dataclass(frozen=True)
class Outcome:
    """Verdict of one claim on one source."""

    claim: Claim
    verdict: Verdict
    summary: str
    settings: tuple[Setting, ...]
    stated: tuple[dict[str, Any], ...] = ()

    def as_json(self) -> dict[str, Any]:
        """``id``, ``statement``, ``verdict`` and ``figures``; leads in percentage points."""
        return {
            "id": self.claim.id,
            "statement": self.claim.statement,
            "verdict": self.verdict,
            "figures": {
                "summary": self.summary,
                "yes": self.count("yes"),
                "no": self.count("no"),
                "unsure": self.count("unsure"),
                "of": len(self.settings),
                "needed": needed(self.claim, len(self.settings)),
                "settings": [
                    {
                        "model": one.model,
                        "reuse": one.reuse,
                        "measure": one.measure,
                        "lead": _points(one.lead.value) if one.lead else None,
                        "low": _points(one.lead.low) if one.lead else None,
                        "high": _points(one.lead.high) if one.lead else None,
                        "answer": one.answer,
                    }
                    for one in self.settings
                ],
                "stated": list(self.stated),
            },
        }

    def count(self, answer: Answer) -> int:
        """Number of settings with that answer."""
        return sum(one.answer == answer for one in self.settings)


class Source(Protocol):
    """A results table that claims can be asked of."""

    def settings(self, table: Table) -> list[tuple[str, int, str]]:
        """All (model, N, measure), sorted."""
        ...

    def lead(
        self, table: Table, setting: tuple[str, int, str], method: str, rivals: Sequence[str], family: int
    ) -> Lead | None:
        """The lead in one setting, with bounds that hold for ``family`` comparisons at once; None without data."""
        ...


def load(path: Path) -> ClaimsFile:
    """One file of claims.

    Raises:
        UserError: it cannot be read, or a field is wrong.
    """
    try:
        found = ClaimsFile.model_validate(read_yaml(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "document"
        raise UserError(f"{path}: field {where}: {first['msg']}: see docs/statistics.md for the fields") from error
    names = [claim.id for claim in found.claims]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{path}: field claims: id {name!r} is given twice: give each claim its own")
    return found


def shipped() -> list[ClaimsFile]:
    """The claims that come with the package."""
    return [load(path) for path in sorted(FOLDER.glob("*.yaml"))]


def evaluate(files: Iterable[ClaimsFile], source: Source) -> list[Outcome]:
    """Run every claim on a source."""
    return [_evaluate(claim, source) for one in files for claim in one.claims]


def needed(claim: Claim, settings: int) -> int:
    """How many of ``settings`` must be a yes: the claim's share of them, rounded up."""
    return math.ceil(Fraction(*claim.share) * settings)


def _evaluate(claim: Claim, source: Source) -> Outcome:
    chosen = [
        (model, reuse, measure)
        for model, reuse, measure in source.settings(claim.table)
        if (claim.reuse is None or reuse in claim.reuse)
        and (measure != published.MACRO if claim.measures == BENCHMARKS else measure in claim.measures)
    ]
    family = len(chosen) * len(claim.rivals)
    leads = {key: source.lead(claim.table, key, claim.method, claim.rivals, family) for key in chosen}
    settings = tuple(Setting(*key, lead, _answer(claim, lead)) for key, lead in leads.items())
    if all(lead is None for lead in leads.values()):
        return Outcome(claim, "no data", "no setting has all the methods that the claim names", settings)
    yes = sum(one.answer == "yes" for one in settings)
    unsure = sum(one.answer == "unsure" for one in settings)
    need = needed(claim, len(settings))
    verdict: Verdict = "holds" if yes >= need else "fails" if yes + unsure < need else "inconclusive"
    parts = [f"{yes} of {len(settings)}" + (f", {unsure} unsure" if unsure else "")]
    if (yes, len(settings)) != claim.share:
        parts.append(f"needs {need}")
    stated = []
    for one in [*([claim.largest] if claim.largest else []), *claim.leads]:
        found = _stated(one, settings, largest=one is claim.largest)
        if found is None:
            continue
        stated.append(found)
        if found["agrees"] == "no":
            verdict = "fails"
        elif found["agrees"] == "unsure" and verdict == "holds":
            verdict = "inconclusive"
    values = [one.lead.value for one in settings if one.lead is not None]
    if claim.largest is not None:
        parts.append(f"largest gap {_points(max(values)):.1f} points")
    if claim.leads or claim.behind_by_at_most is not None:
        parts.append("leads " + ", ".join(f"{_points(value):+.1f}" for value in values) + " points")
    return Outcome(claim, verdict, "; ".join(parts), settings, tuple(stated))


def _answer(claim: Claim, lead: Lead | None) -> Answer:
    """Ahead means strictly ahead; behind by at most so much includes the bound, up to rounding of floats."""
    if lead is None or math.isnan(lead.low) or math.isnan(lead.high):
        return "unsure"
    if claim.behind_by_at_most is None:
        return "yes" if lead.low > 0 else "no" if lead.high <= 0 else "unsure"
    bound = -claim.behind_by_at_most / 100 - 1e-9
    return "yes" if lead.low >= bound else "no" if lead.high < bound else "unsure"


def _stated(one: Stated, settings: Sequence[Setting], *, largest: bool) -> dict[str, Any] | None:
    """How a number of the paper stands against the lead of its setting; None where the setting is not looked at."""
    key = (published.model_key(one.model), one.reuse, one.measure)
    here = [s for s in settings if (published.model_key(s.model), s.reuse, s.measure) == key]
    if not here or here[0].lead is None:
        return None
    lead = here[0].lead
    value = one.points / 100
    if math.isnan(lead.low):
        agrees: Answer = "unsure"
    elif lead.low - PRINTED_DIGIT <= value <= lead.high + PRINTED_DIGIT:
        agrees = "yes"
    else:
        agrees = "no"
    if largest and agrees == "yes":
        others = [s.lead for s in settings if s.lead is not None and s is not here[0]]
        if any(other.low > lead.high for other in others):
            agrees = "no"
        elif any(other.value > lead.value for other in others):
            agrees = "unsure"
    return {**one.model_dump(), "found": _points(lead.value), "agrees": agrees}


def _points(value: float) -> float | None:
    return round(100 * value, 4) if math.isfinite(value) else None


class Printed:
    """The published tables. Numbers without intervals: every comparison is a yes or a no."""

    @cached_property
    def _scores(self) -> dict[Table, dict[tuple[str, int, str], dict[str, float]]]:
        found: dict[Table, dict[tuple[str, int, str], dict[str, float]]] = {"training": {}, "heldout": {}}
        for row in tables.as_rows(published.heldout()):
            found["heldout"].setdefault((row["model"], row["reuse"], row["task"]), {})[row["method"]] = row["score"]
        for row in tables.as_rows(published.training()):
            for measure in ("early", "late"):
                key = (row["model"], row["reuse"], measure)
                found["training"].setdefault(key, {})[row["method"]] = row[measure]
        return found

    def settings(self, table: Table) -> list[tuple[str, int, str]]:
        """All settings of the printed table: by N, then model, then measure in the paper's order."""
        order = {name: index for index, name in enumerate([*published.TASKS, published.MACRO])}
        return sorted(self._scores[table], key=lambda key: (key[1], key[0], order.get(key[2], 0), key[2]))

    def lead(
        self, table: Table, setting: tuple[str, int, str], method: str, rivals: Sequence[str], family: int
    ) -> Lead | None:
        """The printed difference; its bounds are itself."""
        scores = self._scores[table][setting]
        if any(name not in scores for name in (method, *rivals)):
            return None
        # Printed numbers have three decimals: without rounding, equal ones could differ in the last bit.
        value = round(scores[method] - max(scores[name] for name in rivals), 6)
        return Lead(value, value, value)


class Reproduced:
    """Records of one or more protocols: the closed division, or the open one where nothing is closed.

    The bounds of a lead are those of the difference to each rival, at a level that holds for all comparisons of the
    claim at once (Bonferroni); the lead over the best rival is the smallest of the differences.
    """

    def __init__(
        self, results: tables.Results, *, division: str | None = None, grader: tables.Grader = "published"
    ) -> None:
        self._results = results
        self._grader = grader
        self._cells: dict[tuple[str, int], dict[str, list[Record]]] = {}
        self._tasks: dict[tuple[str, int], tuple[str, ...]] = {}
        divisions = {record.division for _, record in results.records if record.kind == "trained"}
        self.division = division or ("open" if divisions == {"open"} else "closed")
        for (protocol, found, model, reuse, method), records in results.cells().items():
            if found == self.division and method != tables.BASE:
                self._cells.setdefault((model, reuse), {})[method] = records
                self._tasks[model, reuse] = results.tasks[protocol]

    def settings(self, table: Table) -> list[tuple[str, int, str]]:
        """All settings of the records: by N, then model, then measure."""
        keys = sorted(self._cells, key=lambda key: (key[1], key[0]))
        if table == "training":
            return [(*key, measure) for key in keys for measure in ("early", "late")]
        return [
            (*key, task)
            for key in keys
            for task in (*self._tasks[key], *([published.MACRO] if len(self._tasks[key]) > 1 else []))
        ]

    def lead(
        self, table: Table, setting: tuple[str, int, str], method: str, rivals: Sequence[str], family: int
    ) -> Lead | None:
        """The smallest difference to a rival, with bounds at level 1 - 0.05 / family."""
        model, reuse, measure = setting
        cells = self._cells[model, reuse]
        if any(name not in cells for name in (method, *rivals)):
            return None
        level = 1 - (1 - statistics.LEVEL) / max(family, 1)
        found = []
        for rival in rivals:
            one = self._compare(table, (model, reuse), measure, cells[method], cells[rival], level)
            if one is None:
                return None
            found.append(one)
        if any(one.leaves_out for one in found):
            # One seed: how the score varies with the seed is unknown; or runs without a score. Nothing is sure.
            return Lead(min(one.difference for one in found), math.nan, math.nan)
        return Lead(*(min(getattr(one, name) for one in found) for name in ("difference", "low", "high")))

    def _compare(
        self,
        table: Table,
        key: tuple[str, int],
        measure: str,
        first: list[Record],
        second: list[Record],
        level: float,
    ) -> statistics.Comparison | None:
        if table == "training":
            return tables.compare_training(first, second, measure, level=level)
        names = self._tasks[key] if measure == published.MACRO else (measure,)
        return tables.compare_cells(first, second, names, grader=self._grader, level=level)


def protocols_for_claims(results: tables.Results, asked: Sequence[str]) -> tables.Results:
    """The records of the protocols that claims are asked of.

    Those asked for; otherwise the only one there is; otherwise those with the paper's models.

    Raises:
        UserError: an asked protocol has no records, or it is not clear which is meant.
    """
    present: Mapping[str, None] = dict.fromkeys(record.protocol.id for _, record in results.records)
    for name in asked:
        if name not in present:
            known = ", ".join(present) or "none"
            raise UserError(f"--protocol {name}: {results.store} has no records of it; there are records of: {known}")
    chosen = list(asked)
    if not chosen:
        printed = {published.model_key(name) for name in published.heldout()["model"]}
        paper = {r.protocol.id for _, r in results.records if published.model_key(r.model.name) in printed}
        chosen = list(present) if len(present) <= 1 else sorted(paper)
        if not chosen:
            if not present:
                raise UserError(f"{results.store}: there are no records: make some with `reuse-bench run`")
            raise UserError(f"--protocol: {results.store} has records of {', '.join(present)}: name one")
    kept = tuple((path, record) for path, record in results.records if record.protocol.id in chosen)
    return tables.Results(results.store, kept)
