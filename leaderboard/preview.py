"""A local preview of the pages: serves the folder and rebuilds it when the records or the configuration change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from leaderboard import site
from leaderboard.pages.boards import Digest
from methods.errors import UserError

INTERVAL = 1.0


class _Handler(SimpleHTTPRequestHandler):
    """Quiet, and never cached, so that a reload shows the new pages."""

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


State = list[tuple[str, int, int]]


def state(store: Path, config: Path | None) -> State:
    """Name, size and time of what the pages are made of."""
    watched = [*store.glob("*/*/n*/*/seed*.json"), *site.TEMPLATES.iterdir(), *site.STATIC.iterdir()]
    watched += [config] if config else []
    out = []
    for path in sorted(watched):
        try:
            facts = path.stat()
        except FileNotFoundError:
            continue
        out.append((str(path), facts.st_size, facts.st_mtime_ns))
    return out


def watch(
    store: Path, output: Path, config: Path | None, before: State, say: Callable[[str], None], stop: threading.Event
) -> None:
    """Rebuild whenever something changed, until ``stop`` is set. A mistake in a record is said, not fatal.

    Args:
        before: the `state` of which ``output`` was built, taken before it was.
    """
    cache: dict[str, Digest] = {}
    while not stop.wait(INTERVAL):
        now = state(store, config)
        if now == before:
            continue
        before = now
        site.environment.cache_clear()
        try:
            built = site.build(store, output, config, cache=cache)
        except (UserError, OSError) as error:
            say(f"not rebuilt: {error}")
        else:
            say(f"rebuilt: {built.pages} pages from {built.runs} runs")


def preview(
    store: Path, output: Path, config: Path | None, before: State, port: int, say: Callable[[str], None]
) -> None:
    """Serve ``output`` on this machine only, until interrupted.

    Args:
        before: as for `watch`.

    Raises:
        UserError: the port is taken.
    """
    try:
        # A relative path would be looked up in the folder that the swap has put away.
        server = ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, directory=str(output.absolute())))
    except OSError as error:
        raise UserError(f"port {port} cannot be used ({error.strerror}); choose another with --port, or 0") from error
    stop = threading.Event()
    watcher = threading.Thread(target=watch, args=(store, output, config, before, say, stop), daemon=True)
    watcher.start()
    say(f"http://127.0.0.1:{server.server_address[1]}/ (Ctrl-C ends it)")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        stop.set()
        server.server_close()
