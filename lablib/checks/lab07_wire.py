"""The network as the wrappers of lab 07 see it while they are judged.

    all_reduce(async_op=True) ──► a call that happens at wait(), with those that were made before it
    every call ──► ranks compare first what they are about to send, and stop together where they disagree

So what is read before wait() is never right by luck, and ranks do not talk past each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Disagreement(Exception):
    """End a trial on all ranks because they are about to make different calls."""


def shared(problem: str) -> str:
    """Return the first rank's problem on all ranks, so that they stop together; empty where none has one."""
    return next(filter(None, _everyones("no call", problem)), "")


def _everyones(call: str, what: Any) -> list[Any]:
    """Return what each rank brings; raise Disagreement on all of them where they do not make the same call."""
    import torch.distributed as dist

    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, (call, what))
    calls = [(name, 0 if name == "no call" else size) for name, size in found]
    if any(one != calls[0] for one in calls):
        told = ", ".join(f"rank {rank} {name}{f' of {size}' * bool(size)}" for rank, (name, size) in enumerate(calls))
        raise Disagreement(f"ranks make different calls at the same time ({told})")
    return [one for _, one in found]


class Call:
    """An all_reduce that was begun; it happens when it, or one that was made later, is waited for."""

    def __init__(self, wire: Wire, tensor: Any, how: dict[str, Any]) -> None:
        self._wire, self._tensor, self._how = wire, tensor, how
        self._sent = tensor.detach().clone()
        self.phase = wire.phase
        self.numel = tensor.numel()
        self.address = tensor.data_ptr()
        self.blocking = not how.pop("async_op")
        self.touched = False

    def wait(self, *args: Any) -> bool:
        """Let it happen."""
        self._wire.settle(self)
        return True

    def is_completed(self) -> bool:
        """Say that it is not, until it was waited for."""
        return self not in self._wire.pending

    def happen(self) -> None:
        """Carry it out, and note whether somebody wrote into its tensor meanwhile."""
        import torch

        self.touched = not torch.equal(self._tensor.detach(), self._sent)
        _everyones("all_reduce", self.numel)
        self._wire.real["all_reduce"](self._tensor, **self._how)


class Wire:
    """Stand between torch.distributed and a wrapper: hold asynchronous calls back, and note all of them."""

    def __init__(self) -> None:
        self.real: dict[str, Any] = {}
        self.calls: list[Call] = []
        self.broadcasts: list[tuple[str, int]] = []  # phase and number of elements
        self.pending: list[Call] = []
        self.phase = "building"

    @contextmanager
    def between(self) -> Iterator[Wire]:
        """Replace all_reduce and broadcast for a while."""
        import torch.distributed as dist

        self.real = {name: getattr(dist, name) for name in ("all_reduce", "broadcast")}
        for name in self.real:
            setattr(dist, name, getattr(self, f"_{name}"))
        try:
            yield self
        finally:
            for name, function in self.real.items():
                setattr(dist, name, function)

    def settle(self, call: Call) -> None:
        """Carry out what was begun up to this call, in order."""
        while call in self.pending:
            self.pending.pop(0).happen()

    def of_phase(self, phase: str) -> list[int]:
        """Return the number of elements of each all_reduce that was begun in a phase."""
        return [call.numel for call in self.calls if call.phase == phase]

    def _all_reduce(self, tensor: Any, *args: Any, async_op: bool = False, **how: Any) -> Call | None:
        if args:
            how["op"] = args[0]
        call = Call(self, tensor, {**how, "async_op": async_op})
        self.calls.append(call)
        self.pending.append(call)
        if async_op:
            return call
        self.settle(call)
        return None

    def _broadcast(self, tensor: Any, *args: Any, **how: Any) -> Any:
        self.broadcasts.append((self.phase, tensor.numel()))
        _everyones("broadcast", tensor.numel())
        return self.real["broadcast"](tensor, *args, **how)
