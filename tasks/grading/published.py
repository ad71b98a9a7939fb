r"""The published grader: Math-Verify as released, on the whole response, against ``\boxed{gold}``.

Three things are ours, and none changes a verdict that Math-Verify reaches: its alarm signals are switched off,
because this module runs in a process that is killed from outside; its parser remembers what it has parsed; and two
parts of the parser are faster.
Where Math-Verify swallows an exception and says False, we say error.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable
from typing import Any

from tasks.grading.types import RIGHT, Judgement, error, wrong

_REMEMBERED = 5_000  # parsed pieces of text, and compared pairs: tens of megabytes
_NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,29})(?:\.[0-9]{1,30})?")
_SIGNED = re.compile(rf"(-?)({_NUMBER.pattern})")


class _Remember:
    """A pure function of hashable arguments that keeps its results, its exceptions too."""

    def __init__(self, function: Callable[..., Any], trouble: list[str]) -> None:
        self.function = function
        self.trouble = trouble
        self.known: dict[Any, tuple[Any, Exception | None]] = {}
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        key = (args, tuple(sorted(kwargs.items())))
        entry = self.known.get(key)
        if entry is None:
            try:
                entry = (self.function(*args, **kwargs), None)
            except (MemoryError, RecursionError) as caught:
                self.trouble.append(type(caught).__name__)
                raise
            except Exception as caught:
                entry = (None, caught)
            if len(self.known) >= _REMEMBERED:
                self.known.clear()
            self.known[key] = entry
        value, caught_before = entry
        if caught_before is not None:
            raise caught_before.with_traceback(None)
        return value


def _predict_in_two_stages() -> None:
    """Let the ANTLR parser try its fast prediction mode first, and its full one where that finds a syntax error.

    Where the fast mode (SLL) finds none, its tree is the one of the full mode (ANTLR's documentation of
    PredictionMode.SLL), so this changes the time only.
    """
    from antlr4.atn.PredictionMode import PredictionMode  # type: ignore[import-untyped]
    from latex2sympy2_extended.latex2sympy2 import _Latex2Sympy

    if hasattr(_Latex2Sympy, "predicts_in_two_stages"):
        return
    create, parse = _Latex2Sympy.create_parser, _Latex2Sympy.parse

    def create_parser(self: Any, latex: str) -> Any:
        parser = create(self, latex)
        if getattr(self, "fast", False):
            parser._interp.predictionMode = PredictionMode.SLL
        return parser

    def parse_in_two_stages(self: Any, latex: str) -> Any:
        self.fast = True
        try:
            return parse(self, latex)
        except Exception:
            self.fast = False
            return parse(self, latex)

    _Latex2Sympy.create_parser, _Latex2Sympy.parse = create_parser, parse_in_two_stages
    _Latex2Sympy.predicts_in_two_stages = True


def _number(text: str) -> Any:
    """What `sympy.Number` makes of such a text, for which it starts Python's own parser."""
    from sympy import Float, Integer

    return Float(text) if "." in text else Integer(text)


def _read_numbers_at_once() -> None:
    """Make numbers of plain digits directly, wherever they stand, and without the grammar where nothing else does."""
    from latex2sympy2_extended.latex2sympy2 import _Latex2Sympy

    if hasattr(_Latex2Sympy, "reads_numbers_at_once"):
        return
    parse, parse_number = _Latex2Sympy.parse, _Latex2Sympy.parse_number

    def parse_unless_number(self: Any, latex: str) -> Any:
        match = _SIGNED.fullmatch(latex)
        if match is None:
            return parse(self, latex)
        value = _number(match[2])
        return -value if match[1] else value

    def parse_plain_number(self: Any, text: str) -> Any:
        return _number(text) if _NUMBER.fullmatch(text) else parse_number(self, text)

    _Latex2Sympy.parse, _Latex2Sympy.parse_number = parse_unless_number, parse_plain_number
    _Latex2Sympy.reads_numbers_at_once = True


class PublishedGrader:
    """Math-Verify with a memory. Make one a process, and call it in the main thread or any other."""

    def __init__(self) -> None:
        import math_verify
        from math_verify import parser

        logging.getLogger("math_verify").setLevel(logging.CRITICAL)
        self._trouble: list[str] = []
        _predict_in_two_stages()
        _read_numbers_at_once()
        for name in ("parse_latex_cached", "normalize_latex", "parse_expr_cached"):
            inner = getattr(parser, name)
            inner = getattr(inner, "__wrapped__", inner)
            setattr(parser, name, _Remember(inner, self._trouble))
        self._parse = functools.partial(parser.parse, parsing_timeout=None, raise_on_error=True)
        self._verify = math_verify.verify
        self._gold_config = [math_verify.LatexExtractionConfig()]
        self._golds: dict[str, list[Any]] = {}
        self._verdicts: dict[Any, tuple[Judgement, list[Any]]] = {}
        self(r"\frac{1}{2}", r"The answer is $\boxed{0.5}$.")  # builds tables; no answer's time is spent on that

    def __call__(self, gold: str, response: str) -> Judgement:
        """Judge a whole response."""
        self._trouble.clear()
        try:
            judgement = self._judge(gold, response)
        except Exception as caught:
            return error(f"Math-Verify: {type(caught).__name__}")
        if judgement.verdict == "wrong" and self._trouble:
            return error(f"Math-Verify: {self._trouble[0]}")
        return judgement

    def _judge(self, gold: str, response: str) -> Judgement:
        if gold not in self._golds:
            if len(self._golds) >= _REMEMBERED:
                self._golds.clear()
            self._golds[gold] = self._parse("\\boxed{" + gold + "}", self._gold_config)
        golds, answers = self._golds[gold], self._parse(response)
        if not golds:
            return error("Math-Verify: the gold cannot be read")
        if not answers:
            return wrong("Math-Verify: no answer found")
        key = (gold, tuple(_key(answer) for answer in answers))
        if key not in self._verdicts:
            if len(self._verdicts) >= _REMEMBERED:
                self._verdicts.clear()
            # The answers are kept, so that their identities in the key stay theirs.
            self._verdicts[key] = (self._compare(golds, answers), answers)
        return self._verdicts[key][0]

    def _compare(self, golds: list[Any], answers: list[Any]) -> Judgement:
        # The loop of Math-Verify's own `verify`, one pair at a time, so that a swallowed exception shows.
        failure: str | None = None
        for gold in golds:
            for answer in answers:
                try:
                    if self._verify(gold, answer, timeout_seconds=None, raise_on_error=True):
                        return RIGHT
                except Exception as caught:
                    failure = failure or type(caught).__name__
        return error(f"Math-Verify: {failure}") if failure else wrong("Math-Verify: not equal")


def _key(answer: Any) -> Any:
    """Tells apart all that Math-Verify tells apart; the same text parsed again is the same object."""
    from sympy import Number

    if isinstance(answer, str):
        return answer
    if isinstance(answer, Number):
        return type(answer).__name__, str(answer)
    return id(answer)
