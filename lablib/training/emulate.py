"""Real modules of the layers in a plan: their parameters, gradients and DDP are real, their computing is sleep.

So many ranks fit on few cores, and each step takes as long as the plan says, whatever the machine does besides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lablib.errors import UsageError
from lablib.sim.plan import Layer, Plan
from lablib.trace.recorder import recorded
from lablib.trace.spans import Kind

_SPIN_NS = 300_000  # a sleeping thread may wake up so much later than it asked


class Sleeper:
    """Sleep for planned times in a row: where the system wakes a thread up too late, its next sleep is shorter."""

    def __init__(self) -> None:
        self._late_ns = 0

    def forget(self) -> None:
        """Begin a new row: what was late is late."""
        self._late_ns = 0

    def sleep(self, ms: float, *, meanwhile: Callable[[], None] | None = None) -> None:
        """Sleep.

        Args:
            ms: how long, in milliseconds.
            meanwhile: work that is done first and counts as part of the sleep.
        """
        end_ns = time.perf_counter_ns() + round(ms * 1e6) - self._late_ns
        if meanwhile is not None:
            meanwhile()
        rest_ns = end_ns - time.perf_counter_ns() - _SPIN_NS
        if rest_ns > 0:
            time.sleep(rest_ns / 1e9)
        while (over_ns := time.perf_counter_ns() - end_ns) < 0:
            time.sleep(0)  # others may run: a backend's thread completes its work meanwhile
        self._late_ns = over_ns


class SleepingLayer(nn.Module):
    """A layer that returns its input, gives its parameters gradients of ones, and sleeps in both directions.

    Its spans are COMPUTE and make the trace an emulated one. Gradients arrive at the end of backward's sleep, the last
    parameter's first.

    Args:
        layer: its name, times and parameters.
        sleeper: what all layers of a model share.
    """

    def __init__(self, layer: Layer, sleeper: Sleeper) -> None:
        super().__init__()
        self.layer = layer
        self._sleeper = sleeper
        for one in layer.parameters:
            if one.sparse:
                raise UsageError(f"{one.name} is sparse: a sleeping layer has dense gradients only")
            dtype = getattr(torch, one.dtype)
            weight = torch.zeros(one.nbytes // dtype.itemsize, dtype=dtype, device=one.device)
            self.register_parameter(one.name.rpartition(".")[2], nn.Parameter(weight))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sleep, and return the input."""
        made: list[torch.Tensor] = []
        for parameter in self.parameters():
            x = _HandOut.apply(x, parameter, made)  # type: ignore[no-untyped-call]
        with recorded(f"{self.layer.name} forward", Kind.COMPUTE, emulated=True):
            self._sleeper.sleep(self.layer.forward_ms)
        slept: torch.Tensor = _Backward.apply(x, self, made)  # type: ignore[no-untyped-call]
        return slept

    def make_gradients(self, made: list[torch.Tensor]) -> None:
        """Sleep as long as backward takes, and add a gradient for each parameter to a list."""
        with recorded(f"{self.layer.name} backward", Kind.COMPUTE, emulated=True):
            self._sleeper.sleep(
                self.layer.backward_ms, meanwhile=lambda: made.extend(torch.ones_like(one) for one in self.parameters())
            )


class _Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: SleepingLayer, made: list[torch.Tensor]) -> torch.Tensor:
        ctx.layer, ctx.made = layer, made
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        ctx.layer.make_gradients(ctx.made)
        return gradients[0], None, None


class _HandOut(torch.autograd.Function):
    """Give one parameter its gradient: a node for each, since torch keeps no order among the gradients of one node."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, parameter: torch.Tensor, made: list[torch.Tensor]) -> torch.Tensor:
        ctx.made = made
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        return gradients[0], ctx.made.pop(), None


class SleepingModel(nn.Module):
    """The model of a plan: its layers by their names, registered in the plan's order and used in the plan's order.

    Args:
        plan: the plan of this rank.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self._used = [layer.name for layer in plan.layers]
        self._sleeper = Sleeper()
        by_name = {layer.name: layer for layer in plan.layers}
        for name in plan.registered or by_name:
            self.add_module(name, SleepingLayer(by_name[name], self._sleeper))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sleep as long as all layers together, and return the input."""
        self._sleeper.forget()
        for name in self._used:
            x = self.get_submodule(name)(x)
        return x


class SleepingOptimizer(torch.optim.Optimizer):
    """An optimizer that changes nothing and takes its time.

    Args:
        parameters: as for any optimizer.
        step_ms: how long a step takes.
    """

    def __init__(self, parameters: Any, *, step_ms: float) -> None:
        super().__init__(parameters, {"step_ms": step_ms})

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Sleep."""
        Sleeper().sleep(self.defaults["step_ms"])


def train(plan: Plan | Sequence[Plan], *, steps: int = 3, **settings: Any) -> None:
    """Train a plan's model on this rank, under DistributedDataParallel, for some iterations.

    Run it on all ranks: ``run(partial(train, plan), world_size=4, record=True, link=Link(…))``.

    Args:
        plan: what each rank computes, or one plan a rank.
        steps: number of iterations.
        settings: arguments of DistributedDataParallel, such as ``bucket_cap_mb=5``.
    """
    mine = plan if isinstance(plan, Plan) else plan[dist.get_rank()]
    ddp = DistributedDataParallel(SleepingModel(mine), **settings)
    optimizer = SleepingOptimizer(ddp.parameters(), step_ms=mine.optimizer_ms)
    for _ in range(steps):
        optimizer.zero_grad()
        Sleeper().sleep(mine.late_ms)
        x = torch.zeros(1, requires_grad=True)  # so that a first layer without parameters goes backward, too
        ddp(x).sum().backward()
        optimizer.step()
