"""Sets of moments on one clock: arrays of shape (n, 2) with start and end in nanoseconds, in order, without overlap."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Intervals = NDArray[np.int64]

NONE: Intervals = np.empty((0, 2), np.int64)


def union(pairs: Iterable[tuple[int, int]] | Intervals) -> Intervals:
    """Return the moments that lie in at least one of these (start, end) pairs, in any order and overlapping."""
    rows = np.array(pairs if isinstance(pairs, np.ndarray) else [*pairs], np.int64).reshape(-1, 2)
    rows = rows[rows[:, 1] > rows[:, 0]]
    if not len(rows):
        return NONE
    rows = rows[np.argsort(rows[:, 0])]
    reach = np.maximum.accumulate(rows[:, 1])
    begins = np.append(True, rows[1:, 0] > reach[:-1])
    ends = np.append(begins[1:], True)
    return np.column_stack([rows[begins, 0], reach[ends]])


def common(one: Intervals, other: Intervals) -> Intervals:
    """Return the moments that lie in both."""
    segments = _segments(one, other)
    return union(segments[_inside(one, segments) & _inside(other, segments)])


def without(one: Intervals, other: Intervals) -> Intervals:
    """Return the moments of one that do not lie in the other."""
    segments = _segments(one, other)
    return union(segments[_inside(one, segments) & ~_inside(other, segments)])


def length_ns(intervals: Intervals) -> int:
    """Return how long they are together."""
    return int((intervals[:, 1] - intervals[:, 0]).sum())


def _segments(one: Intervals, other: Intervals) -> Intervals:
    """Return the pieces between all edges: each lies wholly inside or wholly outside of either set."""
    edges = np.unique(np.concatenate([one.ravel(), other.ravel()]))
    return np.column_stack([edges[:-1], edges[1:]])


def _inside(intervals: Intervals, segments: Intervals) -> NDArray[np.bool_]:
    begun, over = (np.searchsorted(intervals[:, edge], segments[:, 0], side="right") for edge in (0, 1))
    return np.asarray(begun > over)
