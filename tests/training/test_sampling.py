"""The predicted table against batches that a real DataLoader gave, in one process and on real ranks."""

from __future__ import annotations

import random
from functools import partial

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

import lablib
from lablib.errors import RankFailed, UsageError
from lablib.sim.shards import Sharding, Shards
from lablib.training.sampling import Indices, load, sampler, shards


def any_settings(random: random.Random) -> dict:
    """Return settings of any kind: few samples and many, more ranks than samples, seeds that differ."""
    world_size = random.randint(1, 8)
    seed = random.randrange(1000)
    return {
        "samples": random.choice([random.randint(0, 9), random.randint(0, 60), random.randint(0, 400)]),
        "world_size": world_size,
        "batch_size": random.choice([1, 2, 3, random.randint(1, 64)]),
        "shuffle": random.random() < 0.7,
        "seed": tuple(seed + rank for rank in range(world_size)) if random.random() < 0.3 else seed,
        "epochs": random.randint(1, 3),
        "set_epoch": random.random() < 0.6,
        "drop_last": random.random() < 0.4,
        "loader_drop_last": random.random() < 0.3,
    }


def loaded_by_hand(*, samples, world_size, batch_size, shuffle, seed, epochs, set_epoch, drop_last, loader_drop_last):
    """Return what DataLoaders give, written as in torch's documentation."""
    data = torch.arange(samples)
    ranks = []
    for rank in range(world_size):
        own = seed[rank] if isinstance(seed, tuple) else seed
        deals = DistributedSampler(data, world_size, rank, shuffle=shuffle, seed=own, drop_last=drop_last)
        loader = DataLoader(data, batch_size=batch_size, sampler=deals, drop_last=loader_drop_last)
        ranks.append([])
        for epoch in range(epochs):
            if set_epoch:
                deals.set_epoch(epoch)
            ranks[-1].append([batch.tolist() for batch in loader])
            assert len(ranks[-1][-1]) == len(loader)
    return ranks


def test_the_table_is_what_real_loaders_give_in_500_random_settings():
    choose = random.Random(5)
    for _ in range(500):
        settings = any_settings(choose)
        sharding = Sharding(**settings)
        wanted = loaded_by_hand(**settings)
        assert shards(sharding) == Shards.of(wanted, samples=settings["samples"]), settings
        rank = choose.randrange(settings["world_size"])
        assert load(sharding, rank=rank) == wanted[rank], settings


@pytest.mark.slow
@pytest.mark.usefixtures("no_orphans")
@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_real_ranks_load_what_is_predicted(world_size):
    choose = random.Random(world_size)
    several = [Sharding(**{**any_settings(choose), "world_size": world_size, "seed": seed}) for seed in range(8)]

    def load_all() -> list:
        return [load(sharding) for sharding in several]

    run = lablib.run(load_all, world_size=world_size, backend="gloo")
    for number, sharding in enumerate(several):
        loaded = Shards.of([values[number] for values in run.values], samples=sharding.samples)
        assert loaded.differences(shards(sharding)) == (), sharding


@pytest.mark.slow
@pytest.mark.usefixtures("no_orphans")
def test_seeds_of_ranks_and_workers_on_real_ranks():
    sharding = Sharding(50, 2, 4, seed=(3, 4), epochs=2)
    run = lablib.run(partial(load, sharding, num_workers=2), backend="gloo")
    assert Shards.of(run.values, samples=50) == shards(sharding)


@pytest.mark.usefixtures("no_orphans")
def test_a_sharding_for_other_ranks_is_refused():
    with pytest.raises(RankFailed, match="samples are dealt to 4 ranks, and here are 2; run with as many") as failure:
        lablib.run(partial(load, Sharding(8, 4)), backend="gloo")
    assert isinstance(failure.value.__cause__, UsageError)


def test_a_sampler_is_torchs_own():
    own = sampler(Sharding(10, 4, shuffle=False, drop_last=True), Indices(10), rank=3)
    assert type(own) is DistributedSampler
    assert list(own) == [3, 7]
