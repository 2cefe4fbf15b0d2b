"""Two pictures in one figure, one above the other, so that an explorer changes both at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from lablib.views.frame import TITLE_PX, Badge
from lablib.views.sketch import Sketch

_GAP_PX = 76.0  # ticks and title of the upper axis
_HEAD_PX = 36.0  # of the lower picture: plotly writes nothing outside of its axes


def above(upper: Sketch, lower: Sketch, *, title: str, badge: Badge | None = None) -> Sketch:
    """Return one picture of two, whose y axes are in pixels that grow downwards; a legend names nothing twice.

    Args:
        upper: gives its badge, its legend and its theme; its title is not shown.
        lower: keeps its title, above it.
        title: of the whole.
        badge: of the whole, where it is not the upper one's.
    """
    heights = [float(one.layout["yaxis"]["range"][0]) for one in (upper, lower)]
    heights[1] += _HEAD_PX
    height = sum(heights) + _GAP_PX
    named = {one["name"] for one in upper.traces if one.get("showlegend", True)}
    below = [
        {**one, "xaxis": "x2", "yaxis": "y2", "showlegend": one.get("showlegend", True) and one["name"] not in named}
        for one in lower.traces
    ]
    return Sketch(
        traces=[*upper.traces, *below, _heading(lower)],
        layout={
            **lower.layout,
            **upper.layout,
            "yaxis": {**upper.layout["yaxis"], "domain": [1 - heights[0] / height, 1]},
            "xaxis2": {**lower.layout["xaxis"], "anchor": "y2"},
            "yaxis2": {
                **lower.layout["yaxis"],
                "anchor": "x2",
                "domain": [0, heights[1] / height],
                "range": [heights[1] - _HEAD_PX, -_HEAD_PX],
            },
        },
        title=title,
        badge=badge or upper.badge,
        summary=f"{upper.summary}; {lower.summary}",
        height_px=round(height) + upper.height_px - round(heights[0]),
        theme=upper.theme,
    )


def _heading(lower: Sketch) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "text",
        "name": "heading",
        "x": np.array([lower.layout["xaxis"]["range"][0]]),
        "y": np.array([-_HEAD_PX / 2]),
        "xaxis": "x2",
        "yaxis": "y2",
        "text": [f"<b>{lower.title}</b>"],
        "textposition": "middle right",
        "textfont": {"size": TITLE_PX - 3},
        "cliponaxis": False,
        "hoverinfo": "skip",
        "showlegend": False,
    }
