"""What holds for all tests."""

import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes, and how long it takes to think of one, says more about the machine's other work than about
# the code. The examples are the same in every run, so that a change fails for what it changed;
# `--hypothesis-profile search` looks for new ones.
COMMON = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("project", COMMON, derandomize=True)
settings.register_profile("search", COMMON)
settings.load_profile("project")

# A shell that starts the tests in the background has them ignore Ctrl-C, and with them all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

WHOLE_STACK = "REUSE_BENCH_WHOLE_STACK"
"""Set by tox, which installs everything that tests may look for, but for TRL."""


def pytest_collection_finish() -> None:
    """Spare the garbage collector what the imports have left: it lives as long as the process, and it is much."""
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where the whole stack is said to be installed, a test that is skipped for a missing part has failed."""
    if WHOLE_STACK not in os.environ:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    reasons = {report.longrepr[2].removeprefix("Skipped: ") for report in reporter.stats.get("skipped", [])}
    missing = {one for one in reasons if "not installed" in one or "could not import" in one}
    for reason in sorted(one for one in missing if "TRL" not in one):
        reporter.write_line(f"{reason}, and the tests that need it were skipped: {WHOLE_STACK} is set", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
