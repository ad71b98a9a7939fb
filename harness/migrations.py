"""Records of older schemas, brought up to date when they are read. The files themselves are never rewritten.

A change of the schema that older records would not satisfy raises `SCHEMA_VERSION` in `harness.records` and adds one
function here, from the version before to the new one; the test data keep a record of every version. A new field with a
default needs neither: ids are taken of the documents as they were written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.records import SCHEMA_VERSION, canonical_json, content_id
from methods.errors import UserError

Document = dict[str, Any]

MIGRATIONS: Mapping[int, Callable[[Document], Document]] = {}
"""Version -> what makes a document of the next version of one of that version."""


def upgrade(
    document: Any,
    path: Path,
    *,
    migrations: Mapping[int, Callable[[Document], Document]] = MIGRATIONS,
    target: int = SCHEMA_VERSION,
) -> Any:
    """The document in the schema of version ``target``; one that is there already is returned as it is.

    An older record must have the id of its own content before it is touched. The result says in
    ``notes.migrated_from`` which version and id it had, and has a new id.

    Raises:
        UserError: no version, a newer one, one without a way up, or an older record that was changed.
    """
    if not isinstance(document, dict):
        raise UserError(f"{path}: the record is no JSON object: restore it, or delete it and run the cell again")
    version = document.get("schema_version")
    if isinstance(version, bool) or not isinstance(version, int):
        raise UserError(f"{path}: field schema_version: {version!r} is no version: restore the record")
    if version == target:
        return document
    if version > target:
        raise UserError(
            f"{path}: field schema_version: {version} is newer than {target}, the newest that this version of "
            "reuse-bench knows: upgrade reuse-bench"
        )
    if document.get("id") != content_id(document):
        raise UserError(f"{path}: field id: the record was changed after it was written: restore it")
    origin = {"schema_version": version, "id": document["id"]}
    while version < target:
        if version not in migrations:
            raise UserError(
                f"{path}: field schema_version: there is no way up from version {version}: run the cell again"
            )
        document = migrations[version](document)
        version += 1
        document["schema_version"] = version
    document["notes"] = {**document.get("notes", {}), "migrated_from": origin}
    if "field_digests" in document:
        document["field_digests"] = {
            name: hashlib.sha256(canonical_json(value)).hexdigest()
            for name, value in document.items()
            if name not in ("id", "field_digests")
        }
    return document | {"id": content_id(document)}
