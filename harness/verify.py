"""Recompute a record from what it points to, and say what differs.

What is checked, and what cannot be, is listed in ``docs/records.md``. Reading never trusts a record: no pickle, no path
that leaves the record's folder, no field that is not in the schema. The checks are in `harness.verification`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.records import Record, load_json, parse_record, record_folder
from harness.verification.across import across
from harness.verification.checked import Checked, Finding
from harness.verification.curve import check_training
from harness.verification.files import LARGEST_RECORD, check_files, check_seal, first_link, strangers, without_seal
from harness.verification.memory import Memory
from harness.verification.samples import check_task, judge_again
from harness.verification.statements import check_statements
from methods.errors import UserError

RECORDS = "*/*/n*/*/seed*.json"


@dataclass
class Report:
    """Everything that was found, sorted by path and field."""

    records: int = 0
    files: int = 0
    samples: int = 0
    cached: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """No error was found."""
        return not any(finding.level == "error" for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {**asdict(self), "ok": self.ok}


def verify(
    path: Path,
    *,
    regrade: bool = False,
    cache_folder: Path | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Verify a store, a folder of one, or a single record.

    Args:
        path: the store, a folder inside one (``tiny/tiny-qwen3``), or the JSON file of a record.
        regrade: judge every sample again with the installed graders, where they are of the recorded version; without
            it, some of the right ones of each task.
        cache_folder: where to remember, by digest, what was recomputed and found right; None: nowhere. Digests of
            all files are computed in any case.
        workers: records checked at once; the number of processors by default.
        progress: called with records done and records in all, then with samples judged again and those in all.

    Raises:
        UserError: nothing is there to verify.
    """
    # A record's place is read off its path. Links stay in it, to be found: only ".." asks for the path without them.
    path = path.resolve() if ".." in path.parts else path.absolute()
    store, paths = _locate(path)
    memory = Memory(cache_folder)
    checked: list[Checked] = []
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        for one in pool.map(lambda item: _check(item, store, memory, regrade), paths):
            checked.append(one)
            if progress:
                progress(len(checked), len(paths))
    judge_again(checked, progress)
    for one in checked:
        if one.key and not one.cached and not one.failed():
            memory.remember(one)
    memory.save()
    report = Report(records=len(paths))
    for one in checked:
        report.files += one.files
        report.samples += one.samples
        report.cached += one.cached
        report.findings += one.findings
    report.findings += across(checked)
    if path.is_dir():
        report.findings += strangers(path, store, checked)
    report.findings = sorted(set(report.findings))
    return report


def _locate(path: Path) -> tuple[Path, list[Path]]:
    """The store that ``path`` belongs to, and the records to check."""
    if path.is_file():
        if len(path.absolute().parents) < 5 or path.suffix != ".json":
            raise UserError(f"{path}: is no record: name a store, a folder of one, or a seed<k>.json in its place")
        return path.parent.parent.parent.parent.parent, [path]
    if not path.is_dir():
        raise UserError(f"{path}: there is nothing to verify: name a store, a folder of one, or a record")
    depth_of_seed = 5
    for depth in range(depth_of_seed):
        found = sorted(path.glob("/".join(RECORDS.split("/")[depth:])))
        if found:
            return [path, *path.absolute().parents][depth] if depth else path, found
    raise UserError(f"{path}: holds no records: they lie at <protocol>/<model>/n<N>/<method>/seed<k>.json")


def _check(path: Path, store: Path, memory: Memory, regrade: bool) -> Checked:
    """All checks of one record; a damaged one never stops the others."""
    try:
        name = path.absolute().relative_to(store.absolute()).as_posix()
    except ValueError:
        name = path.as_posix()
    one = Checked(name)
    if path.is_symlink() or not path.is_file():
        one.error("", "the record is a link" if path.is_symlink() else "the record is no regular file")
        return one
    if linked := first_link(path, store):
        one.error("", f"{linked} is a link")
        return one
    try:
        if (size := path.stat().st_size) > LARGEST_RECORD:
            raise ValueError(f"it has {size} bytes, and is not read")
        content = path.read_bytes()
        document = load_json(content)
    except (OSError, ValueError, RecursionError) as error:
        one.error("", f"the record is no JSON: {error}")
        return one
    check_seal(one, document, content)
    try:
        record = one.record = parse_record(document, path)
    except UserError as error:
        one.error("", str(error).removeprefix(f"{path}: "))
        mended = without_seal(document, path)
        if mended is None:
            return one
        record = mended
    if record.relative_path().as_posix() != name:
        one.error("", f"the record belongs at {record.relative_path().as_posix()}")
    check_files(one, record, record_folder(path))
    check_statements(one, record)
    one.key, one.before = memory.key(record, content, regrade), len(one.findings)
    if not one.failed() and memory.recall(one):
        one.cached = True
        one.samples = _rows(record)
        return one
    check_training(one, record, record_folder(path))
    for task, result in record.evaluation.items():
        check_task(one, record, task, result, record_folder(path), regrade)
    return one


def _rows(record: Record) -> int:
    return sum(result.problems * result.sampling.samples_per_problem for result in record.evaluation.values())
