"""Fewer samples of memory for a picture, with every extreme kept: nothing that could be seen is lost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

COLUMNS = 800


def kept(times: NDArray[np.float64], nbytes: NDArray[np.int64], *, columns: int = COLUMNS) -> NDArray[np.int64]:
    """Return which samples to draw, as sorted indices.

    Time is cut into columns, about one a pixel. Of each column stay the first and the last sample, and those where the
    total and each category is highest and lowest.

    Args:
        times: when each sample begins, in order.
        nbytes: bytes by sample and category.
        columns: how many columns; as many samples or fewer all stay.
    """
    count = len(times)
    if count <= columns:
        return np.arange(count)
    since = times - times[0]
    column = np.minimum((since / (since[-1] or 1.0) * columns).astype(np.int64), columns - 1)
    chosen = [_ends(column)]
    for values in (*nbytes.T, nbytes.sum(axis=1)):
        order = np.lexsort((values, column))
        chosen.append(order[_ends(column[order])])
    return np.unique(np.concatenate(chosen))


def _ends(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first and the last place of each run of equal numbers."""
    edges = np.flatnonzero(np.diff(groups))
    return np.concatenate([[0], edges + 1, edges, [len(groups) - 1]])
