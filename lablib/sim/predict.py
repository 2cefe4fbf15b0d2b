"""What every rank's tensor is after a call, as plain arrays: one line of NumPy for each operation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from lablib.errors import UsageError
from lablib.sim.collective import Collective, Splits
from lablib.sim.dtypes import Array, combine, dtype_named, dtype_of, finish
from lablib.sim.tile import Undefined

LEFTOVER = "a partial result may be left here: do not read"

_COPIES = ("broadcast", "gather", "all_gather_single", "send_recv", "isend_irecv", "batch_isend_irecv")
_ROWS = ("scatter", "gather", "all_gather", "all_gather_single", "reduce_scatter", "reduce_scatter_single")


def predict(
    op: str,
    inputs: Sequence[Any],
    *,
    root: int | None = None,
    to: int | None = None,
    reduce_op: str = "SUM",
    dtype: str | None = None,
    ranks: Sequence[int] | None = None,
    splits: Splits | None = None,
) -> list[Array | Undefined]:
    """Return the tensor that every rank ends with: the result where it gets one, else what it held.

    Lists of tensors count as one tensor, joined along the first dimension.

    Args:
        op: the operation; see `collective.OPERATIONS`.
        inputs: one array a rank, also for ranks outside the group: what it brings. Where the operation cuts a tensor,
            the parts lie one after the other. For scatter only the root's matters.
        root, to, reduce_op, ranks, splits: see `Collective`.
        dtype: the tensors' type; left out, that of the first rank's array.

    Raises:
        UsageError: such a call cannot work, or the inputs do not fit it.
    """
    given = [held for held in inputs if held is not None]
    call = Collective(
        op,
        len(inputs),
        root=root,
        to=to,
        reduce_op=reduce_op,
        dtype=dtype or (dtype_of(given[0]) if given else "float32"),
        ranks=None if ranks is None else tuple(ranks),
        splits=splits,
    )
    return results(call, inputs)


def results(call: Collective, inputs: Sequence[Any]) -> list[Array | Undefined]:
    """Return the same for a call that is described already."""
    held = tensors_of(call, inputs)
    mine = [held[rank] for rank in call.group]
    after: list[Array | Undefined] = [array.copy() for array in held]
    for rank, array in zip(call.group, _in_group(call, mine), strict=True):
        if array is not None:
            after[rank] = array
    return after


def tensors_of(call: Collective, inputs: Sequence[Any]) -> list[Array]:
    """Return the inputs as arrays of the call's type; None stands for a rank that brings nothing.

    Raises UsageError where they do not fit the call.
    """
    if len(inputs) != call.world_size:
        raise UsageError(f"there are {len(inputs)} inputs for {call.world_size} ranks; give one a rank")
    dtype = dtype_named(call.dtype)
    held = [dtype.cast([] if array is None else array) for array in inputs]
    members = [held[rank] for rank in call.group]
    if call.kind.reduces and call.reduce_op in ("MIN", "MAX") and any(np.isnan(array).any() for array in members):
        raise UsageError(
            f"{call.reduce_op} of nan cannot be predicted: gloo keeps or loses it by the order in which it compares; "
            "take it out first, as with torch.nan_to_num"
        )
    heads = [held[call.source]] if call.op == "scatter" else members
    if call.op in _ROWS or call.op.startswith("all_to_all"):
        if any(array.ndim == 0 for array in heads):
            raise UsageError(f"{call.op} cuts or joins along the first dimension: give tensors with one")
        if any(array.shape[1:] != heads[0].shape[1:] for array in heads):
            raise UsageError(f"{call.op} needs tensors that differ in their first dimension at the most")
    if call.op == "all_gather" and call.splits is not None:
        sizes = tuple(len(array) for array in members)
        if sizes != call.splits:
            raise UsageError(f"splits={call.splits} and the tensors' sizes {sizes} differ; make them equal")
    elif call.op in (*_COPIES, "all_gather") or call.kind.reduces:
        pair = [held[call.source], held[call.target]] if call.op in ("send_recv", "isend_irecv") else members
        if any(array.shape != pair[0].shape for array in pair):
            shapes = [array.shape for array in pair]
            raise UsageError(f"{call.op} needs one shape on all its ranks, and got {shapes}")
    return held


def _in_group(call: Collective, mine: list[Array]) -> list[Array | Undefined | None]:
    """Return what each member gets, None where it keeps what it has."""
    n = len(mine)
    root = call.group.index(call.source)
    nothing: list[Array | Undefined | None] = [None] * n
    match call.op:
        case "broadcast":
            return [mine[root].copy() for _ in mine]
        case "reduce":
            return [_total(call, mine) if i == root else Undefined(mine[i].shape, LEFTOVER) for i in range(n)]
        case "all_reduce":
            return [_total(call, mine) for _ in mine]
        case "scatter":
            return [*cut(mine[root], call.row_splits(root, len(mine[root])))]
        case "gather":
            return [np.concatenate(mine) if i == root else None for i in range(n)]
        case "all_gather" | "all_gather_single":
            return [np.concatenate(mine) for _ in mine]
        case "reduce_scatter" | "reduce_scatter_single":
            return [*cut(_total(call, mine), call.row_splits(0, len(mine[0])))]
        case "all_to_all" | "all_to_all_single":
            parts = [cut(array, call.row_splits(i, len(array))) for i, array in enumerate(mine)]
            if call.splits is None and len({len(array) for array in mine}) > 1:
                raise UsageError(f"{call.op} of tensors of different sizes needs splits: one row of sizes a sender")
            return [np.concatenate([row[j] for row in parts]) for j in range(n)]
        case "send_recv" | "isend_irecv":
            return [mine[root].copy() if rank == call.target else None for rank in call.group]
        case "batch_isend_irecv":
            return [mine[i - 1].copy() for i in range(n)]
    return nothing


def cut(array: Array, sizes: Sequence[int]) -> list[Array]:
    """Return consecutive parts of these sizes along the first dimension."""
    return [part.copy() for part in np.split(array, np.cumsum(sizes)[:-1])]


def _total(call: Collective, mine: list[Array]) -> Array:
    total = reduce(lambda one, other: combine(call.reduce_op, one, other, call.dtype), mine)
    return finish(call.reduce_op, total, len(mine), call.dtype).copy()
