from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks import datasets
from tasks.datasets import Problem
from tasks.overlap import overlap, words

LONG = "Find the number of ways to place four indistinct stones on a board of five rows and six columns"
SHORT = "Find all triples $(a, b, c)$ with $a^{3}=(a b c)^{2}$."


def one(name: str, text: str) -> Problem:
    return Problem(name, text, "1")


def test_an_instruction_and_spacing_do_not_hide_the_same_problem():
    train = [one("t", "Find all triples $(a,b,c)$ with $a^3 = (abc)^2$. Let's think step by step and give \\boxed{}.")]
    (pair,) = overlap(train, [one("x", SHORT), one("y", LONG)])
    assert (pair.train, pair.test, pair.score, pair.kind) == ("t", "x", 1.0, "exact")


def test_containment_is_the_share_of_the_test_problems_ngrams():
    head = " ".join(LONG.split()[:15])  # of 19 words: 3 of 7 13-grams
    (pair,) = overlap([one("t", head + " and something else entirely")], [one("x", LONG)], threshold=0.1)
    assert pair.kind == "near"
    assert pair.score == pytest.approx(3 / 7)
    assert not overlap([one("t", head)], [one("x", LONG)], threshold=0.5)


def test_a_long_training_text_does_not_dilute_the_score():
    padding = "Some other words that have nothing to do with it at all. " * 50
    (pair,) = overlap([one("t", padding + LONG + ". " + padding)], [one("x", LONG)])
    assert pair.score == 1.0
    assert pair.kind == "near"


def test_short_problems_are_compared_as_a_whole_only():
    assert not overlap([one("t", "What is x plus y when z is three?")], [one("x", "What is x plus y?")])


WORDS = st.lists(st.sampled_from("abcd"), max_size=12).map(" ".join)


@settings(max_examples=60)
@given(
    st.lists(WORDS, max_size=6), st.lists(WORDS, max_size=6), st.sampled_from([1, 2, 3]), st.sampled_from([0.3, 1.0])
)
def test_agrees_with_the_definition(train, test, ngram, threshold):
    def grams(text: str) -> set[tuple[str, ...]]:
        said = words(text)
        return {tuple(said[i : i + ngram]) for i in range(len(said)) if i + ngram <= len(said)}

    expected = {}
    for i, a in enumerate(train):
        for j, b in enumerate(test):
            exact = bool(words(a)) and "".join(words(a)) == "".join(words(b))
            share = len(grams(a) & grams(b)) / len(grams(b)) if grams(b) else 0.0
            score = 1.0 if exact else share
            if score >= threshold and score > 0:
                expected[f"t{i}", f"x{j}"] = (score, "exact" if exact else "near")
    found = overlap(
        [one(f"t{i}", text) for i, text in enumerate(train)],
        [one(f"x{j}", text) for j, text in enumerate(test)],
        ngram=ngram,
        threshold=threshold,
    )
    assert {(pair.train, pair.test): (pair.score, pair.kind) for pair in found} == expected
    assert [pair.score for pair in found] == sorted((pair.score for pair in found), reverse=True)


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.5])
def test_a_threshold_outside_its_range_is_refused(threshold):
    with pytest.raises(ValueError, match="threshold"):
        overlap([], [], threshold=threshold)


def test_the_known_overlap_with_olympiadbench_is_found():
    folder = os.environ.get("REUSE_BENCH_DATA")
    if not folder or not (path := Path(folder).parent / "train" / "dsr_sub.jsonl").exists():
        pytest.skip("REUSE_BENCH_DATA names no data folder with ../train/dsr_sub.jsonl")
    train = datasets.read_problems(path, "dsr_sub")
    pairs = overlap(train, datasets.load("olympiadbench").problems)
    assert [(pair.kind, pair.score) for pair in pairs] == [("exact", 1.0)]
    answers = {one.id: one.answer for one in (*train, *datasets.load("olympiadbench").problems)}
    (pair,) = pairs
    digits = [sorted(char for char in answers[name] if char.isdigit()) for name in (pair.train, pair.test)]
    assert digits[0] == digits[1], "the same problem has the same six triples as its answer"
