"""A small SVG writer for the figures of the page.

A `Chart` is data: axes and layers. `svg` turns it into one inline SVG without any ``style`` attribute (the page's
content security policy forbids them): colours come from the CSS classes ``s0`` to ``s7``, so light, dark and print
need one style sheet only. Every series also has a marker shape and a dash pattern, so colour is never the only
difference. Coordinates are printed with one decimal: the same data give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

from markupsafe import Markup, escape

STYLES = 8
DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2", "1 2", "6 2 2 2 2 2")
MARKS_PER_LINE = 5

Number = float | int
Value = float | None


def clean(value: object) -> float | None:
    """A finite float, or None for anything that cannot be drawn (None, NaN, the infinities, text)."""
    if type(value) is float:
        return value if value - value == 0 else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def total(values: Iterable[float]) -> float:
    """Their exact sum, whatever their order; an infinity where it is beyond floats."""
    known = list(values)
    try:
        return math.fsum(known)
    except (OverflowError, ValueError):
        return sum(known)


def number(value: object, digits: int = 1, *, missing: str = "–") -> str:
    """``value`` with a fixed number of decimals; very large and very small ones in powers of ten."""
    known = clean(value)
    if known is None:
        return missing
    if abs(known) >= 1e7 or (known != 0 and abs(known) < 10.0 ** -(digits + 2)):
        return f"{known:.2e}".replace("-", "−")
    text = f"{known:,.{digits}f}"
    if known >= 0 and text[0] != "-":
        return text
    return text.replace("-", "" if float(text.replace(",", "")) == 0 else "−")


def short(value: object) -> str:
    """``value`` with up to three significant digits and no trailing zeros, for ticks."""
    known = clean(value)
    if known is None:
        return "–"
    if known == 0:
        return "0"
    if abs(known) >= 1e6 or abs(known) < 1e-3:
        text = f"{known:.1e}"
        mantissa, exponent = text.split("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent)}".replace("-", "−")
    text = f"{known:.3f}" if abs(known) < 10 else f"{known:.1f}"
    return text.rstrip("0").rstrip(".").replace("-", "−")


def percent(value: object) -> str:
    """A share in [0, 1] as a percentage for ticks."""
    known = clean(value)
    return "–" if known is None else short(100 * known)


@dataclass(frozen=True)
class Axis:
    """One axis. ``ticks`` None: chosen by `nice_ticks`; ``numeric``: given ticks say what stands there.

    ``names``: what the table calls 0, 1, 2, ... where these are places and no values. ``log``: base 2, positive values
    only.
    """

    label: str
    low: float | None = None
    high: float | None = None
    ticks: Sequence[tuple[float, str]] | None = None
    show: Callable[[object], str] = short
    log: bool = False
    numeric: bool = False
    names: Sequence[str] = ()


@dataclass(frozen=True)
class Line:
    """A curve, broken where ``y`` is None, with an optional band between ``low`` and ``high``.

    ``group`` picks colour, marker and dash; points are drawn on every value if ``points``, each with its ``names``.
    ``shift`` moves the drawing along x, and nothing else, so that intervals at one place stand side by side.
    """

    label: str
    group: int
    x: Sequence[float]
    y: Sequence[Value]
    low: Sequence[Value] | None = None
    high: Sequence[Value] | None = None
    points: bool = False
    joined: bool = True
    names: Sequence[str] = ()
    shift: float = 0.0


@dataclass(frozen=True)
class Bars:
    """One bar a category (x = 0, 1, 2, ...); several `Bars` of a chart stand side by side."""

    label: str
    group: int
    y: Sequence[Value]
    hollow: bool = False


@dataclass(frozen=True)
class Chart:
    """One panel: what it shows (``title``, ``description``, a ``note`` under the title), its axes and layers.

    ``named`` says what the names of points are. ``cut``: curves leave the panel at its upper edge; without it, what is
    beyond an axis is drawn at its end.
    """

    title: str
    description: str
    x: Axis
    y: Axis
    layers: Sequence[Line | Bars]
    rules: Sequence[tuple[Literal["x", "y"], float]] = ()
    width: int = 360
    height: int = 250
    digits: int = 2
    cut: bool = False
    note: str = ""
    named: str = ""
    scale: float = field(default=1.0, metadata={"doc": "factor between the values and what the table prints"})

    @property
    def empty(self) -> bool:
        """True when no layer has a value to draw."""
        return not any(clean(value) is not None for layer in self.layers for value in layer.y)


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round values inside [low, high], steps of 1, 2 or 5 times a power of ten."""
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    rough = span / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def _px(value: float) -> str:
    text = f"{value:.1f}"
    text = text.removesuffix(".0")
    return "0" if text == "-0" else text


def _pxs(points: Sequence[tuple[float, float]]) -> str:
    """`_px` of every x and y, with a space after each: one call for a whole curve."""
    text = "%.1f %.1f " * len(points) % tuple(chain.from_iterable(points))
    return text.replace(".0 ", " ").replace("-0 ", "0 ")


def _values(layers: Iterable[Line | Bars]) -> list[float]:
    found: list[float] = []
    for layer in layers:
        columns: list[Sequence[Value]] = [layer.y]
        if isinstance(layer, Line):
            columns += [column for column in (layer.low, layer.high) if column is not None]
        else:
            found.append(0.0)
        found += [known for column in columns for value in column if (known := clean(value)) is not None]
    return found


def _limits(axis: Axis, values: Sequence[float], *, pad: float) -> tuple[float, float]:
    known = [value for value in values if value > 0] if axis.log else list(values)
    low = axis.low if axis.low is not None else min(known, default=0.0)
    high = axis.high if axis.high is not None else max(known, default=1.0)
    if not high - low > max(1e-12 * max(abs(low), abs(high)), 1e-290):
        # All values alike: some room around them, whatever their size.
        room = 0.5 * max(abs(low), 1e-6)
        if axis.log:
            low, high = low / 2, low * 2
        elif axis.low is not None:
            high = low + max(abs(low), 0.01)
        else:
            low, high = low - room, low + room
    if axis.log:
        margin = (high / low) ** pad
        return low / margin, high * margin
    span = high - low
    if not math.isfinite(span):
        return -1e300, 1e300
    return (
        low - pad * span if axis.low is None else low,
        high + pad * span if axis.high is None else high,
    )


def _dash(group: int) -> str:
    """Dash pattern of a group; from the ninth on, a colour comes back with another pattern and another marker."""
    pattern = DASHES[(group + group // STYLES) % STYLES]
    return f' stroke-dasharray="{pattern}"' if pattern else ""


def mark(group: int, x: float, y: float, size: float = 3.2) -> str:
    """The path of the marker of a group at (x, y): circle, square, triangle, diamond, and four more."""
    s, d = size, size * 1.25
    shapes = (
        f"M{_px(x - s)} {_px(y)}a{_px(s)} {_px(s)} 0 1 0 {_px(2 * s)} 0a{_px(s)} {_px(s)} 0 1 0 {_px(-2 * s)} 0z",
        f"M{_px(x - s)} {_px(y - s)}h{_px(2 * s)}v{_px(2 * s)}h{_px(-2 * s)}z",
        f"M{_px(x)} {_px(y - d)}l{_px(d)} {_px(2 * d - 0.6)}h{_px(-2 * d)}z",
        f"M{_px(x)} {_px(y - d)}l{_px(d)} {_px(d)}l{_px(-d)} {_px(d)}l{_px(-d)} {_px(-d)}z",
        f"M{_px(x)} {_px(y + d)}l{_px(d)} {_px(-2 * d + 0.6)}h{_px(-2 * d)}z",
        f"M{_px(x - s)} {_px(y - 1)}h{_px(s - 1)}v{_px(1 - s)}h2v{_px(s - 1)}h{_px(s - 1)}v2"
        f"h{_px(1 - s)}v{_px(s - 1)}h-2v{_px(1 - s)}h{_px(1 - s)}z",
        f"M{_px(x - d)} {_px(y - s / 2)}h{_px(2 * d)}v{_px(s)}h{_px(-2 * d)}z",
        f"M{_px(x - s / 2)} {_px(y - d)}h{_px(s)}v{_px(2 * d)}h{_px(-s)}z",
    )
    return shapes[(group + 3 * (group // STYLES)) % STYLES]


def swatch(layer: Line | Bars) -> Markup:
    """The key of a layer for a legend: line and marker, or a piece of a bar."""
    group = layer.group % STYLES
    if isinstance(layer, Bars):
        kind = "bar hollow" if layer.hollow else "bar"
        return Markup(
            f'<svg class="swatch s{group}" width="14" height="12" viewBox="0 0 14 12" aria-hidden="true" '
            f'focusable="false"><path class="{kind}" d="M2 2h10v9H2z"/></svg>'
        )
    return Markup(
        f'<svg class="swatch s{group}" width="30" height="12" viewBox="0 0 30 12" '
        f'aria-hidden="true" focusable="false"><path class="line" d="M1 6h28"{_dash(layer.group)}/>'
        f'<path class="mark" d="{mark(layer.group, 15, 6)}"/></svg>'
    )


def _scale(axis: Axis, low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """From a value to its pixel: ``low`` at ``start``, ``high`` at ``end``, and no value outside of them."""
    if axis.log:
        linear = _scale(replace(axis, log=False), math.log2(low), math.log2(high), start, end)
        return lambda value: linear(math.log2(max(value, 1e-300)))
    span, length = high - low, end - start

    def pixel(value: float) -> float:
        share = (value - low) / span
        return start + (0.0 if share < 0 else 1.0 if share > 1 else share) * length

    return pixel


class _Frame:
    """Pixel geometry of a chart."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        bars = [layer for layer in chart.layers if isinstance(layer, Bars)]
        xs: list[float] = [
            known
            for layer in chart.layers
            if isinstance(layer, Line)
            for value in layer.x
            if (known := clean(value)) is not None
        ]
        if bars:
            xs += [-0.5, max(len(layer.y) for layer in bars) - 0.5]
        self.x_low, self.x_high = _limits(chart.x, xs, pad=0.0 if bars or not self._all_points() else 0.06)
        values = _values(chart.layers)
        self.y_low, self.y_high = _limits(chart.y, values, pad=0.06)
        if bars and chart.y.low is None and min(values, default=0.0) >= 0:
            self.y_low = 0.0
        self.x_ticks = self._ticks(chart.x, self.x_low, self.x_high)
        self.y_ticks = self._ticks(chart.y, self.y_low, self.y_high)
        widest = max((len(text) for _, text in self.y_ticks), default=1)
        self.left = 30 + 6.8 * widest
        self.right = chart.width - 8
        self.top = 10
        self.bottom = chart.height - 40
        self.taken: list[tuple[float, float, float, float]] = []
        self.px = _scale(chart.x, self.x_low, self.x_high, self.left, self.right)
        self.py = _scale(chart.y, self.y_low, self.y_high, self.bottom, self.top)

    def named(self, x: float, y: float, text: str) -> str:
        """``text`` beside a point, where none stands yet; nothing where all places are taken."""
        width = 6.4 * len(text)
        for left, base in ((x + 6, y - 4), (x - 6 - width, y - 4), (x + 6, y + 11), (x - 6 - width, y + 11)):
            box = (left, base - 9, left + width, base)
            if all(box[2] < a or c < box[0] or box[3] < b or d < box[1] for a, b, c, d in self.taken):
                self.taken.append(box)
                return f'<text class="name" x="{_px(left)}" y="{_px(base)}">{escape(text)}</text>'
        return ""

    def _all_points(self) -> bool:
        return any(isinstance(layer, Line) and layer.points for layer in self.chart.layers)

    @staticmethod
    def _ticks(axis: Axis, low: float, high: float) -> list[tuple[float, str]]:
        if axis.ticks is not None:
            return [(value, text) for value, text in axis.ticks if low - 1e-9 <= value <= high + 1e-9]
        if axis.log:
            first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
            step = max(1, (last - first) // 6)
            return [(2.0**power, axis.show(2.0**power)) for power in range(first, last + 1, step)]
        return [(value, axis.show(value)) for value in nice_ticks(low, high)]


def _axes(frame: _Frame) -> list[str]:
    chart = frame.chart
    out = ['<g class="axes" aria-hidden="true">']
    grid = "".join(f"M{_px(frame.left)} {_px(frame.py(v))}H{_px(frame.right)}" for v, _ in frame.y_ticks)
    out.append(f'<path class="grid" d="{grid}"/>')
    for value, text in frame.y_ticks:
        out.append(
            f'<text class="tick end" x="{_px(frame.left - 6)}" y="{_px(frame.py(value) + 3.5)}">{escape(text)}</text>'
        )
    marks = "".join(f"M{_px(frame.px(v))} {_px(frame.bottom)}v4" for v, _ in frame.x_ticks)
    out.append(f'<path class="axis" d="M{_px(frame.left)} {_px(frame.bottom)}H{_px(frame.right)}{marks}"/>')
    for value, text in frame.x_ticks:
        out.append(
            f'<text class="tick mid" x="{_px(frame.px(value))}" y="{_px(frame.bottom + 17)}">{escape(text)}</text>'
        )
    middle = (frame.left + frame.right) / 2
    out.append(f'<text class="label mid" x="{_px(middle)}" y="{chart.height - 6}">{escape(chart.x.label)}</text>')
    height = (frame.top + frame.bottom) / 2
    out.append(
        f'<text class="label mid" transform="translate(12 {_px(height)}) rotate(-90)">{escape(chart.y.label)}</text>'
    )
    for axis, value in chart.rules:
        if axis == "x" and frame.x_low <= value <= frame.x_high:
            out.append(f'<path class="rule" d="M{_px(frame.px(value))} {_px(frame.top)}V{_px(frame.bottom)}"/>')
        elif axis == "y" and frame.y_low <= value <= frame.y_high:
            out.append(f'<path class="rule" d="M{_px(frame.left)} {_px(frame.py(value))}H{_px(frame.right)}"/>')
    out.append("</g>")
    return out


def _runs(line: Line, *columns: Sequence[Value]) -> list[list[int]]:
    """Stretches of indices where x and all columns have a value."""
    stretches: list[list[int]] = [[]]
    for index, values in enumerate(zip(line.x, *columns, strict=True)):
        if None not in map(clean, values):
            stretches[-1].append(index)
        elif stretches[-1]:
            stretches.append([])
    return [stretch for stretch in stretches if stretch]


def _below(line: Line, top: float) -> Line:
    """The line without what lies above ``top``, and with the points where it crosses it."""
    xs: list[float] = []
    ys: list[Value] = []
    before: tuple[float, float] | None = None
    for x, value in zip(line.x, line.y, strict=True):
        y = clean(value)
        if before and y is not None and (before[1] > top) != (y > top):
            xs.append(before[0] + (top - before[1]) / (y - before[1]) * (x - before[0]))
            ys.append(top)
        if y is None or y > top:
            xs.append(x)
            ys.append(None)
        else:
            xs.append(x)
            ys.append(y)
        before = None if y is None else (float(x), y)
    return replace(line, x=xs, y=ys, low=None, high=None)


def _path(points: Sequence[tuple[float, float]], close: bool = False) -> str:
    tail = f"L{_pxs(points[1:]).rstrip()}" if len(points) > 1 else "h.1"
    return f"M{_pxs(points[:1]).rstrip()}{tail}{'z' if close else ''}"


def _band(frame: _Frame, line: Line) -> list[str]:
    """The band of a curve; all bands are drawn before all curves, so that none hides a curve."""
    if line.low is None or line.high is None or line.points:
        return []
    path = ""
    for stretch in _runs(line, line.low, line.high):
        if len(stretch) > 1:
            there = [(frame.px(float(line.x[i])), frame.py(float(line.high[i] or 0))) for i in stretch]
            back = [(frame.px(float(line.x[i])), frame.py(float(line.low[i] or 0))) for i in stretch[::-1]]
            path += _path(there + back, close=True)
    return [f'<path class="band s{line.group % STYLES}" d="{path}"/>'] if path else []


def _line(frame: _Frame, line: Line, alone: bool) -> list[str]:
    group = line.group % STYLES
    bare = alone and not line.points
    out = [f'<g class="s{group}" data-label="{escape(line.label)}">']
    bars = ""
    if line.low is not None and line.high is not None and line.points:
        for index in (i for stretch in _runs(line, line.low, line.high) for i in stretch):
            x = frame.px(line.x[index] + line.shift)
            low, high = frame.py(float(line.low[index] or 0)), frame.py(float(line.high[index] or 0))
            bars += f"M{_px(x)} {_px(low)}V{_px(high)}m-3 0h6M{_px(x - 3)} {_px(low)}h6"
    points: list[tuple[float, float]] = []
    path = ""
    for stretch in _runs(line, line.y):
        here = [(frame.px(line.x[i] + line.shift), frame.py(float(line.y[i] or 0))) for i in stretch]
        points += here
        path += _path(here)
    if path and line.joined:
        out.append(f'<path class="line" d="{path}"{"" if bare else _dash(line.group)}/>')
    if bars:
        out.append(f'<path class="whisker" d="{bars}"/>')
    if points and not bare:
        every = 1 if line.points else max(1, len(points) // MARKS_PER_LINE)
        # Shifted by group, so that markers of curves that run together do not hide one another.
        start = 0 if line.points else (group * every // STYLES + every // 2) % max(1, len(points))
        size = 4.0 if line.points else 3.2
        marks = "".join(mark(line.group, x, y, size) for x, y in points[start::every])
        out.append(f'<path class="mark" d="{marks}"/>')
    out += [place for point, name in zip(points, line.names, strict=False) if (place := frame.named(*point, name))]
    out.append("</g>")
    return out


def _bars(frame: _Frame, layers: Sequence[Bars]) -> list[str]:
    out: list[str] = []
    slot = (frame.right - frame.left) / (frame.x_high - frame.x_low)
    width = slot * 0.8 / max(1, len(layers))
    base = frame.py(min(max(0.0, frame.y_low), frame.y_high))
    for place, layer in enumerate(layers):
        group = layer.group % STYLES
        path = ""
        for index, value in enumerate(layer.y):
            known = clean(value)
            if known is None:
                continue
            x = frame.px(index) - slot * 0.4 + place * width
            path += f"M{_px(x)} {_px(base)}V{_px(frame.py(known))}h{_px(width * 0.92)}V{_px(base)}z"
        kind = "bar hollow" if layer.hollow else "bar"
        if path:
            out.append(f'<g class="s{group}" data-label="{escape(layer.label)}"><path class="{kind}" d="{path}"/></g>')
    return out


def _axes_data(frame: _Frame) -> str:
    """What a script needs for tooltips: how pixels become values, or where the rows of the table are drawn."""
    chart = frame.chart
    if chart.named:
        drawn = " ".join(
            f"{_px(frame.px(x))},{_px(frame.py(float(line.y[index] or 0)))}"
            for line, index, x, _ in _named_points(chart)
        )
        return f' data-points="{drawn}"'
    if _by_place(chart):
        return f' data-rows="{" ".join(_px(frame.px(x)) for x in _table_places(chart, 0))}"'
    if chart.x.log or chart.y.log:
        return ""
    numbers = (frame.x_low, frame.x_high, frame.left, frame.right, frame.y_low, frame.y_high, frame.bottom, frame.top)
    values = " ".join(f"{value:.6g}" for value in (*numbers, chart.scale, chart.digits))
    return f' data-axes="{values}" data-x="{escape(chart.x.label)}"'


def svg(chart: Chart, identity: str) -> Markup:
    """The chart as inline SVG; ``identity`` must be unique on its page (it names title and description)."""
    frame = _Frame(chart)
    bars = [layer for layer in chart.layers if isinstance(layer, Bars)]
    lines = [layer for layer in chart.layers if isinstance(layer, Line)]
    out = [
        f'<svg class="chart" role="img" width="{chart.width}" height="{chart.height}" '
        f'viewBox="0 0 {chart.width} {chart.height}" aria-labelledby="{identity}-t {identity}-d"{_axes_data(frame)}>'
        f'<title id="{identity}-t">{escape(chart.title)}</title>'
        f'<desc id="{identity}-d">{escape(chart.description)}</desc>'
    ]
    out += _axes(frame)
    out += _bars(frame, bars)
    for line in lines:
        out += _band(frame, line)
    for line in lines:
        out += _line(frame, _below(line, frame.y_high) if chart.cut else line, alone=len(chart.layers) == 1)
    out.append("</svg>")
    return Markup("".join(out))


def legend(chart: Chart) -> list[tuple[Markup, str]]:
    """Key and label of every series that has something to show, each label once."""
    seen: dict[str, Markup] = {}
    for layer in chart.layers:
        if any(clean(value) is not None for value in layer.y):
            seen.setdefault(layer.label, swatch(layer))
    return [(key, label) for label, key in seen.items()]


def data_table(chart: Chart, rows: int = 40) -> Markup:
    """The table behind a chart: x, then a column for each series; at most about ``rows`` rows.

    Where points have names, a row for each point. Where places have names, all of them.
    """
    if chart.named:
        points = [
            (line.label, name, number(x, 2), _entry(chart, line, index))
            for line, index, x, name in _named_points(chart)
        ]
        return _plain_table(("Series", chart.named, chart.x.label, chart.y.label), points)
    columns = _known(chart)
    kept = _table_places(chart, rows)
    names = dict(enumerate(chart.x.names)) | dict(chart.x.ticks or () if not chart.x.names else ())
    header = (chart.x.label, *(layer.label for layer in chart.layers))
    return _plain_table(
        header,
        [
            (
                names.get(x) or short(x),
                *(_entry(chart, layer, known[x]) if x in known else "–" for layer, known in columns),
            )
            for x in kept
        ],
    )


def _plain_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    head = "".join(f'<th scope="col">{escape(label)}</th>' for label in header)
    body = "\n".join(
        f'<tr><th scope="row">{escape(first)}</th>' + "".join(f"<td>{escape(text)}</td>" for text in rest) + "</tr>"
        for first, *rest in rows
    )
    return Markup(f'<table class="plain"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>')


def _known(chart: Chart) -> list[tuple[Line | Bars, dict[float, int]]]:
    """Each layer with where its values are: x -> index."""
    columns: list[tuple[Line | Bars, dict[float, int]]] = []
    for layer in chart.layers:
        xs = [float(x) for x in layer.x] if isinstance(layer, Line) else [float(i) for i in range(len(layer.y))]
        columns.append((layer, {x: i for i, x in enumerate(xs) if clean(x) is not None and _drawn(layer, i)}))
    return columns


def _drawn(layer: Line | Bars, index: int) -> bool:
    return clean(layer.y[index]) is not None


def _table_places(chart: Chart, rows: int) -> list[float]:
    """The x of the rows of the table: all where x is a place, or about ``rows`` of them."""
    xs = sorted({x for _, known in _known(chart) for x in known})
    if _by_place(chart):
        return xs
    step = max(1, math.ceil(len(xs) / rows))
    kept = xs[::step]
    if xs and kept[-1] != xs[-1]:
        kept.append(xs[-1])
    return kept


def _by_place(chart: Chart) -> bool:
    """True where x is a place with a name, such as a bin, and no value."""
    return bool(chart.x.names) or (chart.x.ticks is not None and not chart.x.numeric)


def _named_points(chart: Chart) -> list[tuple[Line, int, float, str]]:
    """(line, index, x, name) of every point that has a value and a name."""
    return [
        (layer, index, float(layer.x[index]), name)
        for layer in chart.layers
        if isinstance(layer, Line)
        for index, name in enumerate(layer.names)
        if clean(layer.x[index]) is not None and _drawn(layer, index)
    ]


def _entry(chart: Chart, layer: Line | Bars, index: int) -> str:
    text = number(chart.scale * float(layer.y[index] or 0), chart.digits)
    if isinstance(layer, Line) and layer.low is not None and layer.high is not None:
        low, high = clean(layer.low[index]), clean(layer.high[index])
        if low is not None and high is not None:
            text += f" ({number(chart.scale * low, chart.digits)} to {number(chart.scale * high, chart.digits)})"
    return text
