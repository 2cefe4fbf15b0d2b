"""Real training, its work shared in every way that the closed forms know, and the bytes that stay of it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import CustomPolicy
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from lablib import torch_private
from lablib.parallel import zero
from lablib.sim.sharding import Parameter
from lablib.training.memory_models import MLP, Transformer, parameters_of, train_step

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit, which torch itself still calls there
    from torch.distributed.optim import ZeroRedundancyOptimizer

MODELS = {"mlp": MLP, "transformer": Transformer}
OPTIMIZERS: dict[str, Any] = {
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
ZERO = {"zero1": zero.Stage1, "zero2": zero.Stage2, "zero3": zero.Stage3}


class ByHand:
    """Let ZeRO by hand be an optimizer: it reduces the gradients before its step."""

    def __init__(self, sliced: Any) -> None:
        self.sliced, self.state = sliced, sliced.optimizer.state

    def step(self) -> None:
        self.sliced.reduce()
        self.sliced.step()

    def zero_grad(self) -> None:
        self.sliced.zero_grad()


class MasterWeights:
    """Let an optimizer update float32 copies of a model's parameters."""

    def __init__(self, parameters: Iterable[nn.Parameter], make: Any) -> None:
        self.parameters = list(parameters)
        self.masters = [one.detach().float() for one in self.parameters]
        self.optimizer = make(self.masters)

    def step(self) -> None:
        for master, one in zip(self.masters, self.parameters, strict=True):
            master.grad = one.grad.float()
        self.optimizer.step()
        for master, one in zip(self.masters, self.parameters, strict=True):
            one.detach().copy_(master)
            master.grad = None

    def zero_grad(self) -> None:
        for one in self.parameters:
            one.grad = None


def share(model: nn.Module, stage: str, optimizer: str, wrapped: Iterable[str], **facts: Any) -> tuple[nn.Module, Any]:
    """Return the model as ranks share it, and its optimizer."""
    make = partial(OPTIMIZERS[optimizer], lr=0.01, **facts)
    if stage in ZERO:
        sliced = ZERO[stage](model, make)
        return sliced, ByHand(sliced)
    if stage in ("ddp", "ddp_bucket_view", "zero1_torch"):
        model = DistributedDataParallel(model, gradient_as_bucket_view=stage == "ddp_bucket_view")
        if stage == "zero1_torch":
            return model, ZeroRedundancyOptimizer(model.parameters(), make.func, **make.keywords)
    units = [model.get_submodule(name) for name in wrapped] if "fsdp" in stage else []
    ranks = dist.get_world_size()
    if stage == "fsdp2":
        mesh = init_device_mesh("cpu", (ranks,))
        for unit in [*units, model]:
            fully_shard(unit, mesh=mesh)
    elif stage.startswith("fsdp1"):
        hybrid = stage == "fsdp1_hybrid_shard"
        mesh = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("nodes", "node")) if hybrid else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is old, and one rank does not shard
            model = FullyShardedDataParallel(
                model,
                sharding_strategy=ShardingStrategy[stage.removeprefix("fsdp1_").upper()],
                auto_wrap_policy=CustomPolicy(lambda module: module in units),
                device_id=torch.device("cpu"),
                device_mesh=mesh,
            )
    return model, make(model.parameters())


def train(
    kind: str,
    facts: dict[str, Any],
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    stage: str,
    optimizer: str,
    wrapped: list[str],
    how: dict[str, Any],
) -> list[Parameter]:
    """Train three steps; return the parameters of the model before it was shared."""
    torch.manual_seed(0)
    dtype = getattr(torch, how.get("dtype", "float32"))
    model = MODELS[kind](**facts).to(dtype)
    parameters = parameters_of(model, wrapped=wrapped)
    options = {"foreach": True} if how.get("foreach") else {}
    model, opt = share(model, stage, optimizer, wrapped, **options)
    if how.get("master_weights"):
        opt = MasterWeights(model.parameters(), OPTIMIZERS[optimizer])
    for _ in range(3):
        inputs, targets = (torch.randn(shape, dtype=dtype) for shape in shapes)
        train_step(model, opt, inputs, targets, autocast=how.get("autocast", False))
        del inputs, targets
    return parameters


def kept(
    widths: list[int], stages: list[str], optimizer: str, wrapped: list[str], frozen: list[str], dtype: str
) -> dict[str, tuple[list[Parameter], list[int]]]:
    """Train in each of these ways; return the parameters, and the bytes that each category has after a step."""
    found = {}
    for stage in stages:
        torch.manual_seed(0)
        model: nn.Module = MLP(widths).to(getattr(torch, dtype))
        for name in frozen:
            model.get_parameter(name).requires_grad_(False)
        parameters = parameters_of(model, wrapped=wrapped)
        model, opt = share(model, stage, optimizer, wrapped)
        for step in range(2):
            if step:
                opt.zero_grad()
            model(torch.randn(4, widths[0], dtype=getattr(torch, dtype))).square().sum().backward()
            opt.step()
        owned = list(model.parameters())
        gradients = [one.grad for one in owned if one.grad is not None]
        if stage in ZERO:
            gradients = gradients if stage == "zero1" else [opt.sliced.mine.grad]
            owned = [*owned, opt.sliced.mine]
        inner = opt.optim if stage == "zero1_torch" else opt
        states = [value for state in inner.state.values() for value in state.values() if isinstance(value, Tensor)]
        buckets = 0
        if stage in ("ddp", "zero1_torch"):
            buckets = sum(nbytes for *_, nbytes in torch_private.ddp_buckets(model))
        found[stage] = parameters, [*map(storages, (owned, gradients, states)), buckets]
    return found


def storages(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of the memory in which tensors lie, each counted once."""
    local = [one.to_local() if isinstance(one, DTensor) else one for one in tensors]
    return sum({one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in local}.values())


def partitions(shapes: list[list[tuple[int, ...]]]) -> list[list[list[int]]]:
    """Return which parameters of each list torch gives to each rank, by their place in it."""
    found = []
    for sizes in shapes:
        parameters = [nn.Parameter(torch.zeros(size)) for size in sizes]
        places = {id(one): place for place, one in enumerate(parameters)}
        shares = ZeroRedundancyOptimizer(parameters, torch.optim.SGD, lr=0.1)._partition_parameters()
        found.append([[places[id(one)] for group in share for one in group["params"]] for share in shares])
    return found
