"""Seeds and digests that depend on what they are made from, and on nothing else."""

from __future__ import annotations

import hashlib


def text_digest(*parts: str | int) -> str:
    """SHA-256 of the parts, told apart by a zero byte."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def derived_seed(*parts: str | int) -> int:
    """A seed of 31 bits for one purpose; the same on every machine."""
    return int(text_digest(*parts)[:8], 16) >> 1
