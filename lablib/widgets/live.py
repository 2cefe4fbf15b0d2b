"""plotly's live figure: complete from its first message on, alive in a slow browser, as wide as its cell."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import numpy as np
import plotly.graph_objects as go
import traitlets
from plotly.serializers import custom_serializers

from lablib.views.sketch import Change, put

# anywidget gives a module two seconds to load and afterwards drops every message to its widget, without a word.
# plotly's module has megabytes: a slow browser needs longer. So this small one comes first and fetches the other.
_FIRST_MODULE = """
const loads = (globalThis.lablibLoads ??= new Map());
const load = (source) => {
    const url = () => URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    if (!loads.has(source)) loads.set(source, import(url()));
    return loads.get(source);
};
export default () => {
    let model, widget;
    const start = async () => {
        const plotly = (await load(model.get("_plotly"))).default();
        plotly.initialize({ model });
        return plotly;
    };
    return {
        initialize: (given) => { model = given.model; },
        render: async ({ el }) => {
            const remove = (await (widget ??= start())).render({ el });
            const watch = new ResizeObserver(() => el._responsiveChartHandler?.());
            watch.observe(el);
            return () => { watch.disconnect(); remove(); };
        },
    };
};
"""


class LiveFigure(go.FigureWidget):  # type: ignore[misc]
    """Be a `FigureWidget` that tells the browser what it shows now.

    plotly's own opens empty and sends its traces in a second message: a browser that draws between the two shows empty
    axes for good. And a view that is made later, by scrolling down or after a reload, shows what was there at first.
    """

    _plotly = traitlets.Unicode(str(go.FigureWidget._esm)).tag(sync=True)
    _esm = _FIRST_MODULE

    def __init__(self, figure: go.Figure) -> None:
        self._now: dict[str, Any] = {}
        super().__init__(figure)
        self._config = {"responsive": True}
        # plotly takes out of its own record what a browser reports back
        self._now = {"_widget_data": deepcopy(self._data), "_widget_layout": deepcopy(self._layout)}
        self.open()

    def open(self) -> None:
        """Start to talk to the browser, once there is something to tell."""
        if self._now:
            super().open()

    def change(self, changes: Iterable[Change]) -> None:
        """Set some properties, in one message to the browser; see `Sketch.changes`."""
        changes = list(changes)
        for number, path, value in changes:
            told = self._now["_widget_layout"] if number is None else self._now["_widget_data"][number]
            # what travels as bytes must lie in one piece
            put(told, path, np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value)
        self.send_state([*self._now])  # first: the browser reports back what differs from this
        with self.batch_update():
            for number, path, value in changes:
                (self.layout if number is None else self.data[number])[path] = value

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """Return what the browser must know, with traces and layout as they are now."""
        asked = [*self.keys] if key is None else [key] if isinstance(key, str) else [*key]
        others = [name for name in asked if name not in self._now]
        state: dict[str, Any] = super().get_state(key=others, drop_defaults=drop_defaults) if others else {}
        for name in self._now.keys() & set(asked):
            state[name] = custom_serializers["to_json"](self._now[name], self)
        return state
