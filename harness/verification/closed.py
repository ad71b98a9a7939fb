"""The closed division: exactly the protocol, with its data, from committed code with a known lock."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import methods
from harness import provenance
from harness.grid import Cell
from harness.protocol import Protocol, available, load_protocol
from harness.records import Record
from harness.verification.checked import Checked, compare
from methods.errors import UserError
from tasks import chain, datasets


def check_closed(one: Checked, record: Record) -> None:
    """The closed division: exactly the protocol, from committed code with a known lock."""
    if record.deviations:
        one.error("deviations", "the closed division allows none")
    source = record.provenance
    if source.commit is None:
        one.error("provenance.commit", "the closed division needs the commit of the code")
    if source.dirty is not False:
        one.error("provenance.dirty", "the closed division needs a clean tree")
    if source.lock_sha256 is None:
        one.error("provenance.lock_sha256", "the closed division needs the lock that was installed")
    if source.diff_sha256 is not None:
        one.error("provenance.diff_sha256", "a clean tree has no difference")
    _check_history(one, record)
    if record.protocol.id not in available():
        one.error("protocol.id", f"{record.protocol.id!r} is no protocol of this package")
        return
    protocol = load_protocol(record.protocol.id)
    if record.protocol.version != protocol.version:
        one.error("protocol.version", f"{record.protocol.version}, and the package has version {protocol.version}")
    if record.protocol.digest != protocol.digest:
        one.error("protocol.digest", "the protocol has changed since, or the run did not follow it")
        return
    _check_against_protocol(one, record, protocol)
    _check_data(one, record)


def _check_data(one: Checked, record: Record) -> None:
    """The digests that a record states for its data against those of the manifest, and of what is generated."""
    for ref in record.data:
        if ref.name in chain.TINY_TASKS:
            known: str | None = datasets.evaluation_problems(ref.name).digest
        else:
            known = datasets.manifest()[ref.name].digest if ref.name in datasets.manifest() else None
        if known is not None and ref.digest != known and ref.role == "evaluation":
            one.error(f"data.{ref.name}.digest", "is not that of the set")
    for task in record.evaluation:
        if task not in {ref.name for ref in record.data if ref.role == "evaluation"}:
            one.error(f"data.{task}", "the set of an evaluated task is missing")


def _check_against_protocol(one: Checked, record: Record, protocol: Protocol) -> None:
    models = {model.name: model for model in protocol.models}
    if record.model.name not in models:
        one.error("model.name", f"{record.model.name!r} is none of {', '.join(models)}")
    else:
        asked = models[record.model.name]
        if record.model.source != asked.source and not Path(record.model.source).is_absolute():
            one.error("model.source", f"{record.model.source!r} instead of {asked.source!r}")
        if asked.revision is not None and record.model.revision != asked.revision:
            one.error("model.revision", f"{record.model.revision!r} instead of {asked.revision!r}")
    if record.kind == "trained" and record.method is not None and record.reuse is not None:
        known = protocol.methods.hyperparameters
        name = record.method.name
        stated = known.get(name, _defaults(name))
        if stated is None:
            one.note("method.hyperparameters", f"method {name} is not installed here: its defaults were not compared")
        elif record.method.hyperparameters != stated:
            whose = "the protocol" if name in known else "the method's card"
            one.error("method.hyperparameters", f"are not those of {whose}")
        if record.reuse not in protocol.reuse.ratios:
            one.error("reuse", f"{record.reuse} is none of {', '.join(map(str, protocol.reuse.ratios))}")
        if record.status == "done" and record.training and record.training.updates != protocol.update.updates:
            one.error("training.updates", f"{record.training.updates} instead of {protocol.update.updates}")
    expected = Cell(record.protocol.id, record.model.name, record.reuse or 0, "", record.seeds.run).seeds
    compare(one, "seeds", expected.model_dump(), record.seeds.model_dump())
    evaluation = protocol.evaluation
    if record.status == "done":
        for task in sorted(set(evaluation.tasks) - set(record.evaluation)):
            one.error(f"evaluation.{task}", "the task is missing")
    for task, result in record.evaluation.items():
        if task not in evaluation.tasks:
            one.error(f"evaluation.{task}", "the protocol has no such task")
            continue
        spec = evaluation.tasks[task]
        if result.problems != spec.problems:
            one.error(f"evaluation.{task}.problems", f"{result.problems} instead of {spec.problems}")
        expected_sampling = {
            "temperature": evaluation.temperature,
            "top_p": evaluation.top_p,
            "max_tokens": evaluation.max_tokens,
            "samples_per_problem": spec.samples,
        }
        for key, value in expected_sampling.items():
            here = getattr(result.sampling, key)
            if here != value:
                one.error(f"evaluation.{task}.sampling.{key}", f"{here} instead of {value}")


def _defaults(name: str) -> dict[str, Any] | None:
    """The hyperparameters of a method that a protocol does not list; None where the method is not known."""
    try:
        return dict(methods.create(name).hyperparameters)
    except ValueError:
        return None


def _check_history(one: Checked, record: Record) -> None:
    """Lock and method source against the commit that the record names, where this checkout has it."""
    commit = record.provenance.commit
    if commit is None:
        return
    locks = _locks_at(commit)
    if locks is None:
        one.note("provenance.commit", f"{commit[:12]} is not in this checkout: lock and source were not compared")
        return
    if record.provenance.lock_sha256 is not None and record.provenance.lock_sha256 not in locks:
        one.error("provenance.lock_sha256", f"is the digest of no lock file at commit {commit[:12]}")
    elif record.provenance.lock_sha256 is not None:
        for line in provenance.unlike_lock(record.provenance.packages, locks[record.provenance.lock_sha256]):
            one.error("provenance.packages", f"not those of the lock: {line}")
    if record.method is None or record.method.origin != "built-in":
        return
    source = _source_at(commit, record.method.name)
    if source is None:
        one.note("method.source_sha256", f"method {record.method.name} is not known here: its source was not compared")
    elif source != record.method.source_sha256:
        one.error("method.source_sha256", f"is not that of {record.method.name} at commit {commit[:12]}")


@cache
def _locks_at(commit: str) -> Mapping[str, list[bytes]] | None:
    """Digest -> contents of the lock files at a commit; None where the commit is not here."""
    if provenance.file_at(commit, "pyproject.toml") is None:
        return None
    found = {}
    for paths in provenance.LOCKS.values():
        contents = [provenance.file_at(commit, path.as_posix()) for path in paths]
        digest = provenance.joint_digest(contents)
        if digest is not None:
            found[digest] = [content for content in contents if content is not None]
    return found


@cache
def _source_at(commit: str, name: str) -> str | None:
    """What `methods.registry.source_digest` gave at a commit for a built-in method; None where it is not known."""
    try:
        modules = source_modules(name)
    except UserError:
        return None
    digest = hashlib.sha256()
    for module in modules:
        content = provenance.file_at(commit, module.replace(".", "/") + ".py")
        if content is None:
            return None
        digest.update(f"{module} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def source_modules(name: str) -> list[str]:
    """The modules whose source makes up a method, in the order of `methods.registry.source_digest`."""
    from methods.contract import Method

    return list(dict.fromkeys(base.__module__ for base in methods.get(name).__mro__ if issubclass(base, Method)))
