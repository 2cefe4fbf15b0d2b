"""What each rank loads, batch by batch: geometry only.

As finely as there is room: a cell with a number for each sample, a small cell, a bar for each batch, one bar for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lablib.sim.shards import Shards, Sighting
from lablib.views.shard_boxes import SMALL, Box, Frame, Kind, Size, numbered, place_of, some

CAPTION = 22.0  # height of the line above a rank's batches

_BETWEEN_ROWS = 12.0
_BETWEEN_BATCHES = 8.0
_BAR = 22.0
_ROOM = 560.0  # height that ranks share
_LEAST_BAR = 10.0  # width of a batch's bar, with the gap behind it
_MOST_BAR = 60.0

_WORDS: dict[Kind, str] = {"once": "seen first here", "again": "seen before", "different": "not as predicted"}

Level = Literal["numbers", "cells", "batches", "ranks"]


@dataclass(frozen=True)
class Rows:
    """Hold the ranks' rows.

    Args:
        boxes: samples, or bars for many.
        frames: around batches whose samples have cells of their own.
        edges: top and bottom of each row.
        middle: how far below the top of a row the middle of its first line is.
        level: what stands for samples.
    """

    boxes: tuple[Box, ...]
    frames: tuple[Frame, ...]
    edges: tuple[tuple[float, float], ...]
    middle: float
    level: Level


def rows_of(table: Shards, predicted: Shards | None, *, left: Sequence[float], column: float, top: float) -> Rows:
    """Lay out what all ranks load.

    Args:
        table: what they load.
        predicted: what should be the same.
        left: where the column of each epoch begins.
        column: its width.
        top: where the rows begin.
    """
    level, size, lines = _level(table, column)
    high = CAPTION + (_BAR if size is None else lines * size.line) + _BETWEEN_ROWS
    edges = tuple((top + rank * high, top + (rank + 1) * high) for rank in range(table.world_size))
    boxes: list[Box] = []
    frames: list[Frame] = []
    for rank, (edge, _) in enumerate(edges):
        for epoch, x in enumerate(left):
            row = _Row(table, predicted, epoch, rank, x, edge + CAPTION, column)
            if size is None:
                boxes += row.bars() if level == "batches" else row.one_bar()
            else:
                boxes += row.cells(size, with_numbers=level == "numbers")
                frames += row.frames(size)
    middle = CAPTION + (_BAR if size is None else size.height) / 2
    return Rows(tuple(boxes), tuple(frames), edges, middle, level)


def _level(table: Shards, column: float) -> tuple[Level, Size | None, int]:
    """Return what stands for samples, the size of their cells, and the number of lines that a row needs."""
    lengths = [[len(batch) for batch in batches] for ranks in table.batches for batches in ranks]
    levels: tuple[tuple[Level, Size], ...] = (("numbers", numbered(table.samples, column)), ("cells", SMALL))
    for level, size in levels:
        lines = [_lines(row, size, column) for row in lengths]
        if all(lines) and max(lines) * size.line <= max(size.line, _ROOM / table.world_size - CAPTION - _BETWEEN_ROWS):
            return level, size, max(lines)
    return ("batches" if max(map(len, lengths)) * _LEAST_BAR <= column else "ranks"), None, 1


def _lines(lengths: Sequence[int], size: Size, column: float) -> int:
    """Return how many lines these batches need, 0 where one is longer than a line."""
    places = _flow(lengths, size, column)
    return 0 if places is None else max((line for _, line in places), default=0) + 1


def _flow(lengths: Sequence[int], size: Size, column: float) -> list[tuple[float, int]] | None:
    """Return x and line of each batch, or None where one is longer than a line."""
    places: list[tuple[float, int]] = []
    x, line = 0.0, 0
    for length in lengths:
        wide = length * size.step
        if wide > column:
            return None
        if x + wide > column:
            x, line = 0.0, line + 1
        places.append((x, line))
        x += wide + _BETWEEN_BATCHES
    return places


class _Row:
    """Lay out what one rank loads in one epoch."""

    def __init__(
        self, table: Shards, predicted: Shards | None, epoch: int, rank: int, left: float, top: float, column: float
    ) -> None:
        self._batches = table.batches[epoch][rank]
        self._wanted = None if predicted is None else predicted.batches[epoch][rank]
        is_first = table.is_first(epoch=epoch, rank=rank)
        self._is_first = np.split(is_first, np.cumsum([len(batch) for batch in self._batches])[:-1])
        self._epoch, self._rank = epoch, rank
        self._left, self._top, self._column = left, top, column

    def _places(self, size: Size) -> list[tuple[float, float]]:
        flow = _flow([len(batch) for batch in self._batches], size, self._column) or []
        return [(self._left + x, self._top + line * size.line) for x, line in flow]

    def frames(self, size: Size) -> Iterator[Frame]:
        for batch, (x, y) in zip(self._batches, self._places(size), strict=True):
            yield Frame(x - 3, y - 3, len(batch) * size.step - (size.step - size.width) + 6, size.height + 6)

    def cells(self, size: Size, *, with_numbers: bool) -> Iterator[Box]:
        for number, (x, y) in enumerate(self._places(size)):
            for place, index in enumerate(self._batches[number]):
                kind, words = self._kind(number, place, index)
                yield Box(
                    x + place * size.step,
                    y,
                    size.width,
                    size.height,
                    kind,
                    (self._rank,),
                    f"{self._epoch} {self._rank} {number} {place} {index}",
                    f"<b>sample {index}</b>{words}<br>epoch {self._epoch}, "
                    + place_of(Sighting(self._rank, number, place)),
                    str(index) if with_numbers else "",
                )

    def _kind(self, number: int, place: int, index: int) -> tuple[Kind, str]:
        if self._wanted is not None:
            wanted = self._wanted[number][place : place + 1] if number < len(self._wanted) else ()
            if wanted != (index,):
                return "different", f", predicted: {wanted[0] if wanted else 'nothing'}"
        return ("once", "") if self._is_first[number][place] else ("again", ", seen before")

    def _counts(self, numbers: Iterable[int]) -> dict[Kind, int]:
        """Return how many samples of some batches are seen here first, were seen before, are not as predicted."""
        counts: dict[Kind, int] = dict.fromkeys(_WORDS, 0)
        for number in numbers:
            batch, before = self._batches[number], int((~self._is_first[number]).sum())
            if self._wanted is not None and self._wanted[number : number + 1] != (batch,):
                counts["different"] += len(batch)
            else:
                counts["again"] += before
                counts["once"] += len(batch) - before
        return counts

    def bars(self) -> Iterator[Box]:
        """Yield a bar for each batch, as long as it has samples, parted in its height."""
        wide = min(_MOST_BAR, self._column / max(1, len(self._batches)))
        largest = max(map(len, self._batches), default=1)
        for number, batch in enumerate(self._batches):
            counts = self._counts([number])
            words = ", ".join(f"{count} {_WORDS[kind]}" for kind, count in counts.items() if count)
            top = self._top + _BAR
            for kind, count in counts.items():
                if count:
                    high = _BAR * count / len(batch)
                    top -= high
                    yield Box(
                        self._left + number * wide,
                        top,
                        max(3.0, (wide - 3) * len(batch) / largest),
                        high,
                        kind,
                        (self._rank,),
                        f"{self._epoch} {self._rank} {number} {kind}",
                        f"<b>rank {self._rank}, batch {number}</b>, epoch {self._epoch}<br>{words}<br>{some(batch)}",
                        many=True,
                    )

    def one_bar(self) -> Iterator[Box]:
        """Yield one bar for all batches, parted in its length."""
        counts = self._counts(range(len(self._batches)))
        x, total = self._left, sum(counts.values())
        for kind, count in counts.items():
            if count:
                wide = self._column * count / total
                hover = f"<b>rank {self._rank}</b>, epoch {self._epoch}<br>{count} of {total} samples {_WORDS[kind]}"
                slot = f"{self._epoch} {self._rank} {kind}"
                yield Box(x, self._top, wide, _BAR, kind, (self._rank,), slot, hover, many=True)
                x += wide
