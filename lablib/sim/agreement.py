"""Does what real ranks hold equal the prediction, value by value?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lablib.errors import UsageError
from lablib.sim.dtypes import Array, dtype_named
from lablib.sim.placement import Placement
from lablib.sim.tile import Tile, Undefined

Verdict = Literal["equal", "rounding", "different", "unread"]


@dataclass(frozen=True)
class Measured:
    """Hold what one rank really has in one slot, and how it compares.

    Args:
        values: the values measured.
        verdict: ``equal``; ``rounding`` where only the order of floating-point additions can be the reason;
            ``different``; ``unread`` where nothing is predicted because nobody may read it.
    """

    values: tuple[int | float, ...]
    verdict: Verdict


@dataclass(frozen=True)
class Agreement:
    """Compare all ranks: for each one a `Measured` for each slot of the prediction's `after`."""

    ranks: tuple[tuple[Measured, ...], ...]

    def count(self, verdict: Verdict) -> int:
        """Return how many slots have this verdict; empty ones count only where they should not be empty."""
        wrong = verdict == "different"
        return sum(slot.verdict == verdict and (wrong or bool(slot.values)) for rank in self.ranks for slot in rank)


def compare(placement: Placement, measured: Sequence[Any]) -> Agreement:
    """Compare a prediction with the tensors that real ranks ended with.

    Args:
        placement: the prediction.
        measured: one array or tensor a rank, lists joined along the first dimension.

    Raises:
        UsageError: these are not as many ranks as were predicted, or a rank gave no numbers.
    """
    if len(measured) != placement.call.world_size:
        raise UsageError(
            f"{len(measured)} tensors for {placement.call.world_size} ranks were measured; give one a rank"
        )
    return Agreement(
        tuple(
            tuple(_rank(placement, holding.slots, _numbers(found, holding.rank)))
            for holding, found in zip(placement.after, measured, strict=True)
        )
    )


def _numbers(found: Any, rank: int) -> Array:
    array = np.asarray(found).ravel()
    if array.dtype.kind not in "biuf":
        raise UsageError(
            f"rank {rank} gave a {type(found).__name__}, which is no tensor of real numbers; let the ranks run measure"
        )
    return array


def _rank(placement: Placement, slots: Sequence[Any], found: Array) -> list[Measured]:
    """Cut one rank's values as the prediction does; a wrong number of values shows in the last slot."""
    sizes = [len(slot.values) if isinstance(slot, Tile) else slot.shape[0] for slot in slots]
    parts = np.split(found, np.cumsum(sizes)[:-1]) if sizes else []
    return [_slot(placement, slot, part) for slot, part in zip(slots, parts, strict=True)]


def _slot(placement: Placement, slot: Tile | Undefined, part: Array) -> Measured:
    values = tuple(part.tolist())
    if isinstance(slot, Undefined):
        return Measured(values, "unread" if len(values) == slot.shape[0] else "different")
    if len(values) != len(slot.values):
        return Measured(values, "different")
    if np.array_equal(part, slot.array, equal_nan=part.dtype.kind == "f"):
        return Measured(values, "equal")
    close = np.abs(part.astype(float) - slot.array.astype(float)) <= _room_for_rounding(placement, slot)
    return Measured(values, "rounding" if close.all() else "different")


def _room_for_rounding(placement: Placement, slot: Tile) -> Array:
    """Return how far apart two orders of the same additions can come; nothing for integers, and for copies."""
    call = placement.call
    if call.reduce_op not in ("SUM", "AVG", "PRODUCT") or not call.kind.reduces or len(slot.ranks) < 2:
        return np.zeros(len(slot.values))
    sizes = np.abs(slot.array.astype(float))
    if call.reduce_op != "PRODUCT":
        parts = [
            np.abs(tile.array.astype(float))
            for holding in placement.before
            for tile in holding.slots
            if isinstance(tile, Tile) and tile.piece == slot.piece and holding.rank in slot.ranks
        ]
        sizes = np.sum(parts, axis=0)
    return np.asarray(len(slot.ranks) * dtype_named(call.dtype).epsilon * sizes)
