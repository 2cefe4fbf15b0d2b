"""What is trained and how its work is shared: all that decides what is in a rank's memory.

The closed forms take it apart, and `lablib.training.memory_run` trains the same on real ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isqrt
from typing import Any

from lablib.errors import UsageError
from lablib.sim import activations
from lablib.sim.activations import Activations
from lablib.sim.memory import Layout, layout, payload, states
from lablib.sim.memory_step import simulate
from lablib.sim.sharding import Parameter
from lablib.trace import Category, Trace

MODELS = ("MLP", "transformer")
CHECKPOINTS = {"MLP": ("none", "full"), "transformer": ("none", "selective", "full")}
AUTOCAST = "float32, autocast to bfloat16"
_HEAD = 64  # numbers of a head of attention


@dataclass(frozen=True)
class MemoryPlan:
    """Describe a model, its batch, and the way in which ranks share the work.

    Args:
        model: ``MLP``, linear layers of the same width with ReLU between them, or ``transformer``.
        layers: linear layers, or blocks.
        hidden: numbers between two layers; heads of attention have 64 of them, or all.
        batch: samples on a rank.
        sequence: positions in a sample, for a transformer.
        dtype: ``float32``, ``bfloat16``, ``float16``, or `AUTOCAST`.
        optimizer: one of `lablib.sim.memory.OPTIMIZERS`.
        stage: one of `lablib.sim.memory.STAGES`; FSDP wraps each layer or block.
        world_size: number of ranks.
        checkpoint: what backward computes again: ``none``, ``full``: each block, or about √layers parts of an MLP;
            ``selective``: what is inside attention.

    Raises:
        UsageError: there is no such model, or it has no such checkpoints.
    """

    model: str = "MLP"
    layers: int = 4
    hidden: int = 256
    batch: int = 32
    sequence: int = 64
    dtype: str = "float32"
    optimizer: str = "adam"
    stage: str = "ddp"
    world_size: int = 2
    checkpoint: str = "none"

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise UsageError(f"model={self.model!r} is not known here; choose {', '.join(MODELS)}")
        if self.checkpoint not in CHECKPOINTS[self.model]:
            choices = ", ".join(CHECKPOINTS[self.model])
            raise UsageError(f"checkpoint={self.checkpoint!r}: for this model choose {choices}")

    @property
    def autocast(self) -> bool:
        """Return whether forward computes in bfloat16 with a model in float32."""
        return self.dtype == AUTOCAST

    @property
    def stored_dtype(self) -> str:
        """Return the type of the parameters."""
        return "float32" if self.autocast else self.dtype

    @property
    def heads(self) -> int:
        """Return how many heads attention has."""
        return max(1, self.hidden // _HEAD) if self.hidden % _HEAD == 0 else 1

    @property
    def segments(self) -> int:
        """Return into how many checkpointed parts an MLP falls; 0 for none."""
        return max(1, isqrt(self.layers)) if self.checkpoint == "full" else 0

    @property
    def widths(self) -> list[int]:
        """Return the widths of an MLP."""
        return [self.hidden] * (self.layers + 1)

    @property
    def wrapped(self) -> list[str]:
        """Return the names of the modules that FSDP wraps one by one."""
        return [_layer(self.model, place) for place in range(self.layers)]

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the model's parameters in ``named_parameters()`` order."""
        return _parameters(self.model, self.layers, self.hidden)

    @property
    def activations(self) -> Activations:
        """Return what forward does and keeps."""
        return _activations(replace(self, stage="alone", world_size=1))

    def under(self, stage: str) -> MemoryPlan:
        """Return the same training with its work shared in another way."""
        return replace(self, stage=stage)

    def states(self) -> list[dict[Category, int]]:
        """Return what stays in each rank's memory after a step."""
        return [dict(nbytes) for nbytes in _states(self)]

    def payload(self) -> dict[str, int]:
        """Return the bytes that a rank sends in a step, by operation."""
        return payload(self.parameters, dtype=self.stored_dtype, **self.shared)

    def simulate(self, ranks: Sequence[int] | None = None) -> Trace:
        """Return one step, sample by sample; of some ranks only, or of all."""
        return _simulate(self, None if ranks is None else tuple(ranks))

    def peaks(self) -> list[int]:
        """Return the most bytes that each rank has in a step."""
        return list(_peaks(self))

    @property
    def shared(self) -> dict[str, Any]:
        """Return how the work is shared, as the closed forms want it."""
        facts: dict[str, Any] = {"stage": self.stage, "world_size": self.world_size}
        if self.stage == "fsdp1_hybrid_shard":
            facts["ranks_per_node"] = ranks_per_node(self.world_size)
        return facts


def ranks_per_node(world_size: int) -> int:
    """Return how many ranks a node has where FSDP1 shards within nodes: half of them; all, where no two nodes fit."""
    return world_size // 2 if world_size >= 4 and world_size % 2 == 0 else world_size


@lru_cache(maxsize=32)
def _parameters(model: str, layers: int, hidden: int) -> tuple[Parameter, ...]:
    return tuple(
        one
        for place in range(layers)
        for unit in [_layer(model, place)]
        for name, shape in (_block(hidden) if model == "transformer" else [("", (hidden, hidden))])
        for prefix in [f"{unit}.{name}." if name else f"{unit}."]
        for one in (Parameter(f"{prefix}weight", shape, unit=unit), Parameter(f"{prefix}bias", shape[:1], unit=unit))
    )


def _layer(model: str, place: int) -> str:
    return f"blocks.{place}" if model == "transformer" else str(2 * place)


def _block(hidden: int) -> list[tuple[str, tuple[int, ...]]]:
    return [
        ("norm1", (hidden,)),
        ("attention.qkv", (3 * hidden, hidden)),
        ("attention.out", (hidden, hidden)),
        ("norm2", (hidden,)),
        ("up", (4 * hidden, hidden)),
        ("down", (hidden, 4 * hidden)),
    ]


@lru_cache(maxsize=32)
def _activations(plan: MemoryPlan) -> Activations:
    common: dict[str, Any] = {"batch": plan.batch, "dtype": plan.stored_dtype, "autocast": plan.autocast}
    if plan.model == "MLP":
        return activations.mlp(plan.widths, checkpoint=plan.segments, **common)
    sizes: dict[str, Any] = {
        "layers": plan.layers,
        "sequence": plan.sequence,
        "hidden": plan.hidden,
        "heads": plan.heads,
    }
    return activations.transformer(checkpoint=plan.checkpoint, **sizes, **common)


@lru_cache(maxsize=256)
def _states(plan: MemoryPlan) -> tuple[dict[Category, int], ...]:
    how: dict[str, Any] = {"optimizer": plan.optimizer, "dtype": plan.stored_dtype, **plan.shared}
    return tuple(states(plan.parameters, rank=rank, **how) for rank in range(plan.world_size))


@lru_cache(maxsize=16)
def _simulate(plan: MemoryPlan, ranks: tuple[int, ...] | None) -> Trace:
    how: dict[str, Any] = {"optimizer": plan.optimizer, "dtype": plan.stored_dtype, **plan.shared}
    return simulate(plan.parameters, plan.activations, ranks=ranks, **how)


@lru_cache(maxsize=256)
def _peaks(plan: MemoryPlan) -> tuple[int, ...]:
    alike: dict[Layout, list[int]] = {}  # ranks with shards of the same sizes do the same
    for rank in range(plan.world_size):
        alike.setdefault(layout(plan.parameters, rank=rank, **plan.shared), []).append(rank)
    first = {ranks[0]: ranks for ranks in alike.values()}
    highest: dict[int, int] = {}
    for sample in plan.simulate([*first]).memory:
        highest[sample.rank] = max(highest.get(sample.rank, 0), sample.total)
    by = {rank: highest[one] for one, ranks in first.items() for rank in ranks}
    return tuple(by[rank] for rank in range(plan.world_size))
