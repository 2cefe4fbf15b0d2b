"""Train what a `MemoryPlan` describes, on real ranks: the model, the way to share its work, and some steps."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lablib.errors import UsageError
from lablib.parallel import zero
from lablib.sim.memory_plan import MemoryPlan, ranks_per_node
from lablib.training.memory_models import MLP, Transformer, train_step

MakeOptimizer = Callable[[Any], torch.optim.Optimizer]
_ZERO = {"zero1": zero.Stage1, "zero2": zero.Stage2, "zero3": zero.Stage3}
_OPTIMIZERS: dict[str, MakeOptimizer] = {
    "sgd": partial(torch.optim.SGD, lr=1e-3),
    "momentum": partial(torch.optim.SGD, lr=1e-3, momentum=0.9),
    "adagrad": partial(torch.optim.Adagrad, lr=1e-3),
    "adam": partial(torch.optim.Adam, lr=1e-3),
    "adamw": partial(torch.optim.AdamW, lr=1e-3),
}


class _ByHand:
    """Step as an optimizer does: first give each rank its slice of the gradients."""

    def __init__(self, sliced: zero.Sliced) -> None:
        self._sliced: Any = sliced

    def step(self) -> None:
        self._sliced.reduce()
        self._sliced.step()

    def zero_grad(self) -> None:
        self._sliced.zero_grad()


def measured(plan: MemoryPlan, *, steps: int = 4) -> None:
    """Build the model of a plan, share its work as the plan says, and train; this is what each rank runs.

    The first step makes the optimizer's state and the second DDP's final buckets; the last ends with all being freed.
    So the third of four is as any other.

    Args:
        plan: what is trained; the ranks must be as many as it says.
        steps: number of iterations.

    Raises:
        UsageError: the number of ranks is another, or this stage cannot be run.
    """
    if dist.get_world_size() != plan.world_size:
        raise UsageError(f"the plan is for {plan.world_size} ranks: run it with world_size={plan.world_size}")
    device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
    torch.manual_seed(0)
    model, optimizer = _shared(plan, model_of(plan).to(device, getattr(torch, plan.stored_dtype)))
    shape = (plan.batch, plan.sequence, plan.hidden) if plan.model == "transformer" else (plan.batch, plan.hidden)
    for _ in range(steps):
        inputs, targets = (torch.randn(shape, device=device, dtype=getattr(torch, plan.stored_dtype)) for _ in range(2))
        train_step(model, optimizer, inputs, targets, autocast=plan.autocast)
        del inputs, targets


def model_of(plan: MemoryPlan) -> nn.Module:
    """Return the model of a plan."""
    if plan.model == "MLP":
        return MLP(plan.widths, checkpoint=plan.segments)
    return Transformer(layers=plan.layers, hidden=plan.hidden, heads=plan.heads, checkpoint=plan.checkpoint)


def _shared(plan: MemoryPlan, model: nn.Module) -> tuple[nn.Module, Any]:
    """Return the model as the ranks share it, and its optimizer."""
    make, stage = _OPTIMIZERS[plan.optimizer], plan.stage
    if stage == "alone":
        return model, make(model.parameters())
    if stage in ("ddp", "ddp_bucket_view", "zero1_torch"):
        ddp = DistributedDataParallel(model, gradient_as_bucket_view=stage == "ddp_bucket_view")
        if stage != "zero1_torch":
            return ddp, make(ddp.parameters())
        return ddp, _zero1_of_torch(ddp, make)
    if stage in _ZERO:
        sliced = _ZERO[stage](model, make)
        return sliced, _ByHand(sliced)
    wrapped = {model.get_submodule(name) for name in plan.wrapped}
    if stage == "fsdp2":
        from torch.distributed.fsdp import fully_shard  # takes a second: a notebook must not wait for it

        for one in wrapped:
            fully_shard(one)
        fully_shard(model)
        return model, make(model.parameters())
    if stage.startswith("fsdp1_"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch says that FSDP1 and NO_SHARD are old
            fsdp = _fsdp1(plan, model, wrapped)
        return fsdp, make(fsdp.parameters())
    raise UsageError(f"stage={stage!r} cannot be run")


def _zero1_of_torch(ddp: nn.Module, make: Any) -> torch.optim.Optimizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # this import compiles others that torch calls old
        from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(ddp.parameters(), make.func, **make.keywords)


def _fsdp1(plan: MemoryPlan, model: nn.Module, wrapped: set[nn.Module]) -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import CustomPolicy

    groups: Any = None
    if plan.stage == "fsdp1_hybrid_shard":
        node, ranks = ranks_per_node(plan.world_size), range(plan.world_size)
        named: Any = dist.new_subgroups_by_enumeration
        inside, _ = named([[*ranks[first : first + node]] for first in ranks[::node]])
        across, _ = named([[*ranks[first::node]] for first in range(node)])
        groups = inside, across
    return FullyShardedDataParallel(
        model,
        process_group=groups,
        sharding_strategy=ShardingStrategy[plan.stage.removeprefix("fsdp1_").upper()],
        auto_wrap_policy=CustomPolicy(lambda module: module in wrapped),
        device_id=next(model.parameters()).device,
    )
