"""What a training step leaves in a rank's memory, and what it sends, for each way to share the work.

Sources: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", sections 5 and 7;
torch/optim, torch/distributed/optim/zero_redundancy_optimizer.py, torch/distributed/fsdp/_flat_param.py and
torch/distributed/fsdp/_fully_shard/_fsdp_param.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from lablib.errors import UsageError
from lablib.sim.dtypes import dtype_named
from lablib.sim.sharding import Parameter, chunk, partition, rows_of, units
from lablib.trace.memory import Category

__all__ = ["OPTIMIZERS", "STAGES", "Layout", "Parameter", "layout", "payload", "shards_of", "states", "unit_shard"]

STAGES = {
    "ddp": "DDP",
    "ddp_bucket_view": "DDP, gradients as bucket views",
    "zero1_torch": "ZeroRedundancyOptimizer",
    "zero1": "ZeRO 1 by hand",
    "zero2": "ZeRO 2 by hand",
    "zero3": "ZeRO 3 by hand",
    "fsdp1_full_shard": "FSDP1 FULL_SHARD",
    "fsdp1_shard_grad_op": "FSDP1 SHARD_GRAD_OP",
    "fsdp1_no_shard": "FSDP1 NO_SHARD",
    "fsdp1_hybrid_shard": "FSDP1 HYBRID_SHARD",
    "fsdp2": "FSDP2",
    "alone": "one process",
}

OPTIMIZERS = {"sgd": (0, False), "momentum": (1, False), "adagrad": (1, True), "adam": (2, True), "adamw": (2, True)}
"""How many numbers each keeps for each parameter, and whether it counts its steps in 4 bytes for each tensor."""


@dataclass(frozen=True)
class Layout:
    """Say how many numbers of each sort a rank holds after a step, before ``zero_grad``.

    Args:
        parameters: of the model.
        gradients: that the optimizer reads.
        updated: numbers of each tensor that the optimizer updates on this rank.
        buckets: in DDP's buckets, where they are not the gradients themselves.
    """

    parameters: int
    gradients: int
    updated: tuple[int, ...]
    buckets: int = 0


def states(
    parameters: Iterable[Parameter],
    *,
    stage: str,
    world_size: int,
    rank: int = 0,
    optimizer: str = "adam",
    dtype: str = "float32",
    master_weights: bool = False,
    gradient_dtype: str | None = None,
    ranks_per_node: int | None = None,
) -> dict[Category, int]:
    """Return the bytes that stay in a rank's memory after an optimizer's step, before ``zero_grad``.

    Bytes a parameter with Adam on one rank: 16 in float32 (4 + 4 + 8); 16 in bfloat16 with master weights, as the ZeRO
    paper counts (2 + 2 + 12); 18 where the gradients that stay are float32 (2 + 4 + 12), as Megatron-LM's distributed
    optimizer and Hugging Face count; 8 in plain bfloat16. Each adds 4 bytes a tensor: Adam counts its steps.

    Args:
        parameters: in ``named_parameters()`` order.
        stage: one of `STAGES`. ``zero1_torch`` stands under DDP with its defaults; those by hand are
            `lablib.parallel.zero`, where one vector holds all trained parameters, with zeros at its end.
        world_size, rank: number of ranks, and which one.
        optimizer: one of `OPTIMIZERS`.
        dtype: of the model; autocast leaves it at float32.
        master_weights: whether the optimizer updates a float32 copy, which counts as its state.
        gradient_dtype: of the gradients that stay; None means as the model.
        ranks_per_node: for ``fsdp1_hybrid_shard``, which shards within a node only.

    Raises:
        UsageError: nothing can be trained like this; the message says what to give.
    """
    moments, counts = _optimizer(optimizer)
    nbytes = _float(dtype)
    if master_weights and nbytes >= 4:
        raise UsageError(f"master_weights need a smaller type than {dtype}: give dtype='bfloat16'")
    kept = layout(parameters, stage=stage, world_size=world_size, rank=rank, ranks_per_node=ranks_per_node)
    updated, numbers = sum(kept.updated), moments * (4 if master_weights else nbytes) + 4 * master_weights
    return {
        Category.PARAMETERS: nbytes * kept.parameters,
        Category.GRADIENTS: _float(gradient_dtype or dtype) * kept.gradients,
        Category.OPTIMIZER: numbers * updated + 4 * counts * len(kept.updated),
        Category.COMMUNICATION: nbytes * kept.buckets,
    }


def layout(
    parameters: Iterable[Parameter], *, stage: str, world_size: int, rank: int = 0, ranks_per_node: int | None = None
) -> Layout:
    """Return how many numbers of each sort a rank holds; arguments and errors as of `states`."""
    listed = _checked(parameters, stage, world_size, ranks_per_node)
    if not 0 <= rank < world_size:
        raise UsageError(f"rank={rank!r}: with world_size={world_size} give a number from 0 to {world_size - 1}")
    total = sum(one.numel for one in listed)
    trained = tuple(one.numel for one in listed if one.trainable)
    shards = shards_of(stage, world_size, ranks_per_node)
    if stage in ("alone", "ddp_bucket_view"):
        return Layout(total, sum(trained), trained)
    if stage == "ddp":
        return Layout(total, sum(trained), trained, sum(trained))
    if stage == "zero1_torch":
        mine = tuple(one.numel for one in partition(listed, world_size)[rank] if one.trainable)
        return Layout(total, sum(trained), mine, sum(trained))
    if stage == "fsdp2":
        padded = [chunk(one.shape[0], shards) * prod(one.shape[1:]) for one in listed]
        mine = tuple(
            rows_of(one.shape[0], parts=shards, index=rank % shards) * prod(one.shape[1:])
            for one in listed
            if one.trainable
        )
        return Layout(sum(padded), sum(size for size, one in zip(padded, listed, strict=True) if one.trainable), mine)
    if stage.startswith("fsdp1"):
        root_first = sorted(units(listed).items(), key=lambda unit: unit[0] != "")  # as the optimizer meets them
        flat = tuple(chunk(sum(one.numel for one in unit), shards) for _, unit in root_first)
        return Layout(sum(flat), sum(flat), flat)
    part = chunk(sum(trained), world_size)
    whole, frozen = part * world_size, total - sum(trained)
    return Layout(frozen + (part if stage == "zero3" else whole), whole if stage == "zero1" else part, (part,))


def payload(
    parameters: Iterable[Parameter],
    *,
    stage: str,
    world_size: int,
    dtype: str = "float32",
    ranks_per_node: int | None = None,
) -> dict[str, int]:
    """Return the bytes that a rank sends in a step, by operation, as the textbook counts; a mean where ranks differ.

    Of P bytes, an all-reduce sends 2P(n−1)/n, a reduce-scatter, an all-gather and a broadcast P(n−1)/n. FSDP gathers
    each unit for forward and again for backward; the root's own parameters stay gathered between them, so that it is
    3P less the root's share. ``fsdp1_shard_grad_op`` keeps all of them gathered: 2P.

    Raises:
        UsageError: as `states`.
    """
    listed = _checked(parameters, stage, world_size, ranks_per_node)
    nbytes, shards = _float(dtype), shards_of(stage, world_size, ranks_per_node)
    trained = nbytes * sum(one.numel for one in listed if one.trainable)

    def once(total: int, ranks: int = world_size) -> int:
        return total * (ranks - 1) // ranks

    if stage == "alone":
        return {}
    if stage in ("ddp", "ddp_bucket_view", "fsdp1_no_shard"):
        return {"all_reduce": once(2 * trained)}
    if stage == "zero1_torch":
        return {"all_reduce": once(2 * trained), "broadcast": once(nbytes * sum(one.numel for one in listed))}
    if stage in ("zero1", "zero2", "zero3"):
        whole = nbytes * world_size * chunk(trained // nbytes, world_size)
        return {"reduce_scatter": once(whole), "all_gather": once(whole) * (2 if stage == "zero3" else 1)}
    gathered = {name: nbytes * shards * unit_shard(stage, unit, shards) for name, unit in units(listed).items()}
    again = 0 if stage == "fsdp1_shard_grad_op" else sum(gathered.values()) - gathered.get("", 0)
    reduced_nbytes = (
        nbytes
        * shards
        * sum(unit_shard(stage, [one for one in unit if one.trainable], shards) for unit in units(listed).values())
    )
    sent = {"all_gather": once(sum(gathered.values()) + again, shards), "reduce_scatter": once(reduced_nbytes, shards)}
    if shards < world_size:
        sent["all_reduce"] = once(2 * reduced_nbytes // shards, world_size // shards)
    return sent


def unit_shard(stage: str, unit: list[Parameter], shards: int) -> int:
    """Return how many numbers of an FSDP unit a rank holds, with the zeros that make all shards equal."""
    if stage == "fsdp2":
        return sum(chunk(one.shape[0], shards) * prod(one.shape[1:]) for one in unit)
    return chunk(sum(one.numel for one in unit), shards)


def shards_of(stage: str, world_size: int, ranks_per_node: int | None = None) -> int:
    """Return into how many shards a stage cuts what it shards."""
    if stage == "fsdp1_no_shard":
        return 1
    return ranks_per_node if stage == "fsdp1_hybrid_shard" and ranks_per_node else world_size


def _float(dtype: str) -> int:
    found = dtype_named(dtype)
    if not found.is_float:
        raise UsageError(f"dtype={dtype!r} cannot be trained: give float32, bfloat16 or float16")
    return found.nbytes


def _optimizer(name: str) -> tuple[int, bool]:
    if name not in OPTIMIZERS:
        raise UsageError(f"optimizer={name!r} is not known here; choose {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name]


def _checked(
    parameters: Iterable[Parameter], stage: str, world_size: int, ranks_per_node: int | None
) -> list[Parameter]:
    listed = list(parameters)
    if stage not in STAGES:
        raise UsageError(f"stage={stage!r} is not known here; choose {', '.join(STAGES)}")
    if not isinstance(world_size, int) or world_size < 1:
        raise UsageError(f"world_size={world_size!r}: give a whole number from 1 on")
    if len({one.name for one in listed}) < len(listed) or not listed:
        raise UsageError("give parameters with different names; list a tied parameter once")
    if stage == "fsdp1_hybrid_shard" and (
        not isinstance(ranks_per_node, int) or ranks_per_node < 1 or world_size % ranks_per_node
    ):
        raise UsageError(f"ranks_per_node={ranks_per_node!r}: give a number that divides world_size={world_size}")
    if stage != "fsdp1_hybrid_shard" and ranks_per_node is not None:
        raise UsageError(f"{stage} shards over all ranks: leave out ranks_per_node, or choose fsdp1_hybrid_shard")
    scalars = [one.name for one in listed if not one.shape]
    if stage == "fsdp2" and scalars:
        raise UsageError(f"fsdp2 cannot shard the scalar {scalars[0]}: make it a vector with one element")
    frozen = [one.name for one in listed if not one.trainable]
    if frozen and stage.startswith("fsdp1"):
        raise UsageError(f"FSDP1 refuses to flatten {frozen[0]}, which is frozen, with others that train: leave it out")
    if len(frozen) == len(listed):
        raise UsageError("no parameter is trained")
    return listed
