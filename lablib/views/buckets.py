"""The life of DDP's buckets in one iteration: each fills, waits for the buckets before it, and travels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from lablib.analysis import Buckets
from lablib.analysis.buckets import buckets as table_of
from lablib.errors import UsageError
from lablib.trace import Kind, Trace
from lablib.views import bucket_words
from lablib.views.bucket_rows import Layout, Line, Row, layout_of
from lablib.views.frame import LEGEND_BELOW, LINE_PX, Badge, chosen_theme
from lablib.views.paints import Paints
from lablib.views.palette import Theme, mixed, rank_colour
from lablib.views.sketch import Sketch
from lablib.views.strokes import boxes, uprights

_FOOT_PX = 124  # ticks and title of the axis, legend
_PALE = 0.65


def buckets(
    run: Trace | Buckets,
    *,
    iteration: int | None = None,
    predicted: Trace | Buckets | None = None,
    beside: Trace | Buckets | None = None,
    badge: Badge | None = None,
    title: str | None = None,
    theme: str | None = None,
) -> go.Figure:
    """Draw when each bucket fills, waits for the buckets before it, and travels, on every rank.

    Args:
        run: what happened: a trace, or its table from `analysis.buckets`.
        iteration: which one; left out, the last.
        predicted: what should happen, drawn as an outline: the same iteration or, where it has only one, that one.
        beside: another run of the same model, hatched, in a thinner bar under each rank's own.
        badge: how true it is; left out, what the run says of itself.
        title: what it shows; left out, the iteration.
        theme: ``light`` or ``dark``; see `frame.chosen_theme`.

    Raises:
        UsageError: there are no buckets, or none in this iteration.
    """
    drawn = sketch(run, iteration=iteration, predicted=predicted, beside=beside, badge=badge, title=title, theme=theme)
    return drawn.figure()


def sketch(
    run: Trace | Buckets,
    *,
    iteration: int | None = None,
    predicted: Trace | Buckets | None = None,
    beside: Trace | Buckets | None = None,
    badge: Badge | None = None,
    title: str | None = None,
    theme: str | None = None,
) -> Sketch:
    """Return the same figure for an explorer; arguments and errors as for `buckets`."""
    colours = chosen_theme(theme)
    table = _shown(run, iteration)
    forecast = None if predicted is None else _foreseen(predicted, table.rows[0].iteration)
    other = None if beside is None else _shown(beside, table.rows[0].iteration)
    layout = layout_of(table, forecast, other)
    return Sketch(
        traces=[
            *_keys(colours, other),
            *_bars(layout.rows, table, layout, colours),
            *_bars(layout.beside, other or table, layout, colours, hatched=True),
            _uprights(layout.ticks, "a gradient is ready", colours.ink, LINE_PX),
            _uprights(layout.ends, "backward ends", colours.ink, 2 * LINE_PX),
            _outlines(layout, colours),
        ],
        layout={
            "barmode": "overlay",
            "hovermode": "closest",
            "xaxis": {
                "range": [layout.start, layout.end],
                "title": {"text": f"milliseconds since backward began  ·  {_rank_key(layout.ranks)}"},
                "ticks": "outside",
                "zeroline": False,
                "automargin": True,
            },
            "yaxis": {
                "range": [layout.height, 0],
                "fixedrange": True,
                "tickvals": np.array([middle for _, middle in layout.blocks]),
                "ticktext": [bucket_words.label(row, lines=layout.lines) for row, _ in layout.blocks],
                "showgrid": False,
                "zeroline": False,
                "automargin": True,
            },
            "showlegend": True,
            "legend": LEGEND_BELOW,
        },
        title=title or f"Buckets of iteration {table.rows[0].iteration}",
        badge=badge or Badge.of(table),
        summary=bucket_words.summary(table, forecast),
        height_px=round(layout.height) + 100 + _FOOT_PX,
        theme=colours.name,
    )


def _shown(run: Trace | Buckets, iteration: int | None) -> Buckets:
    """Return one iteration's buckets: the one asked for, or the last in which any filled."""
    if isinstance(run, Trace):
        known = [span.iteration for span in run if span.kind is Kind.BUCKET and span.iteration is not None]
        return table_of(run, iteration=max(known, default=None) if iteration is None else iteration)
    if iteration is None and not run.iterations:
        return run
    return run.only(iteration=run.iterations[-1] if iteration is None else iteration)


def _foreseen(run: Trace | Buckets, iteration: int | None) -> Buckets:
    table = table_of(run) if isinstance(run, Trace) else run
    if iteration is None or len(table.iterations) < 2:
        return table
    if iteration not in table.iterations:
        raise UsageError(f"iteration {iteration} is not predicted; {table.iterations} are")
    return table.only(iteration=iteration)


def _bars(
    rows: Sequence[Row], table: Buckets, layout: Layout, theme: Theme, *, hatched: bool = False
) -> list[dict[str, Any]]:
    """Return the three parts of all rows: pale, thin and full."""
    at = np.array([(row.at.first_ready, row.at.full, row.at.sent, row.at.done) for row in rows]).reshape(-1, 4)
    y = np.array([row.y for row in rows])
    ranks = [row.source.rank for row in rows]
    full = {rank: rank_colour(rank) for rank in layout.ranks}
    pale = {rank: mixed(colour, theme.paper, _PALE) for rank, colour in full.items()}
    hover = [bucket_words.hover(row.source, table) for row in rows]
    slots = [f"{row.source.rank} {row.source.bucket}" for row in rows]
    paints = (pale, full, full)
    bar = layout.beside_thickness if hatched else layout.thickness
    thickness = (bar, max(float(LINE_PX), bar / 4), bar)
    pattern = {"pattern": _hatch(theme)} if hatched else {}
    return [
        {
            "type": "bar",
            "orientation": "h",
            "name": f"{part}, beside" if hatched else part,
            "base": at[:, place],
            "x": at[:, place + 1] - at[:, place],
            "y": y,
            "width": thickness[place],
            "marker": {
                **Paints(*paints[place].values()).of(paints[place][rank] for rank in ranks),
                "line": {"width": 0},
                **pattern,
            },
            "hovertext": hover,
            "hoverinfo": "text",
            "showlegend": False,
            "meta": {"slots": slots},
        }
        for place, part in enumerate(("filling", "waiting", "travelling"))
    ]


def _hatch(theme: Theme) -> dict[str, Any]:
    return {"shape": "/", "fgcolor": theme.paper, "size": 5, "solidity": 0.35}


def _uprights(lines: Iterable[Line], name: str, colour: str, width: int) -> dict[str, Any]:
    places = np.array([(line.x, line.top, line.bottom) for line in lines]).reshape(-1, 3)
    return {**uprights(*places.T), "name": name, "line": {"color": colour, "width": width}, "hoverinfo": "skip"}


def _outlines(layout: Layout, theme: Theme) -> dict[str, Any]:
    """Return the predictions in the shape of the bars: a box, a line for waiting, a box."""
    shapes = [
        shape
        for one in layout.outlines
        for shape in (
            (one.at.first_ready, one.at.full, one.top, one.bottom),
            (one.at.full, one.at.sent, (one.top + one.bottom) / 2, (one.top + one.bottom) / 2),
            (one.at.sent, one.at.done, one.top, one.bottom),
        )
    ]
    return {
        **boxes(*np.array(shapes).reshape(-1, 4).T),
        "name": "predicted",
        "line": {"color": theme.simulated, "width": LINE_PX},
        "hoverinfo": "skip",
        "showlegend": bool(layout.outlines),
    }


def _keys(theme: Theme, other: Buckets | None) -> list[dict[str, Any]]:
    """Return what explains the bars in the legend: marks that are nowhere."""
    nowhere = {"x": [None], "y": [None], "hoverinfo": "skip"}
    bar = {"type": "bar", "orientation": "h", **nowhere}
    thin = {"type": "scatter", "mode": "lines", "line": {"color": theme.muted, "width": 3 * LINE_PX}, **nowhere}
    return [
        {**bar, "name": "filling: first to last gradient", "marker": {"color": mixed(theme.muted, theme.paper, _PALE)}},
        {**thin, "name": "full, waits for earlier buckets"},
        {**bar, "name": "travelling: sent to done", "marker": {"color": theme.muted}},
        {
            **bar,
            "name": f"hatched: the {other.truth} run" if other else "hatched",
            "marker": {"color": theme.muted, "pattern": _hatch(theme)},
            "showlegend": other is not None,
        },
    ]


def _rank_key(ranks: tuple[int, ...]) -> str:
    shown = " ".join(f'<span style="color:{rank_colour(rank)};font-size:22px">■</span> {rank}' for rank in ranks[:16])
    more = " …" if len(ranks) > 16 else ""
    return f"rank, top to bottom: {shown}{more}" if len(ranks) > 1 else f"rank {ranks[0]}"
