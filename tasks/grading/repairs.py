"""Golds that their data set writes in a way that cannot be read, and what they mean: the whole table."""

from __future__ import annotations

REPAIRS: dict[str, tuple[str, str]] = {
    # as written: (as meant, why)
    r"$221,$8$": (r"221,8", "a dollar sign too many"),
    r"221,$8": (r"221,8", "a dollar sign too many"),
    r"$t(0,4]$": (r"(0,4]", "the variable ran into the interval"),
    r"t(0,4]": (r"(0,4]", "the variable ran into the interval"),
    r"np.arcsin(10/13)": (r"\arcsin(10/13)", "Python in place of LaTeX"),
    r"x_{0} \cos (\omega t)+$ $\dot{x}_{0} \sin (\omega t) / \omega": (
        r"x_{0} \cos (\omega t)+\dot{x}_{0} \sin (\omega t) / \omega",
        "two formulas that are one",
    ),
}


def repaired(gold: str) -> str:
    """The gold as meant."""
    return REPAIRS[gold][0] if gold in REPAIRS else gold
