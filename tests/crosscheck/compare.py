"""Do two independent trainers agree? Our records of the tiny protocol beside TRL's runs of the same cells.

    python -m tests.crosscheck.compare --records results

prints the tables of ``docs/crosscheck.md``. Differences are ours minus TRL's, with Welch's 95 % interval over seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from harness.curves import early_score, late_score, mean_score, read_updates
from harness.protocol import load_protocol
from harness.records import iter_records, record_folder
from leaderboard.statistics import Comparison, compare_seed_scores, holm
from methods.errors import UserError

TRL_RESULTS = Path(__file__).with_name("trl") / "results"
SCORES = ("early", "late", "mean")
DIAGNOSTICS = ("ess", "clip_fraction", "gradient_norm", "mean_length", "log_weight_positive_spread")
LEVEL = 0.05

Setting = tuple[str, int]
"""A method and its N."""


@dataclass(frozen=True)
class Run:
    """One run, from either trainer.

    Attributes:
        seed: of the run; it fixes the order of the prompts in both trainers.
        scores: of each rollout batch, in [0, 1].
        values: `SCORES`, and the mean over updates of each of `DIAGNOSTICS`.
    """

    seed: int
    scores: tuple[float, ...]
    values: Mapping[str, float]


@dataclass(frozen=True)
class Row:
    """One quantity of one setting: both means, and ours less TRL's with its Holm-adjusted p-value."""

    setting: Setting
    name: str
    ours: float
    theirs: float
    comparison: Comparison
    p_value: float = math.nan


def trl_runs(folder: Path) -> dict[Setting, list[Run]]:
    """The runs that ``trl/run.py`` left in a folder.

    Raises:
        UserError: a file is not one of its results.
    """
    runs: dict[Setting, list[Run]] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            document = json.loads(path.read_bytes())
            _, _, reuse, method, seed = document["cell"].split("/")
            updates, scores = document["updates"], document["rollouts"]["score"]
            spread = [
                None if low is None else high - low
                for low, high in zip(
                    updates["log_weight_positive_q05"], updates["log_weight_positive_q95"], strict=True
                )
            ]
            run = _run(int(seed[4:]), scores, int(reuse[1:]), updates | {"log_weight_positive_spread": spread})
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: no result of trl/run.py ({error!r}): delete it and run the cell again") from error
        runs.setdefault((method, int(reuse[1:])), []).append(run)
    return runs


def equal_losses(folders: Iterable[Path]) -> str:
    """How far TRL's loss and gradient were from ours in the runs of these folders, as a Markdown table."""
    found: dict[str, list[Mapping[str, float | None]]] = {}
    for path in sorted(path for folder in folders for path in folder.glob("*.json")):
        document = json.loads(path.read_bytes())
        found.setdefault(document["cell"].split("/")[3], []).append(document["checks"])
    keys = ("largest_loss_difference", "largest_relative_gradient_difference", "tokens_that_differ_at_a_clip_bound")
    lines = [f"| method | runs | {' | '.join(key.replace('_', ' ') for key in keys)} |", "|---|---|---|---|---|"]
    for method, checks in found.items():
        known = [[value for check in checks if (value := check[key]) is not None] for key in keys]
        shown = [f"{max(values):.2g}" if values else "not compared" for values in known]
        lines.append(f"| {method} | {len(checks)} | {' | '.join(shown)} |")
    return "\n".join(lines)


def our_runs(store: Path) -> dict[Setting, list[Run]]:
    """The trained records of the tiny protocol in a store; only complete ones that kept to the protocol's losses."""
    runs: dict[Setting, list[Run]] = {}
    for path, record in iter_records(store):
        if record.protocol.id != "tiny" or record.kind != "trained" or record.status != "done":
            continue
        assert record.training is not None
        assert record.method is not None
        assert record.reuse is not None
        lines = read_updates(record_folder(path) / record.training.curve.path)
        columns: dict[str, list[float | None]] = {
            key: [line[key] for line in lines] for key in ("ess", "clip_fraction", "gradient_norm", "mean_length")
        }
        positive = [line["log_weight"]["positive"] for line in lines]
        columns["log_weight_positive_spread"] = [
            None if part["q05"] is None else part["q95"] - part["q05"] for part in positive
        ]
        scores = [line["score"] for line in lines][:: record.reuse]
        runs.setdefault((record.method.name, record.reuse), []).append(
            _run(record.seeds.run, scores, record.reuse, columns)
        )
    return runs


def _run(seed: int, scores: Sequence[float], reuse: int, columns: Mapping[str, Sequence[float | None]]) -> Run:
    scoring = load_protocol("tiny").scoring
    lines = [{"update": update + 1, "score": scores[update // reuse]} for update in range(len(scores) * reuse)]
    values = {
        "early": early_score(lines, scoring.early),
        "late": late_score(lines, scoring.late),
        "mean": mean_score(lines),
        **{name: _mean(columns[name]) for name in DIAGNOSTICS},
    }
    return Run(seed, tuple(scores), {name: math.nan if value is None else value for name, value in values.items()})


def _mean(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known)


def rows(
    ours: Mapping[Setting, Sequence[Run]], theirs: Mapping[Setting, Sequence[Run]], names: Sequence[str]
) -> list[Row]:
    """Each quantity of each setting that both have; p-values are adjusted over all of them together."""
    found = []
    for setting in sorted(ours.keys() & theirs.keys()):
        for name in names:
            a, b = ([run.values[name] for run in side[setting]] for side in (ours, theirs))
            found.append(Row(setting, name, float(np.mean(a)), float(np.mean(b)), compare_seed_scores(a, b)))
    adjusted = holm([row.comparison.p_value for row in found])
    return [replace(row, p_value=float(p)) for row, p in zip(found, adjusted, strict=True)]


def curve_p_values(ours: Sequence[Run], theirs: Sequence[Run]) -> list[float]:
    """Holm-adjusted p-value of each rollout batch's difference."""
    a, b = (np.array([run.scores for run in side]) for side in (ours, theirs))
    return [float(p) for p in holm([compare_seed_scores(x, y).p_value for x, y in zip(a.T, b.T, strict=True)])]


def pooled(ours: Mapping[Setting, Sequence[Run]], theirs: Mapping[Setting, Sequence[Run]], name: str) -> Comparison:
    """Mean over settings, compared seed by seed: the sharpest question that the runs can answer."""
    settings = sorted(ours.keys() & theirs.keys())
    sides = []
    for side in (ours, theirs):
        seeds = set.intersection(*({run.seed for run in side[setting]} for setting in settings))
        by_seed = [{run.seed: run.values[name] for run in side[setting]} for setting in settings]
        sides.append([float(np.mean([values[seed] for values in by_seed])) for seed in sorted(seeds)])
    return compare_seed_scores(*sides)


def differing(found: Iterable[Row]) -> list[str]:
    """What differs by more than the seeds explain, in words."""
    return [
        f"{row.setting[0]} N={row.setting[1]} {row.name}: ours {row.ours:.4f}, TRL {row.theirs:.4f}, "
        f"p {row.p_value:.4f}"
        for row in found
        if row.p_value < LEVEL
    ]


def _table(found: Sequence[Row], scale: float) -> list[str]:
    lines = [
        "| method | N | quantity | ours | TRL | difference | 95 % interval | p (Holm) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        c = row.comparison
        lines.append(
            f"| {row.setting[0]} | {row.setting[1]} | {row.name} | {row.ours * scale:.4g} | {row.theirs * scale:.4g} | "
            f"{c.difference * scale:+.3g} | {c.low * scale:+.3g} to {c.high * scale:+.3g} | {row.p_value:.3f} |"
        )
    return lines


def report(ours: Mapping[Setting, Sequence[Run]], theirs: Mapping[Setting, Sequence[Run]]) -> str:
    """The tables, as Markdown."""
    lines = ["Scores, in percent:", "", *_table(rows(ours, theirs, SCORES), 100), ""]
    for name in SCORES:
        c = pooled(ours, theirs, name)
        lines.append(
            f"- {name} score, mean over these settings: ours is {c.difference * 100:+.2f} points from TRL's "
            f"({c.low * 100:+.2f} to {c.high * 100:+.2f})"
        )
    for setting in sorted(ours.keys() & theirs.keys()):
        p_values = curve_p_values(ours[setting], theirs[setting])
        a, b = (np.mean([run.scores for run in side[setting]], axis=0) for side in (ours, theirs))
        lines.append(
            f"- {setting[0]} N={setting[1]}: {len(p_values)} rollout batches, largest difference "
            f"{np.abs(a - b).max() * 100:.1f} points, smallest adjusted p {min(p_values):.3f}; "
            f"seeds: ours {len(ours[setting])}, TRL {len(theirs[setting])}"
        )
    lines += ["", "Diagnostics, means over the updates:", "", *_table(rows(ours, theirs, DIAGNOSTICS), 1)]
    return "\n".join(lines)


def main() -> int:
    """Print the report; exit code 1 when scores differ by more than the seeds explain."""
    parser = argparse.ArgumentParser(description="Compare our records of the tiny protocol with runs of TRL.")
    parser.add_argument(
        "--records", type=Path, default=Path("results"), help="store of our records, or a folder of TRL's"
    )
    parser.add_argument("--trl", type=Path, default=TRL_RESULTS / "master", help="folder of TRL's runs")
    options = parser.parse_args()
    ours = trl_runs(options.records) if list(options.records.glob("*.json")) else our_runs(options.records)
    theirs = trl_runs(options.trl)
    if not ours.keys() & theirs.keys():
        raise UserError(f"{options.records} and {options.trl} have no cell in common: run cells of the tiny protocol")
    print(f"{equal_losses(sorted(TRL_RESULTS.iterdir()))}\n\n{report(ours, theirs)}")
    worst = differing(rows(ours, theirs, SCORES))
    print("\n" + ("\n".join(worst) if worst else "No score differs by more than the seeds explain."))
    return 1 if worst else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
