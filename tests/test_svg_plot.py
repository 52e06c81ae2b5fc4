"""Plots as SVG: well-formed, gaps and infinities to be seen, spikes never lost, text escaped."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from inspector.svg_plot import BOTTOM, COLUMNS, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Event, Line, plot, reduced

HOSTILE = '</svg><script>alert("1")</script>&'


def line(values: list[float], first: int = 1, **changes: str) -> Line:
    steps = np.arange(first, first + len(values), dtype=np.int64)
    return Line(changes.get("name", "a"), steps, np.array(values, np.float64), changes.get("kind", "plain"))


def drawn(*lines: Line, events: tuple[Event, ...] = (), log: bool = False) -> ET.Element:
    return ET.fromstring(plot("title", lines, events, log=log))


def polylines(svg: ET.Element) -> list[list[tuple[float, float]]]:
    return [
        [(float(x), float(y)) for x, y in (p.split(",") for p in e.attrib["points"].split())]
        for e in svg.iter("polyline")
    ]


def of_class(svg: ET.Element, name: str) -> list[ET.Element]:
    return [e for e in svg.iter() if name in e.attrib.get("class", "").split()]


def test_a_line_reaches_from_edge_to_edge() -> None:
    # 0 to 10 over steps 1 to 3: the ticks 0, 5 and 10 are its extremes.
    (points,) = polylines(drawn(line([0, 5, 10])))
    middle = (LEFT + WIDTH - RIGHT) / 2
    assert points == [(LEFT, HEIGHT - BOTTOM), (middle, (TOP + HEIGHT - BOTTOM) / 2), (WIDTH - RIGHT, TOP)]


def test_powers_of_ten_are_equally_far_apart() -> None:
    (points,) = polylines(drawn(line([1, 10, 100]), log=True))
    assert [y for _, y in points] == [HEIGHT - BOTTOM, (TOP + HEIGHT - BOTTOM) / 2, TOP]


def test_nan_is_a_gap_with_a_mark() -> None:
    svg = drawn(line([1, 2, math.nan, 4, 5]))
    assert [len(p) for p in polylines(svg)] == [2, 2]
    assert len(of_class(svg, "nan")) == 1


def test_a_value_between_two_gaps_is_a_dot() -> None:
    svg = drawn(line([math.nan, 3, math.nan]))
    assert polylines(svg) == []
    assert len(of_class(svg, "dot")) == 1


def test_infinities_and_zeros_without_height_are_marked() -> None:
    svg = drawn(line([1, math.inf, -math.inf, 0, 2]), log=True)
    assert len(of_class(svg, "inf")) == 2
    assert len(of_class(svg, "zero")) == 1
    assert not of_class(drawn(line([1, 0, 2])), "zero")


def test_nothing_finite_still_draws_an_axis() -> None:
    for log in (False, True):
        svg = drawn(line([math.nan, math.inf]), log=log)
        assert len(of_class(svg, "nan")) == len(of_class(svg, "inf")) == 1
        assert of_class(svg, "tick")


@pytest.mark.parametrize("values", [[3.0], [3.0, 3.0], [0.0, 0.0], [1e308, -1e308], [1e-320, 2e-320]])
@pytest.mark.parametrize("log", [False, True])
def test_any_values_have_an_axis(values: list[float], log: bool) -> None:
    svg = drawn(line(values), log=log)
    assert all(math.isfinite(x) and math.isfinite(y) for points in polylines(svg) for x, y in points)
    assert len(of_class(svg, "tick")) >= 3


def test_no_steps_draw_nothing() -> None:
    assert plot("a", [line([])]) == ""


def test_a_spike_among_many_steps_is_kept() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(size=100_000)
    values[54_321], values[77_777], values[12_345] = 1e6, -1e6, math.nan
    steps, few = reduced(np.arange(100_000, dtype=np.int64), values)
    assert len(few) <= 5 * COLUMNS
    assert np.nanmax(few) == 1e6
    assert np.nanmin(few) == -1e6
    assert np.isnan(few).sum() == 1
    assert (np.diff(steps) > 0).all()
    assert (steps[0], steps[-1]) == (0, 99_999)


def test_events_have_their_text_and_share_a_pixel() -> None:
    events = (*(Event(50_000 + i, "error", f"finding {i}") for i in range(3)), Event(1, "warning", "other"))
    svg = drawn(
        Line("a", np.array([0, 100_000]), np.array([1.0, 2.0])),
        events=(*events, Event(200_000, "error", "x")),
    )
    marks = of_class(svg, "event")
    assert [m.attrib["class"] for m in marks] == ["event warning", "event error"]
    assert [m[0].text for m in marks] == ["other", "finding 0 (and 2 more here)"]


def test_text_is_escaped() -> None:
    text = plot(HOSTILE, [line([1, 2])], [Event(1, 'x" onload="y', HOSTILE)])
    root = ET.fromstring(text)
    assert "<script" not in text
    assert root[0].text == f"{HOSTILE} over steps"
    assert 'onload="y' not in text
