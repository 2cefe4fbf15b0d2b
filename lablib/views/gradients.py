"""Gradients of a model with two parameters, as arrows: each rank's own, the true one, and what averaging made of them.

╲ rank 1            with two ranks, every weighted mean ends on the dotted line between their tips
 ╲  ····◇◎····
  ╲          ····  rank 0
   ●──────────────►
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from lablib.errors import UsageError
from lablib.views.frame import LINE_PX, TEXT_PX, Badge, chosen_theme
from lablib.views.palette import Theme, rank_colour, rank_dash
from lablib.views.sketch import Sketch

_PLOT_PX = 430
_TICKS_PX = 64  # ticks and title of the axis
_FOOT_PX = 120  # these, and the legend
_ROOM = 0.14  # of the longer side, around the arrows
_TWO = 2
_SIGNS = ("diamond", "circle-open", "square-open", "triangle-up-open")

Arrow = Sequence[float]


def gradients(
    own: Sequence[Arrow],
    *,
    true: Arrow,
    means: Mapping[str, Arrow],
    badge: Badge,
    labels: Sequence[str] = (),
    axes: tuple[str, str] | Sequence[str] = ("first parameter", "second parameter"),
    title: str | None = None,
    theme: str | None = None,
) -> go.Figure:
    """Draw each rank's gradient, the true one, and the means that ranks came to.

    Args:
        own: each rank's gradient, two numbers.
        true: that of one process with all the data.
        means: what ranks hold after averaging, by name.
        badge: how true it is.
        labels: what stands behind each rank's name, such as "4 samples".
        axes: what the two numbers are.
        title: what it shows.
        theme: ``light`` or ``dark``; see `frame.chosen_theme`.

    Raises:
        UsageError: there is no rank, or a gradient has not two numbers.
    """
    drawn = sketch(own, true=true, means=means, badge=badge, labels=labels, axes=axes, title=title, theme=theme)
    return drawn.figure()


def sketch(
    own: Sequence[Arrow],
    *,
    true: Arrow,
    means: Mapping[str, Arrow],
    badge: Badge,
    labels: Sequence[str] = (),
    axes: tuple[str, str] | Sequence[str] = ("first parameter", "second parameter"),
    title: str | None = None,
    theme: str | None = None,
) -> Sketch:
    """Return the same figure for an explorer; arguments and errors as for `gradients`."""
    if not own:
        raise UsageError("there is no gradient to draw")
    for one in (*own, true, *means.values()):
        if len(one) != _TWO:
            raise UsageError(f"a gradient of {len(one)} numbers is no arrow on paper; draw a model with two parameters")
    colours = chosen_theme(theme)
    x, y = _ranges([*own, true, *means.values()])
    return Sketch(
        traces=[
            _between(own, colours),
            *(_arrow(one, f"rank {rank}", **_of_rank(rank)) for rank, one in enumerate(own)),
            _arrow(true, "all data, one process", color=colours.ink, width=3 * LINE_PX, dash="solid", key=True),
            *(
                _mean(one, name, true, _SIGNS[place % len(_SIGNS)], colours)
                for place, (name, one) in enumerate(means.items())
            ),
            _names(own, labels, colours),
        ],
        layout={
            "hovermode": "closest",
            "xaxis": {**_axis(axes[0], colours), "range": x},
            "yaxis": {**_axis(axes[1], colours), "range": y, "scaleanchor": "x"},
            "showlegend": True,
            "legend": {
                "orientation": "h",
                "x": 0,
                "y": -_TICKS_PX / _PLOT_PX,
                "yanchor": "top",
                "itemclick": False,
                "itemdoubleclick": False,
            },
        },
        title=title or "Gradients of the ranks, and their mean",
        badge=badge,
        summary=_summary(own, true, means, labels),
        height_px=_PLOT_PX + 100 + _FOOT_PX,
        theme=colours.name,
    )


def _of_rank(rank: int) -> dict[str, Any]:
    return {"color": rank_colour(rank), "width": 2 * LINE_PX, "dash": rank_dash(rank), "key": False}


def _arrow(tip: Arrow, name: str, *, color: str, width: int, dash: str, key: bool) -> dict[str, Any]:
    """Return an arrow from the origin; `key`: whether the legend explains it."""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": np.array([0.0, tip[0]]),
        "y": np.array([0.0, tip[1]]),
        "line": {"color": color, "width": width, "dash": dash},
        "marker": {
            "symbol": "arrow",
            "angleref": "previous",
            "size": np.array([0, 5 * width]),
            "color": color,
            "opacity": 1,
        },
        "hovertext": f"{name}: {_numbers(tip)}",
        "hoverinfo": "text",
        "showlegend": key,
    }


def _mean(tip: Arrow, name: str, true: Arrow, sign: str, theme: Theme) -> dict[str, Any]:
    """Return the sign at the tip of a mean, and a line to it where it is not the true one."""
    told = f"{name}: {_numbers(tip)}, {_off(tip, true)}"
    right = _is_true(tip, true)
    colour = theme.real if right else theme.muted
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": told,
        "x": np.array([tip[0] if right else 0.0, tip[0]]),
        "y": np.array([tip[1] if right else 0.0, tip[1]]),
        "line": {"color": colour, "width": LINE_PX, "dash": "dash"},
        "marker": {
            "symbol": sign,
            "size": np.array([0, 20 if right else 12]),
            "color": colour,
            "line": {"color": colour, "width": 2 * LINE_PX},
            "opacity": 1,
        },
        "hovertext": told,
        "hoverinfo": "text",
        "showlegend": True,
    }


def _between(own: Sequence[Arrow], theme: Theme) -> dict[str, Any]:
    """Return the line from tip to tip of two ranks."""
    tips = np.array(own if len(own) == _TWO else []).reshape(-1, _TWO)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "every weighted mean of the two",
        "x": tips[:, 0],
        "y": tips[:, 1],
        "line": {"color": theme.muted, "width": LINE_PX, "dash": "dot"},
        "hoverinfo": "skip",
        "showlegend": bool(len(tips)),
    }


def _names(own: Sequence[Arrow], labels: Sequence[str], theme: Theme) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "text",
        "name": "ranks",
        "x": np.array([tip[0] for tip in own]),
        "y": np.array([tip[1] for tip in own]),
        "text": [_name(rank, labels) for rank in range(len(own))],
        "textposition": [f"{'top' if tip[1] >= 0 else 'bottom'} {'right' if tip[0] >= 0 else 'left'}" for tip in own],
        "textfont": {"size": TEXT_PX, "color": theme.ink},
        "cliponaxis": False,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _name(rank: int, labels: Sequence[str]) -> str:
    return f"<b>rank {rank}</b>" + (f"  {labels[rank]}" if rank < len(labels) else "")


def _ranges(tips: Sequence[Arrow]) -> tuple[list[float], list[float]]:
    """Return what both axes must show: the arrows with room around them."""
    corners = np.array([(0.0, 0.0), *tips])
    low, high = corners.min(0), corners.max(0)
    room = _ROOM * float((high - low).max() or 1.0)
    return [low[0] - room, high[0] + room], [low[1] - room, high[1] + room]


def _axis(title: str, theme: Theme) -> dict[str, Any]:
    return {
        "title": {"text": title},
        "zeroline": True,
        "zerolinecolor": theme.muted,
        "zerolinewidth": LINE_PX,
        "fixedrange": True,
        "automargin": True,
    }


def _numbers(tip: Arrow) -> str:
    return f"({', '.join(f'{part:.3g}' for part in (round(float(part), 6) + 0.0 for part in tip))})"


def _is_true(tip: Arrow, true: Arrow) -> bool:
    return math.dist(tip, true) <= 1e-5 * max(1e-9, math.hypot(*true))


def _off(tip: Arrow, true: Arrow) -> str:
    return "the true one" if _is_true(tip, true) else f"{math.dist(tip, true):.2g} off"


def _summary(own: Sequence[Arrow], true: Arrow, means: Mapping[str, Arrow], labels: Sequence[str]) -> str:
    ranks = [
        f"rank {rank} {_numbers(one)}" + (f" of {labels[rank]}" if rank < len(labels) else "")
        for rank, one in enumerate(own)
    ]
    averaged = [f"{name} {_numbers(one)}, {_off(one, true)}" for name, one in means.items()]
    return "; ".join([*ranks, f"all data in one process {_numbers(true)}", *averaged])
