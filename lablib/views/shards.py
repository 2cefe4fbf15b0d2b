"""Which rank sees which sample, which are seen twice, which never: the data set, and below it each rank's batches.

A sample has the colour of the rank that sees it. The figure has the same traces for every table, so that an explorer
can change it in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import plotly.graph_objects as go

from lablib.sim import shards as sim
from lablib.sim.shards import Accuracy, Shards
from lablib.views import shard_words
from lablib.views.frame import LINE_PX, TEXT_PX, Badge, chosen_theme
from lablib.views.labels import Labels, Style
from lablib.views.paints import Paints
from lablib.views.palette import Theme, alarm, rank_colour, text_on
from lablib.views.shard_boxes import Box
from lablib.views.shard_grid import WIDTH, Grid, grid_of
from lablib.views.shard_rows import CAPTION
from lablib.views.sketch import Sketch

_SMALL_PX = 14
_HEAD_PX = 17
_EDGE_PX = 3
_NEVER = "samples never seen"
_text_on = lru_cache(text_on)
_rank_colour = lru_cache(rank_colour)


def shards(
    table: Shards,
    *,
    predicted: Shards | None = None,
    right: Sequence[bool] | None = None,
    badge: Badge | None = None,
    title: str | None = None,
    theme: str | None = None,
) -> go.Figure:
    """Draw who sees which samples, epoch beside epoch.

    Args:
        table: who loaded what.
        predicted: what should be the same; differences are marked.
        right: for each sample, whether the model's answer is right: draws the accuracy that the ranks count, and the
            exact one.
        badge: how true it is; left out, simulated.
        title: what it shows; left out, the question.
        theme: ``light`` or ``dark``; see `frame.chosen_theme`.

    Raises:
        UsageError: the prediction is for other samples, ranks or epochs; there is not one answer for each sample.
    """
    return sketch(table, predicted=predicted, right=right, badge=badge, title=title, theme=theme).figure()


def sketch(
    table: Shards,
    *,
    predicted: Shards | None = None,
    right: Sequence[bool] | None = None,
    badge: Badge | None = None,
    title: str | None = None,
    theme: str | None = None,
) -> Sketch:
    """Return the same figure for an explorer; arguments and errors as for `shards`."""
    colours = chosen_theme(theme)
    found = () if right is None else tuple(sim.accuracy(table, right, epoch=epoch) for epoch in range(table.epochs))
    summary = shard_words.summary(table, predicted, found)
    grid = grid_of(table, predicted, accuracy=bool(found))
    labels = _labels(colours)
    _write(labels, table, predicted, grid)
    _write_accuracies(labels, found, grid)
    boxes = (*grid.strip.boxes, *grid.rows.boxes)
    return Sketch(
        traces=[
            _frames(grid, colours),
            _boxes([box for box in boxes if box.kind != "never"], colours, "samples"),
            _boxes([box for box in boxes if box.kind == "never"], colours, _NEVER),
            _ribbons(grid, table.world_size),
            *(_numbers(boxes, colours, text) for text in sorted({_text_on(colours.paper), _text_on(colours.ink)})),
            _crosses(boxes, colours),
            _accuracies(found, grid, colours),
            *labels.traces(),
        ],
        layout={
            "barmode": "overlay",
            "showlegend": False,
            "xaxis": {"visible": False, "range": [0, WIDTH], "fixedrange": True},
            "yaxis": {"visible": False, "range": [grid.height, 0], "fixedrange": True},
            "hovermode": "closest",
            "dragmode": False,
            "modebar": {"remove": ["select", "lasso"]},
        },
        title=title or "Which rank sees which sample?",
        badge=badge or Badge("simulated", table.world_size),
        summary=summary,
        height_px=round(grid.height) + 100,
        theme=colours.name,
    )


def _labels(theme: Theme) -> Labels:
    return Labels(
        {
            "head": Style(_HEAD_PX, theme.ink),
            "plain": Style(TEXT_PX, theme.ink),
            "small": Style(_SMALL_PX, theme.muted),
            "right": Style(_SMALL_PX, theme.real),
            "wrong": Style(_SMALL_PX, alarm(theme)),
            "end": Style(_SMALL_PX, theme.muted, "middle left"),
        }
    )


def _write(labels: Labels, table: Shards, predicted: Shards | None, grid: Grid) -> None:
    for epoch, left in enumerate(grid.left):
        labels.add("head", f"<b>epoch {epoch}</b>", left - 4, 12)
        for line, words in enumerate(shard_words.news(table, epoch)):
            labels.add("plain", words, left - 4, 36 + 19 * line)
        style, words = shard_words.verdict(predicted, table, epoch)
        labels.add(style, words, left - 4, 78)
        if grid.strip.level == "bins":
            labels.add("small", "0", left - 4, grid.strip.bottom - 10)
            labels.add("end", f"{table.samples - 1:,}", left + grid.column, grid.strip.bottom - 10)
        for rank, (top, _) in enumerate(grid.rows.edges):
            style, words = shard_words.amount(table, predicted, epoch, rank)
            labels.add(style, words, left - 6, top + CAPTION / 2 - 2)
    labels.add("plain", "<b>samples</b>", 8, grid.strip_top + 13)
    for rank, (top, _) in enumerate(grid.rows.edges):
        labels.add("plain", f"<b>rank {rank}</b>", 8, top + grid.rows.middle)
    for line, text in enumerate(shard_words.legend(grid)):
        labels.add("small", text, 0, grid.foot + 14 + 20 * line)


def _write_accuracies(labels: Labels, found: Sequence[Accuracy], grid: Grid) -> None:
    if not found or grid.accuracy_top is None:
        return
    top = grid.accuracy_top
    labels.add("plain", "<b>accuracy</b>", 8, top + 10)
    labels.add("small", "as counted", 8, top + 36)
    labels.add("small", "exact", 8, top + 80)
    for left, one in zip(grid.left, found, strict=True):
        counted, exact = (one.counted_right, one.counted, one.as_counted), (one.right, one.samples, one.exact)
        labels.add("plain", shard_words.bias(one), left - 6, top + 10)
        labels.add("small", shard_words.share(*counted), left - 6, top + 36)
        labels.add("small", shard_words.share(*exact), left - 6, top + 80)


def _bars(boxes: Sequence[Any]) -> dict[str, Any]:
    """Return bars for boxes: their first four values are left, top, width and height."""
    left, top, width, height = np.array([box[:4] for box in boxes], dtype=float).reshape(-1, 4).T
    return {"type": "bar", "x": left + width / 2, "width": width, "base": top, "y": height}


def _frames(grid: Grid, theme: Theme) -> dict[str, Any]:
    return {
        **_bars(grid.rows.frames),
        "name": "batches",
        "marker": {"color": theme.panel, "line": {"color": theme.muted, "width": LINE_PX}},
        "hoverinfo": "skip",
    }


def _fill(box: Box, theme: Theme) -> str:
    if box.kind == "different":
        return alarm(theme)
    if box.kind == "never":
        return theme.paper
    return _rank_colour(box.ranks[0]) if len(box.ranks) == 1 else theme.panel


def _boxes(boxes: Sequence[Box], theme: Theme, name: str) -> dict[str, Any]:
    """Return samples, or bars for many."""
    ranks = {rank for box in boxes for rank in box.ranks}
    marker = Paints(*map(_rank_colour, sorted(ranks)), theme.panel, theme.paper, alarm(theme)).of(
        _fill(box, theme) for box in boxes
    )
    edges = [_edge(box, theme) for box in boxes]
    line = Paints(theme.ink, theme.muted).of(colour for colour, _ in edges)
    return {
        **_bars(boxes),
        "name": name,
        "marker": {
            **marker,
            "line": {**line, "width": np.array([width for _, width in edges])},
            "pattern": {
                "shape": [_pattern(box) for box in boxes],
                "fgcolor": theme.grid if name == _NEVER else theme.ink,
                "fgopacity": 0.8,
                "size": 6,
                "solidity": 0.3,
            },
        },
        "hovertext": [box.hover for box in boxes],
        "hoverinfo": "text",
        "meta": {"slots": [box.slot for box in boxes]},
    }


def _edge(box: Box, theme: Theme) -> tuple[str, int]:
    """Return colour and width of what parts a cell from its neighbours."""
    if box.many or box.kind == "once":
        return theme.muted, 0
    return (theme.muted, LINE_PX) if box.kind == "never" else (theme.ink, _EDGE_PX)


def _pattern(box: Box) -> str:
    return "/" if box.kind == "never" else "x" if box.many and box.kind == "again" else ""


def _ribbons(grid: Grid, world_size: int) -> dict[str, Any]:
    """Return the colours of all that see a sample, and of each rank before its row."""
    before = [(0.0, top + CAPTION - 3, 6.0, bottom - top - CAPTION - 6) for top, bottom in grid.rows.edges]
    colours = [_rank_colour(rank) for rank in range(world_size)]
    owners = [*range(world_size), *(box.ranks[0] for box in grid.strip.ribbons)]
    return {
        **_bars([*before, *grid.strip.ribbons]),
        "name": "ranks",
        "marker": {**Paints(*colours).of(colours[rank] for rank in owners), "line": {"width": 0}},
        "hoverinfo": "skip",
    }


def _numbers(boxes: Sequence[Box], theme: Theme, colour: str) -> dict[str, Any]:
    """Return the numbers in the cells on which this colour of text reads best."""
    mine = [box for box in boxes if box.text and _text_on(_fill(box, theme)) == colour]
    return {
        "type": "scatter",
        "name": "numbers",
        "mode": "text",
        "x": np.array([box.x + box.width / 2 for box in mine]),
        "y": np.array([box.y + box.height / 2 - (5 if len(box.ranks) > 1 else 0) for box in mine]),
        "text": [box.text for box in mine],
        "textposition": "middle center",
        "textfont": {"size": _SMALL_PX, "color": colour},
        "hoverinfo": "skip",
        "meta": {"slots": [box.slot for box in mine]},
    }


def _crosses(boxes: Sequence[Box], theme: Theme) -> dict[str, Any]:
    """Return a cross above each sample or bar that is not as predicted."""
    wrong = [box for box in boxes if box.kind == "different"]
    return {
        "type": "scatter",
        "name": "not as predicted",
        "mode": "markers",
        "x": np.array([box.x + box.width / 2 for box in wrong]),
        "y": np.array([box.y for box in wrong]),
        "marker": {"symbol": "x", "size": 10, "color": theme.ink},
        "hoverinfo": "skip",
        "cliponaxis": False,
    }


def _accuracies(found: Sequence[Accuracy], grid: Grid, theme: Theme) -> dict[str, Any]:
    """Return a bar for what the ranks count and one for what is exact; the full width is 100 %."""
    top = grid.accuracy_top or 0.0
    bars = [
        ((left, top + below, grid.column * share, 10.0), colour)
        for left, one in zip(grid.left, found, strict=False)
        for below, value, colour in ((50, one.as_counted, theme.emulated), (94, one.exact, theme.real))
        for share, colour in ((1.0, theme.grid), (value or 0.0, colour))
    ]
    return {
        **_bars([box for box, _ in bars]),
        "name": "accuracies",
        "marker": {**Paints(theme.emulated, theme.real, theme.grid).of(one for _, one in bars), "line": {"width": 0}},
        "hoverinfo": "skip",
    }
