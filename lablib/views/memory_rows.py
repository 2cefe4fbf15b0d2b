"""Where memory over time stands: geometry only, nothing is drawn here.

rank 0      forward            backward        optimizer     words of the phases
   8 MiB │                 ╷ peak 7.6 MiB     │
   4 MiB │    ▄▄▄███████▄▄▄│▄▄▄               │              areas, one on the other, as steps
       0 │████████████████████████████████████│
              0   2   4                                      words of the modules, where there is room

x is in milliseconds since the first sample, or counts the changes; y is in pixels and grows downwards. Each rank has
a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from lablib.trace import Category, MemorySample
from lablib.views.memory_thin import kept
from lablib.views.memory_words import amount
from lablib.views.palette import CATEGORIES

WIDTH_PX = 880.0  # of the plot itself in a notebook, as far as words need to know it
_ROOM_PX = 640.0  # what all rows share
_ROW_PX = (90.0, 330.0)
_FEW_ROWS = 4  # up to here the modules have words below each row
_WORDS_PX = 22.0
_GAP_PX = 10.0
_LETTER_PX = 7.0
OFF_SCALE = 2.5  # a limit so many times higher than the rest would make it flat: it is told in words
_ORDER = [list(Category).index(one) for one in CATEGORIES]


@dataclass(frozen=True)
class Stretch:
    """Place a part of the time that has a name: a phase or a module."""

    name: str
    start: float
    end: float

    @property
    def middle(self) -> float:
        return (self.start + self.end) / 2

    def has_room(self, width: float) -> bool:
        """Return whether the name fits, in a picture that is so many milliseconds wide."""
        return (self.end - self.start) / width * WIDTH_PX >= _LETTER_PX * len(self.name) + 4


@dataclass(frozen=True)
class Row:
    """Place one rank's samples.

    Args:
        rank: the rank.
        samples: those that are drawn.
        peak: the one with the highest total.
        x: where each begins; the last entry is where the last one ends.
        levels: bytes below each category's upper edge, by sample, in the order of the palette; first a column of zeros.
        top, bottom: of the areas; the bottom is 0 bytes.
        phases, modules: the stretches of time that have a name.
    """

    rank: int
    samples: tuple[MemorySample, ...]
    peak: int
    x: NDArray[np.float64]
    levels: NDArray[np.float64]
    top: float
    bottom: float
    phases: tuple[Stretch, ...]
    modules: tuple[Stretch, ...]


@dataclass(frozen=True)
class Layout:
    """Hold the whole picture.

    Args:
        rows: from top to bottom.
        unit_px: pixels of a byte.
        highest: bytes at the top of each row.
        ticks: bytes where a row has a tick.
        height: of all rows.
        end: right edge.
        zero_ns: the moment at the left edge; None where x counts changes.
        limit: whether a device's limit is on the scale.
        names: whether there is room for the modules' words.
    """

    rows: tuple[Row, ...]
    unit_px: float
    highest: float
    ticks: tuple[float, ...]
    height: float
    end: float
    zero_ns: int | None
    limit: bool
    names: bool

    def y(self, row: Row, nbytes: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """Return where so many bytes are in a row."""
        return row.bottom - np.asarray(nbytes, float) * self.unit_px


def layout_of(
    samples: Iterable[MemorySample], *, timed: bool = True, limit: int | None = None, others: Iterable[int] = ()
) -> Layout:
    """Lay out samples in order of time.

    Args:
        samples: at least one.
        timed: whether x is time; otherwise each rank's samples stand side by side.
        limit: a device's bytes.
        others: bytes that must be on the scale, such as predicted totals.
    """
    by_rank: dict[int, list[MemorySample]] = {}
    for sample in samples:
        by_rank.setdefault(sample.rank, []).append(sample)
    zero_ns = min(some[0].time_ns for some in by_rank.values())
    clocks = {
        rank: np.array([(one.time_ns - zero_ns) / 1e6 for one in some]) if timed else np.arange(float(len(some)))
        for rank, some in by_rank.items()
    }
    last = max(float(clock[-1]) for clock in clocks.values())
    end = 1.01 * (last or 1.0) if timed else last + 1
    tables = {rank: np.array([one.nbytes for one in some], np.int64)[:, _ORDER] for rank, some in by_rank.items()}
    seen = [one.reserved or 0 for some in by_rank.values() for one in some]
    highest = float(max(1, *(int(table.sum(axis=1).max()) for table in tables.values()), *seen, *others))
    shows_limit = limit is not None and limit <= OFF_SCALE * highest
    if shows_limit and limit is not None:
        highest = max(highest, limit)
    below = _GAP_PX + (_WORDS_PX if len(by_rank) <= _FEW_ROWS else 0)
    tall = float(np.clip(_ROOM_PX / len(by_rank) - _WORDS_PX - below, *_ROW_PX))
    unit_px = (tall - _WORDS_PX) / highest  # the peak's words stand above it
    rows, top = [], 0.0
    for rank, some in sorted(by_rank.items()):
        top += _WORDS_PX
        rows.append(_row(rank, some, tables[rank], clocks[rank], end, top, top + tall))
        top += tall + below
    ticks = round_ticks(highest, 2 if tall < 130 else 4)
    return Layout(
        tuple(rows), unit_px, highest, ticks, top, end, zero_ns if timed else None, shows_limit, below > _WORDS_PX
    )


def _row(
    rank: int,
    samples: Sequence[MemorySample],
    table: NDArray[np.int64],
    clock: NDArray[np.float64],
    end: float,
    top: float,
    bottom: float,
) -> Row:
    chosen = kept(clock, table)
    levels = np.zeros((len(chosen), table.shape[1] + 1))
    levels[:, 1:] = np.cumsum(table[chosen], axis=1)
    x, ends = np.append(clock[chosen], end), np.append(clock, end)
    return Row(
        rank,
        tuple(samples[place] for place in chosen),
        int(levels[:, -1].argmax()),
        x,
        levels,
        top,
        bottom,
        tuple(stretches([one.phase for one in samples], ends)),
        tuple(stretches([one.module for one in samples], ends)),
    )


def stretches(names: Sequence[str], ends: NDArray[np.float64]) -> Iterator[Stretch]:
    """Yield the runs of samples with the same name; those without a name are left out."""
    place = 0
    for name, group in groupby(names):
        first, place = place, place + sum(1 for _ in group)
        if name:
            yield Stretch(name, float(ends[first]), float(ends[place]))


def round_ticks(highest: float, most: int) -> tuple[float, ...]:
    """Return round numbers of bytes up to the highest."""
    unit = 1024.0 ** max(0, int(math.log(highest, 1024)))
    share = highest / unit / most
    ten = 10.0 ** math.floor(math.log10(share))
    step = next((nice * ten for nice in (1, 2, 2.5, 5, 10) if nice * ten >= share), 10 * ten)
    if unit == 1:
        step = max(1.0, math.ceil(step))
    return tuple(step * unit * place for place in range(int(highest / unit / step + 1e-9) + 1))


def tick_words(nbytes: float) -> str:
    """Return bytes at a tick: ``2.5 MiB``."""
    number, _, unit = amount(nbytes).partition(" ")
    return f"{float(number.replace(',', '')):g} {unit}" if nbytes else "0"
