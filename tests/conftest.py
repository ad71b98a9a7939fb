"""What holds for all tests."""

from hypothesis import settings

# How long an example takes says more about the machine's other work than about the code.
settings.register_profile("project", deadline=None, print_blob=True)
settings.load_profile("project")
