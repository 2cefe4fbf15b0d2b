"""What lab 05 shows, on four real ranks: who splits the data, silent losses, seeds, workers, crashes."""

import time
import warnings

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import lablib
from lablib import Cluster
from lablib.sim.shards import Sharding, Shards
from lablib.training.sampling import load

pytestmark = pytest.mark.slow

FEATURES = torch.arange(16.0).view(8, 2) / 10


@pytest.fixture(scope="module")
def cluster():
    with Cluster(4, backend="gloo") as cluster:
        yield cluster


def linear():
    torch.manual_seed(0)
    return nn.Linear(2, 1)


def gradient(with_sampler):
    """Return the averaged gradient of one step on as many samples as the rank's loader gives at once."""
    sampler = DistributedSampler(FEATURES, shuffle=False) if with_sampler else None
    [batch] = DataLoader(FEATURES, batch_size=8, sampler=sampler)
    ddp = DistributedDataParallel(linear())
    ddp(batch).square().mean().backward()
    return ddp.module.weight.grad, len(batch)


def test_without_a_sampler_ddp_repeats_the_work_of_one_process(cluster):
    model = linear()
    model(FEATURES).square().mean().backward()
    for with_sampler, samples in ((False, 8), (True, 2)):
        for found, count in cluster.run(gradient, with_sampler):
            assert count == samples  # the same gradient, for four times the work
            torch.testing.assert_close(found, model.weight.grad)


def test_blocks_are_not_what_the_sampler_deals(cluster):
    dealt = Shards.of(cluster.run(load, Sharding(8, 4, 2, shuffle=False)).values, samples=8)
    assert [dealt.indices(epoch=0, rank=rank) for rank in range(4)] == [(0, 4), (1, 5), (2, 6), (3, 7)]


def steps_on_three(drop_last):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler = DistributedSampler(range(3), drop_last=drop_last)
        return sum(1 for _ in DataLoader(range(3), sampler=sampler))


@pytest.mark.usefixtures("no_orphans")
def test_fewer_samples_than_ranks_are_dropped_without_a_word():
    assert lablib.run(steps_on_three, True, world_size=8, backend="gloo").values == [0] * 8
    assert lablib.run(steps_on_three, False, world_size=8, backend="gloo").values == [1] * 8


@pytest.mark.parametrize("samples", [12, 50])
def test_set_epoch_changes_the_order_for_all_ranks_alike(cluster, samples):
    for set_epoch, different in ((False, 1), (True, 3)):
        sharding = Sharding(samples, 4, 5, epochs=3, set_epoch=set_epoch, seed=11)
        table = Shards.of(cluster.run(load, sharding).values, samples=samples)
        assert len(set(table.batches)) == different
        for epoch in range(3):
            assert table.never(epoch=epoch) == ()
            assert len(table.again(epoch=epoch)) == -samples % 4


def test_a_seed_for_each_rank_loses_samples_and_repeats_others(cluster):
    sharding = Sharding(2000, 4, 20, seed=(0, 1, 2, 3))
    table = Shards.of(cluster.run(load, sharding).values, samples=2000)
    assert 0.28 < len(table.never(epoch=0)) / 2000 < 0.35  # (3/4) ** 4 = 0.316
    assert 0.22 < len(table.again(epoch=0)) / 2000 < 0.31
    assert table.counts(epoch=0).sum() == 2000


def test_unseeded_data_are_other_data_on_each_rank_under_the_same_indices(cluster):
    def draw():
        data = torch.randn(8, 1)
        return list(DistributedSampler(data, shuffle=False)), data.flatten().tolist()

    drawn = cluster.run(draw).values
    assert sorted(index for mine, _ in drawn for index in mine) == list(range(8))
    assert len({number for _, data in drawn for number in data}) == 32


class Timed(Dataset):
    def __init__(self, ms):
        self.ms = ms

    def __len__(self):
        return 32

    def __getitem__(self, index):
        begun = time.perf_counter()
        time.sleep(self.ms / 1000)
        return index, begun, time.perf_counter()


def fetch(ms, workers):
    data = Timed(ms)
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data), num_workers=workers)
    index, begun, had = (torch.cat(column).tolist() for column in zip(*loader, strict=True))
    return index, max(sum(b <= moment < h for b, h in zip(begun, had, strict=True)) for moment in begun)


def test_workers_fetch_the_same_samples_in_the_same_order_several_at_once():
    with Cluster(2, backend="gloo") as pair:
        alone, helped = pair.run(fetch, 40, 0).values, pair.run(fetch, 40, 2).values
    assert [index for index, _ in alone] == [index for index, _ in helped]
    assert [most for _, most in alone] == [1, 1]
    assert [most for _, most in helped] == [2, 2]


def pin():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        batch = next(iter(DataLoader(torch.arange(4), pin_memory=True)))
    return batch.is_pinned(), [str(one.message) for one in told]


def test_memory_is_pinned_only_for_an_accelerator(cluster):
    for pinned, told in cluster.run(pin).values:
        assert pinned == torch.accelerator.is_available()
        assert pinned or "no accelerator is found" in told[0]


def test_a_loader_refuses_a_sampler_and_shuffle():
    with pytest.raises(ValueError, match="mutually exclusive"):
        DataLoader(range(4), sampler=DistributedSampler(range(4), 2, 0), shuffle=True)


def crash_and_resume(resumes):
    data, before = range(40), DistributedSampler(range(40))
    before.set_epoch(1)
    loader = DataLoader(data, batch_size=2, sampler=before)
    seen = [batch.tolist() for batch, _ in zip(loader, range(2), strict=False)]
    after = DistributedSampler(data)
    after.set_epoch(1)
    rest = list(after)[4:] if resumes else list(after)
    return [seen + [batch.tolist() for batch in DataLoader(data, batch_size=2, sampler=rest)]]


@pytest.mark.parametrize(("resumes", "again"), [(True, 0), (False, 16)])
def test_after_a_crash_no_sample_is_seen_twice_and_none_is_lost(cluster, resumes, again):
    table = Shards.of(cluster.run(crash_and_resume, resumes).values, samples=40)
    assert len(table.again(epoch=0)) == again
    assert table.never(epoch=0) == ()
