"""plotly's live figure, complete from its first message on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import plotly.graph_objects as go

from lablib.views.sketch import Change


class LiveFigure(go.FigureWidget):  # type: ignore[misc]
    """Be a `FigureWidget` that tells the browser what it shows now.

    plotly's own opens empty and sends its traces in a second message: a browser that draws between the two shows empty
    axes for good. And a view that is made later, by scrolling down or after a reload, shows what was there at first.
    """

    def __init__(self, figure: go.Figure) -> None:
        self._complete = False
        super().__init__(figure)
        self._complete = True
        self.open()

    def open(self) -> None:
        """Start to talk to the browser, once there is something to tell."""
        if self._complete:
            super().open()

    def change(self, changes: Iterable[Change]) -> None:
        """Set some properties, in one message to the browser; see `Sketch.changes`."""
        with self.batch_update():
            for number, path, value in changes:
                (self.layout if number is None else self.data[number])[path] = value
        # a cell that was never in view is drawn later, from this state
        self.send_state(["_widget_data", "_widget_layout"])

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """Return what the browser must know, with traces and layout as they are now."""
        now = {"_widget_data": self._data, "_widget_layout": self._layout} if self._complete else {}
        asked = [*self.keys] if key is None else [key] if isinstance(key, str) else [*key]
        others = [name for name in asked if name not in now]
        state: dict[str, Any] = super().get_state(key=others, drop_defaults=drop_defaults) if others else {}
        for name in now.keys() & set(asked):
            state[name] = self.trait_metadata(name, "to_json")(now[name], self)
        return state
