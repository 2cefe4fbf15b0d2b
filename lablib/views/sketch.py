"""A figure before plotly checks it: plain dictionaries, so that an explorer can redraw in milliseconds.

Making a `go.Figure` takes plotly tens of milliseconds. A view that an explorer turns returns a `Sketch`; its public
function returns ``sketch.figure()``, and the explorer compares two sketches and changes its figure in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import plotly.graph_objects as go

from lablib.views.frame import Badge, chosen_theme, dress

Change = tuple[int | None, str, Any]


@dataclass(frozen=True)
class Sketch:
    """Hold all that makes a figure.

    Args:
        traces: plotly's traces, each as a dictionary with its ``type``; numbers in NumPy arrays are the fastest.
        layout: what the common dress does not set; no annotations.
        title, badge, summary, height_px, theme: see `frame.dress`.
    """

    traces: list[dict[str, Any]]
    layout: dict[str, Any]
    title: str
    badge: Badge
    summary: str
    height_px: int
    theme: str

    def figure(self) -> go.Figure:
        """Return the figure."""
        fig = go.Figure(self.traces, self.layout)
        return dress(
            fig,
            title=self.title,
            badge=self.badge,
            summary=self.summary,
            height_px=self.height_px,
            theme=chosen_theme(self.theme),
        )

    def changes(self, before: Sketch) -> Iterator[Change]:
        """Yield what must be set to turn the figure of another sketch into this one's.

        Each change is a trace's number, or None for the layout; the path of a property; its new value.
        Both sketches must have the same kinds of traces in the same order, and the same theme.
        """
        for number, (old, new) in enumerate(zip(before.traces, self.traces, strict=True)):
            yield from ((number, path, value) for path, value in _unequal(old, new))
        yield from ((None, path, value) for path, value in _unequal(before.layout, self.layout))
        if self.title != before.title:
            yield None, "title.text", f"<b>{self.title}</b>"
        if self.height_px != before.height_px:
            yield None, "height", self.height_px
        if (self.badge, self.summary) != (before.badge, before.summary):
            yield (
                None,
                "meta",
                {**_worn(self.badge, self.theme)["meta"], "summary": f"{self.badge.text}: {self.summary}"},
            )
        old, new = ({"annotations[0]": _worn(one.badge, self.theme)["annotations"][0]} for one in (before, self))
        yield from ((None, path, value) for path, value in _unequal(old, new))


@lru_cache(maxsize=64)
def _worn(badge: Badge, theme: str) -> dict[str, Any]:
    """Return what the common dress puts on a figure for this badge."""
    fig = dress(go.Figure(), title="", badge=badge, summary="", height_px=100, theme=chosen_theme(theme))
    layout: dict[str, Any] = fig.layout.to_plotly_json()
    return layout


def _unequal(old: dict[str, Any], new: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and new value of every property that differs."""
    for name in old.keys() | new.keys():
        one, other = old.get(name), new.get(name)
        if isinstance(one, dict) and isinstance(other, dict) and name != "meta":
            yield from _unequal(one, other, f"{above}{name}.")
        elif not _same(one, other):
            yield f"{above}{name}", other


def put(properties: dict[str, Any], path: str, value: Any) -> None:
    """Set one property of a trace or a layout, as `Sketch.changes` names it; None takes it away."""
    *above, last = path.replace("[", ".").replace("]", "").split(".")
    place: Any = properties
    for name in above:
        place = place[int(name)] if name.isdigit() else place.setdefault(name, {})
    if value is None:
        place.pop(last, None)
    else:
        place[last] = value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=True)
    return type(one) is type(other) and bool(one == other)
