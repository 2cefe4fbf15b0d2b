"""Who holds what before, during and after a call, and the textbook bytes that each rank sends and receives.

Nothing here knows the results: tiles travel by the rounds of `schedule` and combine by the rule of `Tile`. That the
outcome equals `predict` is a test.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lablib.errors import UsageError
from lablib.sim import schedule
from lablib.sim.collective import Collective
from lablib.sim.dtypes import Array
from lablib.sim.predict import LEFTOVER, cut, tensors_of
from lablib.sim.tile import Holding, Move, Slot, Step, Tile, Undefined

IN_FLIGHT = "on its way: do not read before wait()"

Grid = list[list[Slot]]


@dataclass(frozen=True)
class Placement:
    """Tell the whole story of one call.

    Args:
        call: the call.
        before: what each rank brings.
        start: what each rank works on, its own part already in place; where a call has a separate output, the output.
        steps: what travels, in order.
        after: what each rank ends with.
        sent, received: bytes of each rank over all steps.
    """

    call: Collective
    before: tuple[Holding, ...]
    start: tuple[Holding, ...]
    steps: tuple[Step, ...]
    after: tuple[Holding, ...]
    sent: tuple[int, ...]
    received: tuple[int, ...]

    def holdings(self, step: int) -> tuple[Holding, ...]:
        """Return what everyone works on after `step` steps, 0 for the start."""
        if not 0 <= step <= len(self.steps):
            raise UsageError(f"step={step} does not exist; this call has steps 0 to {len(self.steps)}")
        return self.steps[step - 1].holdings if step else self.start


def place(call: Collective, inputs: Sequence[Any]) -> Placement:
    """Follow every tile of a call.

    Args:
        call: the call.
        inputs: one array a rank; see `predict`.

    Raises:
        UsageError: the inputs do not fit the call.
    """
    board = _Board(call, tensors_of(call, inputs))
    steps = tuple(board.play(label, hops) for label, hops in _rounds(call))
    moves = [move for step in steps for move in step.moves]
    ranks = range(call.world_size)
    return Placement(
        call=call,
        before=board.before,
        start=board.start,
        steps=steps,
        after=_after(call, board),
        sent=tuple(sum(move.nbytes for move in moves if move.source == rank) for rank in ranks),
        received=tuple(sum(move.nbytes for move in moves if move.target == rank) for rank in ranks),
    )


def _rounds(call: Collective) -> list[schedule.Round]:
    n, root = len(call.group), call.group.index(call.source)
    match call.op:
        case "broadcast":
            return list(schedule.tree_out(n, root))
        case "reduce":
            return list(schedule.tree_in(n, root))
        case "all_reduce":
            return [*schedule.ring_reduce_scatter(n), *schedule.ring_all_gather(n)]
        case "scatter":
            return list(schedule.direct_out(n, root))
        case "gather":
            return list(schedule.direct_in(n, root))
        case "all_gather" | "all_gather_single":
            return list(schedule.ring_all_gather(n))
        case "reduce_scatter" | "reduce_scatter_single":
            return list(schedule.ring_reduce_scatter(n))
        case "all_to_all" | "all_to_all_single":
            return list(schedule.pairwise(n))
        case "barrier":
            return list(schedule.dissemination(n))
        case "send_recv" | "isend_irecv":
            hops = [schedule.Hop(root, call.group.index(call.target), 0, 0)]
            return [("send meets recv", hops)] if call.op == "send_recv" else [("isend, irecv", hops), ("wait()", [])]
    hops = [schedule.Hop(i, (i + 1) % n, 0, 0) for i in range(n)] if n > 1 else []
    return [("all sends and receives posted", hops), ("wait() for each", [])]


class _Board:
    """Hold everybody's tiles while they travel."""

    def __init__(self, call: Collective, held: list[Array]) -> None:
        self.call = call
        self._given: Grid = [self._tiles(rank, array) for rank, array in enumerate(held)]
        self.before = self._snapshot(self._given)
        self._reads_given = call.op in ("scatter", "gather", "batch_isend_irecv") or call.op.startswith("all_to_all")
        self._work: Grid = [self._first(rank) for rank in range(call.world_size)]
        self._waiting: list[tuple[int, int, Tile]] = []
        self.start = self._snapshot(self._work)

    def _tiles(self, rank: int, array: Array) -> list[Slot]:
        """Return a rank's tensor, cut as its call cuts it."""
        call = self.call
        if rank not in call.group:
            return [self._tile(rank, 0, array)]
        position, n = call.group.index(rank), len(call.group)
        if call.op == "all_reduce":
            return [self._tile(rank, i, part) for i, part in enumerate(np.array_split(array.ravel(), n))]
        if call.op in ("reduce_scatter", "reduce_scatter_single") or call.op.startswith("all_to_all"):
            parts = cut(array, call.row_splits(position, len(array)))
        elif call.op == "scatter":
            if rank != call.source:
                return []
            parts = cut(array, call.row_splits(position, len(array)))
        else:
            parts = [array]
        return [self._tile(rank, i, part) for i, part in enumerate(parts)]

    def _tile(self, rank: int, piece: int, part: Array) -> Tile:
        return Tile(frozenset({rank}), piece, tuple(part.ravel().tolist()), self.call.dtype)

    def _first(self, rank: int) -> list[Slot]:
        """Return what a rank starts to work on."""
        call, given = self.call, self._given[rank]
        if rank not in call.group:
            return list(given)
        position, n = call.group.index(rank), len(call.group)
        empty: list[Slot] = [None] * n
        if call.op == "scatter":
            own = self._given[call.source][position] if rank == call.source else None
        elif call.op == "gather":
            if rank != call.source:
                return []
            own = given[0]
        elif call.op in ("all_gather", "all_gather_single"):
            own = given[0]
        elif call.op.startswith("all_to_all"):
            own = given[position]
        elif call.op == "batch_isend_irecv":
            return [given[0] if n == 1 else None]
        else:
            return list(given)
        return [*empty[:position], own, *empty[position + 1 :]]

    def play(self, label: str, hops: Iterable[schedule.Hop]) -> Step:
        """Let the hops of one round happen at once."""
        call = self.call
        for target, slot, tile in self._waiting:
            self._work[target][slot] = tile
        self._waiting.clear()
        origin = self._given if self._reads_given else self._work
        luggage = [(hop, origin[call.group[hop.source]][hop.from_slot]) for hop in hops]
        moves = [move for hop, tile in luggage if (move := self._land(hop, tile))]
        return Step(label, tuple(moves), self._snapshot(self._work))

    def _land(self, hop: schedule.Hop, tile: Slot) -> Move | None:
        call = self.call
        source, target = call.group[hop.source], call.group[hop.target]
        assert isinstance(tile, Tile), f"rank {source} has nothing to send"
        if call.op == "barrier":
            return Move(source, target, 0, 0, 0)
        row = self._work[target]
        there = row[hop.to_slot]
        if hop.combines:
            assert isinstance(there, Tile), f"rank {target} has nothing to combine with"
            row[hop.to_slot] = there.combined(tile, call.reduce_op)
        elif call.op in ("isend_irecv", "batch_isend_irecv"):
            row[hop.to_slot] = Undefined((len(tile.values),), IN_FLIGHT)
            self._waiting.append((target, hop.to_slot, tile))
        else:
            row[hop.to_slot] = tile
        if not tile.values:
            return None
        return Move(source, target, tile.piece, hop.to_slot, tile.nbytes, hop.combines)

    def _snapshot(self, grid: Grid) -> tuple[Holding, ...]:
        return tuple(Holding(rank, tuple(row)) for rank, row in enumerate(grid))

    def result(self, rank: int) -> list[Slot]:
        """Return the slots that a member of the group ends with."""
        call, row = self.call, self._work[rank]
        position = call.group.index(rank)
        if call.op == "gather" and rank != call.source:
            return self._given[rank]
        if call.op in ("scatter", "reduce_scatter", "reduce_scatter_single"):
            row = [row[position]]
        if call.op == "reduce" and rank != call.source:
            return [Undefined((len(tile.values),), LEFTOVER) for tile in row if isinstance(tile, Tile)]
        if call.kind.reduces:
            return [tile.finished(call.reduce_op) for tile in row if isinstance(tile, Tile)]
        return row


def _after(call: Collective, board: _Board) -> tuple[Holding, ...]:
    return tuple(
        Holding(rank, tuple(board.result(rank)) if rank in call.group else board.before[rank].slots)
        for rank in range(call.world_size)
    )
