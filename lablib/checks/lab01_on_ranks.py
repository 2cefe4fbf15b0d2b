"""What lab 01's checks run on the ranks: a learner's function, watched.

Each `try_` function returns what is wrong on this rank, in words, or nothing. Data that a learner reads before
``wait()`` is never there by luck: what comes in is kept aside until then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_REDUCE_SCATTER = ("reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor")
_ALL_GATHER = ("all_gather", "all_gather_single", "all_gather_into_tensor", "all_gather_object")
_ONE_TO_ALL = ("broadcast", "broadcast_object_list", "scatter", "scatter_object_list")
_ALL_TO_ONE = ("reduce", "gather", "gather_object")
_ALL_TO_ALL = ("all_reduce", "all_to_all", "all_to_all_single", "barrier", "monitored_barrier")
_OTHERS = (*_ONE_TO_ALL, *_ALL_TO_ONE, *_ALL_TO_ALL)
_COLLECTIVES = (*_REDUCE_SCATTER, *_ALL_GATHER, *_OTHERS)


class NotThisWay(Exception):
    """End an exercise on all ranks because it uses what it should do without."""


@contextmanager
def _replaced(**functions: Any) -> Iterator[None]:
    """Put other functions into torch.distributed for a while."""
    import torch.distributed as dist

    before = {name: getattr(dist, name) for name in functions if hasattr(dist, name)}
    for name in before:
        setattr(dist, name, functions[name])
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(dist, name, function)


def _refused(names: tuple[str, ...], why: str) -> dict[str, Callable[..., Any]]:
    def refusal(name: str) -> Callable[..., Any]:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise NotThisWay(f"{name} is not needed here: {why}")

        return refuse

    return {name: refusal(name) for name in names}


def _numbers(value: Any) -> list[float]:
    """Return a tensor's or a number's values; none where it is something else."""
    try:
        return [float(one) for one in value.detach().flatten()] if hasattr(value, "detach") else [float(value)]
    except (TypeError, ValueError):
        return []


def _short(values: list[float]) -> str:
    return f"[{', '.join(f'{value:g}' for value in values[:8])}{', …' if len(values) > 8 else ''}]"


class _Kept:
    """A receive whose data reaches the learner's tensor at wait()."""

    def __init__(self, work: Any, into: Any, aside: Any) -> None:
        self._work, self._into, self._aside = work, into, aside

    def wait(self, *args: Any) -> Any:
        done = self._work.wait(*args)
        self._into.copy_(self._aside)
        return done

    def is_completed(self) -> bool:
        done = bool(self._work.is_completed())
        if done:
            self._into.copy_(self._aside)
        return done


def try_two_steps(all_reduce: Callable[[Any], Any]) -> str:
    """Be one rank that adds up by reduce_scatter and all_gather."""
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    used: set[str] = set()

    def noted(name: str) -> Callable[..., Any]:
        call = getattr(dist, name)

        def note(*args: Any, **kwargs: Any) -> Any:
            used.add("all_gather" if name in _ALL_GATHER else "reduce_scatter")
            return call(*args, **kwargs)

        return note

    mine = torch.arange(8.0) + 10 * rank
    total = [60.0 + 4 * i for i in range(8)]
    watched = {name: noted(name) for name in (*_REDUCE_SCATTER, *_ALL_GATHER) if hasattr(dist, name)}
    with _replaced(**watched, **_refused(_OTHERS, "build it of reduce_scatter and all_gather")):
        answer = all_reduce(mine.clone())
    if not hasattr(answer, "shape"):
        return f"got {'nothing' if answer is None else f'a {type(answer).__name__}'}: return one tensor with all sums"
    found = _numbers(answer)
    if found == total and answer.shape != mine.shape:
        return f"the sums are right, and have the shape {tuple(answer.shape)}; {tuple(mine.shape)} came in"
    if found == total:
        return "" if len(used) == 2 else "right sums, but the long way: every rank got everything and added up itself"
    known = {
        2: "that is this rank's part of the sums: the other ranks need it too",
        32: "those are all tensors end to end: nothing was added",
    }
    parts = [total[2 * i : 2 * i + 2] for i in range(4)]
    if sorted(found) == sorted(total) and found != total:
        return "the parts of the sum are in another order: part i is from rank i"
    if found == _numbers(mine):
        return "that is what the rank brought: return the tensor with the sums"
    if any(found == 4 * part for part in parts):
        return "one part four times: the four places of the list are one and the same tensor"
    reason = "each rank starts with its own part" if found in parts else "each rank should hold all eight sums"
    return known.get(len(found), f"got {_short(found)}: {reason}")


def try_exchange(exchange: Callable[[Any, int], Any]) -> str:
    """Be one rank of two pairs that give each other their tensors."""
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    irecv, operation = dist.irecv, dist.P2POp

    def kept_irecv(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        aside = torch.empty_like(tensor)
        return _Kept(irecv(aside, *args, **kwargs), tensor, aside)

    def plain_operation(op: Any, *args: Any, **kwargs: Any) -> Any:
        return operation(irecv if op is kept_irecv else op, *args, **kwargs)

    mine, wanted = torch.tensor([float(rank + 1)]), [float((rank ^ 1) + 1)]
    refused = _refused(_COLLECTIVES, "send and receive between the two partners only")
    with _replaced(irecv=kept_irecv, P2POp=plain_operation, **refused):
        found = _numbers(exchange(mine, rank ^ 1))
    if found == wanted:
        return ""
    if found == [float(rank + 1)]:
        return "that is what the rank brought, or the partner's number was read before wait()"
    if found == [0.0]:
        return "that is the empty tensor to receive into: it was read before wait()"
    return f"rank {rank} got {_short(found)} and not its partner's number"


def try_waited_mean(mean: Callable[[Any, Callable[[], str]], Any]) -> str:
    """Be one rank that works while an all_reduce is on its way."""
    import torch
    import torch.distributed as dist

    rank, all_reduce, events = dist.get_rank(), dist.all_reduce, []

    class Later:
        """An all_reduce that happens at wait(), as late as it may."""

        def __init__(self, call: Callable[[], Any]) -> None:
            self._call: Callable[[], Any] | None = call

        def wait(self, *args: Any) -> bool:
            if self._call:
                self._call()
                events.append("waited")
            self._call = None
            return True

        def is_completed(self) -> bool:
            return self.wait()

    def watched(tensor: Any, *args: Any, async_op: bool = False, **kwargs: Any) -> Any:
        events.append("started" if async_op else "blocked")
        later = Later(lambda: all_reduce(tensor, *args, **kwargs))
        return later if async_op else later.wait()

    def meanwhile() -> str:
        events.append("worked")
        return "done"

    with _replaced(all_reduce=watched):
        answer = mean(torch.tensor([float(rank + 1)]), meanwhile)
    if not isinstance(answer, tuple) or len(answer) != 2:
        return "return two things: the mean, and what the other work gave"
    found = _numbers(answer[0])
    if "started" not in events:
        return "no all_reduce was started with async_op=True, so nothing can overlap"
    if "waited" not in events:
        return "nobody waited: async does not mean finished, and the handle must be waited for"
    if found == [(rank + 1) / 4]:
        return "read before wait(): that is a quarter of this rank's own number"
    if found == [10.0]:
        return "that is the sum; the mean is asked"
    if found != [2.5]:
        return f"got {_short(found)}: wait, then divide the sum by the number of ranks"
    if "worked" not in events:
        return "the other work was left out"
    if events.index("waited") < events.index("worked"):
        return "right, but the wait stands before the other work: nothing overlaps"
    if events.index("worked") < events.index("started"):
        return "right, but the other work came first: nothing was on its way meanwhile"
    return ""


def try_logged_mean(logged_mean: Callable[[Any], Any]) -> str:
    """Be one rank that logs the mean of all losses, then goes backward."""
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    weight = torch.tensor(2.0, requires_grad=True)
    loss = weight * (rank + 1)
    found = _numbers(logged_mean(loss))
    if loss.item() in (5.0, 20.0):
        return "the loss itself was overwritten: all_reduce works in place, and detach() shares the memory; copy first"
    if found == [20.0]:
        return "that is the sum of the losses; the mean is asked"
    if found == [2.0 * (rank + 1)]:
        return "that is this rank's own loss: return the tensor that was added up"
    if found == [(rank + 1) / 2]:
        return "that is a quarter of this rank's own loss: read the tensor that was added up, after the call is done"
    if found != [5.0]:
        return f"got {_short(found)}; the losses are 2, 4, 6 and 8"
    loss.backward()  # type: ignore[no-untyped-call]
    return "" if weight.grad is not None and weight.grad.item() == rank + 1 else "the gradient is another one now"


def try_in_turn(in_turn: Callable[[Callable[[], None]], Any], log: str) -> str:
    """Be one rank that speaks in its turn; who is early by rank is slow at speaking."""
    import torch.distributed as dist

    rank, events = dist.get_rank(), []

    def say(*_: Any) -> None:
        time.sleep(0.06 * (dist.get_world_size() - 1 - rank))
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
        os.write(descriptor, f"{rank} {'heard' if 'heard' in events else 'unheard'}\n".encode())
        os.close(descriptor)
        events.append("said")

    def noted(call: Callable[..., Any], event: str) -> Callable[..., Any]:
        def note(*args: Any, **kwargs: Any) -> Any:
            events.append(event)
            return call(*args, **kwargs)

        return note

    watched = {name: noted(getattr(dist, name), "told") for name in ("send", "isend")}
    watched |= {name: noted(getattr(dist, name), "heard") for name in ("recv", "irecv")}
    with _replaced(**watched, **_refused(_COLLECTIVES, "send and recv are enough")):
        in_turn(say)
    done = [event for event in events if event != "heard"]
    return f"rank {rank} told the next one before it had spoken" if done[:1] == ["told"] else ""


def try_ring_sum(ring_sum: Callable[[Any], Any]) -> str:
    """Be one rank of a ring, and count its messages."""
    import torch
    import torch.distributed as dist

    rank, n = dist.get_rank(), dist.get_world_size()
    batch = dist.batch_isend_irecv
    rounds: list[int] = []
    strangers: set[int] = set()

    def watched(operations: list[Any]) -> list[Any]:
        rounds.append(len(operations))
        strangers.update(one.peer for one in operations if (one.peer - rank) % n not in (1, n - 1))
        aside = {}
        for one in operations:
            if one.op is dist.irecv:
                aside[id(one)] = one.tensor, torch.empty_like(one.tensor)
                one.tensor.zero_()
                one.tensor = aside[id(one)][1]
        works = batch(operations)
        return [
            _Kept(work, *aside[id(one)]) if id(one) in aside else work
            for work, one in zip(works, operations, strict=True)
        ]

    refused = _refused((*_COLLECTIVES, "send", "recv"), "batch_isend_irecv is enough")
    with _replaced(batch_isend_irecv=watched, **refused):
        found = _numbers(ring_sum(torch.tensor([10.0**rank])))
    own, left, further = 10.0**rank, 10.0 ** ((rank - 1) % n), 10.0 ** ((rank - 2) % n)
    last = 10.0 ** ((rank - 3) % n)
    if not rounds:
        return "batch_isend_irecv was not used"
    if strangers:
        return f"rank {rank} talks to rank {min(strangers)}, which is not its neighbour"
    if found == [1111.0]:
        return "" if len(rounds) == n - 1 else f"right, in {len(rounds)} rounds; {n - 1} are enough for {n} ranks"
    if found == [1111.0 + own]:
        return "one round too many: the rank's own number came back and was added twice"
    if found == [own]:
        return "read before wait(), or never added: that is the rank's own number"
    if found == [own + 3 * left + 3 * further + last]:
        return "the running total was passed on, and numbers were counted twice: pass on what came in"
    if found == [own + 3 * left]:
        return "the rank sends its own number each round: pass on what came in"
    if len(rounds) < n - 1:
        return f"{len(rounds)} round{'s' * (len(rounds) > 1)}: a number needs {n - 1} steps to reach all {n} ranks"
    return f"rank {rank} got {_short(found)}; the sum is 1 + 10 + 100 + 1000"
