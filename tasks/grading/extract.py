"""Where the answer stands in a response."""

from __future__ import annotations

import re

_END_OF_THOUGHT = "</think>"
_TOKEN = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)


def last_box(response: str) -> str | None:
    r"""Content of the last balanced ``\boxed{...}`` after any ``</think>``; None when there is none.

    A box that never closes is no box, and one box around another counts as the outer one. One pass, so that
    ten thousand opened boxes cost no more than their characters.
    """
    start = response.rfind(_END_OF_THOUGHT)
    text = response[start + len(_END_OF_THOUGHT) :] if start >= 0 else response
    opened: list[int | None] = []  # where the content of a box begins; None for a plain brace
    found: tuple[int, int] | None = None
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token == "{":
            opened.append(None)
        elif token == "}":
            begin = opened.pop() if opened else None
            if begin is not None:
                found = (begin, match.start())
        elif token[-1] == "{" and len(token) > 2:
            opened.append(match.end())
    return text[found[0] : found[1]].strip() if found else None


def last_result(response: str) -> str | None:
    """Answer of a chain of rewrites such as ``14=5,951,51=6,96,96=5``: what follows the last ``=``.

    None when something follows that result, so that the chain has no end. Without any ``=`` the prompt's own
    ``=`` is the last one, and the whole response is the answer.
    """
    answer = response.rpartition("=")[2].strip()
    return answer if answer and "," not in answer else None
