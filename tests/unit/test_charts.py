"""The SVG writer: what it draws is right, and nothing it is given breaks it."""

import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderboard.charts import Axis, Bars, Chart, Line, data_table, legend, nice_ticks, number, percent, short, svg

SVG = "{http://www.w3.org/2000/svg}"
anything = st.one_of(st.none(), st.floats(), st.just(1e308), st.just(-1e308))


def chart(*layers, **more):
    return Chart("Title", "What it shows", Axis("x"), Axis("y"), layers, **more)


def draw(one):
    # The namespace is not written: HTML knows what <svg> is, an XML parser has to be told.
    return ET.fromstring(str(svg(one, "id")).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))


def points(path):
    numbers = [float(n) for n in re.findall(r"-?\d*\.?\d+", path)]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def test_a_line_lies_where_its_axes_say():
    one = chart(Line("a", 0, [0, 5, 10], [0.0, 1.0, 2.0]))
    root = draw(one)
    x0, x1, left, right, y0, y1, bottom, top, scale, digits = (float(v) for v in root.get("data-axes").split())
    (path,) = (p for p in root.iter(f"{SVG}path") if p.get("class") == "line")
    found = [
        (x0 + (x - left) / (right - left) * (x1 - x0), y0 + (y - bottom) / (top - bottom) * (y1 - y0))
        for x, y in points(path.get("d"))
    ]
    for (x, y), (a, b) in zip(found, [(0, 0), (5, 1), (10, 2)], strict=True):
        assert x == pytest.approx(a, abs=0.02)
        assert y == pytest.approx(b, abs=0.01)
    assert (scale, digits) == (1, 2)


def test_ticks_stand_at_their_values():
    root = draw(chart(Line("a", 0, [0, 10], [0.0, 100.0])))
    x0, x1, left, right = (float(v) for v in root.get("data-axes").split()[:4])
    labels = {t.text: float(t.get("x")) for t in root.iter(f"{SVG}text") if t.get("class") == "tick mid"}
    assert len(labels) >= 4
    for text, at in labels.items():
        assert at == pytest.approx(left + (float(text) - x0) / (x1 - x0) * (right - left), abs=0.06)


def test_bars_have_the_height_of_their_values():
    root = draw(chart(Bars("a", 0, [1.0, 2.0, 4.0])))
    (path,) = (p for p in root.iter(f"{SVG}path") if p.get("class") == "bar")
    tops = re.findall(r"M[\d.]+ ([\d.]+)V([\d.]+)h", path.get("d"))
    heights = [float(base) - float(top) for base, top in tops]
    assert heights[1] == pytest.approx(2 * heights[0], rel=0.02)
    assert heights[2] == pytest.approx(4 * heights[0], rel=0.02)


def test_a_gap_breaks_the_line_and_is_not_drawn_as_zero():
    root = draw(chart(Line("a", 0, [0, 1, 2, 3], [1.0, None, math.nan, 1.5])))
    (path,) = (p for p in root.iter(f"{SVG}path") if p.get("class") == "line")
    assert path.get("d").count("M") == 2


def test_a_curve_leaves_a_panel_that_is_cut_at_its_edge():
    line = Line("a", 0, [0, 1, 2, 3], [1.0, 3.0, 9.0, 1.0])
    root = draw(Chart("t", "d", Axis("x"), Axis("y", low=0.0, high=6.0), [line], cut=True))
    (path,) = (p for p in root.iter(f"{SVG}path") if p.get("class") == "line")
    left, right, _, _, bottom, top = (float(v) for v in root.get("data-axes").split()[2:8])
    found = points(path.get("d"))
    at = [(x - left) / (right - left) * 3 for x, _ in found]
    assert at == pytest.approx([0, 1, 1.5, 2.375, 3], abs=0.01)
    assert [round(y, 1) for _, y in found[2:4]] == [top, top]
    assert path.get("d").count("M") == 2
    assert all(top <= y <= bottom for _, y in found)
    # The table behind it has what the panel has no room for.
    assert "9.00" in data_table(Chart("t", "d", Axis("x"), Axis("y"), [line]))


def test_names_beside_points_do_not_hide_one_another():
    names = ["8", "16", "32"]
    lines = [Line(str(i), i, [0.0, 5.0, 5.05], [1.0, 2.0, 2.01], points=True, names=names) for i in range(3)]
    texts = [t for t in draw(chart(*lines)).iter(f"{SVG}text") if t.get("class") == "name"]
    boxes = [(float(t.get("x")), float(t.get("y")), 6.4 * len(t.text)) for t in texts]
    assert len(texts) >= 4
    for i, (x, y, width) in enumerate(boxes):
        for a, b, other in boxes[:i]:
            assert x + width <= a or a + other <= x or abs(y - b) >= 9


def test_bands_lie_behind_all_curves():
    lines = [Line(str(i), i, [0, 1], [1.0, 2.0], [0.0, 1.0], [2.0, 3.0]) for i in range(2)]
    classes = [p.get("class").split()[0] for p in draw(chart(*lines)).iter(f"{SVG}path")]
    assert max(i for i, name in enumerate(classes) if name == "band") < classes.index("line")


def test_shares_that_are_all_zero_have_a_scale_one_can_read():
    one = Chart("t", "d", Axis("x"), Axis("share, %", low=0.0, show=percent), [Line("a", 0, [0, 1], [0.0, 0.0])])
    texts = [t.text for t in draw(one).iter(f"{SVG}text") if t.get("class") == "tick end"]
    assert texts[0] == "0"
    assert float(texts[-1]) == pytest.approx(1, abs=0.1)


def test_every_series_differs_in_more_than_colour():
    layers = [Line(str(group), group, [0, 1, 2], [1.0, 2.0, 3.0]) for group in range(24)]
    groups = [g for g in draw(chart(*layers)).iter(f"{SVG}g") if g.get("data-label")]
    looks = []
    for group in groups:
        line, marker = list(group)
        shape = re.sub(r"^M[-\d.]+ [-\d.]+", "", marker.get("d").split("z")[0])
        looks.append((group.get("class"), line.get("stroke-dasharray"), shape))
    assert len(set(looks)) == 24
    # Without colour: the first eight, which is all that a page usually shows, differ in marker and in dash alone.
    assert len({dash for _, dash, _ in looks[:8]}) == len({shape for *_, shape in looks[:8]}) == 8


def test_labels_are_escaped_and_nothing_carries_a_style():
    hostile = '<script>"&'
    one = Chart(hostile, hostile, Axis(hostile), Axis(hostile), [Line(hostile, 0, [0, 1], [0.0, 1.0])] * 2)
    text = svg(one, "id") + data_table(one) + "".join(key + label for key, label in legend(one)[:0])
    assert "<script" not in text
    assert "style=" not in text
    assert draw(one).find(f"{SVG}title").text == hostile


@given(st.lists(anything, min_size=1, max_size=8), st.lists(anything, min_size=1, max_size=8), st.booleans())
def test_any_values_give_well_formed_svg_inside_its_frame(xs, ys, dots):
    size = min(len(xs), len(ys))
    one = chart(Line("a", 3, [math.nan if x is None else x for x in xs[:size]], ys[:size], ys[:size], ys[:size], dots))
    root = draw(one)
    for path in root.iter(f"{SVG}path"):
        d = path.get("d")
        assert "nan" not in d
        assert "inf" not in d
        if path.get("class") == "line" and d:
            for x, y in points(d.replace("h.1", "")):
                assert -1 <= x <= one.width + 1
                assert -1 <= y <= one.height + 1
    data_table(one)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_lie_inside_and_are_round(low, span):
    ticks = nice_ticks(low, low + span)
    assert 1 <= len(ticks) <= 12
    assert all(low - span * 1e-6 <= tick <= low + span * (1 + 1e-6) for tick in ticks)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
        (10**400, "–"),
        ("7", "–"),
        (True, "–"),
        (0, "0.0"),
        (-0.04, "0.0"),
        (-1.25, "−1.2"),
        (1234567.0, "1,234,567.0"),
        (1e300, "1.00e+300"),
        (1e-9, "1.00e−09"),
    ],
)
def test_numbers_are_written_one_way(value, text):
    assert number(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.5, "0.5"), (100.0, "100"), (-2.0, "−2"), (3e-4, "3e−4"), (None, "–")])
def test_tick_texts(value, text):
    assert short(value) == text


def test_percent_is_a_hundred_times():
    assert percent(0.25) == "25"


def test_the_table_holds_what_is_drawn():
    one = chart(Line("a", 0, [1, 2], [0.5, 0.25], [0.4, None], [0.6, 0.3]), scale=100, digits=1)
    text = data_table(one)
    assert '<tr><th scope="row">1</th><td>50.0 (40.0 to 60.0)</td></tr>' in text
    assert '<tr><th scope="row">2</th><td>25.0</td></tr>' in text


def test_a_long_table_is_thinned_and_keeps_both_ends():
    one = chart(Line("a", 0, list(range(1000)), [float(i) for i in range(1000)]))
    rows = re.findall(r'<th scope="row">(.*?)</th>', data_table(one, 20))
    assert len(rows) <= 22
    assert (rows[0], rows[-1]) == ("0", "999")


def _table(one):
    text = data_table(one)
    heads = re.findall(r'<th scope="col">(.*?)</th>', text)
    return heads, [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>.*?</tr>", text)[1:]]


def test_what_stands_side_by_side_in_the_drawing_is_one_row_of_the_table():
    axis = Axis("N", low=-0.4, high=1.4, ticks=[(0, "8"), (1, "32")])
    lines = [Line(name, i, [0, 1], [0.1 * i, 0.5], points=True, shift=0.1 * i) for i, name in enumerate("abc")]
    one = Chart("t", "d", axis, Axis("y"), lines, digits=1)
    assert _table(one) == (["N", "a", "b", "c"], [["8", "0.0", "0.1", "0.2"], ["32", "0.5", "0.5", "0.5"]])
    root = draw(one)
    starts = [
        re.match(r"M([\d.]+)", path.get("d"))[1] for path in root.iter(f"{SVG}path") if path.get("class") == "line"
    ]
    assert len(set(starts)) == 3
    assert len(root.get("data-rows").split()) == 2


def test_bins_are_named_and_none_is_left_out():
    names = [f"{i} to {i + 1}" for i in range(60)]
    one = Chart("t", "d", Axis("x", ticks=[(0.5, "1")], names=names), Axis("y"), [Bars("a", 0, [1.0] * 60)])
    assert [row[0] for row in _table(one)[1]] == names
    assert len(draw(one).get("data-rows").split()) == 60


def test_named_points_are_a_row_each():
    line = Line(
        "GRPO", 0, [3.0, 3.0], [0.5, 0.25], [0.4, 0.2], [0.6, 0.3], points=True, joined=False, names=["8", "16"]
    )
    one = Chart("t", "d", Axis("hours"), Axis("score"), [line], named="N", digits=1, scale=100)
    assert _table(one) == (
        ["Series", "N", "hours", "score"],
        [["GRPO", "8", "3.00", "50.0 (40.0 to 60.0)"], ["GRPO", "16", "3.00", "25.0 (20.0 to 30.0)"]],
    )
    assert len(draw(one).get("data-points").split()) == 2
