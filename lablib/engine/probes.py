"""What is noted of each collective: one probe in front of each ``c10d::`` operator.

Every way to communicate passes one of these operators: user calls, point-to-point, DDP's C++ reducer, FSDP, functional
collectives, DTensor. The probe notes the call in the rank's logbook and hands it on to torch's own kernel, unchanged.
Learners' hooks, process groups and profilers stay free.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from lablib import torch_private
from lablib.engine import logbook
from lablib.engine.logbook import Logbook


class _Op:
    """How to read one operator's arguments: its public name, and where tensors, group, peer and async_op stand."""

    def __init__(self, name: str, *, tensors: int | None = 0, group: int = 1, peer: int | None = None) -> None:
        self.name, self.tensors, self.group, self.peer = name, tensors, group, peer
        self.async_op = sys.maxsize
        self.to_peer = name in ("send", "recv")

    def is_waited_for(self, args: tuple[Any, ...]) -> bool:
        """Say whether its caller waits at once (``async_op=False``); the dispatcher leaves out a last default, True."""
        return len(args) > self.async_op and not args[self.async_op]


# torch/csrc/distributed/c10d/Ops.cpp; "tensors" is the argument whose bytes are the payload of the call on this rank
_OPS = {
    "allreduce_": _Op("all_reduce"),
    "allreduce_coalesced_": _Op("all_reduce"),
    "broadcast_": _Op("broadcast", peer=2),
    "reduce_": _Op("reduce", peer=3),
    "allgather_": _Op("all_gather", tensors=1, group=2),
    "_allgather_base_": _Op("all_gather", tensors=1, group=2),
    "allgather_coalesced_": _Op("all_gather", tensors=1, group=2),
    "allgather_into_tensor_coalesced_": _Op("all_gather", tensors=1, group=2),
    "reduce_scatter_": _Op("reduce_scatter", tensors=1, group=2),
    "_reduce_scatter_base_": _Op("reduce_scatter", tensors=1, group=2),
    "reduce_scatter_tensor_coalesced_": _Op("reduce_scatter", tensors=1, group=2),
    "gather_": _Op("gather", tensors=1, group=2, peer=3),
    "scatter_": _Op("scatter", tensors=0, group=2, peer=3),
    "alltoall_": _Op("all_to_all", tensors=1, group=2),
    "alltoall_base_": _Op("all_to_all", tensors=1, group=2),
    "barrier": _Op("barrier", tensors=None),
    "monitored_barrier_": _Op("monitored_barrier", tensors=None),
    "send": _Op("send", peer=2),
    "recv_": _Op("recv", peer=2),
    "recv_any_source_": _Op("recv"),
}
Carry = Callable[[str, dict[str, Any], Callable[[], Any], bool], Any]
_HIDDEN = tuple(str(Path(module.__file__ or "").parent) for module in (torch, sys.modules["lablib"]))

_installed: list[Any] = []
_logbook: Logbook | None = None
_carry: Carry | None = None
_sequences: Counter[tuple[str, str, int | None]] = Counter()
_members: dict[str, tuple[int, ...]] = {}
_messages: deque[dist.Work] = deque()  # sends and receives that may not be over yet


def install() -> None:
    """Stand in front of the operators in this process; ranks forked from it do, too."""
    if _installed:
        return
    library: Any = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]
    _installed.append(library)
    for name, op in _OPS.items():
        arguments = torch_private.operator_arguments(name)
        op.async_op = arguments.index("async_op") if "async_op" in arguments else sys.maxsize
        torch_private.intercept_operator(library, name, partial(_probe, op))


def remove() -> None:
    """Leave torch as it was."""
    while _installed:
        torch_private.release(_installed.pop())


def attach(book: Logbook, carry: Carry | None = None) -> None:
    """Note the calls of the job that begins in this logbook.

    Args:
        book: where a hang report finds them.
        carry: carries a call out: it is given the operation's name, the facts of its span, the way to the backend, and
            whether the caller waits at once.
    """
    global _logbook, _carry
    book.clear()
    _carry = carry
    _sequences.clear()
    _members.clear()
    _messages.clear()
    _logbook = book


def detach() -> None:
    """Note nothing more."""
    global _logbook, _carry
    _logbook = _carry = None
    _messages.clear()


def messages_are_over() -> bool:
    """Return whether each send and receive of this job was waited for; one that was not spoils the next job's."""
    return all(work.is_completed() for work in _messages)


def _probe(op: _Op, go_on: Callable[..., Any]) -> Callable[..., Any]:
    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if _logbook is None:
            return go_on(keyset, *args, **kwargs)
        facts = _facts(op, args)
        _logbook.note(
            op=op.name,
            group=facts["group"],
            members=sum(1 << rank for rank in facts["ranks"] if rank < 63),
            sequence=facts["sequence"],
            nbytes=facts["nbytes"],
            peer=logbook.NO_PEER if facts["peer"] is None else facts["peer"],
            line=facts["line"],
            file=facts["file"],
        )
        if _carry is None:
            result = go_on(keyset, *args, **kwargs)
        else:
            result = _carry(op.name, facts, partial(go_on, keyset, *args, **kwargs), op.is_waited_for(args))
        if op.to_peer:
            _keep(torch_private.work_in(result))
        return result

    return call


def _keep(message: dist.Work | None) -> None:
    while _messages and _messages[0].is_completed():
        _messages.popleft()
    if message is not None:
        _messages.append(message)


def _facts(op: _Op, args: tuple[Any, ...]) -> dict[str, Any]:
    """Return the arguments of the call's span, apart from its times."""
    group = torch_private.unbox_group(args[op.group])
    name = group.group_name
    if name not in _members:
        _members[name] = tuple(dist.get_process_group_ranks(group))
    ranks = _members[name]
    peer = None if op.peer is None else ranks[args[op.peer]]
    counted = (name, op.name, peer) if op.to_peer else (name, "", None)
    _sequences[counted] += 1
    file, line = _learner_line(sys._getframe(2))
    return {
        "group": name,
        "ranks": ranks,
        "sequence": _sequences[counted],
        "nbytes": 0 if op.tensors is None else _nbytes(args[op.tensors]),
        "peer": peer,
        "file": file,
        "line": line,
    }


def _nbytes(tensors: Any) -> int:
    if isinstance(tensors, torch.Tensor):
        return tensors.numel() * tensors.element_size()  # a sparse tensor has no nbytes
    return sum(_nbytes(part) for part in tensors)


def _learner_line(frame: FrameType | None) -> tuple[str, int]:
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_HIDDEN):
            return file, frame.f_lineno
        frame = frame.f_back
    return "", 0
