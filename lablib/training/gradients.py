"""Small problems, the same on every rank and in one process: what lab 04 averages, and what it compares with.

The oracle is always one process that has all the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]

PADDING = -100  # torch's own default for targets that count for nothing

_SGD = torch.optim.SGD
OPTIMIZERS: dict[str, MakeOptimizer] = {
    "SGD": partial(_SGD, lr=0.1),
    "momentum": partial(_SGD, lr=0.1, momentum=0.9),
    "Nesterov": partial(_SGD, lr=0.1, momentum=0.9, nesterov=True),
    "weight decay": partial(_SGD, lr=0.1, weight_decay=0.1),
    "Adam": partial(torch.optim.Adam, lr=0.1),
    "AdamW": partial(torch.optim.AdamW, lr=0.1),
    "Adagrad": partial(torch.optim.Adagrad, lr=0.1),
    "RMSprop": partial(torch.optim.RMSprop, lr=0.1),
}
"""Optimizers by the name that learners use; "weight decay" is SGD's own, which adds to the gradient."""


def seven_samples(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets, each of 7 x 1.

    At the weights of `line` the mean squared error of the first four has the gradient (7, 0), that of the other three
    (-7, 7), and that of all seven (1, 3).
    """
    x = torch.tensor([-2.0, -1.0, 1.0, 2.0, -2.0, -1.0, 0.0], dtype=dtype)
    y = torch.tensor([3.0, 1.0, -1.0, -3.0, -4.0, -2.5, -4.0], dtype=dtype)
    return x[:, None], y[:, None]


def line(dtype: torch.dtype = torch.float32) -> nn.Linear:
    """Return the model y = weight x + bias, both 0."""
    model = nn.Linear(1, 1, dtype=dtype)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


class WordCounter(nn.Module):
    """A language model that knows only how frequent its three words are: two logits, the third word's is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(2))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits of 3 words for each token."""
        logits = torch.cat([self.logits, self.logits.new_zeros(1)])
        return logits.expand(*tokens.shape, 3)


def sentences() -> list[torch.Tensor]:
    """Return the words of four ranks, one sentence each of 8, 5, 2 and 1 words, padded to 8."""
    words = ([0, 0, 0, 2, 0, 0, 0, 0], [1, 0, 2, 1, 2], [1, 1], [2])
    return [torch.tensor(some + [PADDING] * (8 - len(some))) for some in words]


def regression(samples: int, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs of 4 numbers and noisy targets of 1, the same in every process."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 4, generator=generator, dtype=torch.float64)
    noise = torch.randn(samples, 1, generator=generator, dtype=torch.float64)
    return x.to(dtype), (2 * torch.tanh(x[:, :1]) - x[:, 1:2] + 0.3 * noise).to(dtype)


def net(*, seed: int = 1, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """Return a network of 4, 8 and 1 units with the same weights in every process."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(dtype)


def weights_of(model: nn.Module) -> torch.Tensor:
    """Return all parameters as one vector, a copy."""
    return parameters_to_vector(model.parameters()).detach().clone()


def gradient_of(model: nn.Module) -> torch.Tensor:
    """Return the gradients of all parameters as one vector, a copy; zeros where there is none."""
    gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in model.parameters()]
    return parameters_to_vector(gradients).detach().clone()


@torch.no_grad()
def average(tensors: Iterable[torch.Tensor | None]) -> None:
    """Replace each tensor by its mean over all ranks, in one call; None is passed over, on all ranks alike."""
    there = [tensor for tensor in tensors if tensor is not None]
    mean = parameters_to_vector(there)
    dist.all_reduce(mean)
    vector_to_parameters(mean / dist.get_world_size(), there)


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest difference between two vectors."""
    return float((one - other).abs().max())
