"""What the picture of shards is made of: boxes for samples, frames for batches, in pixels of its full width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from lablib.sim.shards import Sighting

Kind = Literal["once", "again", "never", "different"]


class Size(NamedTuple):
    """Be the size of cells for one sample each, and how far it is to the next cell and line."""

    width: float
    height: float
    step: float
    line: float

    def fitting(self, width: float) -> int:
        """Return how many stand side by side."""
        return int(width / self.step + 1e-9)


SMALL = Size(10.0, 18.0, 12.0, 24.0)
_WIDEST = 46.0


def numbered(samples: int, column: float) -> Size:
    """Return the size of cells with room for the number of each sample: the widest that all fit side by side."""
    least = 15.0 + 9.0 * len(str(max(0, samples - 1)))
    step = min(_WIDEST, max(least, column / max(1, samples)))
    return Size(step - 3.0, 28.0, step, 36.0)


class Box(NamedTuple):
    """Place a sample, or a bar for many.

    Args:
        x, y, width, height: its box; x and y are the left upper corner.
        kind: whether its samples are seen once, again, never, or are others than predicted.
        ranks: who sees it.
        slot: which one it is.
        hover: all about it.
        text: the number in it.
        many: whether it stands for more than one sample.
    """

    x: float
    y: float
    width: float
    height: float
    kind: Kind
    ranks: tuple[int, ...]
    slot: str
    hover: str
    text: str = ""
    many: bool = False


class Frame(NamedTuple):
    """Place the frame around a batch."""

    x: float
    y: float
    width: float
    height: float


def place_of(seen: Sighting) -> str:
    """Say where a sample was seen."""
    return f"rank {seen.rank}, batch {seen.batch}, place {seen.place}"


def some(indices: Sequence[int], most: int = 8) -> str:
    """Return the first of some indices."""
    return ", ".join(map(str, indices[:most])) + (", …" if len(indices) > most else "")
