"""Sets of real numbers as sorted, disjoint pieces: intervals, points, unions, inequalities in one variable."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cmp_to_key

from tasks.grading.answers import Group, Inequality, Known, Meet, Named, Thing, Union, Value, Without
from tasks.grading.latex import Tree
from tasks.grading.values import compare_numbers, is_complex, same_number, symbols


@dataclass(frozen=True)
class Piece:
    """From ``low`` to ``high``; None is an infinity. Equal ends, both closed: a point."""

    low: Tree | None
    low_closed: bool
    high: Tree | None
    high_closed: bool

    def same(self, other: Piece) -> bool:
        """Whether both are the same set."""
        return (
            (self.low_closed, self.high_closed) == (other.low_closed, other.high_closed)
            and _same_end(self.low, other.low)
            and _same_end(self.high, other.high)
        )


RealSet = list[Piece]


def real_set(thing: Thing) -> RealSet | None:
    """The set that a thing stands for; None when it is none of the real line."""
    pieces = _pieces(thing)
    return None if pieces is None else _merged(pieces)


def _same_end(a: Tree | None, b: Tree | None) -> bool:
    if a is None or b is None:
        return a is b
    return same_number(a, b)


def _pieces(thing: Thing) -> RealSet | None:
    if isinstance(thing, Named):
        return _pieces(thing.thing)
    if isinstance(thing, Union):
        parts = [_pieces(part) for part in thing.parts]
        known = [part for part in parts if part is not None]
        return [piece for part in known for piece in part] if len(known) == len(parts) else None
    if isinstance(thing, Meet):
        return _meet([real_set(part) for part in thing.parts])
    if isinstance(thing, Without):
        left_out = real_set(thing.left_out)
        return (
            None
            if left_out is None or isinstance(thing.whole, Value)
            else _meet([real_set(thing.whole), _complement(left_out)])
        )
    if isinstance(thing, Value):
        tree = _number(thing)
        return None if tree is None else [Piece(tree, True, tree, True)]
    if isinstance(thing, Group):
        if thing.left == "{":
            return _pieces(Union(thing.items))
        if len(thing.items) == 2 and thing.left in "([" and thing.right in ")]":
            return _interval(thing)
        return None
    if isinstance(thing, Known):
        return _known(thing.name)
    if isinstance(thing, Inequality):
        return _bounds(thing)
    return None


def _number(thing: Thing) -> Tree | None:
    """The tree of a real number; None for anything else."""
    if isinstance(thing, Value) and not symbols(thing.trees[0]) and not is_complex(thing.trees[0]):
        return thing.trees[0]
    return None


def _interval(group: Group) -> RealSet | None:
    ends: list[Tree | None] = []
    for item, infinity in zip(group.items, ("-inf", "+inf"), strict=True):
        tree = _number(item)
        if tree is None and not (isinstance(item, Known) and item.name == infinity):
            return None
        ends.append(tree)
    if ends[0] is not None and ends[1] is not None and compare_numbers(ends[0], ends[1]) > 0:
        return None  # a point, or a slip
    return [
        Piece(ends[0], group.left == "[" and ends[0] is not None, ends[1], group.right == "]" and ends[1] is not None)
    ]


def _known(name: str) -> RealSet | None:
    if name == "R":
        return [Piece(None, False, None, False)]
    if name == "empty":
        return []
    return None


def _complement(pieces: RealSet) -> RealSet:
    """What sorted, disjoint pieces leave of the real line."""
    result: RealSet = []
    low: Tree | None = None
    closed = False
    for piece in pieces:
        if piece.low is not None:
            result.append(Piece(low, closed, piece.low, not piece.low_closed))
        if piece.high is None:
            return result
        low, closed = piece.high, not piece.high_closed
    return [*result, Piece(low, closed, None, False)]


def _meet(parts: list[RealSet | None]) -> RealSet | None:
    """What all parts have in common: the complement of what the complements cover."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return _merged(_complement(_merged([piece for part in known for piece in _complement(part)])))


def _bounds(thing: Inequality) -> RealSet | None:
    names = {name for side in thing.sides for name in symbols(side[0])}
    places = [index for index, side in enumerate(thing.sides) if side[0][0] == "sym"]
    if len(names) != 1 or len(places) != 1:
        return None
    place = places[0]
    others = [side[0] for index, side in enumerate(thing.sides) if index != place]
    if any(symbols(other) or is_complex(other) for other in others):
        return None
    if thing.signs == (r"\ne",):
        return _complement(_merged([Piece(other, True, other, True) for other in others]))
    whole = Piece(None, False, None, False)
    low, high = (whole.low, whole.low_closed), (whole.high, whole.high_closed)
    for index, sign in enumerate(thing.signs):
        if place not in (index, index + 1):
            return None
        bound = thing.sides[index + 1 if place == index else index][0]
        if bound in (("const", "inf"), ("neg", ("const", "inf"))):
            continue
        upper = (sign in ("<", r"\le")) == (place == index)
        closed = sign in (r"\le", r"\ge")
        if upper:
            high = (bound, closed)
        else:
            low = (bound, closed)
    return [Piece(*low, *high)]


def _merged(pieces: RealSet) -> RealSet:
    """Sorted, with those joined that meet or overlap."""

    def order(a: Piece, b: Piece) -> int:
        if a.low is None or b.low is None:
            return (a.low is not None) - (b.low is not None)
        return compare_numbers(a.low, b.low) or (b.low_closed - a.low_closed)

    result: RealSet = []
    for piece in sorted(pieces, key=cmp_to_key(order)):
        if piece.low is not None and piece.high is not None:
            size = compare_numbers(piece.low, piece.high)
            if size > 0 or (size == 0 and not (piece.low_closed and piece.high_closed)):
                continue  # empty
        if result and _touches(result[-1], piece):
            result[-1] = _joined(result[-1], piece)
        else:
            result.append(piece)
    return result


def _touches(a: Piece, b: Piece) -> bool:
    if a.high is None or b.low is None:
        return True
    gap = compare_numbers(b.low, a.high)
    return gap < 0 or (gap == 0 and (a.high_closed or b.low_closed))


def _joined(a: Piece, b: Piece) -> Piece:
    low_closed = a.low_closed
    if a.high is None or b.high is None:
        return Piece(a.low, low_closed, None, False)
    size = compare_numbers(a.high, b.high)
    high, closed = (a.high, a.high_closed) if size > 0 else (b.high, b.high_closed)
    return Piece(a.low, low_closed, high, closed or (size == 0 and a.high_closed))
