"""Many lines in one trace: plotly lifts its pen at every NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def uprights(x: ArrayLike, top: ArrayLike, bottom: ArrayLike) -> dict[str, Any]:
    """Return upright lines, each at its own x from top to bottom."""
    columns = np.column_stack([np.asarray(one, float) for one in (x, top, bottom)])
    gap = np.full(len(columns), np.nan)
    return _strokes(
        np.column_stack([columns[:, 0], columns[:, 0], gap]), np.column_stack([columns[:, 1], columns[:, 2], gap])
    )


def boxes(left: ArrayLike, right: ArrayLike, top: ArrayLike, bottom: ArrayLike) -> dict[str, Any]:
    """Return the outlines of boxes; one without height is a line."""
    x0, x1, y0, y1 = (np.asarray(one, float) for one in (left, right, top, bottom))
    gap = np.full(len(x0), np.nan)
    return _strokes(np.column_stack([x0, x1, x1, x0, x0, gap]), np.column_stack([y0, y0, y1, y1, y0, gap]))


def _strokes(x: Any, y: Any) -> dict[str, Any]:
    return {"type": "scatter", "mode": "lines", "x": x.ravel(), "y": y.ravel()}
