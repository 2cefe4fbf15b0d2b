"""What a rank holds after a step: a block for each way to share the work, in it a bar for each rank.

                                                                  limit      sent in a step
DDP        [parameters][gradients][optimizer state        ]  16.0 MiB             6.00 MiB
           [parameters][gradients][optimizer state        ]         │
ZeRO 1     [parameters][gradients][opt]  10.0 MiB                   │             6.00 MiB
           [parameters][gradients][opt]                             │
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import plotly.graph_objects as go

from lablib.errors import UsageError
from lablib.trace import Category
from lablib.views import memory_bars_told as told
from lablib.views.frame import LEGEND_BELOW, LINE_PX, TEXT_PX, Badge, chosen_theme
from lablib.views.labels import Labels, Style
from lablib.views.memory_areas import keys
from lablib.views.memory_bars_told import MemoryBars
from lablib.views.memory_rows import OFF_SCALE, round_ticks, tick_words
from lablib.views.memory_words import amount
from lablib.views.paints import Paints
from lablib.views.palette import CATEGORIES, Theme, alarm, mixed
from lablib.views.sketch import Sketch
from lablib.views.strokes import boxes, uprights

_SMALL_PX = 14
_FOOT_PX = 124  # ticks and title of the axis, legend
_HEAD_PX = 22.0
_GAP_PX = 8.0
_PITCH_PX = (4.0, 20.0)
_LEAST_BLOCK_PX = 22.0
_PALE = 0.6
_WIDTH_PX = 760.0  # of the plot itself in a notebook, as far as words need to know it
_LETTER_PX = 6.8
_SHARE = 0.52  # of the width, for the longest bar: words stand behind it


class _Places:
    """Share out height and width, in pixels and bytes."""

    def __init__(self, rows: Sequence[MemoryBars], limit: int | None, room_px: float) -> None:
        ranks = max(len(row.states) for row in rows)
        self.pitch = float(np.clip((room_px / len(rows) - _GAP_PX) / ranks, *_PITCH_PX))
        self.bar = self.pitch - (1 if self.pitch < 10 else 3)
        self.block = max(_LEAST_BLOCK_PX, self.pitch * ranks)
        self.height = _HEAD_PX + len(rows) * (self.block + _GAP_PX)
        self._inset = (self.block - self.pitch * ranks) / 2
        longest = max(1, *(size for row in rows for size in (*row.totals, *row.peaks)))
        self.limit = limit if limit is not None and limit <= OFF_SCALE * longest else None
        self.width = max(longest, self.limit or 0) / _SHARE
        self.longest = self.width * _SHARE

    def behind(self, nbytes: int, words: str) -> float:
        """Return where words begin that stand behind a bar, or behind the limit's line where they would lie on it."""
        start = nbytes + 0.006 * self.width
        end = start + len(words.replace("<b>", "").replace("</b>", "")) * _LETTER_PX / _WIDTH_PX * self.width
        return (
            start
            if self.limit is None or not start - 0.01 * self.width < self.limit < end
            else max(start, self.limit + 0.01 * self.width)
        )

    def middle(self, block: int) -> float:
        """Return the middle of a block."""
        return _HEAD_PX + block * (self.block + _GAP_PX) + self.block / 2

    def y(self, block: int, rank: int) -> float:
        """Return the middle of a rank's bar."""
        return self.middle(block) - self.block / 2 + self._inset + self.pitch * (rank + 0.5)


def memory_bars(
    rows: Iterable[MemoryBars],
    *,
    badge: Badge,
    limit_bytes: int | None = None,
    chosen: str | None = None,
    title: str | None = None,
    theme: str | None = None,
    room_px: float = 640.0,
) -> go.Figure:
    """Draw what each rank holds after a step under DDP and each way to shard, and write what it sends.

    Args:
        rows: from top to bottom, each with its own label. Where one was measured, its bars are what was measured, the
            outline is what was predicted, and all others are pale.
        badge: how true it is.
        limit_bytes: what a device has; a limit far above everything is told in words only.
        chosen: the label that stands out.
        title: what it shows.
        theme: ``light`` or ``dark``; see `frame.chosen_theme`.
        room_px: about how many pixels the bars share; rows do not become thinner than can be seen.

    Raises:
        UsageError: there are no rows, two have the same label, or the limit is not above 0.
    """
    return sketch(
        rows, badge=badge, limit_bytes=limit_bytes, chosen=chosen, title=title, theme=theme, room_px=room_px
    ).figure()


def sketch(
    rows: Iterable[MemoryBars],
    *,
    badge: Badge,
    limit_bytes: int | None = None,
    chosen: str | None = None,
    title: str | None = None,
    theme: str | None = None,
    room_px: float = 640.0,
) -> Sketch:
    """Return the same figure for an explorer; arguments and errors as for `memory_bars`."""
    colours = chosen_theme(theme)
    shown = [*rows]
    if not shown or len({row.label for row in shown}) < len(shown):
        raise UsageError("give rows with different labels, at least one")
    if limit_bytes is not None and limit_bytes <= 0:
        raise UsageError(f"limit_bytes={limit_bytes}: a device has more than 0 bytes")
    places = _Places(shown, limit_bytes, room_px)
    ticks = round_ticks(places.longest, 6)
    return Sketch(
        traces=[
            *(_bars(shown, one, places, colours) for one in CATEGORIES),
            *keys(one for one in CATEGORIES if any(bar.get(one) for row in shown for bar in row.drawn)),
            _more(shown, places, colours),
            _outlines(shown, places, colours),
            _limit(places, colours),
            *({**one, "showlegend": False} for one in _words(shown, places, chosen, limit_bytes, colours).traces()),
        ],
        layout={
            "barmode": "overlay",
            "hovermode": "closest",
            "xaxis": {
                "range": [0.0, places.width],
                "tickvals": np.array(ticks),
                "ticktext": [tick_words(tick) for tick in ticks],
                "title": {"text": f"in a rank's memory after a step{_far(places, limit_bytes, colours)}"},
                "ticks": "outside",
                "zeroline": False,
                "automargin": True,
            },
            "yaxis": {
                "range": [places.height, 0],
                "fixedrange": True,
                "tickvals": np.array([places.middle(block) for block in range(len(shown))]),
                "ticktext": [f"<b>▶ {row.label}</b>" if row.label == chosen else row.label for row in shown],
                "showgrid": False,
                "zeroline": False,
                "automargin": True,
            },
            "showlegend": True,
            "legend": LEGEND_BELOW,
        },
        title=title or "What stays in memory, by rank",
        badge=badge,
        summary=told.summary(shown, chosen=chosen, limit=limit_bytes),
        height_px=round(places.height) + 100 + _FOOT_PX,
        theme=colours.name,
    )


def _far(places: _Places, limit: int | None, theme: Theme) -> str:
    if limit is None or places.limit is not None:
        return ""
    return f'  ·  <span style="color:{alarm(theme)}">limit of the device: {amount(limit)}, far above</span>'


def _bars(rows: Sequence[MemoryBars], category: Category, places: _Places, theme: Theme) -> dict[str, Any]:
    """Return one category of all bars."""
    below = [*CATEGORIES][: [*CATEGORIES].index(category)]
    full, pale = CATEGORIES[category], mixed(CATEGORIES[category], theme.paper, _PALE)
    any_measured = any(row.measured for row in rows)
    cells = [
        (block, rank, row, nbytes)
        for block, row in enumerate(rows)
        for rank, nbytes in enumerate(row.drawn)
        if nbytes.get(category)
    ]
    return {
        "type": "bar",
        "orientation": "h",
        "name": f"{category}, bars",
        "base": np.array([sum(nbytes.get(one, 0) for one in below) for *_, nbytes in cells], float),
        "x": np.array([nbytes[category] for *_, nbytes in cells], float),
        "y": np.array([places.y(block, rank) for block, rank, *_ in cells]),
        "width": places.bar,
        "marker": {
            **Paints(full, pale).of(pale if any_measured and not row.measured else full for _, _, row, _ in cells),
            "line": {"width": 0},
        },
        "hovertext": [told.hover(row, rank, category) for _, rank, row, _ in cells],
        "hoverinfo": "text",
        "showlegend": False,
    }


def _more(rows: Sequence[MemoryBars], places: _Places, theme: Theme) -> dict[str, Any]:
    """Return what each rank has above this at its peak."""
    cells = [
        (places.y(block, rank), row.totals[rank], max(0, peak - row.totals[rank]))
        for block, row in enumerate(rows)
        for rank, peak in enumerate(row.peaks)
    ]
    y, base, more = np.array(cells, float).reshape(-1, 3).T
    return {
        "type": "bar",
        "orientation": "h",
        "name": "more at the peak",
        "base": base,
        "x": more,
        "y": y,
        "width": places.bar,
        "marker": {"color": theme.grid, "line": {"width": 0}},
        "hoverinfo": "skip",
        "showlegend": bool(cells),
    }


def _outlines(rows: Sequence[MemoryBars], places: _Places, theme: Theme) -> dict[str, Any]:
    """Return a box for each category that was predicted where something was measured, around ranks that are alike."""
    shapes = []
    half = places.pitch / 2
    for block, row in enumerate(rows):
        predicted = list(enumerate(row.states if row.measured else ()))
        for sizes, group in groupby(predicted, key=lambda one: tuple(one[1].get(each, 0) for each in CATEGORIES)):
            alike = [rank for rank, _ in group]
            top, bottom = places.y(block, alike[0]) - half, places.y(block, alike[-1]) + half
            edges = np.cumsum([0, *sizes]).tolist()
            shapes += [(low, high, top, bottom) for low, high in pairwise(edges) if high > low]
    return {
        **boxes(*np.array(shapes, float).reshape(-1, 4).T),
        "name": "predicted",
        "line": {"color": theme.simulated, "width": LINE_PX},
        "hoverinfo": "skip",
        "showlegend": bool(shapes),
    }


def _limit(places: _Places, theme: Theme) -> dict[str, Any]:
    at = [] if places.limit is None else [places.limit]
    return {
        **uprights(at, [_HEAD_PX - 4] * len(at), [places.height] * len(at)),
        "name": "limit of the device",
        "line": {"color": alarm(theme), "width": LINE_PX + 1, "dash": "dash"},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _words(rows: Sequence[MemoryBars], places: _Places, chosen: str | None, limit: int | None, theme: Theme) -> Labels:
    styles = {
        "size": Style(TEXT_PX, theme.ink),
        "too much": Style(TEXT_PX, alarm(theme)),
        "sent": Style(TEXT_PX, theme.muted, "middle left"),
        "limit": Style(_SMALL_PX, alarm(theme), "middle center"),
    }
    labels = Labels(styles)
    for block, row in enumerate(rows):
        most = max(*row.totals, *row.peaks, 0)
        style = "too much" if limit is not None and most > limit else "size"
        labels.add(style, told.label(row), places.behind(most, told.label(row)), places.middle(block))
        labels.add("sent", told.sent(row), places.width, places.middle(block))
    if any(row.payload for row in rows):
        labels.add("sent", "sent in a step", places.width, _HEAD_PX / 2 - 2)
    if places.limit is not None:
        labels.add("limit", f"limit {amount(places.limit)}", places.limit, _HEAD_PX / 2 - 2)
    return labels
