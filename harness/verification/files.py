"""The bytes: the seal of a record, digest and place of its files, and no file that no record names."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.records import FileRef, Record, canonical_json, content_id, parse_record, record_folder
from harness.verification.checked import Checked, Finding

CURVE = "updates.jsonl"
LARGEST_RECORD = 64 * 2**20
LARGEST_FILE = 2 * 2**30
"""Bytes. Nothing larger is read: a record of ours has under 1 MB, a file of the largest task under 100 MB."""


def check_seal(one: Checked, document: Any, content: bytes) -> None:
    """Bytes, id and field digests, on the document as it is in the file."""
    if not isinstance(document, dict):
        return
    try:
        if canonical_json(document) != content:
            one.error("", "the bytes are not the canonical form of the document (sorted keys, one space of indent)")
        if document.get("id") != content_id(document):
            one.error("id", "the content does not have this digest: the record was changed after it was written")
        digests = document.get("field_digests")
        for name, value in document.items():
            if name in ("id", "field_digests"):
                continue
            digest = hashlib.sha256(canonical_json(value)).hexdigest()
            if not isinstance(digests, dict) or digests.get(name) != digest:
                one.error(name, "does not have the digest that field_digests states")
        for name in sorted(set(digests or ()) - set(document)) if isinstance(digests, dict) else ():
            one.error(f"field_digests.{name}", "there is no such field")
    except (ValueError, RecursionError) as error:
        one.error("", f"the record cannot be written as canonical JSON: {error}")


def without_seal(document: Any, path: Path) -> Record | None:
    """The record with a mended id, to go on comparing it with its files; None where that is impossible."""
    if not isinstance(document, dict):
        return None
    try:
        return parse_record(document | {"id": content_id(document)}, path)
    except (ValueError, RecursionError):
        return None


def first_link(path: Path, store: Path) -> str:
    """The first folder between the store and the record, or below the record's own, that is a link; empty if none."""
    folder = record_folder(path)
    inside = [parent for parent in path.absolute().parents if parent.is_relative_to(store.absolute())]
    for place in [*reversed(inside), folder, folder / "samples"]:
        if place != store.absolute() and place.is_symlink():
            return place.name
    return ""


def check_files(one: Checked, record: Record, folder: Path) -> None:
    """Digest, size and place of every file, and no other file beside them."""
    expected: dict[str, tuple[str, FileRef]] = {}
    if record.training:
        expected[CURVE] = ("training.curve", record.training.curve)
    for task, result in record.evaluation.items():
        expected[f"samples/{task}.parquet"] = (f"evaluation.{task}.samples", result.samples)
    for place, (name, ref) in expected.items():
        shown = f"{one.path.removesuffix('.json')}/{place}"
        if ref.path != place:
            one.error(f"{name}.path", f"{ref.path!r} instead of {place!r}")
            continue
        file = folder / place
        if not file.is_file() or file.is_symlink():
            one.error(name, "the file is missing" if not file.is_symlink() else "the file is a link", shown)
            continue
        one.files += 1
        size = file.stat().st_size
        if size > LARGEST_FILE:
            one.error(f"{name}.bytes", f"the file has {size} bytes, and is not read", shown)
            continue
        if size != ref.bytes:
            one.error(f"{name}.bytes", f"the file has {size} bytes, the record says {ref.bytes}", shown)
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != ref.sha256:
            one.error(f"{name}.sha256", "the file does not have the digest that the record states", shown)
    if folder.is_dir():
        for file in sorted(folder.rglob("*")):
            if not file.is_dir() and file.relative_to(folder).as_posix() not in expected:
                shown = f"{one.path.removesuffix('.json')}/{file.relative_to(folder).as_posix()}"
                one.error("", "the record does not name this file", shown)


def strangers(path: Path, store: Path, checked: Sequence[Checked]) -> list[Finding]:
    """Files under ``path`` that belong to no record."""
    known = tuple(one.path.removesuffix(".json") + "/" for one in checked)
    records = {one.path for one in checked}
    findings = []
    for file in sorted(path.rglob("*")):
        if file.is_dir() and not file.is_symlink():
            continue
        name = file.absolute().relative_to(store.absolute()).as_posix()
        documents = {"README.md", ".gitattributes"}
        if name not in records and not name.startswith(known) and file.name not in documents:
            findings.append(Finding(name, "", "belongs to no record"))
    return findings
