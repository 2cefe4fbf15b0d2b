"""ZeRO by hand: what every replica holds is cut into slices, one a rank, in steps that each keep what was right before.

    Stage1AllReduce   the optimizer's state in slices, gradients averaged as ever   3 P (n - 1) / n bytes sent
    Stage1            the same with half an all_reduce on each side of the step     2 P (n - 1) / n
    Stage2            and the gradients in slices                                   2 P (n - 1) / n
    Stage3            and the parameters in slices                                  3 P (n - 1) / n

All trained parameters lie in one vector, in the order of ``module.parameters()``, with zeros at its end so that n ranks
have equal slices; P are its bytes. A step is the same with each:

    zero.zero_grad()
    loss(zero(batch)).backward()
    zero.reduce()
    zero.step()

What stays after a step, in bytes, where s is a slice (P = n s) and the optimizer is Adam: parameters P, P, P, s;
gradients P, P, s, s; optimizer state 2 s + 4, the 4 for its count of steps.

Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020, sections 5, 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from lablib.errors import UsageError

MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


class Sliced(nn.Module):
    """Lay a model's trained parameters into one vector, and give this rank's slice of it an optimizer.

    Frozen parameters and buffers stay whole on each rank, and after the start nobody sends them. A trained parameter
    without a gradient counts as one whose gradient is zero.

    Args:
        module: the model; rank 0's parameters and buffers win.
        make_optimizer: makes an optimizer that treats each number alone, such as Adam, of a list of parameters.

    Attributes:
        rank, n: which rank this is, of how many.
        trained: the model's parameters that get gradients; each is a piece of `flat`.
        flat: the vector.
        mine: this rank's slice of it, a view, as the only parameter of the optimizer.

    Raises:
        UsageError: no parameter is trained, or they differ in dtype or device.
    """

    def __init__(self, module: nn.Module, make_optimizer: MakeOptimizer) -> None:
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.detach(), src=0)
        self.rank, self.n = dist.get_rank(), dist.get_world_size()
        self.trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.flat = joined([parameter.detach() for parameter in self.trained], self.n)
        for parameter, piece in zip(self.trained, pieces(self.flat, self.trained), strict=True):
            parameter.data = piece
        self._nbytes = self.flat.nbytes
        self.mine = nn.Parameter(self.flat.chunk(self.n)[self.rank])
        self.optimizer = make_optimizer([self.mine])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        return self.module(*args, **kwargs)

    def joined_gradient(self) -> torch.Tensor:
        """Return all gradients in one vector; each parameter's own is a piece of it from now on."""
        found = [torch.zeros_like(one) if one.grad is None else one.grad for one in self.trained]
        gradient = joined(found, self.n)
        for parameter, piece in zip(self.trained, pieces(gradient, self.trained), strict=True):
            parameter.grad = piece
        return gradient

    def gather(self) -> None:
        """Put everybody's slice into the vector; give it memory first where it has none."""
        if not self.flat.untyped_storage().nbytes():
            self.flat.untyped_storage().resize_(self._nbytes)
        dist.all_gather(list(self.flat.chunk(self.n)), self.mine.detach())

    def free(self) -> None:
        """Take the vector's memory; parameters, and what autograd saved of them, keep looking at the empty place."""
        self.flat.untyped_storage().resize_(0)

    def whole(self) -> torch.Tensor:
        """Return all trained parameters as one new vector, for looking at; every rank must call it."""
        slices = [torch.empty_like(self.mine) for _ in range(self.n)]
        dist.all_gather(slices, self.mine.detach())
        return torch.cat(slices).detach()[: sum(parameter.numel() for parameter in self.trained)]


class Stage1AllReduce(Sliced):
    """Keep the optimizer's state of one slice only; average gradients first, as data parallel training does."""

    def reduce(self) -> None:
        """Average the gradients, and give the slice its own; call it between backward and `step`."""
        gradient = self.joined_gradient()
        dist.all_reduce(gradient)
        gradient /= self.n
        self.mine.grad = gradient.chunk(self.n)[self.rank]

    def step(self) -> None:
        """Let the optimizer change this rank's slice, and fetch what the others have done to theirs."""
        self.optimizer.step()
        self.gather()


class Stage1(Stage1AllReduce):
    """Send each rank the mean of its own slice only: an all_reduce is a reduce_scatter and an all_gather.

    The gradients of other slices stay in memory and are this rank's own, not the mean.
    """

    def reduce(self) -> None:
        """Average this rank's slice of the gradients, in its place."""
        slices = list(self.joined_gradient().chunk(self.n))
        mine = slices[self.rank]
        dist.reduce_scatter(mine, slices)
        mine /= self.n
        self.mine.grad = mine


class Stage2(Stage1):
    """Keep nothing of the gradients but the slice."""

    def reduce(self) -> None:
        """Average this rank's slice of the gradients, and let go of the others."""
        mine = torch.empty_like(self.mine)
        dist.reduce_scatter(mine, list(self.joined_gradient().chunk(self.n)))
        for parameter in self.trained:
            parameter.grad = None
        mine /= self.n
        self.mine.grad = mine


class Stage3(Stage2):
    """Keep nothing of the parameters but the slice; all of them are there in forward and backward only.

    The model must return one tensor.
    """

    def __init__(self, module: nn.Module, make_optimizer: MakeOptimizer) -> None:
        super().__init__(module, make_optimizer)
        self.mine.data = self.mine.detach().clone()  # memory of its own
        self.free()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model with all parameters, and have them there again when backward begins."""
        self.gather()
        output = self.module(*args, **kwargs)
        if output.requires_grad:
            output.register_hook(lambda gradient: self.gather())
        self.free()
        return output

    def reduce(self) -> None:
        """Average this rank's slice of the gradients, and let go of all others and of the parameters."""
        super().reduce()
        self.free()

    def step(self) -> None:
        """Let the optimizer change this rank's slice; forward fetches the others."""
        self.optimizer.step()


def joined(tensors: Sequence[torch.Tensor], parts: int) -> torch.Tensor:
    """Return all numbers in one vector, with zeros at its end until it falls into so many equal parts.

    Raises:
        UsageError: there are no tensors, or they differ in dtype or device.
    """
    kinds = {(tensor.dtype, tensor.device) for tensor in tensors}
    if len(kinds) != 1:
        what = "no parameter is trained" if not kinds else "parameters differ in dtype or device"
        raise UsageError(f"{what}: one vector needs numbers of one kind")
    numel = sum(tensor.numel() for tensor in tensors)
    padding = tensors[0].new_zeros(-numel % parts)
    return torch.cat([*(tensor.flatten() for tensor in tensors), padding])


def pieces(flat: torch.Tensor, like: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yield the piece of the vector that belongs to each of the tensors, in its shape, without a copy."""
    start = 0
    for tensor in like:
        yield flat[start : start + tensor.numel()].view_as(tensor)
        start += tensor.numel()
