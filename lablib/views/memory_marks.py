"""What stands on the areas of memory over time: phases, modules, the prediction, the limit, the peak, and words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lablib.views import memory_words
from lablib.views.frame import LINE_PX, TEXT_PX
from lablib.views.labels import Labels, Style
from lablib.views.memory_predicted import Predicted, outline
from lablib.views.memory_rows import Layout, Row
from lablib.views.palette import Theme, alarm
from lablib.views.strokes import uprights

_SMALL_PX = 14
_MOST_UPRIGHTS = 120  # of modules in a row: more of them are a grey veil


def above(layout: Layout, limit: int | None, theme: Theme) -> str:
    """Return the words for a limit that is not on the scale."""
    if limit is None or layout.limit:
        return ""
    words = f"limit of the device: {memory_words.amount(limit)}, far above"
    return f'  ·  <span style="color:{alarm(theme)}">{words}</span>'


def modules(layout: Layout, theme: Theme) -> dict[str, Any]:
    """Return an upright line where a module begins, in rows with not too many of them."""
    places = [
        (one.start, row.bottom, row.bottom + 6)
        for row in layout.rows
        if len(row.modules) <= _MOST_UPRIGHTS
        for one in row.modules
    ]
    line = {"color": theme.muted, "width": LINE_PX}
    return _lines(places, "a module begins", line)


def phases(layout: Layout, theme: Theme) -> dict[str, Any]:
    """Return an upright line where a phase begins or ends."""
    places = sorted(
        {(at, row.top, row.bottom) for row in layout.rows for one in row.phases for at in (one.start, one.end)}
    )
    return _lines(places, "a phase begins or ends", {"color": theme.muted, "width": LINE_PX, "dash": "dot"})


def _lines(places: Iterable[tuple[float, float, float]], name: str, line: dict[str, Any]) -> dict[str, Any]:
    return {
        **uprights(*np.array([*places]).reshape(-1, 3).T),
        "name": name,
        "line": line,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def prediction(predicted: Predicted | None, layout: Layout, theme: Theme) -> list[dict[str, Any]]:
    """Return the outline, and below it a wider one in the colour of the paper: it shows on every area."""
    lines = {**outline(predicted, layout), "hoverinfo": "skip"}
    return [
        {**lines, "name": "around predicted", "line": {"color": theme.paper, "width": 5}, "showlegend": False},
        {
            **lines,
            "name": "predicted",
            "line": {"color": theme.simulated, "width": LINE_PX + 1},
            "showlegend": predicted is not None,
        },
    ]


def limit_line(layout: Layout, limit: int | None, theme: Theme) -> dict[str, Any]:
    """Return a line across each row."""
    rows = layout.rows if layout.limit and limit is not None else ()
    y = np.array([(at, at, np.nan) for row in rows for at in [float(layout.y(row, float(limit or 0)))]]).ravel()
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "limit of the device",
        "x": np.array([0.0, layout.end, np.nan] * len(rows)),
        "y": y,
        "line": {"color": alarm(theme), "width": LINE_PX + 1, "dash": "dash"},
        "hoverinfo": "skip",
        "showlegend": bool(rows),
    }


def peaks(layout: Layout, theme: Theme) -> dict[str, Any]:
    """Return a mark at each rank's peak."""
    places = [_peak(row, layout) for row in layout.rows]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "peak",
        "x": np.array([x for x, _ in places]),
        "y": np.array([y for _, y in places]),
        "marker": {
            "symbol": "diamond",
            "size": 12,
            "color": theme.ink,
            "line": {"color": theme.paper, "width": LINE_PX},
        },
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _peak(row: Row, layout: Layout) -> tuple[float, float]:
    x = (row.x[row.peak] + row.x[row.peak + 1]) / 2
    return float(x), float(layout.y(row, row.levels[row.peak, -1]))


def words(layout: Layout, limit: int | None, theme: Theme) -> Labels:
    """Return all words in the rows."""
    styles = {
        "phase": Style(TEXT_PX, theme.muted, "middle center"),
        "module": Style(_SMALL_PX, theme.muted, "middle center"),
        "peak": Style(TEXT_PX, theme.ink, "middle right"),
        "peak to the left": Style(TEXT_PX, theme.ink, "middle left"),
        "limit": Style(_SMALL_PX, alarm(theme), "middle right"),
        "limit to the left": Style(_SMALL_PX, alarm(theme), "middle left"),
    }
    labels = Labels(styles)
    for row in layout.rows:
        for one in row.phases:
            if one.has_room(layout.end):
                labels.add("phase", one.name, one.middle, row.top - 11)
        for one in row.modules if layout.names else ():
            if one.has_room(layout.end):
                labels.add("module", one.name, one.middle, row.bottom + 12)
        x, _ = _peak(row, layout)
        late = x > 0.6 * layout.end
        shift = 0.009 * layout.end
        above = float(layout.y(row, max(row.samples[row.peak].allocated or 0, row.levels[row.peak, -1]))) - 11
        line = float(layout.y(row, float(limit))) if layout.limit and limit is not None else -np.inf
        if abs(above - line) < 12:
            above = line - 12
        labels.add(
            "peak to the left" if late else "peak",
            f"<b>peak {memory_words.amount(row.samples[row.peak].total)}</b>",
            x - shift if late else x + shift,
            above,
        )
        if layout.limit and limit is not None:
            left = _left_is_free(row, layout)
            side = "limit" if left else "limit to the left"
            labels.add(side, f"limit {memory_words.amount(limit)}", shift if left else layout.end - shift, line - 11)
    return labels


def _left_is_free(row: Row, layout: Layout) -> bool:
    """Return whether words above the limit are best read at the left edge: far from the peak and from high areas."""
    at = row.x[row.peak] / layout.end
    if not 0.3 < at < 0.7:
        return bool(at >= 0.7)
    totals, edge = row.levels[:, -1], 0.15 * layout.end
    return bool(totals[row.x[:-1] <= edge].max(initial=0) <= totals[row.x[1:] >= layout.end - edge].max(initial=0))
