"""A slow network: real values at the end, later; one card a node, one transfer after the other."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: N817

from lablib import Cluster, Link, RunTimeout, UsageError, run
from lablib.engine import clock, recording
from lablib.engine.works import Late
from lablib.trace import Kind

SLOW = Link(latency_ms=40)
LENGTHS = {"all_reduce": 80, "broadcast": 40, "all_gather": 40, "barrier": 40, "send": 40}  # ms, with two ranks


@pytest.fixture(scope="module", autouse=True)  # there before processes are counted
def cluster():
    with Cluster(2) as ranks:
        ranks.run(dist.get_rank)
        yield ranks


def everything() -> list[torch.Tensor]:
    rank = dist.get_rank()
    reduced, sent, received = torch.full((2,), rank + 1.0), torch.full((2,), float(rank)), torch.zeros(2)
    dist.all_reduce(reduced)
    dist.broadcast(sent, 1)
    gathered = [torch.zeros(2), torch.zeros(2)]
    dist.all_gather(gathered, torch.full((2,), float(rank)))
    dist.barrier()
    if rank == 0:
        dist.send(torch.ones(2), 1)
    else:
        dist.recv(received, 0)
    return [reduced, sent, *gathered, received]


def test_values_are_right_and_come_later(cluster) -> None:
    slow = cluster.run(everything, record=True, link=SLOW)
    for one, other in zip(slow.values, cluster.run(everything).values, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert slow.trace.truth == "emulated"
    for span in slow.trace.only(Kind.COLLECTIVE, rank=0):
        assert span.length_ns >= LENGTHS[span.name] * 1e6, span
    (received,) = slow.trace.only(Kind.COLLECTIVE, rank=1, name="recv")
    (sent,) = slow.trace.only(Kind.COLLECTIVE, rank=0, name="send")
    assert received.end_ns >= sent.start_ns + 40e6


def test_the_job_after_a_slow_one_has_the_real_network_again(cluster) -> None:
    slow = cluster.run(everything, link=Link(latency_ms=100))
    again = cluster.run(everything, record=True)
    assert slow.trace is None
    assert again.pids == slow.pids
    assert again.trace.truth == "real"
    assert slow.seconds > 0.6 > 2 * again.seconds


def test_the_call_returns_at_once_and_work_hides_the_transfer(cluster) -> None:
    def overlapped() -> tuple[float, bool, bool, float]:
        begun = time.perf_counter()
        work = dist.all_reduce(torch.ones(1), async_op=True)
        called = time.perf_counter() - begun
        before = work.is_completed()
        time.sleep(0.3)
        after = work.is_completed()
        waiting = time.perf_counter()
        work.wait()
        return called, before, after, time.perf_counter() - waiting

    for called, before, after, waited in cluster.run(overlapped, link=Link(latency_ms=100)).values:
        assert (before, after) == (False, True)
        assert called < 0.1
        assert waited < 0.1


def test_transfers_of_one_rank_queue_up(cluster) -> None:
    def three() -> None:
        for work in [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(3)]:
            work.wait()

    trace = cluster.run(three, record=True, link=SLOW).trace
    for rank in range(2):
        spans = trace.only(Kind.COLLECTIVE, rank=rank)
        assert [one.end_ns >= spans.start_ns + turn * 80e6 for turn, one in enumerate(spans, 1)] == [True] * 3


def ends_of_two_groups() -> float:
    pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    dist.barrier()
    begun = time.perf_counter()
    dist.all_reduce(torch.ones(1), group=pairs[dist.get_rank() % 2])
    return time.perf_counter() - begun


def test_ranks_of_one_node_share_its_card() -> None:
    alone = run(ends_of_two_groups, world_size=4, link=Link(latency_ms=200)).values
    shared = run(ends_of_two_groups, world_size=4, link=Link(latency_ms=200, ranks_per_node=2)).values
    # one of two waits for the other, and may begin a little later than that one
    assert all(seconds < 0.7 for seconds in alone)
    for node in (shared[:2], shared[2:]):
        assert min(node) < 0.7 < max(node)


def test_messages_inside_a_node_cost_nothing(cluster) -> None:
    node = cluster.run(everything, link=Link(latency_ms=200, ranks_per_node=2))
    assert node.seconds < 0.2


def test_works_that_only_torch_holds_end_too_however_many_there_are(cluster) -> None:
    def functional() -> list[float]:
        from torch.distributed import _functional_collectives as functions

        made = [functions.all_reduce(torch.ones(1), "sum", dist.group.WORLD) for _ in range(300)]
        import gc

        gc.collect()
        return [float(one + 1) for one in made]

    slow = cluster.run(functional, record=True, link=Link(latency_ms=0.1))
    assert slow.values == [[3.0] * 300] * 2
    assert len(slow.trace) == 600


def test_ddp_on_a_slow_link_trains_as_ever(cluster) -> None:
    def train() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = DDP(nn.Sequential(nn.Linear(600, 600), nn.Linear(600, 5)), bucket_cap_mb=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(dist.get_rank())
        for _ in range(3):
            model(torch.randn(4, 600)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return [parameter.detach() for parameter in model.parameters()]

    slow = cluster.run(train, record=True, link=Link(latency_ms=5, bandwidth_mib_s=50))
    fast = cluster.run(train)
    for one, other in zip(slow[0] + slow[1], fast[0] + fast[1], strict=True):
        assert torch.equal(one, other)
    for bucket in (one for one in slow.trace.only(Kind.COLLECTIVE) if one.bucket is not None):
        assert bucket.length_ns >= Link(latency_ms=5, bandwidth_mib_s=50).length_ns("all_reduce", bucket.nbytes, (0, 1))


def test_a_group_that_hangs_is_told_as_ever(cluster) -> None:
    def deadlock() -> None:
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(1))
        else:
            time.sleep(60)

    with pytest.raises(RunTimeout, match=r"rank 0 began all_reduce at .* and rank 1 never arrived"):
        run(deadlock, link=SLOW, timeout=2)


def test_a_link_is_refused_where_ranks_compute_on_gpus() -> None:
    from lablib.engine.options import Extras

    with pytest.raises(UsageError, match="on the CPU only"):
        Extras.checked(False, False, SLOW, device="cuda")


class Cuda:
    """Stand in for torch.cuda: a stream that runs 5 ms behind the host."""

    def __init__(self) -> None:
        self.events: list[SimpleNamespace] = []

    def synchronize(self) -> None:
        pass

    def Event(self, *, enable_timing: bool) -> SimpleNamespace:  # noqa: N802
        assert enable_timing
        event = SimpleNamespace(synchronize=lambda: None)
        event.record = lambda: setattr(event, "at_ms", time.perf_counter_ns() / 1e6 + (5 if self.events else 0))
        event.elapsed_time = lambda other: other.at_ms - event.at_ms
        self.events.append(event)
        return event


def test_a_gpus_moments_are_those_of_its_stream() -> None:
    cuda = Cuda()
    on_gpu = clock.CudaClock(cuda)
    cuda.events[0].at_ms = on_gpu._base_ns / 1e6
    mark, host_ns = on_gpu.mark(), time.perf_counter_ns()
    assert 4e6 < on_gpu.ns(mark) - host_ns < 6e6


def test_an_operation_on_a_gpu_is_timed_by_its_stream(monkeypatch) -> None:
    cuda = Cuda()
    monkeypatch.setattr(recording, "CudaClock", lambda: clock.CudaClock(cuda))
    record = recording.Recording(3, record=True, memory=False, link=None, cards=-1, device="cuda:3")
    cuda.events[0].at_ms = time.perf_counter_ns() / 1e6
    record.start()
    work = Late()
    facts = {"group": "0", "ranks": (0, 3), "sequence": 1, "nbytes": 8, "peer": None, "file": "", "line": 0}
    record.carry("all_reduce", facts, lambda: ([], work.boxed()), False)
    called_ns = time.perf_counter_ns()
    time.sleep(0.02)
    work.get_future().set_result(None)
    recorded = record.stop()
    (span,) = recorded.spans
    assert not recorded.emulated
    assert (span.rank, span.name, span.lane, span.nbytes) == (3, "all_reduce", "cuda:3", 8)
    assert span.start_ns > called_ns  # the host only queued it
    assert span.length_ns >= 20e6
