"""Load indices with torch's own DistributedSampler and DataLoader, and note who sees what."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import torch.distributed as dist
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler

from lablib.errors import UsageError
from lablib.sim.shards import Sharding, Shards


class Indices(Dataset[int]):
    """Be a data set whose samples are their own indices.

    Args:
        samples: how many there are.
    """

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        return index


def sampler(sharding: Sharding, data: Sized, *, rank: int | None = None) -> DistributedSampler[Any]:
    """Return torch's sampler of one rank.

    Args:
        sharding: how samples are dealt.
        data: the data set; only its length matters.
        rank: which one; left out, the sampler asks the process group who it is among how many.

    Raises:
        UsageError: the process group has another number of ranks.
    """
    here = dist.get_world_size() if rank is None else sharding.world_size
    if here != sharding.world_size:
        raise UsageError(f"samples are dealt to {sharding.world_size} ranks, and here are {here}; run with as many")
    return DistributedSampler(
        data,  # type: ignore[arg-type]
        num_replicas=None if rank is None else sharding.world_size,
        rank=rank,
        shuffle=sharding.shuffle,
        seed=sharding.seed_of(dist.get_rank() if rank is None else rank),
        drop_last=sharding.drop_last,
    )


def load(sharding: Sharding, *, rank: int | None = None, num_workers: int = 0) -> list[list[list[int]]]:
    """Load all epochs with a DataLoader, and return the indices in each batch, epoch by epoch.

    Args:
        sharding: how samples are dealt.
        rank: whose samples; left out, those of this process in its group.
        num_workers: processes that load for this rank.
    """
    data = Indices(sharding.samples)
    own = sampler(sharding, data, rank=rank)
    loader = DataLoader(
        data,
        batch_size=sharding.batch_size,
        sampler=own,
        drop_last=sharding.loader_drop_last,
        num_workers=num_workers,
    )
    epochs = []
    for epoch in range(sharding.epochs):
        if sharding.set_epoch:
            own.set_epoch(epoch)
        epochs.append([batch.tolist() for batch in loader])
    return epochs


def shards(sharding: Sharding) -> Shards:
    """Return who sees what, in one process and without loading: torch's samplers say which."""
    return Shards.of((_batches(sharding, rank) for rank in range(sharding.world_size)), samples=sharding.samples)


def _batches(sharding: Sharding, rank: int) -> list[list[list[int]]]:
    own = sampler(sharding, Indices(sharding.samples), rank=rank)
    batched = BatchSampler(own, sharding.batch_size, sharding.loader_drop_last)
    epochs = []
    for epoch in range(sharding.epochs):
        if sharding.set_epoch:
            own.set_epoch(epoch)
        epochs.append(list(batched))
    return epochs
