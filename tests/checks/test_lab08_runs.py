"""What lab 08 shows, on two real ranks: the order of gradients and buckets, overlap, latency, memory, the profiler."""

from functools import partial
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from lablib import Cluster, Link, analysis
from lablib.sim.ddp import simulate
from lablib.sim.plan import chain
from lablib.trace import Kind, Trace
from lablib.training import emulate

pytestmark = pytest.mark.slow

PLAN = chain([0.25] * 8, forward_ms=1, backward_ms=10)
LINK = Link(bandwidth_mib_s=25)


@pytest.fixture(scope="module")
def pair():
    with Cluster(2, backend="gloo") as pair:
        yield pair


def emulated(pair, plan, link=LINK, steps=3, **settings):
    return pair.run(partial(emulate.train, plan, steps=steps, **settings), record=True, link=link).trace


class Used(nn.Module):
    """Has its layers in one order and uses them in another."""

    def __init__(self, order):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in order)
        self.order = order

    def forward(self, x):
        for place in self.order:
            x = self.layers[place](x)
        return x


def use(order):
    ddp = DistributedDataParallel(Used(order), bucket_cap_mb=0.0005)  # two layers of 256 bytes
    for _ in range(2):
        ddp(torch.ones(1, 8)).sum().backward()


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5), (5, 4, 3, 2, 1, 0), (2, 5, 0, 3, 1, 4)])
def test_the_layer_used_last_is_ready_first_and_registration_plays_no_part(pair, order):
    trace = pair.run(use, order, record=True).trace
    last_used_first = [f"layers.{place}.weight" for place in reversed(order)]
    for iteration in trace.iterations:
        assert [span.name for span in trace.only(Kind.GRADIENT, rank=0, iteration=iteration)] == last_used_first
    rows = analysis.buckets(trace, iteration=1).rows
    for rank in range(2):
        filled = [row.parameters for row in rows if row.rank == rank]
        assert [name for names in filled for name in names] == last_used_first
        assert len(filled) > 1


def hooked():
    seen = []
    ddp = DistributedDataParallel(nn.Linear(1, 1, bias=False))
    weight, x = ddp.module.weight, torch.tensor([[dist.get_rank() + 1.0]])
    weight.register_hook(lambda gradient: seen.append(("before accumulation", gradient.item())))
    weight.register_post_accumulate_grad_hook(lambda one: seen.append(("after accumulation", one.grad.item())))
    with ddp.no_sync():
        ddp(x).sum().backward()
    ddp(x).sum().backward()
    return [*seen, ("after backward", weight.grad.item())]


def test_hooks_see_the_local_gradient_and_only_the_later_one_what_was_accumulated(pair):
    for rank, seen in enumerate(pair.run(hooked)):
        own = rank + 1.0
        assert seen == [
            ("before accumulation", own),
            ("after accumulation", own),
            ("before accumulation", own),
            ("after accumulation", 2 * own),
            ("after backward", 3.0),
        ]


def test_no_bucket_leaves_before_those_of_lower_index(pair):
    trace = emulated(pair, [PLAN, PLAN.flipped()], bucket_cap_mb=0.25)
    for iteration in (1, 2):
        rows = [row for row in analysis.buckets(trace, iteration=iteration).rows if row.rank == 1]
        assert [row.bucket for row in sorted(rows, key=lambda row: row.full_ns)] == [7, 6, 5, 4, 3, 2, 1, 0]
        assert [row.bucket for row in sorted(rows, key=lambda row: row.sent_ns)] == [0, 1, 2, 3, 4, 5, 6, 7]
        assert min(row.sent_ns for row in rows) >= max(row.full_ns for row in rows)


def test_iteration_0_hides_nothing_and_later_ones_send_while_backward_computes(pair):
    trace = emulated(pair, PLAN, bucket_cap_mb=0.25)
    assert all(one.hidden_ns == 0 for one in analysis.overlap(trace, iteration=0))
    for iteration in (1, 2):
        assert all(one.hidden_ns > 0 for one in analysis.overlap(trace, iteration=iteration))
        for rank in range(2):
            rows = [row for row in analysis.buckets(trace, iteration=iteration).rows if row.rank == rank]
            assert all(one.sent_ns < after.full_ns for one, after in pairwise(rows))


@pytest.mark.parametrize("ratio", [0.1, 0.5, 1, 3, 10])
def test_at_most_the_shorter_of_computing_and_communication_is_hidden(ratio):
    plan, link = chain([0.125] * 64, forward_ms=0, backward_ms=2.5), Link(bandwidth_mib_s=50 / ratio)
    trace = simulate(plan, link=link, iterations=[2], bucket_cap_mb=0.125)
    found = trace.only(Kind.BACKWARD, rank=0).spans[0].length_ns / 1e6
    assert max(160, 160 * ratio) <= found <= 1.02 * max(160, 160 * ratio)


def backward_ns(trace):
    return min(span.length_ns for span in trace.only(Kind.BACKWARD, rank=0) if span.iteration)


def test_one_all_reduce_for_each_layer_pays_the_latency_as_often(pair):
    plan, link = chain([0.01] * 16, forward_ms=0, backward_ms=2), Link(latency_ms=20)
    many, one = (emulated(pair, plan, link, bucket_cap_mb=cap) for cap in (0.001, 1))
    assert [len(analysis.buckets(trace, iteration=1).rows) for trace in (many, one)] == [2 * 16, 2]
    assert backward_ns(many) > 2 * backward_ns(one)  # 16 against 1 time 40 ms


def test_neither_the_smallest_nor_the_largest_buckets_are_best():
    plan, link = chain([1] * 16, forward_ms=2, backward_ms=5), Link(latency_ms=3, bandwidth_mib_s=250)
    length = {cap: backward_ns(simulate(plan, link=link, iterations=[2], bucket_cap_mb=cap)) for cap in range(1, 17)}
    assert 1 < min(length, key=length.get) < 16
    assert min(length.values()) < 0.8 * min(length[1], length[16])


def test_a_slower_rank_changes_no_bucket(pair):
    trace = emulated(pair, [PLAN, PLAN.slowed(2)], steps=4, bucket_cap_mb=0.5)
    rows = [row for row in analysis.buckets(trace).rows if row.iteration > 0]
    assert len(rows) == 2 * 3 * 4
    assert len({(row.bucket, row.parameters, row.nbytes) for row in rows}) == 4


def storages(view):
    """Return bytes of gradients, and of all storages alive with buckets, before and after zero_grad."""
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.03, gradient_as_bucket_view=view)
    known = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        known[StorageWeakRef(storage)] = storage.nbytes()

    def noting(group, bucket):
        note(bucket.buffer())
        return allreduce_hook(group, bucket)

    ddp.register_comm_hook(None, noting)
    for _ in range(3):
        ddp.zero_grad()
        known.clear()
        ddp(torch.ones(1, 64)).sum().backward()
    buckets = len(known)
    for parameter in model.parameters():
        note(parameter.grad)
    nbytes = sum(parameter.grad.nbytes for parameter in model.parameters())

    def alive():
        return sum(size for storage, size in known.items() if not storage.expired())

    before = alive()
    ddp.zero_grad()
    return buckets, len(known) - buckets, before / nbytes, alive() / nbytes


def test_buckets_are_one_copy_of_the_gradients(pair):
    for buckets, more, before, after in pair.run(storages, False):
        assert (more, before, after) == (8, 2.0, 1.0)
        assert buckets > 1


def test_gradients_as_views_of_buckets_take_no_memory_and_zero_grad_frees_none(pair):
    for buckets, more, before, after in pair.run(storages, True):
        assert (more, before, after) == (0, 1.0, 1.0)
        assert buckets > 1


def profiled(folder):
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)])
    ddp = DistributedDataParallel(model, bucket_cap_mb_list=[0.01, 0.03, 0.06])
    for _ in range(2):
        ddp(torch.ones(1, 64)).sum().backward()
    dist.barrier()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        for _ in range(2):
            ddp(torch.ones(1, 64)).sum().backward()
    profiler.export_chrome_trace(f"{folder}/rank{dist.get_rank()}.json")


def test_the_profiler_sees_the_same_calls_in_the_same_order(pair, tmp_path):
    recorded = pair.run(profiled, str(tmp_path), record=True).trace
    theirs = Trace.load(tmp_path)
    for rank in range(2):
        ours = [
            (call.name, call.nbytes)
            for call in recorded.only(Kind.COLLECTIVE, rank=rank)
            if call.iteration is not None and call.iteration > 1
        ]
        assert len(set(ours)) > 2
        assert [(call.name, call.nbytes) for call in theirs.only(Kind.COLLECTIVE, rank=rank)] == ours
