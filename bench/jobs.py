"""Hold the work that every contender does, so that only the launching differs."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WAIT_LIMIT_S = 120.0


def all_reduce(offset: float) -> list[float]:
    """Sum four numbers over all ranks and return them.

    Args:
        offset: added to the rank before summing, so that the answer depends on an argument.
    """
    numbers = torch.full((4,), dist.get_rank() + offset)
    dist.all_reduce(numbers)
    return numbers.tolist()


def empty() -> None:
    """Do nothing: what a call costs without any work."""


def check_all_reduce(values: list[list[float]], *, world_size: int, offset: float) -> None:
    """Stop the measurement when a contender brought back anything but the right sums."""
    total = world_size * (world_size - 1) / 2 + world_size * offset
    if values != [[total] * 4] * world_size:
        raise SystemExit(f"wrong result with {world_size} ranks: {values}, expected {total} everywhere")


def step_and_wait(folder: str) -> None:
    """Take one DDP step, report this rank's pid as a file, then wait until the file `go` appears.

    Args:
        folder: where `<rank>.pid` is written and `go` is awaited.
    """
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.randn(32, 256)).square().mean().backward()
    optimizer.step()
    unfinished = Path(folder, f"{dist.get_rank()}.tmp")
    unfinished.write_text(str(os.getpid()))
    unfinished.rename(unfinished.with_suffix(".pid"))
    deadline = time.monotonic() + WAIT_LIMIT_S
    while not Path(folder, "go").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody measured this rank within {WAIT_LIMIT_S:.0f} s")
        time.sleep(0.02)
