"""Where the buckets of an iteration stand: geometry only, nothing is drawn here.

bucket 0    rank 0 ▒▒▒▒▒███████            a block for each bucket, in it a row for each rank
            rank 1   ▒▒▒▒▒█████
bucket 1    rank 0      ▒▒▒▒▒///███████    filling, waiting for earlier buckets, travelling
            rank 1        ▒▒▒▒▒/███████

x is in milliseconds since the first rank's backward began; y is in pixels and grows downwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from lablib.analysis import BucketRow, Buckets

_ROOM_PX = 1000.0  # what all blocks share; beyond it they get the least that can be seen
_LEAST_ROW_PX = 4.0
_MOST_ROW_PX = 30.0
_ONE_LINE_PX = 24.0
_TWO_LINES_PX = 44.0
_GAP_PX = 8.0
_BESIDE = 0.4  # share of a row that another run gets


@dataclass(frozen=True)
class Moments:
    """Hold the four moments of a bucket's life, in milliseconds."""

    first_ready: float
    full: float
    sent: float
    done: float


@dataclass(frozen=True)
class Row:
    """Place one bucket of one rank; y is the middle."""

    source: BucketRow
    y: float
    at: Moments


@dataclass(frozen=True)
class Outline:
    """Place a predicted bucket around the rows of neighbouring ranks that it is predicted for."""

    top: float
    bottom: float
    at: Moments


@dataclass(frozen=True)
class Line:
    """Place an upright line."""

    x: float
    top: float
    bottom: float


@dataclass(frozen=True)
class Layout:
    """Hold the whole picture.

    Args:
        rows: the bars' places.
        beside: the places of another run's bars, each under the row of the same bucket and rank.
        outlines: the predictions' places.
        ticks: where a gradient is ready.
        ends: where a rank's backward ends.
        ranks: from top to bottom in each block.
        blocks: (a row of the bucket, middle of its block) for each bucket, from top to bottom.
        lines: how many lines of text a block has room for.
        thickness: height of a bar.
        beside_thickness: height of another run's bar.
        height: of all blocks.
        start, end: edges in milliseconds.
    """

    rows: tuple[Row, ...]
    beside: tuple[Row, ...]
    outlines: tuple[Outline, ...]
    ticks: tuple[Line, ...]
    ends: tuple[Line, ...]
    ranks: tuple[int, ...]
    blocks: tuple[tuple[BucketRow, float], ...]
    lines: int
    thickness: float
    beside_thickness: float
    height: float
    start: float
    end: float


def layout_of(table: Buckets, predicted: Buckets | None, beside: Buckets | None = None) -> Layout:
    """Lay out the buckets of one iteration, with what was predicted for it and what another run did."""
    shown = [*(beside.rows if beside else ()), *(predicted.rows if predicted else ()), *table.rows]
    some = {row.bucket: row for row in shown}
    ranks = sorted({row.rank for row in shown})
    blocks = _Blocks(sorted(some), ranks, shared=beside is not None)
    rows = tuple(Row(row, blocks.middle(row.bucket, row.rank), _moments(table, row)) for row in table.rows)
    others = _others(beside, blocks) if beside else ()
    outlines = tuple(_outlines(predicted, blocks)) if predicted else ()
    ends = {span.rank: _ms(table, span.end_ns) for span in table.backward}
    half = blocks.thickness / 2
    lives = [row.at for row in (*rows, *others)] + [one.at for one in outlines]
    start = min(0.0, *(life.first_ready for life in lives))
    end = max(0.0, *ends.values(), *(life.done for life in lives))
    width = (end - start) or 1.0
    return Layout(
        rows,
        others,
        outlines,
        tuple(Line(_ms(table, at), row.y - half, row.y + half) for row in rows for _, at in row.source.ready),
        tuple(
            Line(ends[rank], *blocks.reach(bucket, rank)) for bucket in sorted(some) for rank in ranks if rank in ends
        ),
        tuple(ranks),
        tuple((some[bucket], blocks.tops[bucket] + blocks.block / 2) for bucket in sorted(some)),
        blocks.lines,
        blocks.thickness,
        blocks.beside_thickness,
        blocks.height,
        start - 0.01 * width,
        end + 0.02 * width,
    )


class _Blocks:
    """Share out the height."""

    def __init__(self, buckets: list[int], ranks: list[int], *, shared: bool) -> None:
        share = _ROOM_PX / len(buckets) - _GAP_PX
        self.pitch = min(_MOST_ROW_PX, max(_LEAST_ROW_PX, share / len(ranks)))
        self.lines = 2 if share >= _TWO_LINES_PX else 1
        self.block = max(_TWO_LINES_PX if self.lines == 2 else _ONE_LINE_PX, self.pitch * len(ranks))
        room = self.pitch - (1 if self.pitch < 10 else 4)
        self.beside_thickness = _BESIDE * room if shared else 0.0
        self.thickness = room - self.beside_thickness
        self.height = len(buckets) * (self.block + _GAP_PX)
        self.tops = {bucket: _GAP_PX / 2 + place * (self.block + _GAP_PX) for place, bucket in enumerate(buckets)}
        self._place = {rank: place for place, rank in enumerate(ranks)}
        self._inset = (self.block - self.pitch * len(ranks)) / 2

    def middle(self, bucket: int, rank: int) -> float:
        return self._centre(bucket, rank) - self.beside_thickness / 2

    def lower(self, bucket: int, rank: int) -> float:
        return self._centre(bucket, rank) + self.thickness / 2

    def _centre(self, bucket: int, rank: int) -> float:
        return self.tops[bucket] + self._inset + self.pitch * (self._place[rank] + 0.5)

    def reach_of_bar(self, bucket: int, rank: int) -> tuple[float, float]:
        """Return top and bottom of what a prediction is drawn around."""
        centre = self._centre(bucket, rank)
        return centre - self.pitch / 2, centre + self.pitch / 2 - self.beside_thickness

    def reach(self, bucket: int, rank: int) -> tuple[float, float]:
        """Return top and bottom of a rank's part of a block; the outermost reach to the next block."""
        top, bottom = (self._centre(bucket, rank) + side * self.pitch / 2 for side in (-1, 1))
        if self._place[rank] == 0:
            top = self.tops[bucket] - _GAP_PX / 2
        if self._place[rank] == len(self._place) - 1:
            bottom = self.tops[bucket] + self.block + _GAP_PX / 2
        return top, bottom


def _others(beside: Buckets, blocks: _Blocks) -> tuple[Row, ...]:
    return tuple(Row(row, blocks.lower(row.bucket, row.rank), _moments(beside, row)) for row in beside.rows)


def _outlines(predicted: Buckets, blocks: _Blocks) -> Iterator[Outline]:
    """Yield an outline for each run of neighbouring ranks with the same prediction."""
    placed = [(row, _moments(predicted, row)) for row in sorted(predicted.rows, key=lambda row: (row.bucket, row.rank))]
    for (bucket, moments), group in groupby(placed, key=lambda one: (one[0].bucket, one[1])):
        reaches = [blocks.reach_of_bar(bucket, row.rank) for row, _ in group]
        yield Outline(min(top for top, _ in reaches), max(bottom for _, bottom in reaches), moments)


def _moments(table: Buckets, row: BucketRow) -> Moments:
    """Return a bucket's moments; one that was never sent waits until the end."""
    sent = table.end_ns if row.sent_ns is None else row.sent_ns
    done = sent if row.done_ns is None else row.done_ns
    return Moments(*(_ms(table, at) for at in (row.first_ready_ns, row.full_ns, sent, done)))


def _ms(table: Buckets, at: int) -> float:
    return (at - table.start_ns) / 1e6
