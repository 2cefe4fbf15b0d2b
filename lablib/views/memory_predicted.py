"""Where the outline of predicted memory stands in a picture of measured memory: geometry only."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lablib.trace import Category, MemorySample, Trace
from lablib.views.memory_rows import Layout, Row
from lablib.views.palette import CATEGORIES
from lablib.views.strokes import boxes

ClosedForm = Mapping[Category, int]
Predicted = Trace | ClosedForm | Mapping[int, ClosedForm]


def by_rank(predicted: ClosedForm | Mapping[int, ClosedForm], ranks: Sequence[int]) -> dict[int, ClosedForm]:
    """Return closed forms by rank; one that is given without a rank holds for all."""
    if any(isinstance(key, Category) for key in predicted):
        return dict.fromkeys(ranks, predicted)  # type: ignore[arg-type]
    return {rank: predicted[rank] for rank in ranks if rank in predicted}  # type: ignore[index, misc]


def totals(predicted: Predicted | None, ranks: Sequence[int]) -> list[int]:
    """Return totals that must be on the scale."""
    if predicted is None:
        return []
    if isinstance(predicted, Trace):
        return [sample.total for sample in predicted.memory if sample.rank in ranks]
    return [sum(one.values()) for one in by_rank(predicted, ranks).values()]


def outline(predicted: Predicted | None, layout: Layout) -> dict[str, Any]:
    """Return the lines: of a trace its total as steps, of a closed form a box for each category."""
    if predicted is None:
        return boxes([], [], [], [])
    if isinstance(predicted, Trace):
        lines = [_steps(samples, row, layout) for row in layout.rows if (samples := _of(predicted, row.rank))]
        x, y = (np.concatenate([[], *(line[axis] for line in lines)]) for axis in (0, 1))
        return {"type": "scatter", "mode": "lines", "x": x, "y": y}
    closed = by_rank(predicted, [row.rank for row in layout.rows])
    places = [
        (0.0, layout.end, *layout.y(row, np.array([above, below], float)))
        for row in layout.rows
        if row.rank in closed
        for below, above in _bands(closed[row.rank])
    ]
    return boxes(*np.array(places).reshape(-1, 4).T)


def _bands(nbytes: ClosedForm) -> list[tuple[int, int]]:
    """Return lower and upper edge of each category that holds something."""
    edges, below = [], 0
    for one in CATEGORIES:
        if size := nbytes.get(one, 0):
            edges.append((below, below + size))
            below += size
    return edges


def _of(trace: Trace, rank: int) -> list[MemorySample]:
    return [sample for sample in trace.memory if sample.rank == rank]


def _steps(samples: Sequence[MemorySample], row: Row, layout: Layout) -> tuple[Any, Any]:
    """Return the total as steps on the measured clock, and a gap."""
    anchors, end = _anchors(samples, row)
    starts = np.array([one.time_ns for one in samples], float)
    x = np.append(np.interp(starts, [*anchors], [*anchors.values()]), end)
    y = layout.y(row, np.array([one.total for one in samples], float))
    return np.append(np.repeat(x, 2)[1:-1], np.nan), np.append(np.repeat(y, 2), np.nan)


def _anchors(samples: Sequence[MemorySample], row: Row) -> tuple[dict[float, float], float]:
    """Return moments of the prediction with where they lie in the picture, and where it ends.

    The moments are those at which an iteration, its phases and their modules begin, and that of the last sample. A
    prediction of one iteration is laid over the last that was measured.
    """
    last = row.samples[-1].iteration
    single = len({one.iteration for one in samples}) == 1
    measured = _begins(row.samples, row.x.tolist(), None)
    foreseen = _begins(samples, [float(one.time_ns) for one in samples], last if single else None)
    pairs: dict[float, float] = {}
    for key in (one for one in foreseen if one in measured):
        pairs.setdefault(foreseen[key], measured[key])  # of a phase and a module that begin together the phase
    final = last if single else samples[-1].iteration
    there = [place for place, one in enumerate(row.samples) if one.iteration == final] or [len(row.samples) - 1]
    pairs.setdefault(float(samples[-1].time_ns), float(row.x[there[-1]]))
    return _rising(sorted(pairs.items())), float(row.x[there[-1] + 1])


def _rising(pairs: Sequence[tuple[float, float]]) -> dict[float, float]:
    """Return as many pairs as can be kept so that what they point at never goes back: their order may differ a bit."""
    tails: list[float] = []
    lengths = []
    for _, to in pairs:
        lengths.append(bisect_right(tails, to))
        tails[lengths[-1] : lengths[-1] + 1] = [to]
    kept: dict[float, float] = {}
    wanted = len(tails) - 1
    limit = float("inf")
    for (at, to), length in zip(reversed(pairs), reversed(lengths), strict=True):
        if length == wanted and to <= limit:
            kept[at] = limit = to
            wanted -= 1
    return dict(reversed(kept.items()))


def _begins(
    samples: Sequence[MemorySample], times: Sequence[float], iteration: int | None
) -> dict[tuple[int | None, str, str], float]:
    """Return when each iteration, phase and module first begins; all are of one iteration where it is given.

    What lies between two phases is a phase, too, called by the one before.
    """
    begins: dict[tuple[int | None, str, str], float] = {}
    before: dict[int | None, str] = {}
    for sample, at in zip(samples, times, strict=False):
        number = sample.iteration if iteration is None else iteration
        phase = sample.phase or f"after {before.get(number, '')}"
        before[number] = sample.phase or before.get(number, "")
        for key in ((number, "", ""), (number, phase, ""), (number, phase, sample.module)):
            begins.setdefault(key, at)
    return begins
