"""What is in each rank's memory over time: areas by category, one on the other, as steps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import plotly.graph_objects as go

from lablib.errors import UsageError
from lablib.trace import MemorySample, Trace
from lablib.views import memory_areas, memory_marks
from lablib.views.frame import LEGEND_BELOW, Badge, chosen_theme
from lablib.views.memory_predicted import Predicted, totals
from lablib.views.memory_rows import layout_of, tick_words
from lablib.views.memory_told import summary
from lablib.views.palette import CATEGORIES
from lablib.views.sketch import Sketch

_FOOT_PX = 124  # ticks and title of the axis, legend


def memory(
    run: Trace,
    *,
    iteration: int | None = None,
    ranks: Iterable[int] | None = None,
    predicted: Predicted | None = None,
    limit_bytes: int | None = None,
    timed: bool | None = None,
    badge: Badge | None = None,
    title: str | None = None,
    theme: str | None = None,
) -> go.Figure:
    """Draw what is in each rank's memory over time, by category, and mark the peak.

    Args:
        run: a trace with samples of memory, as ``run(fn, memory=True).trace`` has.
        iteration: which one; left out, everything.
        ranks: which ranks; left out, all that have samples.
        predicted: what should be there, as an outline: a trace, whose total is laid over the same phases of the same
            iteration or, where it has only one, of the last; or bytes by category, for all ranks or by rank.
        limit_bytes: what a device has; a limit far above everything is told in words only.
        timed: whether x is time; otherwise all changes are as wide, so that short ones can be seen. Left out, it is
            time where the trace is not simulated.
        badge: how true it is; left out, what the trace says of itself.
        title: what it shows; left out, the iteration.
        theme: ``light`` or ``dark``; see `frame.chosen_theme`.

    Raises:
        UsageError: there are no samples, none in this iteration or of these ranks, or the limit is not above 0.
    """
    return sketch(
        run,
        iteration=iteration,
        ranks=ranks,
        predicted=predicted,
        limit_bytes=limit_bytes,
        timed=timed,
        badge=badge,
        title=title,
        theme=theme,
    ).figure()


def sketch(
    run: Trace,
    *,
    iteration: int | None = None,
    ranks: Iterable[int] | None = None,
    predicted: Predicted | None = None,
    limit_bytes: int | None = None,
    timed: bool | None = None,
    badge: Badge | None = None,
    title: str | None = None,
    theme: str | None = None,
) -> Sketch:
    """Return the same figure for an explorer; arguments and errors as for `memory`."""
    colours = chosen_theme(theme)
    samples = _chosen(run, iteration, ranks)
    if limit_bytes is not None and limit_bytes <= 0:
        raise UsageError(f"limit_bytes={limit_bytes}: a device has more than 0 bytes")
    timed = run.truth != "simulated" if timed is None else timed
    shown = sorted({sample.rank for sample in samples})
    layout = layout_of(samples, timed=timed, limit=limit_bytes, others=totals(predicted, shown))
    drawn = [sample for row in layout.rows for sample in row.samples]
    ticks = [(float(layout.y(row, at)), row.rank, at) for row in layout.rows for at in layout.ticks]
    return Sketch(
        traces=[
            *(memory_areas.area(layout, place, one) for place, one in enumerate(CATEGORIES)),
            *memory_areas.keys(one for place, one in enumerate(CATEGORIES) if memory_areas.held(layout, place)),
            memory_areas.allocator(
                layout, "reserved", "dot", colours, shown=any(one.reserved is not None for one in drawn)
            ),
            memory_areas.allocator(
                layout, "allocated", "solid", colours, shown=any(one.allocated is not None for one in drawn)
            ),
            memory_marks.modules(layout, colours),
            memory_marks.phases(layout, colours),
            *memory_marks.prediction(predicted, layout, colours),
            memory_marks.limit_line(layout, limit_bytes, colours),
            memory_marks.peaks(layout, colours),
            memory_areas.hover(layout),
            *({**one, "showlegend": False} for one in memory_marks.words(layout, limit_bytes, colours).traces()),
        ],
        layout={
            "hovermode": "closest",
            "hoverdistance": 60,
            "xaxis": {
                "range": [0.0, layout.end],
                "title": {"text": f"{_clock(timed)}{memory_marks.above(layout, limit_bytes, colours)}"},
                "ticks": "outside" if timed else "",
                "showticklabels": timed,
                "showgrid": False,
                "zeroline": False,
                "automargin": True,
            },
            "yaxis": {
                "range": [layout.height, 0],
                "fixedrange": True,
                "tickvals": np.array([y for y, _, _ in ticks]),
                "ticktext": [tick_words(at) if at else f"<b>rank {rank}</b>   0" for _, rank, at in ticks],
                "zeroline": False,
                "automargin": True,
            },
            "showlegend": True,
            "legend": LEGEND_BELOW,
        },
        title=title or ("Memory" if iteration is None else f"Memory in iteration {iteration}"),
        badge=badge or Badge.of(run),
        summary=summary(samples, iteration=iteration, predicted=predicted, limit=limit_bytes),
        height_px=round(layout.height) + 100 + _FOOT_PX,
        theme=colours.name,
    )


def _clock(timed: bool) -> str:
    if timed:
        return "milliseconds since the first sample: watching memory makes steps slower"
    return "changes, one after the other: how long each takes is not shown"


def _chosen(run: Trace, iteration: int | None, ranks: Iterable[int] | None) -> list[MemorySample]:
    if not run.memory:
        raise UsageError("this trace has no samples of memory: run with memory=True")
    known = sorted({one.iteration for one in run.memory if one.iteration is not None})
    if iteration is not None and iteration not in known:
        raise UsageError(f"memory of iteration {iteration} is not in this trace; {known} are")
    some = None if ranks is None else set(ranks)
    if some is not None and (foreign := some - {one.rank for one in run.memory}):
        raise UsageError(f"ranks {sorted(foreign)} have no samples of memory")
    return [one for one in run.memory if iteration in (None, one.iteration) and (some is None or one.rank in some)]
