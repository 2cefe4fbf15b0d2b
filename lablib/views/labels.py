"""Words in a figure: one trace for each style, since styles for single words are slow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


class Style(NamedTuple):
    """Be a way to write: size in pixels, colour, and where a word lies, seen from its point."""

    size: float
    colour: str
    position: str = "middle right"


class Labels:
    """Collect words at their places.

    Args:
        styles: how words can look, by name.
    """

    def __init__(self, styles: Mapping[str, Style]) -> None:
        self._styles = styles
        self._words: dict[str, list[tuple[float, float, str]]] = {name: [] for name in styles}

    def add(self, style: str, text: str, x: float, y: float) -> None:
        """Write a text in one of the styles; no text is no word: plotly loses the place of an empty one for good."""
        if text:
            self._words[style].append((x, y, text))

    def traces(self) -> list[dict[str, Any]]:
        """Return a trace for each style, called ``labels, <style>``; one without words is empty."""
        return [
            {
                "type": "scatter",
                "name": f"labels, {name}",
                "mode": "text",
                "x": np.array([word[0] for word in self._words[name]]),
                "y": np.array([word[1] for word in self._words[name]]),
                "text": [word[2] for word in self._words[name]],
                "textposition": style.position,
                "textfont": {"size": style.size, "color": style.colour},
                "hoverinfo": "skip",
                "cliponaxis": False,
            }
            for name, style in self._styles.items()
        ]
