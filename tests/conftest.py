"""What holds for all tests."""

import gc

from hypothesis import settings

# How long an example takes says more about the machine's other work than about the code. The examples are the same
# in every run, so that a change fails for what it changed; `--hypothesis-profile search` looks for new ones.
settings.register_profile("project", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("project")


def pytest_collection_finish() -> None:
    """Spare the garbage collector what the imports have left: it lives as long as the process, and it is much."""
    gc.freeze()
