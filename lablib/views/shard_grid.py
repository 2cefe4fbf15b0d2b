"""Where everything stands in the picture of shards: geometry only, nothing is drawn here.

             epoch 0                      epoch 1
samples      [0][1][2][3][4]              [0][1][2][3][4]        who sees which: a cell for each sample
rank 0       [[0][2]] [[4]]               [[3][1]] [[0]]         what a rank loads, batch by batch
rank 1       [[1][3]] [[0]]               [[4][2]] [[3]]
accuracy     as counted, exact            as counted, exact

The unit is one pixel of a figure 1,072 pixels wide: a notebook shows it in 850 to 1,250; x grows to the right and y
downwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lablib.sim.shards import Shards
from lablib.views.shard_boxes import SMALL, Box, Kind, Size, numbered, place_of
from lablib.views.shard_rows import Rows, rows_of

WIDTH = 1040.0
LABELS = 122.0  # width of what stands before the rows

_HEAD = 104.0
_FOOT = 46.0
_ACCURACY = 122.0
_BETWEEN_EPOCHS = 26.0
_RIBBON = 9.0
_BIN = 9.0  # width of a bar that stands for many samples, with the gap behind it
_BINS = 96.0  # its height
_MOST_LINES = {"numbers": 5, "cells": 9}


@dataclass(frozen=True)
class Strip:
    """Hold the samples of the data set, once for each epoch.

    Args:
        boxes: samples, or bars for many.
        ribbons: the ranks that see a sample more than once, in its cell.
        bottom: where it ends.
        level: what stands for samples.
    """

    boxes: tuple[Box, ...]
    ribbons: tuple[Box, ...]
    bottom: float
    level: Literal["numbers", "cells", "bins"]


@dataclass(frozen=True)
class Grid:
    """Hold the whole picture.

    Args:
        left: where the column of each epoch begins.
        column: its width.
        strip: the samples of the data set.
        rows: what each rank loads.
        accuracy_top: where the part that compares accuracies begins; None without it.
        height: of everything.
    """

    left: tuple[float, ...]
    column: float
    strip: Strip
    rows: Rows
    accuracy_top: float | None
    height: float

    @property
    def strip_top(self) -> float:
        """Return where the samples of the data set begin."""
        return _HEAD

    @property
    def foot(self) -> float:
        """Return where the lines begin that explain the signs."""
        return self.height - _FOOT


def grid_of(table: Shards, predicted: Shards | None, *, accuracy: bool) -> Grid:
    """Lay out who sees what, epochs side by side.

    Args:
        table: what is shown.
        predicted: what should be the same.
        accuracy: whether to leave room for accuracies.
    """
    column = (WIDTH - LABELS - _BETWEEN_EPOCHS * (table.epochs - 1)) / table.epochs
    left = tuple(LABELS + epoch * (column + _BETWEEN_EPOCHS) for epoch in range(table.epochs))
    strip = _strip(table, left, column)
    rows = rows_of(table, predicted, left=left, column=column, top=strip.bottom + 14)
    bottom = rows.edges[-1][1] + 8
    high = bottom + (_ACCURACY if accuracy else 0.0) + _FOOT
    return Grid(left, column, strip, rows, bottom if accuracy else None, high)


def _strip(table: Shards, left: tuple[float, ...], column: float) -> Strip:
    levels: tuple[tuple[Literal["numbers", "cells"], Size], ...] = (
        ("numbers", numbered(table.samples, column)),
        ("cells", SMALL._replace(line=21.0)),
    )
    for level, size in levels:
        lines = max(1, -(-table.samples // size.fitting(column)))
        if lines <= _MOST_LINES[level]:
            boxes = tuple(
                box
                for epoch, x in enumerate(left)
                for box in _cells(table, epoch, x, column, size, with_numbers=level == "numbers")
            )
            ribbons = (part for box in boxes if box.kind == "again" for part in _ribbon(box))
            return Strip(boxes, tuple(ribbons), _HEAD + lines * size.line, level)
    bins = tuple(box for epoch, x in enumerate(left) for box in _bins(table, epoch, x, column))
    return Strip(bins, (), _HEAD + _BINS + 22, "bins")


def _cells(table: Shards, epoch: int, left: float, column: float, size: Size, *, with_numbers: bool) -> Iterator[Box]:
    """Yield a cell for each sample of the data set."""
    per_line = size.fitting(column)
    for index, seen in enumerate(table.sightings(epoch=epoch)):
        line, place = divmod(index, per_line)
        yield Box(
            left + place * size.step,
            _HEAD + line * size.line,
            size.width,
            size.height,
            "once" if len(seen) == 1 else "again" if seen else "never",
            tuple(one.rank for one in seen),
            f"{epoch} {index}",
            f"<b>sample {index}</b>, epoch {epoch}<br>" + ("<br>".join(map(place_of, seen)) or "seen by no rank"),
            str(index) if with_numbers else "",
        )


def _ribbon(box: Box) -> Iterator[Box]:
    """Yield the colours of all ranks that see a sample: below its number, or all over its cell."""
    height = _RIBBON if box.text else box.height - 4
    wide = (box.width - 4) / len(box.ranks)
    for place, rank in enumerate(box.ranks):
        x, y = box.x + 2 + place * wide, box.y + box.height - 2 - height
        yield box._replace(x=x, y=y, width=wide, height=height, ranks=(rank,), text="")


def _bins(table: Shards, epoch: int, left: float, column: float) -> Iterator[Box]:
    """Yield stacked bars for neighbouring samples: who sees them, how many are seen again, how many never."""
    count = int(column // _BIN)
    edges = np.linspace(0, table.samples, count + 1).astype(int)
    counts, first = table.counts(epoch=epoch), table.first_ranks(epoch=epoch)
    parts: list[tuple[Kind, tuple[int, ...], str, np.ndarray]] = [
        ("once", (rank,), f"only rank {rank} sees", (counts == 1) & (first == rank)) for rank in range(table.world_size)
    ]
    parts += [("again", (), "seen more than once:", counts > 1), ("never", (), "seen by no rank:", counts == 0)]
    sizes, filled = np.diff(edges), np.zeros(count)
    for kind, ranks, words, chosen in parts:
        found = np.add.reduceat(chosen.astype(int), edges[:-1])
        for number in np.flatnonzero(found).tolist():
            share = float(found[number] / sizes[number])
            filled[number] += share
            low, high = edges[number], edges[number + 1] - 1
            yield Box(
                left + number * _BIN,
                _HEAD + _BINS * (1 - float(filled[number])),
                _BIN - 1,
                _BINS * share,
                kind,
                ranks,
                " ".join(map(str, (epoch, f"{low}-{high}", *ranks, kind))),
                f"samples {low} to {high}, epoch {epoch}<br>{words} {found[number]} of {sizes[number]}",
                many=True,
            )
