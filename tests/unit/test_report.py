"""The words of the report that depend on its numbers; the whole document is held against the records elsewhere."""

from __future__ import annotations

from leaderboard.report import tail_sentence


def test_the_positive_low_tail_starves_or_not_by_its_interval_over_seeds() -> None:
    ratios = {"A": [0.4, 0.5, 0.6], "B": [1.4, 1.5, 1.6], "C": [0.9, 1.0, 1.2], "D": [1.3, 1.3, 1.3], "E": [0.1]}
    said = tail_sentence(32, ratios)
    assert "at N = 32" in said
    assert "A 0.50 [0.25, 0.75], B 1.50 [1.25, 1.75], C 1.03 [0.65, 1.41], D 1.30 [1.30, 1.30], E 0.10." in said
    assert (
        "So here it starves under A; it gets more than its share under B and D; it cannot be told from an equal share "
        "under C and E."
    ) in said


def test_nothing_is_said_of_methods_that_are_not_there() -> None:
    assert "So here it starves under A. With a positive" in tail_sentence(8, {"A": [0.4, 0.5, 0.6]})
