"""What ranks hold and pass on: tiles, which know their contributors.

A tile is one piece of a tensor. Two partial tiles of the *same* piece add up, and the sum was made by the ranks of
both; pieces that differ never add, and no rank may be counted twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lablib.errors import UsageError
from lablib.sim.dtypes import Array, combine, dtype_named, finish

Number = int | float


@dataclass(frozen=True)
class Tile:
    """Hold one piece of a tensor.

    Args:
        ranks: who contributed to its values, by rank in the job.
        piece: which piece of the contributors' tensors it is.
        values: its elements, in order.
        dtype: their type, as torch spells it.
    """

    ranks: frozenset[int]
    piece: int
    values: tuple[Number, ...]
    dtype: str = "float32"

    @property
    def nbytes(self) -> int:
        """Return the bytes that its values take."""
        return len(self.values) * dtype_named(self.dtype).nbytes

    @property
    def array(self) -> Array:
        """Return the values as a NumPy array."""
        return np.array(self.values, dtype=dtype_named(self.dtype).carrier)

    def combined(self, other: Tile, reduce_op: str) -> Tile:
        """Return both contributions in one tile; raises UsageError where the sum would be wrong."""
        if self.piece != other.piece or len(self.values) != len(other.values):
            raise UsageError(f"piece {self.piece} and piece {other.piece} are different parts of a tensor: keep both")
        twice = sorted(self.ranks & other.ranks)
        if twice:
            raise UsageError(f"rank {twice[0]} is in both tiles and would be counted twice; combine others first")
        total = combine(reduce_op, self.array, other.array, self.dtype)
        return Tile(self.ranks | other.ranks, self.piece, tuple(total.tolist()), self.dtype)

    def __add__(self, other: Tile) -> Tile:
        return self.combined(other, "SUM")

    def finished(self, reduce_op: str) -> Tile:
        """Return the result that everyone may read, once all ranks contributed: AVG divides here."""
        result = finish(reduce_op, self.array, len(self.ranks), self.dtype)
        return Tile(self.ranks, self.piece, tuple(result.tolist()), self.dtype)


@dataclass(frozen=True)
class Undefined:
    """Stand where a tensor has bytes that nobody may read.

    Args:
        shape: the tensor's shape.
        why: what is wrong with its values, in words.
    """

    shape: tuple[int, ...]
    why: str

    def __bool__(self) -> bool:
        return False


Slot = Tile | Undefined | None


@dataclass(frozen=True)
class Holding:
    """Say what one rank holds: a tile in each slot, None where a slot is still empty."""

    rank: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class Move:
    """Say what travels: a tile to a slot of another rank.

    Args:
        source, target: ranks in the job.
        piece: which piece of the tensor it is.
        slot: where it lands.
        nbytes: its size; 0 for a signal without data.
        combines: whether it is combined with what is there, and does not replace it.
    """

    source: int
    target: int
    piece: int
    slot: int
    nbytes: int
    combines: bool = False


@dataclass(frozen=True)
class Step:
    """Say what travels at the same time, and what everyone holds afterwards."""

    label: str
    moves: tuple[Move, ...]
    holdings: tuple[Holding, ...]
