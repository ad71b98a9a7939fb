"""Stores for the tests of the pages: many records made from few, and records with hostile content."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import records
from harness.records import iter_records, record_folder, write_record
from tests.synthetic import synthetic_store

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>"
RIGHT_TO_LEFT = "\u202eevil\u202c \u05d0\u05d1\u05d2"


def multiply(store: Path, target: Path, count: int) -> Path:
    """``count`` records in ``target``: those of ``store`` again and again, under further models and with new ids."""
    found = list(iter_records(store))
    for index in range(count):
        path, record = found[index % len(found)]
        model = record.model.model_copy(update={"name": f"{record.model.name}-{index // len(found)}"})
        changed = record.model_copy(update={"model": model})
        folder = target / changed.relative_path().with_suffix("")
        shutil.copytree(record_folder(path), folder, copy_function=_link)
        write_record(changed, target)
    return target


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


def hostile(store: Path, target: Path) -> Path:
    """The records of ``store`` with markup, right-to-left text, huge numbers and broken logs in every free field."""
    for path, record in iter_records(store):
        name = f"m{MARKUP.replace('/', '')}"
        changed = record.model_copy(
            update={
                "model": record.model.model_copy(update={"name": name, "revision": MARKUP}),
                "deviations": [MARKUP, RIGHT_TO_LEFT],
                "division": "open",
                "failure": MARKUP if record.status == "failed" else None,
                "method": record.method
                and record.method.model_copy(
                    update={
                        "title": record.method.title + MARKUP,
                        "origin": MARKUP,
                        "version": RIGHT_TO_LEFT,
                        "hyperparameters": {MARKUP: 1e308, "huge": 2**63 - 1, "text": "{{ 7 * 7 }}{% raw %}"},
                    }
                ),
                "provenance": record.provenance.model_copy(
                    update={
                        "packages": {MARKUP: MARKUP},
                        "hardware": {MARKUP: 1e308, "rtl": RIGHT_TO_LEFT, "list": [MARKUP]},
                        "command": ["reuse-bench", MARKUP, "$(rm -rf ~)", "a\nb"],
                        "ended": MARKUP,
                    }
                ),
                "cost": records.Cost(gpu_hours=1e308, training_seconds=1e308, evaluation_seconds=5e-324),
                "notes": {"</script>": MARKUP},
            }
        )
        if changed.training is not None:
            changed = changed.model_copy(
                update={"training": changed.training.model_copy(update={"collapse": MARKUP, "late_score": 1e300})}
            )
        folder = target / changed.relative_path().with_suffix("")
        shutil.copytree(record_folder(path), folder)
        _break_log(folder / "updates.jsonl")
        if changed.training is not None:
            curve = records.file_ref(folder / "updates.jsonl", folder)
            changed = changed.model_copy(update={"training": changed.training.model_copy(update={"curve": curve})})
        _link_out(folder)
        write_record(changed, target)
    return target


def _break_log(path: Path) -> None:
    """The largest numbers that are read, text and missing parts, in lines that are read all the same."""
    if not path.exists():
        return
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for index, line in enumerate(lines):
        line["loss"] = (-1e100, 1e100, 2**63 - 1, 5e-324, None)[index % 5]
        line["gradient_norm"] = 1e100 * (-1) ** index
        line[MARKUP] = MARKUP
        line["ess"] = [1, 2]
        if index % 7 == 0:
            line["log_weight"] = None
        elif index % 7 == 1:
            line["log_weight"]["positive"]["counts"] = ["x", None, 1e308]
        elif index % 7 == 2:
            line["log_weight"]["negative"] = {"counts": None, "mass": [1.0]}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _link_out(folder: Path) -> None:
    """Let the samples of one task be a link to a file outside of the store."""
    for path in sorted(folder.glob("samples/*.parquet"))[:1]:
        path.unlink()
        path.symlink_to("/etc/passwd")


LONG = "Loss" + "x" * 300
ODD_TASKS = {"tiny_sum3": (12, 4), "tiny_sum4": (12, 4)}
ODD = ("none", "one", "all collapsed", "all failed", "some lost", "two protocols", "open only", "odd names", "hostile")


def odd(kind: str, target: Path) -> Path:
    """A store that pages must survive: nothing in it, nothing that ended well, names that nobody expects, and so on."""
    store = target / "store"
    store.mkdir(parents=True)
    options: dict[str, Any] = {"updates": 32, "seeds": (0, 1), "reuses": (8, 32), "tasks": ODD_TASKS}
    if kind == "one":
        synthetic_store(store, **options | {"methods": ("respo",), "reuses": (8,), "seeds": (0,)})
    elif kind in ("all collapsed", "all failed"):
        cells = [(method, reuse, seed) for method in ("grpo", "respo") for reuse in (8, 32) for seed in (0, 1)]
        synthetic_store(store, **options, methods=("grpo", "respo"), statuses=dict.fromkeys(cells, kind.split()[1]))
    elif kind == "some lost":
        lost = {("grpo", 8, 0): "collapsed", ("grpo", 8, 1): "failed", ("respo", 32, 0): "failed"}
        synthetic_store(store, **options, statuses=lost)
    elif kind == "two protocols":
        synthetic_store(store, **options)
        synthetic_store(store, **options | {"tasks": {"aime25": (6, 4)}}, protocol="qwen3-1.7b", models=("Qwen3-1.7B",))
    elif kind == "open only":
        plain = synthetic_store(target / "plain", **options)
        _rewrite(plain, store, lambda r: {"division": "open", "deviations": ["training.rate: 1e-6, not 1e-5"]})
    elif kind == "odd names":
        plain = synthetic_store(target / "plain", **options | {"seeds": (0,)})
        titles = {"grpo": "", "gspo": LONG, "vespo": RIGHT_TO_LEFT, "respo": "The loss of many words " * 9}
        _rewrite(
            plain,
            store,
            lambda r: {
                "method": r.method and r.method.model_copy(update={"title": titles[r.method.name], "version": ""}),
                "model": r.model.model_copy(update={"name": "M" + "odel" * 40}),
                "attempts": [],
                "checkpoint": None,
                "data": [],
                "provenance": r.provenance.model_copy(
                    update={"commit": None, "packages": {}, "hardware": {}, "command": [], "started": "", "ended": ""}
                ),
            },
        )
    elif kind == "hostile":
        hostile(synthetic_store(target / "plain", **options | {"seeds": (0,)}), store)
    return store


def _rewrite(store: Path, target: Path, change: Callable[[records.Record], dict[str, Any]]) -> None:
    for path, record in iter_records(store):
        changed = record.model_copy(update=change(record))
        shutil.copytree(record_folder(path), target / changed.relative_path().with_suffix(""))
        write_record(changed, target)
