"""Two models whose memory `lablib.sim.activations` knows in closed form, and one step that trains them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

from lablib.sim.sharding import Parameter

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU}


class MLP(nn.Sequential):
    """Be linear layers with an activation between any two.

    Args:
        widths: numbers that go in, numbers between the layers, and numbers that come out.
        activation: ``relu`` or ``gelu``.
        checkpoint: segments that the layers fall into, each of which is recomputed in backward; 0 for none.
    """

    def __init__(self, widths: Sequence[int], *, activation: str = "relu", checkpoint: int = 0) -> None:
        layers: list[nn.Module] = []
        for into, out in pairwise(widths):
            layers += [nn.Linear(into, out), ACTIVATIONS[activation]()]
        super().__init__(*layers[:-1])
        self.segments = int(checkpoint)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs."""
        parts: list[list[nn.Module]] = [[] for _ in range(self.segments)]
        for index, layer in enumerate(self):
            if self.segments:
                parts[index // 2 * self.segments // (len(self) // 2 + 1)].append(layer)
            else:
                x = layer(x)
        for part in parts:
            x = checkpoint(nn.Sequential(*part), x, use_reentrant=False)
        return x


class Attention(nn.Module):
    """Let each position look at all: ``math`` makes the matrix of weights, ``flash`` never has it in memory whole."""

    def __init__(self, hidden: int, heads: int, *, attention: str, recompute: bool) -> None:
        super().__init__()
        self.heads, self.attention, self.recompute = heads, attention, recompute
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Return what each position has seen."""
        qkv = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = checkpoint(self.look, qkv, use_reentrant=False) if self.recompute else self.look(qkv)
        del qkv
        output: Tensor = self.out(seen)
        return output

    def look(self, qkv: Tensor) -> Tensor:
        """Return the values, weighted by how well queries and keys agree."""
        q, k, v = qkv.unbind()
        if self.attention == "flash":
            seen = F.scaled_dot_product_attention(q, k, v)
        else:
            seen = torch.softmax(q @ k.transpose(2, 3) * q.shape[-1] ** -0.5, dim=-1) @ v
        return seen.transpose(1, 2).flatten(2)


class Block(nn.Module):
    """Be one block of a transformer, with the norms before what they feed."""

    def __init__(self, hidden: int, heads: int, *, mlp_ratio: int, attention: str, recompute: bool) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(hidden)
        self.attention = Attention(hidden, heads, attention=attention, recompute=recompute)
        self.norm2 = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, mlp_ratio * hidden)
        self.gelu = nn.GELU()
        self.down = nn.Linear(mlp_ratio * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, of the same shape."""
        x = x + self.attention(self.norm1(x))
        inside: Tensor = self.down(self.gelu(self.up(self.norm2(x))))
        return x + inside


class Transformer(nn.Module):
    """Be the blocks of a transformer, without embedding, head, mask or dropout.

    Args:
        layers: number of blocks.
        hidden: numbers at each position.
        heads: of attention; they divide `hidden`.
        attention: ``math`` or ``flash``, which is ``scaled_dot_product_attention``.
        checkpoint: ``full`` recomputes each block in backward, ``selective`` only what attention has between the
            queries and its output; ``none``.
        mlp_ratio: how much wider a block is inside.
    """

    def __init__(
        self,
        *,
        layers: int,
        hidden: int,
        heads: int,
        attention: str = "math",
        checkpoint: str = "none",
        mlp_ratio: int = 4,
    ) -> None:
        super().__init__()
        facts: dict[str, Any] = {"attention": attention, "recompute": checkpoint == "selective"}
        self.blocks = nn.ModuleList(Block(hidden, heads, mlp_ratio=mlp_ratio, **facts) for _ in range(layers))
        self.full = checkpoint == "full"

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs; the input is (batch, sequence, hidden)."""
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.full else block(x)
        return x


def parameters_of(model: nn.Module, *, wrapped: Iterable[str] = ()) -> list[Parameter]:
    """Return a model's parameters as the closed forms want them.

    Args:
        model: before anything wraps it.
        wrapped: names of the modules that FSDP wraps one by one; the rest stays with the root.
    """
    inner = sorted(wrapped, key=len, reverse=True)
    return [
        Parameter(
            name,
            tuple(parameter.shape),
            unit=next((unit for unit in inner if name.startswith(f"{unit}.")), ""),
            trainable=parameter.requires_grad,
        )
        for name, parameter in model.named_parameters()
    ]


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor, *, autocast: bool = False
) -> None:
    """Train one step with the mean squared error; ``autocast`` computes forward in bfloat16."""
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=autocast):
        loss: Any = F.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
