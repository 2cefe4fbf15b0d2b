"""All spans of a trace on one clock, by rank: regions, phases, layers, gradients, buckets, communication."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import plotly.graph_objects as go

from lablib.errors import UsageError
from lablib.trace import Kind, Span, Trace
from lablib.views import span_words
from lablib.views.frame import LINE_PX, TEXT_PX, Badge, chosen_theme
from lablib.views.lanes import Lanes, lanes_of
from lablib.views.paints import Paints
from lablib.views.palette import DARK, Theme, mixed, rank_colour
from lablib.views.raster import COLUMNS, raster
from lablib.views.sketch import Sketch
from lablib.views.strokes import uprights

MOST_BARS = 4000
"""Above so many spans the picture is a grid of cells: browsers take seconds for more bars."""

_FEW_BARS = 600  # of a style: up to here each has an edge
_HATCHED_PX = 12  # on thinner lanes a hatch is noise: there communication is full and the rest is pale
_STYLES: dict[str, tuple[Kind, ...]] = {
    "regions": (Kind.REGION,),
    "phases": (Kind.FORWARD, Kind.BACKWARD, Kind.OPTIMIZER),
    "compute": (Kind.COMPUTE,),
    "buckets": (Kind.BUCKET,),
    "communication": (Kind.COLLECTIVE,),
}


def timeline(
    trace: Trace,
    *,
    iteration: int | None = None,
    kinds: Iterable[Kind | str] | None = None,
    ranks: Iterable[int] | None = None,
    window_ms: tuple[float, float] | None = None,
    badge: Badge | None = None,
    title: str | None = None,
    theme: str | None = None,
) -> go.Figure:
    """Draw what every rank did when.

    Up to `MOST_BARS` spans each is a bar; more become a grid of cells with the longest span's colour and name. Ask for
    a part of it, with `window_ms` say, to see bars again.

    Args:
        trace: any trace, an empty one too.
        iteration: which one; left out, everything.
        kinds: which spans, such as ``["backward", "collective"]``; left out, all.
        ranks: which ranks; left out, all that were recorded.
        window_ms: draw only what goes on between two moments, in milliseconds since the first span.
        badge: how true it is; left out, what the trace says of itself.
        title: what it shows; left out, the iteration.
        theme: ``light`` or ``dark``; see `frame.chosen_theme`.

    Raises:
        UsageError: there is no such iteration, kind or rank, or the window ends before it starts.
    """
    return sketch(
        trace,
        iteration=iteration,
        kinds=kinds,
        ranks=ranks,
        window_ms=window_ms,
        badge=badge,
        title=title,
        theme=theme,
    ).figure()


def sketch(
    trace: Trace,
    *,
    iteration: int | None = None,
    kinds: Iterable[Kind | str] | None = None,
    ranks: Iterable[int] | None = None,
    window_ms: tuple[float, float] | None = None,
    badge: Badge | None = None,
    title: str | None = None,
    theme: str | None = None,
) -> Sketch:
    """Return the same figure for an explorer; arguments and errors as for `timeline`."""
    colours = chosen_theme(theme)
    spans = _chosen(trace, iteration, kinds, ranks)
    zero_ns = min((span.start_ns for span in spans), default=0)
    length = (max((span.end_ns for span in spans), default=zero_ns) - zero_ns) / 1e6
    start, end = (0.0, length or 1.0) if window_ms is None else window_ms
    if end <= start:
        raise UsageError(f"window_ms={window_ms!r} ends before it starts; write (from, to) in milliseconds")
    if window_ms is not None:
        spans = [one for one in spans if one.start_ns - zero_ns < end * 1e6 and one.end_ns - zero_ns > start * 1e6]
    flat = len(spans) > MOST_BARS
    lanes = lanes_of(spans, zero_ns=zero_ns, flat=flat)
    margin = 0.0 if flat else 0.01 * (end - start)
    note = f"  ·  {len(spans):,} spans, longest of each {(end - start) / COLUMNS:.3g} ms" if flat else ""
    where, names = lanes.ticks()
    return Sketch(
        traces=[
            _raster(lanes, colours, start, end, shown=flat),
            *(_bars(lanes, style, colours, zero_ns, shown=not flat) for style in _STYLES),
            _ticks(lanes, colours, shown=not flat),
            _message("" if spans else "no spans to draw", colours, (start + end) / 2, lanes.height / 2),
        ],
        layout={
            "barmode": "overlay",
            "hovermode": "closest",
            "showlegend": False,
            "uniformtext": {"minsize": TEXT_PX - 1, "mode": "hide"},
            "xaxis": {
                "range": [start - margin, end + margin],
                "title": {"text": f"milliseconds since the first span{note}"},
                "ticks": "outside",
                "zeroline": False,
                "automargin": True,
            },
            "yaxis": {
                "range": [lanes.height, 0],
                "fixedrange": True,
                "tickvals": np.array(where),
                "ticktext": names,
                "showgrid": False,
                "zeroline": False,
                "automargin": True,
            },
        },
        title=title or ("Timeline" if iteration is None else f"Timeline of iteration {iteration}"),
        badge=badge or Badge.of(trace),
        summary=span_words.summary(spans, iteration),
        height_px=round(max(lanes.height, 60)) + 150,
        theme=colours.name,
    )


def _chosen(
    trace: Trace, iteration: int | None, kinds: Iterable[Kind | str] | None, ranks: Iterable[int] | None
) -> list[Span]:
    if iteration is not None and iteration not in trace.iterations:
        raise UsageError(f"iteration {iteration} is not in this trace; {trace.iterations} are")
    try:
        wanted = set(Kind) if kinds is None else {Kind(kind) for kind in kinds}
    except ValueError as error:
        raise UsageError(f"{error}; choose from {', '.join(Kind)}") from None
    some = None if ranks is None else set(ranks)
    if some is not None and (foreign := some - {*range(trace.world_size)}):
        raise UsageError(f"ranks {sorted(foreign)} do not exist; this trace has {trace.world_size} ranks")
    return [
        span
        for span in trace
        if span.kind in wanted and iteration in (None, span.iteration) and (some is None or span.rank in some)
    ]


def _painter(theme: Theme) -> Callable[[Span], str]:
    """Return what gives a span its rank's colour: full for communication, paler for the rest."""
    pale, full = (0.75, 0.55) if theme is DARK else (0.75, 0.4)
    share = {Kind.REGION: 0.9, Kind.FORWARD: pale, Kind.OPTIMIZER: pale, Kind.BUCKET: pale, Kind.COLLECTIVE: 0.0}
    known: dict[tuple[int, Kind], str] = {}

    def paint(span: Span) -> str:
        key = span.rank, span.kind
        if key not in known:
            known[key] = mixed(rank_colour(span.rank), theme.paper, share.get(span.kind, full))
        return known[key]

    return paint


def _raster(lanes: Lanes, theme: Theme, start: float, end: float, *, shown: bool) -> dict[str, Any]:
    cells = raster(lanes, _painter(theme), theme, start=start, end=end) if shown else {"z": np.empty((0, 0))}
    return {
        "type": "heatmap",
        "name": "cells",
        **cells,
        "visible": shown,
        "showscale": False,
        "hoverongaps": False,
        "hovertemplate": "%{text}<br>at %{x:.3f} ms<extra></extra>",
    }


def _bars(lanes: Lanes, style: str, theme: Theme, zero_ns: int, *, shown: bool) -> dict[str, Any]:
    """Return the spans of one style as bars."""
    mine = [i for i, span in enumerate(lanes.spans) if span.kind in _STYLES[style]] if shown else []
    spans = [lanes.spans[i] for i in mine]
    paint = _painter(theme)
    fills = [paint(span) for span in spans]
    edges = [rank_colour(span.rank) for span in spans]
    line = {**Paints(theme.paper, *edges).of(edges), "width": LINE_PX if len(spans) <= _FEW_BARS else 0}
    look = {**Paints(theme.paper, *fills).of(fills), "line": line}
    if style == "communication":
        shape = "/" if lanes.pitch >= _HATCHED_PX else ""
        look["pattern"] = {"shape": shape, "size": 8, "solidity": 0.15, "fillmode": "replace", "bgcolor": theme.panel}
    return {
        "type": "bar",
        "orientation": "h",
        "name": style,
        "base": lanes.start[mine],
        "x": lanes.end[mine] - lanes.start[mine],
        "y": lanes.y[mine],
        "width": lanes.pitch - (3 if lanes.pitch >= _HATCHED_PX else 1),
        "marker": look,
        "text": [span_words.label(span) for span in spans],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"size": TEXT_PX - 1, "color": theme.ink},
        "hovertext": [span_words.hover(span, zero_ns) for span in spans],
        "hoverinfo": "text",
    }


def _ticks(lanes: Lanes, theme: Theme, *, shown: bool) -> dict[str, Any]:
    """Return the moments at which gradients are ready, as upright lines."""
    mine = [i for i, span in enumerate(lanes.spans) if span.kind is Kind.GRADIENT] if shown else []
    x, y, half = lanes.start[mine], lanes.y[mine], lanes.pitch / 2 - 1
    names = [f"rank {lanes.spans[i].rank}: gradient of {span_words.label(lanes.spans[i])} is ready" for i in mine]
    return {
        **uprights(x, y - half, y + half),
        "name": "gradients",
        "line": {"color": theme.ink, "width": LINE_PX},
        "hovertext": [text for name in names for text in (name, name, "")],
        "hoverinfo": "text",
    }


def _message(text: str, theme: Theme, x: float, y: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "text",
        "name": "message",
        "x": np.array([x]),
        "y": np.array([y]),
        "text": [text],
        "textfont": {"size": TEXT_PX, "color": theme.muted},
        "hoverinfo": "skip",
    }
