"""Real modules of the layers in a plan: the same parameters as the sleeping ones, with real matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lablib.sim.plan import Layer, Plan

WIDTH = 256
BATCH = 32


class Residual(nn.Module):
    """Add ``tanh(x Wᵀ) W`` to its input, with a weight of as many bytes as the plan's layer has.

    Args:
        layer: its name and parameters; its times are not used. A parameter that is no multiple of 256 numbers is
            padded in the product and whole in its bytes.
    """

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        for one in layer.parameters:
            size = one.nbytes // getattr(torch, one.dtype).itemsize
            weight = torch.randn(size, dtype=getattr(torch, one.dtype)) / max(1, size) ** 0.5
            self.register_parameter(one.name.rpartition(".")[2], nn.Parameter(weight))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Take and return a batch of BATCH x WIDTH numbers."""
        for flat in self.parameters():
            rows = -(-flat.numel() // WIDTH)
            weight = nn.functional.pad(flat, (0, rows * WIDTH - flat.numel())).view(rows, WIDTH)
            x = x + torch.tanh(x @ weight.T) @ weight
        return x


class RealModel(nn.Module):
    """The model of a plan, registered and used in its order.

    Args:
        plan: the plan of this rank.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        by_name = {layer.name: layer for layer in plan.layers}
        for name in plan.registered or by_name:
            self.add_module(name, Residual(by_name[name]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Go through all layers."""
        for layer in self.plan.layers:
            x = self.get_submodule(layer.name)(x)
        return x


def train(plan: Plan | Sequence[Plan], *, steps: int = 3, **settings: Any) -> None:
    """Train a plan's model with real arithmetic on this rank, under DistributedDataParallel, for some iterations.

    Args:
        plan: what each rank computes, or one plan a rank; times in it are not used.
        steps: number of iterations.
        settings: arguments of DistributedDataParallel, such as ``bucket_cap_mb=5``.
    """
    mine = plan if isinstance(plan, Plan) else plan[dist.get_rank()]
    ddp = DistributedDataParallel(RealModel(mine), **settings)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        ddp(torch.randn(BATCH, WIDTH)).pow(2).mean().backward()
        optimizer.step()
