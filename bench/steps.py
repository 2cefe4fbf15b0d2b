"""What a rank does for `bench.record`; imported by its name, so that the model is kept from call to call."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

CALLS = 200

_kept: dict[str, nn.Module] = {}


def step(profiled: bool) -> float:
    """Take two steps of 12 x Linear(1024) on this rank and return the seconds of the second."""
    if not _kept:
        torch.manual_seed(0)
        _kept["model"] = DistributedDataParallel(nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(12)]))
        for _ in range(3):
            _take(_kept["model"])
    if profiled:
        with profile(activities=[ProfilerActivity.CPU]):
            return _second(_kept["model"])
    return _second(_kept["model"])


def _second(model: nn.Module) -> float:
    _take(model)
    dist.barrier()
    begun = time.perf_counter()
    _take(model)
    return time.perf_counter() - begun


def _take(model: nn.Module) -> None:
    model(torch.ones(8, 1024)).sum().backward()
    model.zero_grad()


def calls() -> float:
    """Return the microseconds of one all_reduce of one element on this rank."""
    one = torch.ones(1)
    for _ in range(50):
        dist.all_reduce(one)
    begun = time.perf_counter()
    for _ in range(CALLS):
        dist.all_reduce(one)
    return (time.perf_counter() - begun) / CALLS * 1e6
