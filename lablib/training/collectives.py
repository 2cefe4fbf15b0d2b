"""Make the calls that `lablib.sim` predicts, with real tensors on a real rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from lablib.sim.collective import Collective


def perform(call: Collective, tensor: torch.Tensor) -> torch.Tensor:
    """Make the call on this rank and return the tensor it ends with: the result if it gets one, else what it held.

    Every rank of the job must come here, since making a group is a matter of all ranks. Lists of tensors are given and
    returned as one tensor, joined along the first dimension.

    Args:
        call: the call; its world size must be the job's.
        tensor: what this rank brings; it may be changed. For scatter, a rank that is not the root brings the tensor to
            fill.

    Raises:
        RuntimeError: the backend refuses the call.
    """
    # a group that is made here stays: a rank that ended it early would cut off members that are still connecting
    group = dist.group.WORLD if call.ranks is None else dist.new_group(list(call.group))
    return _BY_NAME[call.op](call, tensor, group) if dist.get_rank() in call.group else tensor


def measure(call: Collective, inputs: Sequence[Any]) -> np.ndarray:
    """Make the call on this rank with its own input out of everybody's, and return what it ends with, for comparing.

    Args:
        call: the call.
        inputs: one array a rank, as for `lablib.sim.predict`; None for a rank that brings nothing.

    Returns bfloat16 as float32, which NumPy has and which holds the same values.
    """
    here = dist.get_rank()
    mine = inputs[here]
    if call.op == "scatter" and here in call.group and here != call.source:
        mine = np.zeros_like(np.split(np.asarray(inputs[call.source]), len(call.group))[0])
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    tensor = torch.tensor([] if mine is None else mine, device=device).to(getattr(torch, call.dtype))
    result = perform(call, tensor).cpu()
    return (result.float() if result.dtype is torch.bfloat16 else result).numpy()


def _op(call: Collective) -> Any:
    return getattr(dist.ReduceOp, call.reduce_op)


def _position(group: Any) -> int:
    return dist.get_rank(group)


def _parts(call: Collective, tensor: torch.Tensor, group: Any) -> list[torch.Tensor]:
    return [part.contiguous() for part in torch.split(tensor, call.row_splits(_position(group), len(tensor)))]


def _broadcast(call: Collective, tensor: torch.Tensor, group: Any) -> torch.Tensor:
    dist.broadcast(tensor, src=call.source, group=group)
    return tensor


def _reduce(call: Collective, tensor: torch.Tensor, group: Any) -> torch.Tensor:
    dist.reduce(tensor, dst=call.source, op=_op(call), group=group)
    return tensor


def _all_reduce(call: Collective, tensor: torch.Tensor, group: Any) -> torch.Tensor:
    dist.all_reduce(tensor, op=_op(call), group=group)
    return tensor


def _scatter(call: Collective, tensor: torch.Tensor, group: Any) -> torch.Tensor:
    if dist.get_rank() != call.source:
        dist.scatter(tensor, None, src=call.source, group=group)
        return tensor
    parts = _parts(call, tensor, group)
    out = torch.empty_like(parts[0])
    dist.scatter(out, parts, src=call.source, group=group)
    return out


def _gather(call: Collective, tensor: torch.Tensor, group: Any) -> torch.Tensor:
    is_root = dist.get_rank() == call.source
    outs = [torch.empty_like(tensor) for _ in call.group] if is_root else None
    dist.gather(tensor, outs, dst=call.source, group=group)
    return torch.cat(outs) if outs else tensor


def _all_gather(call: Collective, tensor: torch.Tensor, group: Any) -> torch.Tensor:
    sizes = call.splits or (len(tensor),) * len(call.group)
    outs = [tensor.new_empty((rows, *tensor.shape[1:])) for rows in sizes if isinstance(rows, int)]
    dist.all_gather(outs, tensor, group=group)
    return torch.cat(outs)


def _all_gather_single(call: Collective, tensor: torch.Tensor, group: Any) -> torch.Tensor:
    out = tensor.new_empty((len(call.group) * len(tensor), *tensor.shape[1:]))
    _newest("all_gather_single", "all_gather_into_tensor")(out, tensor, group=group)
    return out


def _reduce_scatter(call: Collective, tensor: torch.Tensor, group: Any) -> torch.Tensor:
    parts = _parts(call, tensor, group)
    out = torch.empty_like(parts[_position(group)])
    dist.reduce_scatter(out, parts, op=_op(call), group=group)
    return out


def _reduce_scatter_single(call: Collective, tensor: torch.Tensor, group: Any) -> torch.Tensor:
    out = torch.empty_like(_parts(call, tensor, group)[0])
    _newest("reduce_scatter_single", "reduce_scatter_tensor")(out, tensor, op=_op(call), group=group)
    return out


def _all_to_all(call: Collective, tensor: torch.Tensor, group: Any) -> torch.Tensor:
    outs = [tensor.new_empty((rows, *tensor.shape[1:])) for rows in _rows_received(call, tensor, group)]
    dist.all_to_all(outs, _parts(call, tensor, group), group=group)
    return torch.cat(outs)


def _all_to_all_single(call: Collective, tensor: torch.Tensor, group: Any) -> torch.Tensor:
    rows = _rows_received(call, tensor, group)
    out = tensor.new_empty((sum(rows), *tensor.shape[1:]))
    if call.splits is None:
        dist.all_to_all_single(out, tensor, group=group)
    else:
        dist.all_to_all_single(out, tensor, rows, call.row_splits(_position(group), len(tensor)), group=group)
    return out


def _rows_received(call: Collective, tensor: torch.Tensor, group: Any) -> list[int]:
    """Return how many rows come from each member."""
    if call.splits is None:
        return call.row_splits(_position(group), len(tensor))
    return [row[_position(group)] for row in call.splits if isinstance(row, tuple)]


def _barrier(call: Collective, tensor: torch.Tensor, group: Any) -> torch.Tensor:
    dist.barrier(group=group)
    return tensor


def _send_recv(call: Collective, tensor: torch.Tensor, group: Any) -> torch.Tensor:
    if dist.get_rank() == call.source:
        dist.send(tensor, dst=call.target, group=group)
    elif dist.get_rank() == call.target:
        dist.recv(tensor, src=call.source, group=group)
    return tensor


def _isend_irecv(call: Collective, tensor: torch.Tensor, group: Any) -> torch.Tensor:
    if dist.get_rank() == call.source:
        _wait(dist.isend(tensor, dst=call.target, group=group))
    elif dist.get_rank() == call.target:
        _wait(dist.irecv(tensor, src=call.source, group=group))
    return tensor


def _batch_isend_irecv(call: Collective, tensor: torch.Tensor, group: Any) -> torch.Tensor:
    n, here = len(call.group), _position(group)
    if n == 1:
        return tensor
    out = torch.empty_like(tensor)
    after, before = call.group[(here + 1) % n], call.group[here - 1]
    posted = [dist.P2POp(dist.isend, tensor, after, group), dist.P2POp(dist.irecv, out, before, group)]
    for work in dist.batch_isend_irecv(posted):
        work.wait()
    return out


def _wait(work: dist.Work | None) -> None:
    assert work is not None, "a member of the group gets a handle"
    work.wait()


def _newest(name: str, old_name: str) -> Any:
    """Return a function that torch renamed, under the name that this torch prefers."""
    return getattr(dist, name, None) or getattr(dist, old_name)


_BY_NAME = {
    "broadcast": _broadcast,
    "reduce": _reduce,
    "all_reduce": _all_reduce,
    "scatter": _scatter,
    "gather": _gather,
    "all_gather": _all_gather,
    "all_gather_single": _all_gather_single,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_single": _reduce_scatter_single,
    "all_to_all": _all_to_all,
    "all_to_all_single": _all_to_all_single,
    "barrier": _barrier,
    "send_recv": _send_recv,
    "isend_irecv": _isend_irecv,
    "batch_isend_irecv": _batch_isend_irecv,
}
