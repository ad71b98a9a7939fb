"""Writes the leaderboard: a folder of static files that opens from anywhere.

The folder is built beside the old one and swapped in when it is complete. Nothing in it depends on the machine, the
time or the order of files: the same records give the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import jinja2
from markupsafe import escape
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from harness.protocol import read_yaml
from harness.records import alone_in, canonical_json
from leaderboard.charts import number
from leaderboard.pages import tables as page_tables
from leaderboard.pages import views
from leaderboard.pages.boards import Digest, Run, beside, boards, read_runs, slug
from leaderboard.pages.cells import typeset
from leaderboard.pages.content import Content, Page
from leaderboard.pages.formula import mathml
from leaderboard.pages.panels import shared_legend
from leaderboard.pages.parallel import parallel_map
from methods.errors import UserError

HERE = Path(__file__).parent
TEMPLATES = HERE / "templates"
STATIC = HERE / "static"
DEFAULTS = HERE / "site.yaml"
MARKER = "site.json"
FEED_ENTRIES = 50
NEVER = "1970-01-01T00:00:00Z"
COLOURS = ("accent", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7")

Colour = Annotated[str, Field(pattern=r"^#[0-9A-Fa-f]{6}$")]


class Link(BaseModel):
    """A link in the footer."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    label: str
    url: str

    @field_validator("url")
    @classmethod
    def _is_web(cls, value: str) -> str:
        if not re.match(r"^(https?://|mailto:)", value):
            raise ValueError("must start with https://, http:// or mailto:")
        return value


class Colours(BaseModel):
    """Colours by name (`COLOURS`) for the light and the dark scheme."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    light: dict[str, Colour] = {}
    dark: dict[str, Colour] = {}

    @field_validator("light", "dark")
    @classmethod
    def _known(cls, value: dict[str, str]) -> dict[str, str]:
        unknown = sorted(set(value) - set(COLOURS))
        if unknown:
            raise ValueError(f"unknown colour {unknown[0]}: use {', '.join(COLOURS)}")
        return value


class SiteConfig(BaseModel):
    """What ``site.yaml`` may set."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    title: str
    headline: str
    tagline: str
    footer: str
    url: str = Field(default="", pattern=r"^(https?://.*)?$")
    records_url: str = Field(default="", pattern=r"^(https?://.*)?$")
    logo: str = ""
    colours: Colours = Colours()
    links: list[Link] = []
    training_logs: bool = True
    citation: str

    @property
    def logo_suffix(self) -> str:
        """Ending of the logo's file name."""
        return Path(self.logo).suffix.lower()


def read_config(path: Path | None = None) -> SiteConfig:
    """The default configuration with the fields of ``path`` in their place.

    Raises:
        UserError: the file cannot be read, or a field is unknown or wrong.
    """
    document = read_yaml(DEFAULTS)
    if path is not None:
        own = read_yaml(path)
        if not isinstance(own, dict | None):
            raise UserError(f"{path}: must hold fields such as `title: My board`; see leaderboard/site.yaml")
        document |= own or {}
    try:
        config = SiteConfig.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(
            f"{path}: field {where}: {first['msg']}; see leaderboard/site.yaml for what it takes"
        ) from error
    if config.logo:
        logo = (path or DEFAULTS).parent / config.logo
        if config.logo_suffix not in (".svg", ".png") or not logo.is_file():
            raise UserError(f"{path}: field logo: {config.logo} is not an SVG or PNG file beside it; name one that is")
    return config


def _weblink(url: str) -> str:
    """``url`` if it leads to the web, and nothing a browser could run."""
    return url if re.match(r"^https?://", url) else "#"


def duration(seconds: float) -> str:
    """A time in the two units that say it: "4 min 10 s"."""
    if not seconds < 1e9:
        return f"{number(seconds / 3600)} h"
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


@cache
def environment() -> jinja2.Environment:
    """The templates. Everything that is printed is escaped; a name that is not given is an error."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["formula"] = mathml
    made.filters["weblink"] = _weblink
    made.filters["shared_legend"] = shared_legend
    made.filters["typeset"] = typeset
    made.filters["decimal"] = number
    made.filters["duration"] = duration
    made.filters["percent"] = lambda value: number(None if value is None else 100 * value)
    return made


def theme(config: SiteConfig) -> str:
    """The style sheet with the colours of the configuration."""
    lines = ["/* Colours of site.yaml. */"]
    names = [name for name in COLOURS if name in config.colours.light or name in config.colours.dark]
    light, dark = config.colours.light, config.colours.dark
    if names:
        lines.append(":root {")
        for name in names:
            one, other = light.get(name, dark.get(name, "")), dark.get(name, light.get(name, ""))
            lines.append(f"  --{name}: light-dark({one}, {other});")
        lines.append("}")
    return "\n".join(lines) + "\n"


class _Writer:
    """Writes files under a folder and remembers their digests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.digests: dict[str, str] = {}

    def __call__(self, address: str, data: bytes) -> None:
        pure = PurePosixPath(address)
        if pure.is_absolute() or ".." in pure.parts or address in self.digests:
            raise ValueError(f"address {address!r} leads out of the folder, or was written before")
        path = self.folder / pure
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.digests[address] = hashlib.sha256(data).hexdigest()

    def sums(self) -> bytes:
        """Digest and address of every file written so far, as ``sha256sum -c`` reads it."""
        return "".join(f"{digest}  {address}\n" for address, digest in sorted(self.digests.items())).encode()


@dataclass(frozen=True)
class Built:
    """What a build wrote."""

    output: Path
    pages: int
    runs: int


def build(
    store: Path,
    output: Path,
    config_path: Path | None = None,
    *,
    workers: int | None = None,
    cache: dict[str, Digest] | None = None,
) -> Built:
    """Build the pages of a store and swap them in as ``output``.

    Args:
        store: folder of records; may be empty.
        output: replaced as a whole, if it is a site that was built before, or empty, or not there.
        config_path: a ``site.yaml``.
        workers: processes that read the files of runs; the number of CPUs by default.
        cache: digests of runs that were read before, by record id; for rebuilding.

    Raises:
        UserError: a damaged record, a wrong configuration, or ``output`` is a folder of something else.
    """
    config = read_config(config_path)
    output = output.resolve()  # of a link, what it leads to is replaced
    _refuse_foreign(output, store)
    temporary, old = (output.with_name(f".{output.name}.{ending}") for ending in ("tmp", "old"))
    output.parent.mkdir(parents=True, exist_ok=True)
    with alone_in(output.parent):
        # What a build that was killed has left.
        if old.exists() and not output.exists():
            old.rename(output)
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            built = write(store, temporary, config, config_path, workers=workers, cache=cache)
            _swap(temporary, output, old)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return Built(output, *built)


def _refuse_foreign(output: Path, store: Path) -> None:
    if output.is_dir() and any(output.iterdir()) and not (output / MARKER).is_file():
        raise UserError(f"{output}: the folder holds something else than a site; name another, or empty it")
    if output.exists() and not output.is_dir():
        raise UserError(f"{output}: is a file; name a folder with --output")
    if store.resolve().is_relative_to(output.resolve()):
        raise UserError(f"{output}: holds the records ({store}) that the site is made of; name another --output")


def _swap(temporary: Path, output: Path, old: Path) -> None:
    """Put ``temporary`` in the place of ``output``; readers see the old pages or the new ones."""
    shutil.rmtree(old, ignore_errors=True)
    if output.exists():
        output.rename(old)
    try:
        temporary.rename(output)
    except OSError:
        if old.exists():
            old.rename(output)
        raise
    shutil.rmtree(old, ignore_errors=True)


def write(
    store: Path,
    folder: Path,
    config: SiteConfig,
    config_path: Path | None = None,
    *,
    workers: int | None = None,
    cache: dict[str, Digest] | None = None,
) -> tuple[int, int]:
    """Write all files of a site into ``folder``; returns the numbers of pages and of runs."""
    workers = workers or _cpus()
    runs = read_runs(store, workers, cache)
    content = Content(runs, boards(runs, store), workers)
    folder.mkdir(parents=True)
    writer = _Writer(folder)
    latest = max((_instant(run.record.provenance.ended) for run in runs), default="")[:10]
    latest = "" if latest == NEVER[:10] else latest
    common = {
        "site": config,
        "navigation": views.NAVIGATION,
        "description": "",
        "facts": {"runs": len(runs), "latest": latest},
        "citation": config.citation,
    }
    captions: dict[str, str] = {}
    pages = 1
    for one in parallel_map(lambda make: _rendered(make(), common), list(views.pages(content)), workers):
        pages += 1
        writer(one.address, one.data)
        for name, (caption, downloads) in one.tables.items():
            if name not in captions:
                captions[name] = caption
                for file, data in downloads:
                    writer(f"data/{file}", data)
    made = list(_badges(content))
    for address, svg, _, _ in made:
        writer(address, svg.encode())
    _write_bundles(writer, runs, store, config)
    writer("feed.atom", feed(runs, config).encode())
    writer("citation.bib", config.citation.encode(errors="replace"))
    writer(
        "downloads.html",
        _render(
            "downloads.html",
            {
                **common,
                "root": "",
                "title": "Downloads",
                "section": "downloads",
                "tables": list(captions.items()),
                "badges": [(address, text, target) for address, _, text, target in made],
                "bundles": [
                    ("data/records.zip", f"all {len(runs)} records, as they lie in the store (ZIP)"),
                    ("data/runs.csv", "one row for each run (CSV)"),
                    ("data/scores.csv", "one row for each run, benchmark and grader (CSV)"),
                ],
            },
        ),
    )
    for path in sorted(STATIC.iterdir()):
        writer(f"static/{path.name}", path.read_bytes())
    writer("static/theme.css", theme(config).encode())
    if config.logo:
        writer(f"static/logo{config.logo_suffix}", ((config_path or DEFAULTS).parent / config.logo).read_bytes())
    writer(".nojekyll", b"")
    writer(
        MARKER,
        canonical_json(
            {
                "generator": "reuse-bench",
                "version": metadata.version("reuse-bench") if _installed() else "0",
                "records": sorted(run.record.id for run in runs),
            }
        ),
    )
    (folder / "SHA256SUMS").write_bytes(writer.sums())
    return pages, len(runs)


def _cpus() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class _Rendered:
    """A page in bytes, with the captions and the files of the tables that it offers, by their names."""

    address: str
    data: bytes
    tables: Mapping[str, tuple[str, Sequence[tuple[str, bytes]]]]


def _rendered(page: Page, common: Mapping[str, Any]) -> _Rendered:
    return _Rendered(
        page.address,
        _render(page.template, {**common, "root": page.root, **page.context}),
        {table.name: (table.caption, list(page_tables.files(table))) for table in page.tables},
    )


def _installed() -> bool:
    try:
        metadata.version("reuse-bench")
    except metadata.PackageNotFoundError:
        return False
    return True


def _render(template: str, context: Mapping[str, Any]) -> bytes:
    text = environment().get_template(template).render(context)
    # A lone surrogate (from a broken file name, say) has no UTF-8: show a question mark rather than fail.
    return text.encode("utf-8", errors="replace")


def _write_bundles(writer: _Writer, runs: Sequence[Run], store: Path, config: SiteConfig) -> None:
    """The record and the training log of each run, all records together, and the long tables."""
    archive = BytesIO()
    # Stored, not compressed: the bytes must not depend on the machine's zlib.
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as bundle:
        for run in sorted(runs, key=lambda run: run.path.relative_to(store).as_posix()):
            data = run.path.read_bytes()
            name = run.path.relative_to(store).as_posix()
            bundle.writestr(zipfile.ZipInfo(f"results/{name}", (1980, 1, 1, 0, 0, 0)), data)
            stem = run.page.removesuffix(".html")
            writer(f"{stem}.json", data)
            training = run.record.training
            if config.training_logs and training is not None:
                found = beside(run.path, training.curve)
                if found is not None:
                    writer(f"{stem}.updates.jsonl", found.read_bytes())
    writer("data/records.zip", archive.getvalue())
    writer("data/runs.csv", page_tables.to_csv(list(_run_rows(runs)), RUN_COLUMNS))
    writer("data/scores.csv", page_tables.to_csv(list(_score_rows(runs)), SCORE_COLUMNS))


_KEY = ("protocol", "version", "division", "model", "reuse", "method", "seed")
RUN_COLUMNS = (
    *_KEY,
    *("status", "early", "late", "mean", "final", "updates", "gpu_hours", "training_seconds", "evaluation_seconds"),
    *("ended", "commit", "record"),
)
SCORE_COLUMNS = (
    *_KEY,
    "task",
    "grader",
    "pass_at_1",
    "right",
    "wrong",
    "errors",
    "problems",
    "samples",
    "truncated",
    "record",
)


def _key(run: Run) -> dict[str, Any]:
    record = run.record
    values = (record.protocol.id, record.protocol.version, record.division, record.model.name, record.reuse)
    return dict(zip(_KEY, (*values, run.method, record.seeds.run), strict=True))


def _run_rows(runs: Iterable[Run]) -> Iterator[dict[str, Any]]:
    for run in runs:
        training = run.record.training
        scores = {
            name: getattr(training, f"{name}_score") if training else None
            for name in ("early", "late", "mean", "final")
        }
        cost = run.record.cost.model_dump()
        yield (
            _key(run)
            | scores
            | cost
            | {
                "status": run.record.status,
                "updates": training.updates if training else None,
                "ended": run.record.provenance.ended,
                "commit": run.record.provenance.commit,
                "record": run.record.id,
            }
        )


def _score_rows(runs: Iterable[Run]) -> Iterator[dict[str, Any]]:
    for run in runs:
        for task in run.task_names:
            result = run.record.evaluation[task]
            for grader, score in sorted(result.scores.items()):
                yield (
                    _key(run)
                    | score.model_dump()
                    | {
                        "task": task,
                        "grader": grader,
                        "problems": result.problems,
                        "samples": result.sampling.samples_per_problem,
                        "truncated": result.truncated,
                        "record": run.record.id,
                    }
                )


def feed(runs: Sequence[Run], config: SiteConfig) -> str:
    """Atom feed (RFC 4287) of the newest results. Its dates are those of the runs."""
    base = config.url.rstrip("/") + "/" if config.url else ""
    newest = sorted(runs, key=lambda run: (_instant(run.record.provenance.ended), run.record.id), reverse=True)[
        :FEED_ENTRIES
    ]
    updated = _instant(newest[0].record.provenance.ended) if newest else NEVER
    identity = base or "urn:reuse-bench:results"
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<feed xmlns="http://www.w3.org/2005/Atom">',
        f"<title>{_xml(config.title)}: new results</title>",
        f"<id>{_xml(identity)}</id>",
        f'<link rel="self" href="{_xml(base)}feed.atom"/>',
        f'<link href="{_xml(base)}index.html"/>',
        f"<author><name>{_xml(config.title)}</name></author>",
        f"<updated>{updated}</updated>",
    ]
    for run in newest:
        record = run.record
        lines += [
            "<entry>",
            f"<title>{_xml(run.label)}, {_xml(record.model.name)}: {record.status}</title>",
            f"<id>urn:sha256:{record.id}</id>",
            f'<link href="{_xml(base + run.page)}"/>',
            f"<updated>{_instant(record.provenance.ended)}</updated>",
            f"<summary>{_xml(record.protocol.id)} version {record.protocol.version}, {record.division}</summary>",
            "</entry>",
        ]
    return "\n".join([*lines, "</feed>", ""])


def _instant(text: str) -> str:
    """An RFC 3339 date-time; the epoch where the record holds none."""
    try:
        found = datetime.fromisoformat(text)
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return NEVER
    return found.strftime("%Y-%m-%dT%H:%M:%SZ")


def _xml(text: str) -> str:
    """``text`` without characters that XML 1.0 has no place for, escaped."""
    kept = "".join(
        c for c in text if c in "\t\n\r" or 0x20 <= ord(c) <= 0xD7FF or 0xE000 <= ord(c) <= 0xFFFD or ord(c) > 0xFFFF
    )
    return str(escape(kept))


def _badges(content: Content) -> Iterator[tuple[str, str, str, str]]:
    """Address, drawing, text and target of a badge for each method and N with a macro average."""
    for board in content.boards:
        view = content.view(board)
        for arm in board.arms:
            found = view.scores(arm, page_tables.VIEWS[0], "macro")
            if arm.reuse is None or found is None:
                continue
            left = f"{arm.title} N={arm.reuse}"
            right = f"{number(100 * found[0])} %" + (" (tiny)" if board.small else "")
            address = f"badges/{board.key}-n{arm.reuse}-{slug(arm.method)}.svg"
            yield address, badge(left, right), f"{left}: {right}, {board.model}", board.page


def badge(left: str, right: str) -> str:
    """A small two-part SVG, readable without any style sheet."""
    a, b = (14 + 6.6 * min(len(text), 60) for text in (left, right))
    left, right = (_xml(text[:60]) for text in (left, right))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{a + b:.0f}" height="20" role="img" '
        f'aria-label="{left}: {right}">'
        f"<title>{left}: {right}</title>"
        f'<rect width="{a + b:.0f}" height="20" rx="3" fill="#0b5cad"/>'
        f'<path d="M3 0H{a:.0f}V20H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z" fill="#3a4048"/>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{a / 2:.1f}" y="14" textLength="{a - 12:.0f}">{left}</text>'
        f'<text x="{a + b / 2:.1f}" y="14" textLength="{b - 12:.0f}">{right}</text></g></svg>\n'
    )
