"""Bytes that a step moves, by kind: a row for each way to train, its kinds side by side.

2 replicas, DataParallel  [parameters      ][gradients       ]▌
2 ranks, DDP              [gradients       ]
                          0               4               8  MiB
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

from lablib.errors import UsageError
from lablib.views.frame import LINE_PX, TEXT_PX, Badge, chosen_theme
from lablib.views.palette import DARK, HUES, PATTERNS, Theme, mixed
from lablib.views.sketch import Sketch

MIB = 1 << 20

_ROW_PX = 40
_FOOT_PX = 96  # ticks and title of the axis, legend
_ROOM = 1.16  # of the longest row, for the number behind it

Rows = Mapping[str, Mapping[str, float]]


def moved(
    rows: Rows, *, badge: Badge, title: str | None = None, unit: str = "MiB in one step", theme: str | None = None
) -> go.Figure:
    """Draw how many bytes of which kind are moved.

    Args:
        rows: bytes by kind for each row by name; a kind has the same colour in all rows.
        badge: how true it is.
        title: what it shows.
        unit: what stands below the axis, which is in MiB.
        theme: ``light`` or ``dark``; see `frame.chosen_theme`.

    Raises:
        UsageError: there is nothing to draw, or a number of bytes is none.
    """
    return sketch(rows, badge=badge, title=title, unit=unit, theme=theme).figure()


def sketch(
    rows: Rows, *, badge: Badge, title: str | None = None, unit: str = "MiB in one step", theme: str | None = None
) -> Sketch:
    """Return the same figure for an explorer; arguments and errors as for `moved`."""
    colours = chosen_theme(theme)
    kinds = list(dict.fromkeys(kind for row in rows.values() for kind in row))
    if not kinds:
        raise UsageError("there are no bytes to draw")
    for name, row in rows.items():
        if wrong := [kind for kind, nbytes in row.items() if not 0 <= nbytes < math.inf]:
            raise UsageError(f"{name}, {wrong[0]}: a number of bytes is from 0 on")
    y = _ROW_PX * (np.arange(len(rows)) + 0.5)
    height = _ROW_PX * len(rows)
    totals = np.array([sum(row.values()) for row in rows.values()]) / MIB
    return Sketch(
        traces=[
            *(_bars(rows, kind, place, kinds[:place], y, colours) for place, kind in enumerate(kinds)),
            _numbers(totals, y, colours),
        ],
        layout={
            "barmode": "overlay",
            "hovermode": "closest",
            "xaxis": {
                "range": [0, _ROOM * float(totals.max()) or 1.0],
                "title": {"text": unit},
                "ticks": "outside",
                "zeroline": False,
                "automargin": True,
            },
            "yaxis": {
                "range": [height, 0],
                "fixedrange": True,
                "tickvals": y,
                "ticktext": list(rows),
                "showgrid": False,
                "zeroline": False,
                "automargin": True,
            },
            "showlegend": True,
            "legend": {
                "orientation": "h",
                "x": 0,
                "y": -(_FOOT_PX - 32) / height,
                "yanchor": "top",
                "traceorder": "normal",
                "itemclick": False,
                "itemdoubleclick": False,
            },
        },
        title=title or "Bytes that a step moves",
        badge=badge,
        summary="; ".join(_told(name, row) for name, row in rows.items()),
        height_px=height + 100 + _FOOT_PX,
        theme=colours.name,
    )


def _bars(rows: Rows, kind: str, place: int, before: list[str], y: Any, theme: Theme) -> dict[str, Any]:
    colour = HUES[place % len(HUES)]
    lengths = np.array([row.get(kind, 0) for row in rows.values()]) / MIB
    return {
        "type": "bar",
        "orientation": "h",
        "name": kind,
        "base": np.array([sum(row.get(other, 0) for other in before) for row in rows.values()]) / MIB,
        "x": lengths,
        "y": y,
        "width": _ROW_PX - 12,
        "marker": {
            "color": mixed(colour, theme.paper, 0.3 if theme is DARK else 0.15),
            "line": {"color": theme.paper, "width": LINE_PX},
            "pattern": {"shape": PATTERNS[place % len(PATTERNS)], "size": 8, "solidity": 0.2},
        },
        "hovertext": [f"{name}<br>{kind}: {row.get(kind, 0):,.0f} B" for name, row in rows.items()],
        "hoverinfo": "text",
    }


def _numbers(totals: Any, y: Any, theme: Theme) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "text",
        "name": "totals",
        "x": totals + 0.01 * float(totals.max()),
        "y": y,
        "text": [f"<b>{total:.3g}</b> MiB" for total in totals],
        "textposition": "middle right",
        "textfont": {"size": TEXT_PX, "color": theme.ink},
        "cliponaxis": False,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _told(name: str, row: Mapping[str, float]) -> str:
    kinds = ", ".join(f"{kind} {nbytes / MIB:.3g}" for kind, nbytes in row.items() if nbytes)
    return f"{name}: {sum(row.values()) / MIB:.3g} MiB" + (f" ({kinds})" if kinds else "")
