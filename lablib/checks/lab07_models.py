"""The models, batches and the one process with all the data that lab 07's checks compare a wrapper with."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

_WIDTH = 4
_ROWS = 3  # of each rank
SENT = {"first.weight": 16, "first.bias": 4, "last.bias": 4, "out.weight": 12, "out.bias": 3}
"""Elements of what gets gradients in `Case`, by name; the tied weight comes once."""
CAP_MB = 4 * 13 / (1 << 20)  # reached by the layer `out`; the rest is the second bucket


class Case(nn.Module):
    """A model with a tied weight, a frozen layer and a buffer.

    Args:
        seed: of its numbers.
    """

    scale: torch.Tensor

    def __init__(self, *, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.first = nn.Linear(_WIDTH, _WIDTH)
            self.frozen = nn.Linear(_WIDTH, _WIDTH).requires_grad_(False)
            self.last = nn.Linear(_WIDTH, _WIDTH)
            self.out = nn.Linear(_WIDTH, 3)
            self.register_buffer("scale", torch.rand(_WIDTH) + 0.5)
        self.last.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return three numbers a row."""
        hidden = torch.tanh(self.frozen(torch.tanh(self.first(x * self.scale))))
        outputs: torch.Tensor = self.out(torch.tanh(self.last(hidden)))
        return outputs


class Turned(nn.Module):
    """A model of three parameters of different sizes, which some ranks use the other way round."""

    def __init__(self, *, turned: bool) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.ones(size)) for size in (1, 2, 3))
        self._order = (2, 1, 0) if turned else (0, 1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply by the mean of each parameter in turn."""
        for place in self._order:
            x = x * self.weights[place].mean()
        return x


def batch_of(step: int, rank: int | None = None) -> torch.Tensor:
    """Return a rank's part of a step's batch, or without a rank all of it."""
    rows = _ROWS * dist.get_world_size()
    batch = torch.randn(rows, _WIDTH, generator=torch.Generator().manual_seed(step))
    return batch if rank is None else batch[_ROWS * rank : _ROWS * (rank + 1)]


def optimizer_of(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """Return one of the four optimizers that the lab compares."""
    some = list(model.parameters())
    if name in ("SGD", "momentum"):
        return torch.optim.SGD(some, lr=0.1, momentum=0.9 if name == "momentum" else 0.0)
    return torch.optim.Adam(some, lr=0.01) if name == "Adam" else torch.optim.AdamW(some, lr=0.01)


def flat(model: nn.Module) -> torch.Tensor:
    """Return all parameters as one vector, a copy."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def alone(optimizer: str, steps: int) -> list[torch.Tensor]:
    """Return all parameters after each step of one process with everybody's data."""
    case = Case(seed=0)
    stepper, found = optimizer_of(optimizer, case), []
    for step in range(steps):
        case.zero_grad()
        case(batch_of(step)).pow(2).mean().backward()
        stepper.step()
        found.append(flat(case))
    return found


def true_gradients(step: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return this rank's own gradients at rank 0's first weights, and the mean over all ranks."""
    each = []
    for rank in range(dist.get_world_size()):
        case = Case(seed=0)
        case(batch_of(step, rank)).pow(2).mean().backward()
        each.append({name: one.grad for name, one in case.named_parameters() if one.grad is not None})
    mean = {name: sum(some[name] for some in each) / len(each) for name in each[0]}
    return each[dist.get_rank()], mean
