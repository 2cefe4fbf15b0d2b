"""What lab 07's checks run on the ranks: a learner's wrapper, step by step, beside one process that has all the data.

Each `try_` function returns what is wrong on this rank, in words, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lablib.checks.lab07_models import CAP_MB, SENT, Case, Turned, alone, batch_of, flat, optimizer_of, true_gradients
from lablib.checks.lab07_wire import Wire, shared

_CLOSE = 1e-6
_STEPS = 20
_FROZEN = "a frozen parameter has no gradient, and needs none: pass over it"
_LEFT_OVER = "the first step is right, a later one is not: something of an earlier step is still there"

Wrapper = Callable[..., Any]


def try_same_start(wrapper: Wrapper) -> str:
    """Be one rank that wraps a model whose numbers differ from rank to rank, and calls it."""
    import torch
    import torch.distributed as dist

    rank, wire = dist.get_rank(), Wire()
    with wire.between():
        case = Case(seed=rank)
        model = wrapper(case)
        if problem := shared(_other_start(case, rank)):
            return problem
        wire.phase = "forward"
        inside: list[Any] = []
        case.register_forward_pre_hook(lambda *_: inside.append(case.scale.clone()))
        case.scale.fill_(rank + 2.0)
        x = batch_of(0)
        out = model(x)
    if not inside or not isinstance(out, torch.Tensor):
        return "forward must call the model and return what it returns"
    if not torch.equal(inside[0], torch.full_like(inside[0], 2.0)):
        return (
            "the buffers are equal after building, and each rank has its own again in forward: rank 0's must be there"
            " in every forward"
        )
    own = float(out.detach().sub(case(x).detach()).abs().max())
    if own > _CLOSE:
        return "forward returns something else than the model does"
    if any(numel != case.scale.numel() for phase, numel in wire.broadcasts if phase == "forward"):
        return "forward sends the parameters, too: they are equal already, and equal gradients keep them equal"
    return ""


def _other_start(case: Case, rank: int) -> str:
    """Return how a model differs from rank 0's, as it was before."""
    import torch

    mine, zero, one = case.state_dict(), Case(seed=0).state_dict(), Case(seed=1).state_dict()
    wrong = [name for name in mine if float((mine[name] - zero[name]).abs().max()) > _CLOSE]
    if not wrong:
        return ""
    if wrong == ["scale"]:
        return "the parameters are rank 0's, the buffers are not: broadcast those, too"
    if all(name.startswith("frozen") for name in wrong):
        return "the frozen layer differs from rank to rank: it gets no gradients, and needs rank 0's numbers as all do"
    if all(torch.equal(mine[name], one[name]) for name in wrong):
        if rank == 0:
            return "these are rank 1's numbers: src is the rank that sends, and rank 0's shall win"
        return "the ranks keep their own weights, so each would train another model: broadcast rank 0's"
    return f"{wrong[0]} has numbers that rank 0 did not have: broadcast, and leave them as they are"


def try_synchronous(wrapper: Wrapper) -> str:
    """Be one rank whose gradients are averaged after backward."""
    return _try(wrapper, sent=list(SENT.values()), early=None) or _equality(wrapper)


def try_overlapped(wrapper: Wrapper) -> str:
    """Be one rank whose gradients leave during backward, each alone."""
    return _try(wrapper, sent=list(SENT.values()), early="each") or _equality(wrapper)


def try_bucketed(wrapper: Wrapper) -> str:
    """Be one rank whose gradients leave during backward in two buckets, and one with its layers the other way round."""

    def bucketed(module: Any) -> Any:
        return wrapper(module, cap_mb=CAP_MB)

    first = SENT["out.weight"] + SENT["out.bias"]
    sizes = [first, sum(SENT.values()) - first]
    return _try(bucketed, sent=sizes, early="bucket") or _in_order(wrapper) or _equality(bucketed)


def _try(wrapper: Wrapper, *, sent: list[int], early: str | None) -> str:
    """Take two steps, and hold what every gradient is then against what it should be."""
    import torch.distributed as dist

    wire = Wire()
    with wire.between():
        case = Case(seed=dist.get_rank())
        try:
            model = wrapper(case)
        except (RuntimeError, TypeError, AttributeError) as error:
            if "require gradient" in str(error):
                return f"a hook on the frozen parameter: {_FROZEN}"
            raise
        if problem := shared(_other_start(case, dist.get_rank())):
            return f"step 1 comes first: {problem}"
        for step in range(2):
            wire.calls.clear()
            model.zero_grad()
            own, mean = true_gradients(step)
            wire.phase = "backward"
            loss = model(batch_of(step, dist.get_rank())).pow(2).mean()
            loss.backward()
            wire.phase = "finish"
            try:
                model.finish()
            except (RuntimeError, TypeError, AttributeError) as error:
                if "None" in str(error):
                    return f"{error}: {_FROZEN}"
                raise
            if problem := shared(_step(wire, case, own, mean, sent, early)):
                return f"{_LEFT_OVER} ({problem})" if step else problem
    return ""


def _step(wire: Wire, case: Case, own: dict[str, Any], mean: dict[str, Any], sent: list[int], early: str | None) -> str:
    """Return what is wrong with the gradients and the calls of one step."""
    found = {name: one.grad for name, one in case.named_parameters() if one.requires_grad}
    right = {name: gradient is not None and _same(gradient, mean[name]) for name, gradient in found.items()}
    calls = sorted(call.numel for call in wire.calls)
    if any(call in wire.pending for call in wire.calls):
        return "nobody waited: the handles of all calls must be waited for before the optimizer may read a gradient"
    if any(call.touched for call in wire.calls):
        return "a tensor was changed while it was on its way: divide only after wait()"
    if early == "bucket" and calls == sent[:1] and not all(right.values()):
        return f"the last bucket was never sent: {_names(right)} kept this rank's own gradient"
    if not all(right.values()):
        return _wrong_gradient(wire, found, own, mean, right)
    if any(one.grad is not None for one in case.frozen.parameters()):
        return f"the frozen layer travels: {_FROZEN}"
    return _wrong_calls(wire, calls, sent, early)


def _wrong_gradient(
    wire: Wire, found: dict[str, Any], own: dict[str, Any], mean: dict[str, Any], right: dict[str, bool]
) -> str:
    import torch.distributed as dist

    n = dist.get_world_size()
    name = next(name for name, fine in right.items() if not fine)
    gradient, where = found[name], f"the gradient of {name}"
    if gradient is None:
        return f"{where} is None"
    if not wire.calls:
        return "nothing was averaged: no all_reduce was made"
    if _same(gradient, own[name]):
        if all(call.address != gradient.data_ptr() for call in wire.calls):
            return f"{where} is this rank's own: what was averaged is in the flat tensor, and was not copied back"
        return f"{where} is this rank's own: it was not averaged"
    if _same(gradient, n * mean[name]):
        if name == "first.weight" and sum(not fine for fine in right.values()) == 1:
            return "the tied weight is added up twice: it has two names, and one gradient"
        return f"{where} is the sum over the ranks: divide by the world size"
    if _same(gradient, own[name] / n):
        return f"{where} is a part of this rank's own: it was read before wait(), or it was not added up"
    if _same(gradient, mean[name] / n):
        return f"{where} is divided twice by the world size"
    if _same(gradient, n * n * mean[name]):
        return f"{where} is added up twice"
    return f"{where} is neither this rank's own nor the mean: did the parts of a bucket change places?"


def _wrong_calls(wire: Wire, calls: list[int], sent: list[int], early: str | None) -> str:
    each, begun = sorted(SENT.values()), wire.of_phase("backward")
    if calls != sorted(sent):
        if calls == sorted([*each, SENT["first.weight"]]):
            return "right, but the tied weight travels twice: model.parameters() names it once"
        if early == "bucket" and calls == each:
            return "right, but one call a parameter: join the gradients of a bucket, and send one tensor"
        if early == "bucket" and calls == [sum(each)]:
            return "right, but one call for everything: each bucket leaves when it is full"
        return f"right, but with {len(calls)} calls where {len(sent)} are enough"
    if early is None and begun:
        return "right, but calls are made during backward: that is step 3"
    if early and not begun:
        return "right, but every call is made after backward: nothing can overlap"
    if early and any(call.blocking for call in wire.calls):
        return "right, but a call blocks until it is done, and backward stands still: async_op=True"
    if early and len(begun) < len(sent):
        return f"right, but only {len(begun)} of {len(sent)} calls are made during backward"
    return ""


def _in_order(wrapper: Wrapper) -> str:
    """Use the layers in another order on rank 1, and see whether the ranks' buckets leave in one order."""
    import torch.distributed as dist

    wire = Wire()
    with wire.between():
        model = wrapper(Turned(turned=dist.get_rank() == 1), cap_mb=1e-9)
        loss = model(batch_of(0, dist.get_rank())).pow(2).mean()
        loss.backward()
        orders: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(orders, [call.numel for call in wire.calls])
    if any(order != orders[0] for order in orders):
        return "a bucket that is full must wait for those before it: ranks that fill them in another order disagree"
    return ""


def _equality(wrapper: Wrapper) -> str:
    """Train on real calls with four optimizers, and compare every step with one process on all the data."""
    import torch.distributed as dist

    rank = dist.get_rank()
    for name in ("SGD", "momentum", "Adam", "AdamW"):
        case = Case(seed=rank)
        model = wrapper(case)
        optimizer = optimizer_of(name, case)
        for step, wanted in enumerate(alone(name, _STEPS)):
            model.zero_grad()
            model(batch_of(step, rank)).pow(2).mean().backward()
            model.finish()
            optimizer.step()
            off = float((flat(case) - wanted).abs().max())
            if off > _CLOSE:
                return f"{name}: after step {step} a weight is {off:.2g} off that of one process on all the data"
    return ""


def _same(one: Any, other: Any) -> bool:
    return one.shape == other.shape and float((one - other).abs().max()) < _CLOSE


def _names(right: dict[str, bool]) -> str:
    return ", ".join(name for name, fine in right.items() if not fine)
