"""The picture of bytes that a step moves, as data."""

from __future__ import annotations

import pytest
from figures import sizes_of_text, widths_of_lines

from lablib.errors import UsageError
from lablib.views import Badge, moved, summary
from lablib.views.moved import MIB
from lablib.views.palette import contrast

BADGE = Badge("real", 2, "cpu", "gloo")
ROWS = {"DataParallel": {"parameters": 3 * MIB, "gradients": 2 * MIB}, "DDP": {"gradients": 1.5 * MIB, "inputs": 0}}


def edges(fig, kind):
    [bar] = [one for one in fig.data if one.name == kind]
    return list(zip(bar.base, bar.base + bar.x, strict=True))


def test_kinds_stand_side_by_side_in_each_row() -> None:
    fig = moved(ROWS, badge=BADGE)
    assert edges(fig, "parameters") == [(0, 3), (0, 0)]
    assert edges(fig, "gradients") == [(3, 5), (0, 1.5)]
    assert edges(fig, "inputs") == [(5, 5), (1.5, 1.5)]
    assert list(fig.layout.yaxis.ticktext) == ["DataParallel", "DDP"]
    [totals] = [one for one in fig.data if one.name == "totals"]
    assert list(totals.text) == ["<b>5</b> MiB", "<b>1.5</b> MiB"]
    assert fig.layout.xaxis.range[1] > 5


def test_the_summary_says_what_is_drawn() -> None:
    assert summary(moved(ROWS, badge=BADGE)) == (
        "real · gloo · 2 ranks · cpu: DataParallel: 5 MiB (parameters 3, gradients 2); DDP: 1.5 MiB (gradients 1.5)"
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_lines_can_be_read(theme) -> None:
    fig = moved(ROWS, badge=BADGE, theme=theme)
    assert min(sizes_of_text(fig)) >= 14
    assert min(widths_of_lines(fig)) >= 2
    bars = [one for one in fig.data if one.type == "bar"]
    assert all(contrast(one.marker.color, fig.layout.paper_bgcolor) > 1.5 for one in bars)
    assert len({(one.marker.color, one.marker.pattern.shape) for one in bars}) == len(bars)
    assert len({one.marker.pattern.shape for one in bars}) == len(bars)


@pytest.mark.parametrize("rows", [{}, {"DDP": {}}, {"DDP": {"gradients": -1}}, {"DDP": {"gradients": float("inf")}}])
def test_nothing_to_draw_is_told(rows) -> None:
    with pytest.raises(UsageError, match="bytes"):
        moved(rows, badge=BADGE)


def test_rows_of_nothing_are_drawn() -> None:
    assert moved({"one process": {"gradients": 0}}, badge=BADGE).layout.xaxis.range == (0, 1)
