"""A trace with too many spans for bars, as a grid of cells: a row for each group, a column for each slice of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lablib.trace import Span
from lablib.views.lanes import Lanes
from lablib.views.palette import Theme, mixed
from lablib.views.span_words import label

COLUMNS = 1200
_COLUMNS_OF_TEXT = 40
_SHADES = 3  # how busy a cell is: up to a third, two thirds, all of it


def raster(
    lanes: Lanes, paint: Callable[[Span], str], theme: Theme, *, start: float, end: float, columns: int = COLUMNS
) -> dict[str, Any]:
    """Return a heatmap: each cell has the colour of the span that fills most of it, paler where all together fill less.

    Args:
        lanes: where the spans stand, one lane for each group.
        paint: returns a span's colour.
        theme: colours of the rest.
        start, end: edges in milliseconds.
        columns: how many slices.
    """
    width = (end - start) / columns or 1.0
    share, most = _filled(lanes, start, width, columns)
    shown = np.unique(most)
    place = np.searchsorted(shown, most)
    spans = [lanes.spans[number] for number in shown if number >= 0]
    nothing = len(shown) - len(spans)  # 1 where some cell is empty
    colours: dict[str, int] = {}
    numbers = np.array([np.nan] * nothing + [colours.setdefault(paint(s), len(colours)) for s in spans])
    shade = np.clip(np.ceil(share * _SHADES), 1, _SHADES) - 1
    z = numbers[place] * _SHADES + shade
    # strings of one width: plotly copies arrays of Python's own strings one by one
    words = np.array([""] * nothing + [f"rank {s.rank}: {label(s, _COLUMNS_OF_TEXT)}" for s in spans])
    rows = np.round([group.top / lanes.pitch for group in lanes.groups]).astype(np.int64)
    shape = round(lanes.height / lanes.pitch), columns
    grid, text = np.full(shape, np.nan, np.float32), np.full(shape, "", words.dtype)
    grid[rows], text[rows] = z, words[place]
    shades = [
        mixed(colour, theme.paper, 0.65 * (1 - step / _SHADES)) for colour in colours for step in range(1, _SHADES + 1)
    ]
    return {
        "z": grid,
        "text": text,
        "x0": start + width / 2,
        "dx": width,
        "y0": lanes.pitch / 2,
        "dy": lanes.pitch,
        "colorscale": [[edge / len(shades), c] for i, c in enumerate(shades) for edge in (i, i + 1)],
        "zmin": -0.5,
        "zmax": max(0.5, len(shades) - 0.5),
    }


def _filled(lanes: Lanes, start: float, width: float, columns: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return, by group and column, which share is filled, and the span that fills most of it; -1 where none does."""
    left, right = (np.clip((times - start) / width, 0, columns) for times in (lanes.start, lanes.end))
    first = np.minimum(left.astype(np.int64), columns - 1)
    last = np.clip(np.ceil(right).astype(np.int64) - 1, first, columns - 1)
    counts = last - first + 1
    span = np.repeat(np.arange(len(counts)), counts)
    column = np.arange(len(span)) - np.repeat(np.cumsum(counts) - counts, counts) + first[span]
    cover = np.minimum(right[span], column + 1) - np.maximum(left[span], column)
    cell = lanes.group[span] * columns + column
    shape = len(lanes.groups), columns
    share = np.bincount(cell, cover, shape[0] * columns).reshape(shape)
    most = np.full(shape[0] * columns, -1)
    order = np.argsort(cover, kind="stable")  # of equals the inner one wins: it starts later
    most[cell[order]] = span[order]
    return np.minimum(share, 1.0), most.reshape(shape)
