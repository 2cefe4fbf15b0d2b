"""What lab 14's checks run on the ranks: a learner's stage of ZeRO, step by step, beside Adam of one process.

`try_stage` returns what is wrong on this rank, in words, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from lablib.checks.lab07_wire import shared

STAGES = "all_reduce", "1", "2", "3"
_STEPS, _ROWS, _CLOSE = 4, 3, 1e-6
_CALLS = (
    *("all_reduce", "reduce", "broadcast", "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single"),
    *("all_gather", "all_gather_into_tensor", "all_gather_single"),
)
_LEFT_OVER = "the first step is right, a later one is not"
_ADAM = partial(torch.optim.Adam, lr=0.01)


class Case(nn.Sequential):
    """A model of 69 numbers: two or four slices need zeros, and are cut through parameters.

    Args:
        seed: of its numbers.
    """

    def __init__(self, *, seed: int) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            super().__init__(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 2))
            self.append(nn.Linear(2, 1, bias=False))


class Watch:
    """Note the calls of a learner's class, and whether its optimizer had stepped by then."""

    def __init__(self) -> None:
        self.phase = "building"
        self.steps = 0
        self.calls: list[tuple[str, str, int]] = []  # phase, operation, optimizer steps before it

    def of(self, phase: str) -> list[str]:
        """Return the operations that were called in a phase."""
        return [name for where, name, _ in self.calls if where == phase]

    def stepped(self, *_: Any) -> None:
        """Note that the optimizer has stepped."""
        self.steps += 1

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Stand in front of torch.distributed's functions for a while."""
        real = {name: getattr(dist, name) for name in _CALLS if hasattr(dist, name)}

        def noted(name: str, *args: Any, **how: Any) -> Any:
            self.calls.append((self.phase, name, self.steps))
            return real[name](*args, **how)

        for name in real:
            setattr(dist, name, partial(noted, name))
        try:
            yield
        finally:
            for name, function in real.items():
                setattr(dist, name, function)


class Oracle:
    """Adam of one process with everybody's data, and each rank's gradients on the way."""

    def __init__(self) -> None:
        self.rank, self.n = dist.get_rank(), dist.get_world_size()
        self._model = Case(seed=0)
        self._optimizer = _ADAM(self._model.parameters())
        self.before = self.after = self._flat(self._model.parameters())
        self.own = self.mean = self.after

    def step(self, step: int) -> None:
        """Go one step further, and keep gradients and weights as padded vectors."""
        self.before, each = self.after, []
        for rank in range(self.n):
            self._model.zero_grad()
            self._loss(step, rank).backward()
            each.append(self._flat(one.grad for one in self._model.parameters()))
        self.own, self.mean = each[self.rank], torch.stack(each).mean(0)
        self._model.zero_grad()
        sum(self._loss(step, rank) / self.n for rank in range(self.n)).backward()
        self._optimizer.step()
        self.after = self._flat(self._model.parameters())

    def slice(self, vector: torch.Tensor) -> torch.Tensor:
        """Return this rank's slice of a vector."""
        return vector.chunk(self.n)[self.rank]

    def _loss(self, step: int, rank: int) -> Any:
        return self._model(batch_of(step, rank)).square().mean()

    def _flat(self, tensors: Any) -> torch.Tensor:
        flat = torch.cat([one.detach().flatten() for one in tensors])
        return torch.cat([flat, flat.new_zeros(-len(flat) % self.n)])


def batch_of(step: int, rank: int) -> torch.Tensor:
    """Return a rank's part of a step's batch."""
    seed = 100 * step + rank
    return torch.randn(_ROWS, 4, generator=torch.Generator().manual_seed(seed))


def try_stage(answer: Callable[..., Any], stage: str) -> str:
    """Be one rank of a learner's stage.

    Args:
        answer: the class.
        stage: one of `STAGES`.
    """
    watch, oracle = Watch(), Oracle()
    with watch.watching():
        model = answer(Case(seed=dist.get_rank()), _ADAM)
        model.optimizer.register_step_post_hook(watch.stepped)
        for step in range(_STEPS):
            oracle.step(step)
            watch.calls.clear()
            watch.steps = 0
            for part in (_forward_and_backward, _reduce, _step):
                if problem := shared(part(model, watch, oracle, stage, step)):
                    return f"{_LEFT_OVER}: {problem}" if step else problem
    return ""


def _forward_and_backward(model: Any, watch: Watch, oracle: Oracle, stage: str, step: int) -> str:
    model.zero_grad()
    x = batch_of(step, oracle.rank)
    watch.phase = "forward"
    try:
        output = model(x)
    except RuntimeError as error:
        return _without_memory(error, "forward: gather() comes before the model")
    if not isinstance(output, torch.Tensor) or output.shape != (_ROWS, 1):
        return "forward must return what the model returns"
    if stage == "3" and _nbytes(model.flat):
        return "all parameters are still there when forward is over: free()"
    watch.phase = "backward"
    loss: Any = output.square().mean()
    try:
        loss.backward()
    except RuntimeError as error:
        return _without_memory(error, "backward: it reads them, too, so a hook on the output must gather()")
    return ""


def _reduce(model: Any, watch: Watch, oracle: Oracle, stage: str, step: int) -> str:
    watch.phase = "reduce"
    model.reduce()
    calls, gradient = watch.of("reduce"), model.mine.grad
    if gradient is None:
        return "mine.grad is None after reduce: the optimizer passes over what has no gradient"
    if gradient.shape != model.mine.shape:
        return f"the slice has {model.mine.numel()} numbers, and its gradient has {gradient.numel()}"
    if problem := _wrong_gradient(gradient.detach(), calls, oracle):
        return problem
    if stage != "all_reduce" and "all_reduce" in calls:
        return "right, but an all_reduce sends everybody's mean to everyone: each rank needs its own slice only"
    if stage in ("2", "3"):
        if any(one.grad is not None for one in model.trained):
            return "right, but the gradients of all parameters are still there: set each one's grad to None"
        if _nbytes(gradient) > gradient.nbytes:
            return "right, but mine.grad is a view of a longer vector, and keeps all of it in memory"
    if stage == "3" and _nbytes(model.flat):
        return "right, but all parameters are still there after reduce: nobody needs them until forward"
    return ""


def _wrong_gradient(gradient: torch.Tensor, calls: list[str], oracle: Oracle) -> str:
    mean, own, n = oracle.slice(oracle.mean), oracle.slice(oracle.own), oracle.n
    if _same(gradient, mean):
        return ""
    if not calls and _same(gradient, own):
        return "the gradient of the slice is this rank's own: reduce makes no call"
    if _same(gradient, n * mean):
        return "the gradient of the slice is the sum over the ranks: divide by n"
    if _same(gradient, mean / n):
        return "the gradient of the slice is divided by n twice"
    if _same(gradient, own) or _same(gradient, own / n):
        return "the gradient of the slice is this rank's own: use what the call has brought"
    others = [rank for rank, part in enumerate(oracle.mean.chunk(n)) if _same(gradient, part)]
    if others:
        return f"rank {oracle.rank} has the gradient of rank {others[0]}'s slice"
    return "the gradient of the slice is neither this rank's own nor the mean"


def _step(model: Any, watch: Watch, oracle: Oracle, stage: str, step: int) -> str:
    watch.phase = "step"
    model.step()
    if watch.steps != 1:
        return f"the optimizer steps {'twice' if watch.steps == 2 else f'{watch.steps} times'} in step"
    if not _same(model.mine.detach(), oracle.slice(oracle.after)):
        return "this rank's slice is not what Adam makes of it"
    if stage == "3":
        if "all_gather" in watch.of("step"):
            return "right, but step gathers, and the next forward does it again"
        return "right, but all parameters are in memory after step" if _nbytes(model.flat) else ""
    found = torch.cat([one.detach().flatten() for one in model.module.parameters()])
    if _same(found, oracle.after[: len(found)]):
        return ""
    gathers = [steps for where, name, steps in watch.calls if where == "step" and name.startswith("all_gather")]
    if not gathers:
        return "the other ranks' slices are those of before: nobody has fetched them"
    if not any(gathers):
        return "the other ranks' slices are those of before: they were gathered before the optimizer's step"
    return "after the step, the parameters are not those of one process with all the data"


def _without_memory(error: RuntimeError, where: str) -> str:
    if "storage of size 0" in str(error):
        return f"the parameters have no memory in {where}"
    raise error


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes()


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and float((one - other).abs().max()) < _CLOSE
