"""Who holds what before, during and after a collective: a row for each rank, a tile for each piece of its tensor.

A tile has the colour of the rank its values come from. Values that several ranks made have a ribbon of their colours.
The figure has the same traces for every call, so that an explorer can change it in place.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from lablib.sim import Agreement, Placement, Tile, Undefined
from lablib.views import tile_words
from lablib.views.frame import LINE_PX, TEXT_PX, Badge, chosen_theme
from lablib.views.paints import Paints
from lablib.views.palette import HUES, Theme, alarm, rank_colour, text_on
from lablib.views.sketch import Sketch
from lablib.views.tile_grid import FOOT, WIDTH, Arc, Grid, Panel, Spot, grid_of

_SMALL_PX = 14
_HEAD_PX = 17
_text_on = lru_cache(text_on)
_rank_colour = lru_cache(rank_colour)
_CURVE = np.linspace(0, 1, 17)


def tiles(
    placement: Placement,
    *,
    step: int | None = None,
    measured: Agreement | None = None,
    badge: Badge | None = None,
    title: str | None = None,
    theme: str | None = None,
) -> go.Figure:
    """Draw what every rank holds before, during and after a call.

    Args:
        placement: the prediction.
        step: how many steps are done in the middle panel, 0 for the start; left out, half of them.
        measured: what real ranks ended with; it is written into the last panel, and differences are marked.
        badge: how true it is; left out, simulated.
        title: what it shows; left out, the call.
        theme: ``light`` or ``dark``; see `frame.chosen_theme`.

    Raises UsageError for a step that does not exist.
    """
    return sketch(placement, step=step, measured=measured, badge=badge, title=title, theme=theme).figure()


def sketch(
    placement: Placement,
    *,
    step: int | None = None,
    measured: Agreement | None = None,
    badge: Badge | None = None,
    title: str | None = None,
    theme: str | None = None,
) -> Sketch:
    """Return the same figure for an explorer; arguments and errors as for `tiles`."""
    colours = chosen_theme(theme)
    step = (len(placement.steps) + 1) // 2 if step is None else step
    grid = grid_of(placement, step=step, measured=measured)
    labels = _Labels(colours)
    _write_heads(labels, placement, grid, step, measured)
    _write_rows(labels, placement, grid)
    for line, text in enumerate(tile_words.legend(grid, measured)):
        labels.add("small", text, 0, grid.height - FOOT + 14 + 20 * line)
    return Sketch(
        traces=[
            _bodies(grid, colours, hatched=False),
            _bodies(grid, colours, hatched=True),
            _ribbons(placement, grid),
            *(_values(grid, colours, text) for text in sorted({_text_on(colours.paper), _text_on(colours.ink)})),
            *labels.traces(),
            *(_arcs(hue, grid.arcs) for hue in range(len(HUES))),
            _heads(grid.arcs, len(grid.rows)),
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
        title=title or escape(placement.call.code, quote=False),
        badge=badge or Badge("simulated", placement.call.world_size),
        summary=tile_words.summary(placement, step, measured),
        height_px=round(grid.height) + 100,
        theme=colours.name,
    )


class _Labels:
    """Collect all writing that is not in a tile: one trace for each style, styles for single words are slow."""

    def __init__(self, theme: Theme) -> None:
        left, right = "middle right", "middle left"  # where the word lies, seen from its point
        self._styles = {
            "head": (_HEAD_PX, theme.ink, left),
            "last head": (_HEAD_PX, theme.ink, right),
            "plain": (TEXT_PX, theme.ink, left),
            "number": (TEXT_PX, theme.ink, right),
            "small": (_SMALL_PX, theme.muted, left),
            "small number": (_SMALL_PX, theme.muted, right),
            "right": (_SMALL_PX, theme.real, left),
            "near": (_SMALL_PX, theme.emulated, left),
            "wrong": (_SMALL_PX, alarm(theme), left),
        }
        self._words: dict[str, list[tuple[float, float, str]]] = {style: [] for style in self._styles}

    def add(self, style: str, text: str, x: float, y: float) -> None:
        if text:  # plotly loses the place of an empty word: what stands there later is not drawn
            self._words[style].append((x, y, text))

    def traces(self) -> list[dict[str, Any]]:
        return [
            {
                "type": "scatter",
                "name": f"labels, {style}",
                "mode": "text",
                "x": np.array([word[0] for word in self._words[style]]),
                "y": np.array([word[1] for word in self._words[style]]),
                "text": [word[2] for word in self._words[style]],
                "textposition": position,
                "textfont": {"size": size, "color": colour},
                "hoverinfo": "skip",
                "cliponaxis": False,
            }
            for style, (size, colour, position) in self._styles.items()
        ]


def _write_heads(labels: _Labels, placement: Placement, grid: Grid, step: int, measured: Agreement | None) -> None:
    steps = len(placement.steps)
    style, *outcome = tile_words.verdict(measured)
    heads: list[tuple[Panel, str, str, Iterable[str]]] = [
        ("before", "before", "small", ("what each", "rank brings")),
        (
            "during",
            f"step {step} of {steps}" if steps else "nothing travels",
            "small",
            tile_words.news(placement, step),
        ),
        ("after", "after", style, outcome),
    ]
    for panel, head, style, lines in heads:
        labels.add("head", f"<b>{head}</b>", grid.left[panel] - 4, 12)
        for line, text in enumerate(lines):
            labels.add(style, text, grid.left[panel] - 4, 36 + 19 * line)
    labels.add("last head", "<b>bytes</b>", grid.received_x, 12)
    for head, x in (("out", grid.sent_x), ("in", grid.received_x)):
        labels.add("small number", head, x, 55)


def _write_rows(labels: _Labels, placement: Placement, grid: Grid) -> None:
    for rank, top in enumerate(grid.rows):
        role = tile_words.role(placement, rank)
        style, number = ("plain", "number") if rank in placement.call.group else ("small", "small number")
        middle = top + grid.tile_height / 2
        labels.add(style, f"<b>rank {rank}</b>", 14, middle - (9 if role else 0))
        if role:
            labels.add("small", role, 14, middle + 10)
        for x, counts in ((grid.sent_x, placement.sent), (grid.received_x, placement.received)):
            labels.add(number, f"{counts[rank]:,}", x, middle)


def _bodies(grid: Grid, theme: Theme, *, hatched: bool) -> dict[str, Any]:
    """Return the tiles that may be read, or those that may not, as bars."""
    spots = [spot for spot in grid.spots if isinstance(spot.content, Undefined) == hatched]
    fills = [
        *(_rank_colour(rank) for rank in range(len(grid.rows))),
        theme.grid,
        theme.panel,
        theme.paper,
        alarm(theme),
    ]
    edges = [_edge(spot, theme) for spot in spots]
    marker = Paints(*fills).of(_fill(spot, theme) for spot in spots)
    line = Paints(theme.ink, theme.grid, theme.muted, theme.real, theme.emulated).of(colour for colour, _ in edges)
    if hatched:
        marker["pattern"] = {"shape": "/", "fgcolor": theme.grid, "size": 10, "solidity": 0.25}
    return {
        **_bars(np.array([[spot.x, spot.width, spot.y, spot.height] for spot in spots])),
        "name": "tiles not to read" if hatched else "tiles",
        "marker": {**marker, "line": {**line, "width": np.array([width for _, width in edges])}},
        "hovertext": [spot.hover for spot in spots],
        "hoverinfo": "text",
        "meta": {"slots": [f"{spot.panel} {spot.rank} {spot.slot}" for spot in spots]},
    }


def _bars(boxes: NDArray[np.float64]) -> dict[str, Any]:
    """Return bars from rows of left, width, top and height."""
    left, width, top, height = boxes.reshape(-1, 4).T
    return {"type": "bar", "x": left + width / 2, "width": width, "base": top, "y": height}


def _fill(spot: Spot, theme: Theme) -> str:
    if spot.measured is not None and spot.measured.verdict == "different":
        return alarm(theme)
    if spot.outside:
        return theme.grid
    if spot.combined:
        return theme.panel
    if isinstance(spot.content, Tile) and spot.content.values:
        return _rank_colour(min(spot.content.ranks))
    return theme.paper


def _edge(spot: Spot, theme: Theme) -> tuple[str, float]:
    if spot.measured is not None:
        loud = {"different": (theme.ink, 4.0), "rounding": (theme.emulated, 3.0), "equal": (theme.real, 3.0)}
        return loud.get(spot.measured.verdict, (theme.muted, float(LINE_PX)))
    return (theme.ink, 4.0) if spot.arrived else (theme.grid, float(LINE_PX))


def _ribbons(placement: Placement, grid: Grid) -> dict[str, Any]:
    """Return the colours of the contributors, and of each rank before its row."""
    group = placement.call.group
    bars = [(0.0, 6.0, top, grid.tile_height, rank) for rank, top in enumerate(grid.rows)]
    for spot in grid.spots:
        if spot.combined and isinstance(spot.content, Tile):
            wide, top = (spot.width - 4) / len(group), spot.y + spot.height - spot.ribbon - 2
            bars += [
                (spot.x + 2 + wide * position, wide, top, spot.ribbon, rank)
                for position, rank in enumerate(group)
                if rank in spot.content.ranks
            ]
    colours = [_rank_colour(rank) for rank in range(len(grid.rows))]
    return {
        **_bars(np.array([bar[:4] for bar in bars])),
        "name": "contributors",
        "marker": {**Paints(*colours).of(colours[bar[4]] for bar in bars), "line": {"width": 0}},
        "hoverinfo": "skip",
    }


def _values(grid: Grid, theme: Theme, colour: str) -> dict[str, Any]:
    """Return the numbers in the tiles on which this colour of text reads best."""
    spots = [spot for spot in grid.spots if spot.text and _text_on(_fill(spot, theme)) == colour]
    return {
        "type": "scatter",
        "name": "values",
        "mode": "text",
        "x": np.array([spot.x + spot.width / 2 for spot in spots]),
        "y": np.array([spot.y + (spot.height - spot.ribbon) / 2 for spot in spots]),
        "text": [spot.text for spot in spots],
        "textposition": "middle center",
        "textfont": {"size": _SMALL_PX, "color": colour},
        "hoverinfo": "skip",
        "meta": {"slots": [f"{spot.panel} {spot.rank} {spot.slot}" for spot in spots]},
    }


def _arcs(hue: int, arcs: tuple[Arc, ...]) -> dict[str, Any]:
    """Return the messages of the ranks that have this hue, as curves."""
    mine = [arc for arc in arcs if arc.move.source % len(HUES) == hue]
    x = [np.append(arc.x + 3 * arc.bulge * _CURVE * (1 - _CURVE), np.nan) for arc in mine]
    y = [np.append(arc.y_from + (arc.y_to - arc.y_from) * _CURVE**2 * (3 - 2 * _CURVE), np.nan) for arc in mine]
    return {
        "type": "scatter",
        "name": "messages",
        "mode": "lines",
        "x": np.concatenate([*x, []]),
        "y": np.concatenate([*y, []]),
        "line": {"color": HUES[hue], "width": 3},
        "hoverinfo": "skip",
    }


def _heads(arcs: tuple[Arc, ...], ranks: int) -> dict[str, Any]:
    """Return the arrow head of each message."""
    colours = [_rank_colour(rank) for rank in range(ranks)]
    about = [
        f"rank {arc.move.source} → rank {arc.move.target}: piece {arc.move.piece}, {arc.move.nbytes:,} B"
        + (", combined with what is there" if arc.move.combines else "")
        for arc in arcs
    ]
    return {
        "type": "scatter",
        "name": "arrows",
        "mode": "markers",
        "x": np.array([arc.x + 5 for arc in arcs]),
        "y": np.array([arc.y_to for arc in arcs]),
        "marker": {
            "symbol": "triangle-left",
            "size": 14,
            **Paints(*colours).of(colours[arc.move.source] for arc in arcs),
        },
        "hovertext": about,
        "hoverinfo": "text",
    }
