"""What holds for all tests."""

import gc

from hypothesis import settings

# How long an example takes says more about the machine's other work than about the code.
settings.register_profile("project", deadline=None, print_blob=True)
settings.load_profile("project")


def pytest_collection_finish() -> None:
    """Spare the garbage collector what the imports have left: it lives as long as the process, and it is much."""
    gc.freeze()
