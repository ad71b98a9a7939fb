"""Getting the problem sets: downloads that can be interrupted, imports of local copies, and checks of what is there.

A set counts as complete when ``<name>.origin.json`` lies beside ``<name>.jsonl``: it is written last. Content that is
not the manifest's is refused by name and leaves nothing behind, unless it is accepted by its digest; it is then marked
as such, and runs with it belong to the open division.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from numbers import Number
from pathlib import Path
from typing import Any, Literal

from methods.errors import UserError
from tasks import datasets
from tasks.datasets import SetEntry
from tasks.grading.extract import last_box

Progress = Callable[[str, int, int | None], None]
"""Called with the set's name, bytes so far, and bytes in all where the server says."""

CHUNK_BYTES = 1 << 16
TIMEOUT_SECONDS = 30
MAX_SHARDS = 100
ACCEPT_LENGTH = 12
"""Shortest part of a digest that may stand for it when a copy is accepted."""


def fetch(
    name: str, folder: Path | None = None, *, accept: str | None = None, progress: Progress | None = None
) -> Path:
    """Download a set, verify it and put it into the data folder; an interrupted download goes on where it stopped.

    Returns the file. Nothing is downloaded when the set is there and verifies.

    Raises:
        UserError: no network, no such file on the hub, or a content that is not the manifest's.
    """
    described = datasets.entry(name)
    target = datasets.data_dir(folder) / f"{name}.jsonl"
    if target.exists() and accept is None:
        datasets.load(name, folder)
        return target
    parts = target.parent / ".partial"
    _make(parts)
    shards: list[Path] = []
    while len(shards) < MAX_SHARDS:
        part = parts / f"{name}-{len(shards):04d}.parquet"
        if not _download(described, len(shards), part, progress or (lambda *_: None)):
            break
        shards.append(part)
    rows = [row for part in shards for row in _parquet_rows(part)]
    origin = {"source": described.hub.repository, "revision": _revision(described), "address": described.hub.url(0)}
    try:
        path = _install(described, rows, target, origin, accept, described.hub.repository)
    finally:
        for part in shards:
            part.unlink(missing_ok=True)
            part.with_suffix(".etag").unlink(missing_ok=True)
    return path


def import_file(source: Path, name: str, folder: Path | None = None, *, accept: str | None = None) -> Path:
    """Take a local copy (``.jsonl`` or ``.parquet``), in this project's fields or in those of the hub.

    Raises:
        UserError: the file cannot be read, lacks a field, or has a content that is not the manifest's.
    """
    described = datasets.entry(name)
    if not source.is_file():
        raise UserError(f"{source}: no such file: give the path of a .jsonl or .parquet copy of {name}")
    rows = _parquet_rows(source) if source.suffix == ".parquet" else _json_rows(source)
    target = datasets.data_dir(folder) / f"{name}.jsonl"
    _make(target.parent)
    return _install(described, rows, target, {"source": "imported file"}, accept, str(source))


@dataclass(frozen=True)
class Status:
    """What is known about one set in the data folder. ``message`` says what is wrong, or where the copy came from."""

    name: str
    state: Literal["verified", "pinned", "accepted", "missing", "refused"]
    rows: int | None
    digest: str | None
    message: str


def verify(name: str, folder: Path | None = None) -> Status:
    """Check one set. "pinned" means that the manifest has no digest, and the copy is what the first fetch was."""
    described = datasets.entry(name)
    if not (datasets.data_dir(folder) / f"{name}.jsonl").exists():
        return Status(name, "missing", None, None, f"get it with `reuse-bench data fetch {name}`")
    try:
        found = datasets.load(name, folder)
    except UserError as error:
        return Status(name, "refused", None, None, str(error))
    state: Literal["verified", "pinned", "accepted"] = "verified" if described.digest else "pinned"
    return Status(name, "accepted" if found.deviates else state, len(found.problems), found.digest, found.source)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror}): choose another with --data-dir") from error


def _install(
    described: SetEntry,
    rows: Iterable[Mapping[str, Any]],
    target: Path,
    origin: Mapping[str, Any],
    accept: str | None,
    where: str,
) -> Path:
    lines = [json.dumps(_convert(row, described, number, where)) for number, row in enumerate(rows)]
    fresh = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    origin_file = datasets.describe_file(target)
    try:
        fresh.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        problems = [one for one in datasets.read_problems(fresh, described.name) if one.id not in described.omit]
        if not problems:
            raise UserError(f"{where}: holds no problem with an answer: give another copy of {described.name}")
        digest = datasets.digest(problems, integers=described.integers)
        expected = described.digest
        accepted = accept is not None and len(accept) >= ACCEPT_LENGTH and digest.startswith(accept.lower())
        right = datasets.is_expected(described, digest, len(problems), expected)
        if not right and not accepted:
            raise UserError(datasets.refusal(described, digest, len(problems), where, expected))
        entry = {**origin, "rows": len(problems), "digest": digest}
        if not right:
            entry["accepted"] = digest
        origin_file.unlink(missing_ok=True)
        fresh.replace(target)
        fresh.write_text(json.dumps(entry, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        fresh.replace(origin_file)
    except OSError as error:
        raise UserError(
            f"{target.parent}: cannot be written ({error.strerror}): choose another with --data-dir"
        ) from error
    finally:
        fresh.unlink(missing_ok=True)
    return target


def _convert(row: Mapping[str, Any], described: SetEntry, number: int, where: str) -> dict[str, Any]:
    """A row in this project's fields; the rest is kept as it is, and the source's own id too."""
    names = {"problem": "problem", "answer": "answer"}
    foreign = not names.keys() <= row.keys()
    if foreign:
        names = {key: described.hub.fields[key] for key in names}
    for field in names.values():
        if field not in row:
            raise UserError(
                f"{where}: row {number}: field {field} is missing; fields there are {', '.join(map(str, row))}"
            )
    answer = row[names["answer"]]
    rule = described.hub.answer
    if rule == "list" and isinstance(answer, list):
        answer = ", ".join(map(str, answer))
    elif rule == "after_hashes" and isinstance(answer, str) and "####" in answer:
        answer = answer.rpartition("####")[2].strip().replace(",", "")
    elif rule == "last_box" and foreign:
        answer = last_box(str(answer))
    kept = {key: value for key, value in row.items() if key not in names.values() and _is_plain(value)}
    texts = {"problem": row[names["problem"]], "answer": str(answer) if isinstance(answer, Number) else answer}
    for key, text in texts.items():
        if not ((isinstance(text, str) and datasets.is_unicode(text)) or (key == "answer" and text is None)):
            raise UserError(f"{where}: row {number}: field {names[key]} is no text: mend that row")
    return {**kept, **texts}


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _parquet_rows(path: Path) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    except (OSError, pa.ArrowInvalid) as error:
        path.unlink(missing_ok=True) if path.parent.name == ".partial" else None
        raise UserError(f"{path}: no parquet file: fetch again, or import another copy") from error
    return rows


def _json_rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise UserError(f"{path}: line {number} is no JSON object: give a file of JSON lines, or parquet")
            yield row


def _revision(described: SetEntry) -> str | None:
    """Commit that the repository is at, for the record; None where the hub does not say. The pin is the digest."""
    address = f"{datasets.hub_endpoint()}/api/datasets/{described.hub.repository}"
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as reply:
            said = json.load(reply)
    except (OSError, HTTPException, ValueError):
        return None
    sha = said.get("sha") if isinstance(said, dict) else None
    return sha if isinstance(sha, str) else None


def _download(described: SetEntry, number: int, part: Path, progress: Progress) -> bool:
    """Fetch one file, from where an earlier attempt stopped.

    False where there is no such file and an earlier one was there: the set has no more files.
    """
    address = described.hub.url(number)
    mark = part.with_suffix(".etag")
    have = part.stat().st_size if part.exists() and mark.exists() else 0
    headers = {"User-Agent": "reuse-bench"}
    if have:
        # The server sends the rest only if the file is still the one that was begun.
        headers |= {"Range": f"bytes={have}-", "If-Range": mark.read_text()}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=TIMEOUT_SECONDS) as reply:
            resumed = reply.status == HTTPStatus.PARTIAL_CONTENT
            length = reply.headers.get("Content-Length")
            start = have if resumed else 0
            total = start + int(length) if length else None
            etag = reply.headers.get("ETag")
            if etag and not etag.startswith("W/"):
                mark.write_text(etag)
            elif not resumed:
                mark.unlink(missing_ok=True)
            with part.open("ab" if resumed else "wb") as stream:
                while chunk := reply.read(CHUNK_BYTES):
                    stream.write(chunk)
                    progress(described.name, stream.tell(), total)
                size = stream.tell()
            if total is not None and size != total:
                raise urllib.error.URLError(f"the connection ended after {size} of {total} bytes")
            return True
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.NOT_FOUND and number:
            return False
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            mark.unlink(missing_ok=True)  # the part is complete or stale: begin anew
            return _download(described, number, part, progress)
        raise _unreachable(described, address, f"HTTP {error.code}") from error
    except (OSError, HTTPException) as error:
        raise _unreachable(described, address, str(getattr(error, "reason", error))) from error


def _unreachable(described: SetEntry, address: str, reason: str) -> UserError:
    return UserError(
        f"data set {described.name} could not be fetched from {address} ({reason}): run the command again with a "
        f"network, or take a local copy with `reuse-bench data import FILE --as {described.name}`"
    )
