"""Memory over time as areas by category, and what is written at each point of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lablib.trace import Category
from lablib.views import memory_words
from lablib.views.frame import LINE_PX
from lablib.views.memory_rows import Layout
from lablib.views.palette import CATEGORIES, Theme

_MOST_HOVERS = 2500  # further ones take longer to make than a hand to find them


def keys(held: Iterable[Category]) -> list[dict[str, Any]]:
    """Return what explains the colours in the legend, the top of the stack first: squares that are nowhere."""
    shown = set(held)
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": str(one),
            "x": [None],
            "y": [None],
            "marker": {"symbol": "square", "size": 16, "color": CATEGORIES[one]},
            "hoverinfo": "skip",
            "showlegend": one in shown,
        }
        for one in reversed(CATEGORIES)
    ]


def held(layout: Layout, place: int) -> bool:
    """Return whether any rank ever holds something of the category with this number."""
    return any(bool(np.any(row.levels[:, place + 1] > row.levels[:, place])) for row in layout.rows)


def area(layout: Layout, place: int, category: Category) -> dict[str, Any]:
    """Return one category of all rows: there along its upper edge, and back along its lower."""
    xs, ys = [], []
    for row in layout.rows:
        lower, upper = row.levels[:, place], row.levels[:, place + 1]
        if np.any(upper > lower):
            steps = np.repeat(row.x, 2)[1:-1]
            xs += [steps, steps[::-1], [np.nan]]
            ys += [np.repeat(layout.y(row, upper), 2), np.repeat(layout.y(row, lower), 2)[::-1], [np.nan]]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{category}, area",
        "x": np.concatenate([[], *xs]),
        "y": np.concatenate([[], *ys]),
        "fill": "toself",
        "fillcolor": CATEGORIES[category],
        "line": {"color": CATEGORIES[category], "width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def allocator(layout: Layout, name: str, dash: str, theme: Theme, *, shown: bool) -> dict[str, Any]:
    """Return what the CUDA allocator says, as a line in each row; a moment without it is a gap."""
    xs, ys = [], []
    for row in layout.rows if shown else ():
        values = [getattr(one, name) for one in row.samples]
        nbytes = np.array([np.nan if value is None else value for value in values], float)
        xs += [np.repeat(row.x, 2)[1:-1], [np.nan]]
        ys += [np.repeat(layout.y(row, nbytes), 2), [np.nan]]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{name} by the allocator",
        "x": np.concatenate([[], *xs]),
        "y": np.concatenate([[], *ys]),
        "line": {"color": theme.ink, "width": LINE_PX, "dash": dash},
        "hoverinfo": "skip",
        "showlegend": shown,
    }


def hover(layout: Layout) -> dict[str, Any]:
    """Return a point that nobody sees in the middle of each step of each category, with all that is known of it."""
    held = sum(np.count_nonzero(np.diff(row.levels)) for row in layout.rows)
    stride = -(-held // _MOST_HOVERS) or 1
    xs, ys = [np.empty(0)], [np.empty(0)]
    texts: list[str] = []
    for row in layout.rows:
        chosen = np.unique([*range(0, len(row.samples), stride), row.peak])
        places, numbers = np.nonzero(np.diff(row.levels[chosen]))
        places = chosen[places]
        xs.append((row.x[places] + row.x[places + 1]) / 2)
        ys.append(layout.y(row, (row.levels[places, numbers] + row.levels[places, numbers + 1]) / 2))
        for place in chosen:
            texts += memory_words.hovers(row.samples[place], layout.zero_ns)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "hover",
        "x": np.concatenate(xs),
        "y": np.concatenate(ys),
        "marker": {"size": 8, "opacity": 0},
        "hovertext": texts,
        "hoverinfo": "text",
        "showlegend": False,
    }
