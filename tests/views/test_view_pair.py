"""Two pictures in one figure, as data."""

import pytest
from memory_traces import MIB, memory_trace

from lablib.trace import Category
from lablib.views import Badge, MemoryBars, pair
from lablib.views.memory import sketch as curve
from lablib.views.memory_bars import sketch as bars


def both(world_size=2):
    rows = [MemoryBars("DDP", [{Category.PARAMETERS: 3 * MIB}] * world_size)]
    upper = bars(rows, badge=Badge("simulated", world_size))
    lower = curve(memory_trace(world_size), title="One step")
    return upper, lower, pair.above(upper, lower, title="Both")


def test_each_picture_keeps_its_pixels_and_its_axes():
    upper, lower, drawn = both()
    fig = drawn.figure()
    plot_px = drawn.height_px - (upper.height_px - upper.layout["yaxis"]["range"][0])
    for one, axis in ((upper, fig.layout.yaxis), (lower, fig.layout.yaxis2)):
        share = axis.domain[1] - axis.domain[0]
        assert share * plot_px == pytest.approx(axis.range[0] - axis.range[1], abs=1)
        assert axis.range[0] == one.layout["yaxis"]["range"][0]
    assert fig.layout.yaxis2.domain[1] < fig.layout.yaxis.domain[0]
    assert [one.yaxis for one in fig.data] == [None] * len(upper.traces) + ["y2"] * (len(lower.traces) + 1)


def test_the_lower_one_keeps_its_title_and_the_legend_names_nothing_twice():
    _, lower, drawn = both()
    fig = drawn.figure()
    [heading] = [one for one in fig.data if one.name == "heading"]
    assert heading.text == ("<b>One step</b>",)
    assert fig.layout.yaxis2.range[1] < heading.y[0] < 0
    named = [one.name for one in fig.data if one.showlegend is not False]
    assert sorted(named) == sorted(set(named))
    assert {"parameters", "gradients", "activations"} <= set(named)
    assert fig.layout.title.text == "<b>Both</b>"
    assert fig.layout.meta["summary"].endswith(lower.summary)


def test_one_figure_turns_into_another_in_place():
    *_, one = both(2)
    *_, other = both(4)
    assert [trace["type"] for trace in one.traces] == [trace["type"] for trace in other.traces]
    changed = {path for number, path, _ in other.changes(one) if number is None}
    assert {"yaxis2.tickvals", "yaxis2.domain"} <= changed
