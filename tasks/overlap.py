"""Overlap between a training set and a held-out one: the same problem, or nearly the same.

Texts are compared as words: lower case, letters and digits only. The score of a pair is the containment of the test
problem: the share of its distinct 13-grams of words that occur in the training problem. It is 1 when the training
problem contains the whole test problem, whatever else it says (an instruction, for example), and it does not depend on
the length of the training problem. A pair is exact when all letters and digits agree, however they are spaced (one
copy writes ``(abc)^2``, another ``(a b c)^{2}``). A test problem of fewer than 13 words is only compared in that way.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tasks.datasets import Problem

NGRAM = 13
THRESHOLD = 0.5
"""Pairs with at least this containment are reported."""

_WORD = re.compile(r"[^\W_]+")
_INSTRUCTION = re.compile(
    r"(let'?s think step by step|please reason step by step|put your final answer|output the final answer)[^\n]*\s*$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Pair:
    """A training problem and a test problem that overlap. ``kind`` is exact when all characters agree."""

    train: str
    test: str
    score: float
    kind: Literal["exact", "near"]


def words(text: str) -> list[str]:
    """The words of a problem, without a closing instruction on how to answer."""
    return _WORD.findall(_INSTRUCTION.sub("", unicodedata.normalize("NFKC", text)).lower())


def overlap(
    train: Iterable[Problem], test: Sequence[Problem], *, ngram: int = NGRAM, threshold: float = THRESHOLD
) -> list[Pair]:
    """All pairs with a containment of at least ``threshold``, best first, then by id.

    Time is linear in the length of the texts: only n-grams of the test set are indexed.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must be in (0, 1], not {threshold}")
    spoken = [words(one.problem) for one in test]
    sizes = []
    index: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    whole: defaultdict[str, list[int]] = defaultdict(list)
    for number, one in enumerate(spoken):
        grams = set(_ngrams(one, ngram))
        sizes.append(len(grams))
        whole["".join(one)].append(number)
        for gram in grams:
            index[gram].append(number)
    pairs = []
    for problem in train:
        said = words(problem.problem)
        shared: Counter[int] = Counter()
        for gram in set(_ngrams(said, ngram)):
            shared.update(index.get(gram, ()))
        scores = {number: count / sizes[number] for number, count in shared.items()}
        exact = set(whole.get("".join(said), ())) if said else set()
        for number in scores.keys() | exact:
            score = 1.0 if number in exact else scores[number]
            if score >= threshold:
                pairs.append(Pair(problem.id, test[number].id, score, "exact" if number in exact else "near"))
    return sorted(pairs, key=lambda pair: (-pair.score, pair.test, pair.train))


def _ngrams(said: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    return (tuple(said[start : start + size]) for start in range(len(said) - size + 1))
