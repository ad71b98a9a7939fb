"""The front door: assembles the command line from one small file a group of commands.

Exit codes: 0 done, 1 a check failed, 2 wrong usage or input, 3 interrupted and resumable.
"""

from __future__ import annotations

import sys

import typer
from rich.console import Console

from methods.errors import UserError
from reuse_bench.commands import cluster, data, evaluation, facts, grading, methods, protocols, results, runs, site

EXIT_CHECK_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 3

app = typer.Typer(
    name="reuse-bench",
    help="Compare policy-optimisation losses for language models when rollouts are reused.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

facts.register(app)
methods.register(app)
protocols.register(app)
data.register(app)
runs.register(app)
cluster.register(app)
evaluation.register(app)
grading.register(app)
results.register(app)
site.register(app)


def main() -> None:
    """Run the command line; a `UserError` becomes one sentence on standard error and exit code 2."""
    try:
        app()
    except UserError as error:
        Console(stderr=True, soft_wrap=True).print(f"reuse-bench: {error}", markup=False, highlight=False)
        sys.exit(EXIT_USAGE)


if __name__ == "__main__":
    main()
