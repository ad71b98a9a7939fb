"""Stores for the tests of the pages: many records made from few, and records with hostile content."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from harness import records
from harness.records import iter_records, record_folder, write_record

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
                        "hyperparameters": {MARKUP: 1e308, "huge": 10**400, "text": "{{ 7 * 7 }}{% raw %}"},
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
    """Not-a-number, infinities, numbers beyond floats, text and missing parts, in lines that are JSON all the same."""
    if not path.exists():
        return
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for index, line in enumerate(lines):
        line["loss"] = (float("nan"), float("inf"), 10**400, MARKUP, None)[index % 5]
        line["gradient_norm"] = 1e308 * (-1) ** index
        line["ess"] = [1, 2]
        if index % 7 == 0:
            line["log_weight"] = None
        elif index % 7 == 1:
            line["log_weight"]["positive"]["counts"] = ["x", None, 10**400]
        elif index % 7 == 2:
            line["log_weight"]["negative"] = {"counts": None, "mass": [1.0]}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _link_out(folder: Path) -> None:
    """Let the samples of one task be a link to a file outside of the store."""
    for path in sorted(folder.glob("samples/*.parquet"))[:1]:
        path.unlink()
        path.symlink_to("/etc/passwd")
