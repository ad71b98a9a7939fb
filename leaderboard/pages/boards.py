"""Runs and boards: what the store holds, read once and cut down to what pages show.

A *board* is what may share a table: the runs of one protocol version on one base model in one division. Results of
different boards are never put side by side.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from harness.curves import read_updates
from harness.records import FileRef, Record, record_folder
from leaderboard import tables
from leaderboard.charts import clean, total
from leaderboard.pages.parallel import parallel_map
from leaderboard.published import TASKS
from methods.errors import UserError

POINTS = 128
SIGNS = ("positive", "negative")
QUANTILES = ("q05", "q50", "q95")
SERIES = (
    "loss",
    "reward",
    "gradient_norm",
    "learning_rate",
    "mean_length",
    "truncated",
    "engine_gap",
    "ess",
    "clip_fraction",
)
TASK_TITLES = {
    "aime25": "AIME 2025",
    "aime24": "AIME 2024",
    "amc23": "AMC 2023",
    "olympiadbench": "OlympiadBench",
    "minerva_math": "Minerva Math",
    "math500": "MATH-500",
    "gsm8k_test": "GSM8K",
    "gsm8k_test_first100": "GSM8K (100 of 1,319)",
    "math500_first100": "MATH-500 (100 of 500)",
}
METHOD_ORDER = ("base", "grpo", "gspo", "vespo", "respo")
SMALL = ("tiny", "smoke", "small")
BASE = tables.BASE


def slug(name: str) -> str:
    """A file name that is safe everywhere; a name that had to be changed gets a short digest, so none collide."""
    plain = re.sub(r"[^a-z0-9._]+", "-", unicodedata.normalize("NFKD", name).lower()).strip("-.")[:60]
    if plain == name:
        return plain
    if plain == name.lower() and plain:
        # Only the case differs: keep it readable; file systems that ignore case would see one file anyway.
        return plain
    return f"{plain or 'x'}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def task_title(name: str) -> str:
    """How a held-out task is called on the pages."""
    if found := re.fullmatch(r"tiny_sum(\d+)", name):
        return f"Sum of {found[1]}"
    return TASK_TITLES.get(name, name.replace("_", " ").strip().capitalize() or name)


def task_sort(name: str) -> tuple[int, str]:
    """The order of the paper's table, then by name."""
    return (TASKS.index(name) if name in TASKS else len(TASKS), name)


def method_sort(name: str) -> tuple[int, str]:
    """The order of the paper's table, then by name."""
    return (METHOD_ORDER.index(name) if name in METHOD_ORDER else len(METHOD_ORDER), name)


@dataclass(frozen=True)
class Histogram:
    """log W of the responses of one advantage sign, summed over updates: responses and |phi A| per bin."""

    counts: tuple[float, ...]
    mass: tuple[float, ...]


@dataclass(frozen=True)
class Digest:
    """What the pages need of the files beside a record."""

    rollouts: tuple[tuple[int, float], ...] = ()
    series: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    deciles: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    disagreements: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """One record with its digest and the page that shows it."""

    record: Record
    path: Path
    digest: Digest
    page: str

    @property
    def method(self) -> str:
        """Key of the method; ``base`` for a model that was not trained here."""
        return self.record.method.name if self.record.method else "base"

    @property
    def title(self) -> str:
        """Title of the method."""
        return tables.title(self.record)

    @property
    def label(self) -> str:
        """The run in a few words."""
        reuse = f", N = {self.record.reuse}" if self.record.reuse is not None else ""
        return f"{self.title}{reuse}, seed {self.record.seeds.run}"

    @property
    def task_names(self) -> list[str]:
        """Its held-out tasks in order."""
        return sorted(self.record.evaluation, key=task_sort)


@dataclass(frozen=True)
class Arm:
    """All runs of one method at one reuse ratio on one board."""

    method: str
    title: str
    reuse: int | None
    runs: tuple[Run, ...]

    @property
    def evaluated(self) -> list[Run]:
        """Runs that have held-out scores."""
        return [run for run in self.runs if run.record.evaluation]

    @property
    def status(self) -> str:
        """One of done, collapsed, failed; or how many of the runs ended badly."""
        if len(self.runs) == 1 or not self.lost:
            return self.runs[0].record.status if self.runs else ""
        return f"{self.lost} of {len(self.runs)}"

    @property
    def lost(self) -> str:
        """How many runs ended badly: what stands beside every mean of these runs. Empty where none did."""
        bad = {name: sum(run.record.status == name for run in self.runs) for name in ("collapsed", "failed")}
        return ", ".join(f"{count} {name}" for name, count in bad.items() if count)


@dataclass(frozen=True)
class Board:
    """What may share a table: one protocol version, one base model, one division."""

    protocol: str
    version: int
    model: str
    division: str
    arms: tuple[Arm, ...]
    key: str
    store: Path

    @cached_property
    def results(self) -> tables.Results:
        """The same runs in the form that `leaderboard.tables` takes."""
        return tables.Results(self.store, tuple((run.path, run.record) for run in self.runs))

    @property
    def small(self) -> bool:
        """True for protocols that test the machinery and say nothing about methods at scale."""
        named = re.split(r"[-_.]", self.protocol.lower())[0] in SMALL
        return named or any(run.record.model.source.startswith("builtin:") for run in self.runs)

    @property
    def title(self) -> str:
        """Heading of the board."""
        extra = " (open division)" if self.division == "open" else ""
        return f"{self.model}{extra}"

    @property
    def page(self) -> str:
        """Address of its page, from the root."""
        return f"boards/{self.key}.html"

    @property
    def runs(self) -> list[Run]:
        """All runs, in order."""
        return [run for arm in self.arms for run in arm.runs]

    @property
    def lost(self) -> bool:
        """True when every run collapsed or failed."""
        return all(run.record.status != "done" for run in self.runs)

    @property
    def tasks(self) -> list[str]:
        """Every held-out task that any run has, in order."""
        return sorted({task for run in self.runs for task in run.record.evaluation}, key=task_sort)

    @property
    def ratios(self) -> list[int]:
        """The reuse ratios, ascending."""
        return sorted({arm.reuse for arm in self.arms if arm.reuse is not None})

    @property
    def methods(self) -> list[str]:
        """Keys of the trained methods, in order."""
        return sorted({arm.method for arm in self.arms if arm.reuse is not None}, key=method_sort)

    def arm(self, method: str, reuse: int | None) -> Arm | None:
        """The runs of a method at a reuse ratio, if there are any."""
        return next((arm for arm in self.arms if arm.method == method and arm.reuse == reuse), None)


def beside(path: Path, reference: FileRef) -> Path | None:
    """The file that a record points to, if it exists and lies inside the record's own folder."""
    folder = record_folder(path).resolve()
    try:
        found = (folder / reference.path).resolve()
        return found if found.is_relative_to(folder) and found.is_file() else None
    except (OSError, ValueError, RuntimeError):  # the last: links in a circle
        return None


def _thinned(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """At most `POINTS` points: means over stretches of equal length."""
    if len(points) <= POINTS:
        return tuple(points)
    xs, ys = zip(*points, strict=True)
    means = (total([y / (stop - start) for y in ys[start:stop]]) for start, stop in _stretches(len(points)))
    return tuple(zip(_thinned_places(xs), means, strict=True))


@lru_cache(maxsize=16)  # the curves of a run have the same updates, and so have most runs of a board
def _thinned_places(xs: tuple[float, ...]) -> list[float]:
    return [total(xs[start:stop]) / (stop - start) for start, stop in _stretches(len(xs))]


@lru_cache(maxsize=16)
def _stretches(count: int) -> list[tuple[int, int]]:
    """``count`` points in `POINTS` stretches of equal length."""
    return list(pairwise(round(index * count / POINTS) for index in range(POINTS + 1)))


def _histogram(rows: Sequence[Mapping[str, Any]], sign: str) -> Histogram | None:
    """Sums over updates; an update without its two lists, or with lists of another length, is left out."""
    found: dict[str, list[list[Any]]] = {"counts": [], "mass": []}
    for row in rows:
        weights = row.get("log_weight")
        part = weights.get(sign) if isinstance(weights, dict) else None
        counts, mass = (part.get("counts"), part.get("mass")) if isinstance(part, dict) else (None, None)
        if isinstance(counts, list) and isinstance(mass, list) and len(counts) == len(mass):
            if found["counts"] and len(counts) != len(found["counts"][0]):
                continue
            found["counts"].append(counts)
            found["mass"].append(mass)
    if not found["counts"]:
        return None
    counts_, mass_ = (_column_sums(values) for values in found.values())
    return Histogram(counts_, mass_)


def _column_sums(rows: list[list[Any]]) -> tuple[float, ...]:
    try:
        shape = len(rows), len(rows[0])
        table = np.fromiter(chain.from_iterable(rows), np.float64, shape[0] * shape[1]).reshape(shape)
    except (TypeError, ValueError, OverflowError):
        table = np.array([[clean(value) or 0.0 for value in row] for row in rows])
    return tuple(float(value) for value in np.where(np.isfinite(table), table, 0.0).sum(axis=0))


def _digest_updates(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rollouts: dict[int, tuple[int, float | None]] = {}
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        update, rollout = clean(row.get("update")), clean(row.get("rollout"))
        if update is None:
            continue
        if rollout is not None:
            score = clean(row.get("score"))
            before = rollouts.get(int(rollout), (0, None))
            rollouts[int(rollout)] = (max(before[0], int(update)), before[1] if score is None else score)
        for name in SERIES:
            if (value := clean(row.get(name))) is not None:
                series.setdefault(name, []).append((update, value))
        weights = row.get("log_weight")
        for sign in SIGNS:
            part = weights.get(sign) if isinstance(weights, dict) else None
            # The three quantiles together or not at all, so that a band has as many points as its middle.
            known = [clean(part.get(name)) for name in QUANTILES] if isinstance(part, dict) else [None]
            if None not in known:
                for name, value in zip(QUANTILES, known, strict=True):
                    series.setdefault(f"{sign}.{name}", []).append((update, value or 0.0))
    return {
        "rollouts": tuple((u, s) for _, (u, s) in sorted(rollouts.items()) if s is not None),
        "series": {name: _thinned(points) for name, points in series.items()},
        "histograms": {sign: found for sign in SIGNS if (found := _histogram(rows, sign)) is not None},
    }


def _digest_samples(files: Mapping[str, Path]) -> dict[str, Any]:
    """Accuracy by decile of response length (ranked inside each task, then the mean over tasks), and disagreements."""
    import pyarrow.parquet as pq

    by_grader: dict[str, list[list[float]]] = {"published": [], "audited": []}
    disagreements: dict[str, tuple[int, int]] = {}
    for task, path in files.items():
        try:
            # `read_table` is made for folders of files: its threads and set-up take longer than reading a small one.
            table = pq.ParquetFile(path).read(columns=["response_tokens", "published", "audited"], use_threads=False)
            lengths = np.nan_to_num(np.asarray(table["response_tokens"].to_numpy(), dtype=np.float64))
            right = {g: np.asarray(table[g].to_numpy() == "right", dtype=bool) for g in by_grader}
        except Exception as error:  # pyarrow raises many kinds for a damaged file
            raise UserError(
                f"{path}: not a readable sample file ({type(error).__name__}); restore it, or delete the record and "
                "run the cell again"
            ) from error
        disagreements[task] = (
            int((right["published"] & ~right["audited"]).sum()),
            int((right["audited"] & ~right["published"]).sum()),
        )
        if len(lengths) < 10:
            continue
        order = np.argsort(lengths, kind="stable")
        for grader, verdicts in right.items():
            parts = np.array_split(verdicts[order], 10)
            by_grader[grader].append([int(part.sum()) / len(part) for part in parts])
    deciles = {
        grader: tuple(total(column) / len(column) for column in zip(*rows, strict=True))
        for grader, rows in by_grader.items()
        if rows
    }
    return {"deciles": deciles, "disagreements": disagreements}


def digest(path: Path, record: Record) -> Digest:
    """Read the files beside a record; those that are not there are named, not an error."""
    missing: list[str] = []
    parts: dict[str, Any] = {}
    if record.training is not None:
        curve = beside(path, record.training.curve)
        if curve is None:
            missing.append(record.training.curve.path)
        else:
            parts |= _digest_updates(read_updates(curve, record.training))
    files: dict[str, Path] = {}
    for task, result in sorted(record.evaluation.items()):
        found = beside(path, result.samples)
        if found is None:
            missing.append(result.samples.path)
        else:
            files[task] = found
    if files:
        parts |= _digest_samples(files)
    return Digest(**parts, missing=tuple(missing))


def _run_page(record: Record) -> str:
    parts = [slug(part) for part in record.relative_path().with_suffix("").parts]
    return "/".join(["runs", *parts]) + ".html"


def _digest_one(item: tuple[Path, Record]) -> Digest:
    return digest(*item)


def read_runs(store: Path, workers: int = 1, cache: dict[str, Digest] | None = None) -> list[Run]:
    """Every run of a store. ``cache`` maps record ids to digests.

    Raises:
        UserError: no such folder, or a record or a file beside it is damaged.
    """
    cache = {} if cache is None else cache
    found = list(tables.load(store).records)
    new = [item for item in found if item[1].id not in cache]
    digests = list(parallel_map(_digest_one, new, workers))
    cache.update({record.id: made for (_, record), made in zip(new, digests, strict=True)})
    pages: dict[str, int] = {}
    runs = []
    for path, record in found:
        page = _run_page(record)
        pages[page] = pages.get(page, 0) + 1
        if pages[page] > 1:
            page = page.removesuffix(".html") + f"-{record.id[:8]}.html"
        runs.append(Run(record, path, cache[record.id], page))
    return runs


def _board_of(run: Run) -> tuple[str, int, str, str]:
    record = run.record
    return record.protocol.id, record.protocol.version, record.model.name, record.division


def _natural(text: str) -> list[Any]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d{1,12})", text)]


def boards(runs: Iterable[Run], store: Path) -> list[Board]:
    """The boards of a store: paper-scale ones first, closed division before open."""
    made = []
    order: Callable[[Run], Any] = lambda run: (  # noqa: E731 (a key used twice, clearer than a function)
        _board_of(run),
        run.record.reuse or 0,
        method_sort(run.method),
        run.method,
        run.record.seeds.run,
        run.page,
    )
    taken: set[str] = set()
    for (protocol, version, model, division), group in groupby(sorted(runs, key=order), key=_board_of):
        arms = tuple(
            Arm(method, members[0].title, reuse, tuple(members))
            for (reuse, method), members_ in groupby(group, key=lambda run: (run.record.reuse, run.method))
            if (members := list(members_))
        )
        parts = (slug(protocol), slug(model))
        key = parts[1] if parts[1].startswith(parts[0]) else "-".join(parts)
        if division != "closed":
            key += f"-{division}"
        key = f"{key}-v{version}"
        while key in taken:
            key += "-x"
        taken.add(key)
        made.append(Board(tables.shown(protocol), version, tables.shown(model), division, arms, key, store))
    return sorted(made, key=lambda b: (b.small, b.division, _natural(b.protocol), b.model, -b.version))
