"""How far apart two ways end: a row for each case, on a scale of powers of ten, where rounding has its own area."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

from lablib.errors import UsageError
from lablib.views.frame import LINE_PX, TEXT_PX, Badge, chosen_theme
from lablib.views.palette import Theme
from lablib.views.sketch import Sketch
from lablib.views.strokes import boxes

_LINE_PX = 22  # a series in a row
_GAP_PX = 14  # between rows
_FOOT_PX = 96  # ticks and title of the axis, legend
_LOWEST = 1e-18  # where an exact 0 is drawn
_SIGNS = ("circle", "diamond-open", "square-open", "triangle-up-open")


def distances(
    series: Mapping[str, Mapping[str, float]],
    *,
    badge: Badge,
    rounding: float = 1e-12,
    unit: str = "largest difference",
    title: str | None = None,
    theme: str | None = None,
) -> go.Figure:
    """Draw how far apart two ways end.

    Args:
        series: for each series by name, the distance in each case by name; cases are rows.
        badge: how true it is.
        rounding: what is below is rounding, and the same.
        unit: what the distance is.
        title: what it shows.
        theme: ``light`` or ``dark``; see `frame.chosen_theme`.

    Raises:
        UsageError: there is nothing to draw, or a distance is none.
    """
    return sketch(series, badge=badge, rounding=rounding, unit=unit, title=title, theme=theme).figure()


def sketch(
    series: Mapping[str, Mapping[str, float]],
    *,
    badge: Badge,
    rounding: float = 1e-12,
    unit: str = "largest difference",
    title: str | None = None,
    theme: str | None = None,
) -> Sketch:
    """Return the same figure for an explorer; arguments and errors as for `distances`."""
    colours = chosen_theme(theme)
    cases = list(dict.fromkeys(case for one in series.values() for case in one))
    if not cases:
        raise UsageError("there is no distance to draw")
    if wrong := [case for one in series.values() for case, far in one.items() if not 0 <= far < math.inf]:
        raise UsageError(f"{wrong[0]}: a distance is a number from 0 on")
    pitch = _GAP_PX + _LINE_PX * len(series)
    height = pitch * len(cases)
    middles = {case: pitch * (place + 0.5) for place, case in enumerate(cases)}
    farthest = max(far for one in series.values() for far in one.values())
    edges = [math.log10(_LOWEST) - 0.4, math.log10(max(farthest, 10 * rounding)) + 1.6]
    return Sketch(
        traces=[
            _band(edges[0], math.log10(rounding), height, colours),
            _rules(edges, [pitch * place for place in range(1, len(cases))], colours),
            *(
                _marks(name, one, middles, _LINE_PX * (number - (len(series) - 1) / 2), number, colours)
                for number, (name, one) in enumerate(series.items())
            ),
        ],
        layout={
            "hovermode": "closest",
            "xaxis": {
                "range": edges,
                "title": {"text": unit},
                "tickvals": np.arange(math.ceil(edges[0]), edges[1], 3),
                "ticktext": [_power(power) for power in np.arange(math.ceil(edges[0]), edges[1], 3)],
                "ticks": "outside",
                "zeroline": False,
                "fixedrange": True,
                "automargin": True,
            },
            "yaxis": {
                "range": [height, 0],
                "tickvals": np.array(list(middles.values())),
                "ticktext": cases,
                "showgrid": False,
                "zeroline": False,
                "fixedrange": True,
                "automargin": True,
            },
            "showlegend": True,
            "legend": {
                "orientation": "h",
                "x": 0,
                "y": -(_FOOT_PX - 32) / height,
                "yanchor": "top",
                "itemclick": False,
                "itemdoubleclick": False,
            },
        },
        title=title or "How far apart two ways end",
        badge=badge,
        summary="; ".join(_told(name, one, rounding) for name, one in series.items()),
        height_px=height + 100 + _FOOT_PX,
        theme=colours.name,
    )


def _band(left: float, right: float, height: float, theme: Theme) -> dict[str, Any]:
    """Return the area in which distances are rounding."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "rounding: the same",
        "x": np.array([left, right, right, left, left]),
        "y": np.array([0, 0, height, height, 0]),
        "fill": "toself",
        "fillcolor": theme.panel,
        "line": {"color": theme.grid, "width": LINE_PX},
        "hoverinfo": "skip",
        "showlegend": True,
    }


def _rules(edges: list[float], y: list[int], theme: Theme) -> dict[str, Any]:
    """Return the lines between rows."""
    return {
        **boxes([edges[0]] * len(y), [edges[1]] * len(y), y, y),
        "name": "rows",
        "line": {"color": theme.grid, "width": LINE_PX},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _marks(
    name: str, one: Mapping[str, float], middles: Mapping[str, float], offset: float, number: int, theme: Theme
) -> dict[str, Any]:
    colour = theme.muted if number % 2 else theme.ink
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": name,
        "x": np.array([math.log10(max(far, _LOWEST)) for far in one.values()]),
        "y": np.array([middles[case] + offset for case in one]),
        "text": [f"  {_short(far)}" for far in one.values()],
        "textposition": "middle right",
        "textfont": {"size": TEXT_PX, "color": colour},
        "marker": {
            "symbol": _SIGNS[number % len(_SIGNS)],
            "size": 15,
            "color": colour,
            "line": {"color": colour, "width": LINE_PX + 1},
        },
        "hovertext": [f"{case}, {name}: {_short(far)}" for case, far in one.items()],
        "hoverinfo": "text",
        "cliponaxis": False,
    }


def _short(far: float) -> str:
    if far == 0:
        return "0"
    return f"{far:.0e}".replace("e-0", "e-") if far < 1e-3 else f"{far:.2g}"


def _power(power: float) -> str:
    return f"1e{int(power)}" if power else "1"


def _told(name: str, one: Mapping[str, float], rounding: float) -> str:
    same = [case for case, far in one.items() if far <= rounding]
    apart = [f"{case} {_short(far)}" for case, far in one.items() if far > rounding]
    return f"{name}: the same: {', '.join(same) or 'none'}; apart: {', '.join(apart) or 'none'}"
