"""How much communication is hidden behind compute: a row for each rank, a block for each iteration.

rank 0  [compute                    ]              times added up, in no order: this is no timeline
                      [//hidden/////|exposed]      0.55  11.0 of 20.0 ms
                                  │ best possible
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from lablib.analysis import Overlap
from lablib.analysis.overlap import overlap as rows_of
from lablib.errors import UsageError
from lablib.trace import Kind, Trace
from lablib.views import overlap_words
from lablib.views.frame import LEGEND_BELOW, LINE_PX, TEXT_PX, Badge, chosen_theme
from lablib.views.paints import Paints
from lablib.views.palette import Theme, mixed, rank_colour
from lablib.views.sketch import Sketch
from lablib.views.strokes import boxes, uprights

_ROOM_PX = 960.0
_ROW_PX = (12.0, 44.0)
_GAP_PX = 12.0  # between iterations
_FOOT_PX = 124  # ticks and title of the axis, legend
_LABEL_PX = 19.0
_PALE = 0.65
_TEXT_ROOM = 0.34  # of the width of the longest row, for what stands behind it


def overlap(
    run: Trace | Sequence[Overlap],
    *,
    iteration: int | None = None,
    predicted: Trace | Sequence[Overlap] | None = None,
    badge: Badge | None = None,
    title: str | None = None,
    theme: str | None = None,
) -> go.Figure:
    """Draw compute, hidden and exposed communication of every rank, and the best that is possible.

    Args:
        run: what happened: a trace, or rows of `analysis.overlap`.
        iteration: which one; left out, each of a trace, or all rows.
        predicted: what should happen, drawn as an outline where it has the same rank and iteration.
        badge: how true it is; left out, what the trace says of itself.
        title: what it shows.
        theme: ``light`` or ``dark``; see `frame.chosen_theme`.

    Raises:
        UsageError: there is nothing to draw, or rows come without a badge.
    """
    return sketch(run, iteration=iteration, predicted=predicted, badge=badge, title=title, theme=theme).figure()


def sketch(
    run: Trace | Sequence[Overlap],
    *,
    iteration: int | None = None,
    predicted: Trace | Sequence[Overlap] | None = None,
    badge: Badge | None = None,
    title: str | None = None,
    theme: str | None = None,
) -> Sketch:
    """Return the same figure for an explorer; arguments and errors as for `overlap`."""
    colours = chosen_theme(theme)
    rows = _rows(run, iteration)
    if badge is None:
        if not isinstance(run, Trace):
            raise UsageError("rows do not say where they come from: give badge=Badge.of(trace), or the trace itself")
        badge = Badge.of(run)
    foreseen = [] if predicted is None else _rows(predicted, iteration)
    y, pitch, height = _places(rows)
    known = {(row.rank, row.iteration): place for row, place in zip(rows, y.tolist(), strict=True)}
    both = [(row, known[row.rank, row.iteration]) for row in foreseen if (row.rank, row.iteration) in known]
    longest = max(row.worst_ns for row in (*rows, *(row for row, _ in both))) / 1e6 or 1.0
    where, names = _labels(rows, y)
    return Sketch(
        traces=[
            *_keys(colours),
            *_bars(rows, y, pitch, colours),
            _limits([row.best_ns for row in rows], y, pitch, "best possible", colours.ink, "solid"),
            _limits([row.worst_ns for row in rows], y, pitch, "with nothing hidden", colours.muted, "dot"),
            _outlines(both, pitch, colours),
            _numbers(rows, y, colours),
        ],
        layout={
            "barmode": "overlay",
            "hovermode": "closest",
            "xaxis": {
                "range": [0, longest * (1 + _TEXT_ROOM)],
                "title": {
                    "text": "milliseconds, added up  ·  number: hidden ÷ the shorter of compute and communication"
                },
                "ticks": "outside",
                "zeroline": False,
                "automargin": True,
            },
            "yaxis": {
                "range": [height, 0],
                "fixedrange": True,
                "tickvals": np.array(where),
                "ticktext": names,
                "showgrid": False,
                "zeroline": False,
                "automargin": True,
            },
            "showlegend": True,
            "legend": LEGEND_BELOW,
        },
        title=title or "Communication hidden behind compute",
        badge=badge,
        summary=overlap_words.summary(rows, foreseen),
        height_px=round(height) + 100 + _FOOT_PX,
        theme=colours.name,
    )


def _rows(run: Trace | Sequence[Overlap], iteration: int | None) -> list[Overlap]:
    if not isinstance(run, Trace):
        rows = [row for row in run if iteration in (None, row.iteration)]
        if not rows:
            raise UsageError("there are no rows to draw" + ("" if iteration is None else f" of iteration {iteration}"))
        return sorted(rows, key=lambda row: (-1 if row.iteration is None else row.iteration, row.rank))
    known = {span.iteration for span in run if span.kind is not Kind.REGION and span.iteration is not None}
    if iteration is not None or not known:
        return rows_of(run, iteration=iteration)
    return [row for one in sorted(known) for row in rows_of(run, iteration=one)]


def _places(rows: Sequence[Overlap]) -> tuple[NDArray[np.float64], float, float]:
    """Return the middle of each row, the height of one, and of all."""
    iterations = [row.iteration for row in rows]
    begins = np.array([place > 0 and iterations[place - 1] != one for place, one in enumerate(iterations)])
    pitch = min(_ROW_PX[1], max(_ROW_PX[0], (_ROOM_PX - _GAP_PX * begins.sum()) / len(rows)))
    y = _GAP_PX / 2 + pitch * (np.arange(len(rows)) + 0.5) + _GAP_PX * np.cumsum(begins)
    return y, pitch, float(y[-1] + pitch / 2 + _GAP_PX / 2)


def _labels(rows: Sequence[Overlap], y: NDArray[np.float64]) -> tuple[list[float], list[str]]:
    """Return what stands before the rows, as far as there is room."""
    where: list[float] = []
    names = []
    before: int | None = -1
    for row, place in zip(rows, y.tolist(), strict=True):
        first = row.iteration != before
        before = row.iteration
        if first or not where or place - where[-1] >= _LABEL_PX:
            head = f"<b>iteration {row.iteration}</b>  " if first and row.iteration is not None else ""
            names.append(f"{head}rank {row.rank}")
            where.append(place)
    return where, names


def _bars(rows: Sequence[Overlap], y: NDArray[np.float64], pitch: float, theme: Theme) -> list[dict[str, Any]]:
    """Return compute in the upper half of each row, communication in the lower one."""
    compute, hidden, exposed = (
        np.array([getattr(row, part) for row in rows]) / 1e6 for part in ("compute_ns", "hidden_ns", "exposed_ns")
    )
    full = [rank_colour(row.rank) for row in rows]
    pale = [mixed(colour, theme.paper, _PALE) for colour in full]
    half = (pitch - 4) / 2
    parts = (
        ("compute", 0 * compute, compute, y - half / 2, pale),
        ("hidden", compute - hidden, hidden, y + half / 2, full),
        ("exposed", compute, exposed, y + half / 2, full),
    )
    hover = [overlap_words.hover(row) for row in rows]
    return [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "base": base,
            "x": length,
            "y": middle,
            "width": half,
            "marker": {
                **Paints(*colours).of(colours),
                "line": {"width": 0},
                **({"pattern": _hatch(theme)} if name == "hidden" else {}),
            },
            "hovertext": hover,
            "hoverinfo": "text",
            "showlegend": False,
            "meta": {"slots": [f"{row.iteration} {row.rank}" for row in rows]},
        }
        for name, base, length, middle, colours in parts
    ]


def _hatch(theme: Theme) -> dict[str, Any]:
    return {"shape": "/", "size": 8, "solidity": 0.3, "fillmode": "replace", "bgcolor": theme.panel}


def _limits(
    moments_ns: Iterable[int], y: NDArray[np.float64], pitch: float, name: str, colour: str, dash: str
) -> dict[str, Any]:
    return {
        **uprights(np.array([*moments_ns]) / 1e6, y - pitch / 2, y + pitch / 2),
        "name": name,
        "line": {"color": colour, "width": LINE_PX + 1, "dash": dash},
        "hoverinfo": "skip",
    }


def _outlines(rows: Sequence[tuple[Overlap, float]], pitch: float, theme: Theme) -> dict[str, Any]:
    """Return what was predicted: a box around compute, another around communication."""
    half = pitch / 2 - 1
    shapes = [
        shape
        for row, middle in rows
        for shape in (
            (0, row.compute_ns / 1e6, middle - half, middle),
            ((row.compute_ns - row.hidden_ns) / 1e6, row.busy_ns / 1e6, middle, middle + half),
        )
    ]
    return {
        **boxes(*np.array(shapes).reshape(-1, 4).T),
        "name": "predicted",
        "line": {"color": theme.simulated, "width": LINE_PX},
        "hoverinfo": "skip",
        "showlegend": bool(rows),
    }


def _numbers(rows: Sequence[Overlap], y: NDArray[np.float64], theme: Theme) -> dict[str, Any]:
    """Return the coefficient behind each row, as far as there is room."""
    shown = [0]
    for place in range(1, len(rows)):
        if y[place] - y[shown[-1]] >= _LABEL_PX:
            shown.append(place)
    longest = max(row.worst_ns for row in rows) / 1e6
    return {
        "type": "scatter",
        "mode": "text",
        "name": "coefficients",
        "x": np.array([rows[place].worst_ns / 1e6 + 0.01 * longest for place in shown]),
        "y": y[shown],
        "text": [overlap_words.number(rows[place]) for place in shown],
        "textposition": "middle right",
        "textfont": {"size": TEXT_PX, "color": theme.ink},
        "cliponaxis": False,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _keys(theme: Theme) -> list[dict[str, Any]]:
    """Return what explains the bars in the legend: bars that are nowhere."""
    looks: tuple[tuple[str, dict[str, Any]], ...] = (
        ("compute", {"color": mixed(theme.muted, theme.paper, _PALE)}),
        ("communication, hidden", {"color": theme.muted, "pattern": _hatch(theme)}),
        ("communication, exposed", {"color": theme.muted}),
    )
    nowhere = {"type": "bar", "orientation": "h", "x": [None], "y": [None], "hoverinfo": "skip"}
    return [{**nowhere, "name": name, "marker": look} for name, look in looks]
