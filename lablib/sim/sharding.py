"""How parameters are cut into shards, as torch cuts them: whole, flattened, or by rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from lablib.errors import UsageError


@dataclass(frozen=True)
class Parameter:
    """Describe a parameter of a model.

    Args:
        name: as ``named_parameters()`` gives it; a tied parameter has its first name only.
        shape: its sizes; empty for a scalar.
        unit: the FSDP-wrapped module that it belongs to; empty for what stays with the root.
        trainable: whether it gets a gradient.

    Raises:
        UsageError: a size is negative or no whole number.
    """

    name: str
    shape: tuple[int, ...]
    unit: str = ""
    trainable: bool = True

    def __post_init__(self) -> None:
        for size in self.shape:
            if not isinstance(size, int) or size < 0:
                raise UsageError(f"{self.name} has the shape {self.shape}: give whole numbers from 0 on")

    @property
    def numel(self) -> int:
        """Return how many numbers it holds."""
        return prod(self.shape)


def units(parameters: Iterable[Parameter]) -> dict[str, list[Parameter]]:
    """Return the parameters of each FSDP unit, in order of first appearance."""
    found: dict[str, list[Parameter]] = {}
    for one in parameters:
        found.setdefault(one.unit, []).append(one)
    return found


def chunk(total: int, parts: int) -> int:
    """Return the size of the first of `parts` shards, to which all others are padded."""
    return -(-total // parts)


def rows_of(rows: int, *, parts: int, index: int) -> int:
    """Return how many of `rows` shard `index` gets: as ``torch.chunk``, so the last ones may get fewer or none."""
    return max(0, min(chunk(rows, parts), rows - index * chunk(rows, parts)))


def partition(parameters: Sequence[Parameter], world_size: int) -> list[list[Parameter]]:
    """Return which parameters each rank updates under ``ZeroRedundancyOptimizer``: whole ones, largest first.

    Source: ``_partition_parameters`` in torch/distributed/optim/zero_redundancy_optimizer.py; one parameter group.
    """
    shares: list[list[Parameter]] = [[] for _ in range(world_size)]
    sizes = [0] * world_size
    for one in sorted(parameters, key=lambda parameter: parameter.numel, reverse=True):
        rank = sizes.index(min(sizes))
        shares[rank].append(one)
        sizes[rank] += one.numel
    return shares
