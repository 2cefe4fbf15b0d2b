"""What a recorded run brings back: every operation once, the landmarks of a training step, each bucket of DDP."""

from __future__ import annotations

import time
from collections import Counter

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: N817

from lablib import Cluster, RankFailed, RunTimeout, UsageError, run, span
from lablib.trace import Kind, Trace

# the public name of each operator, written down a second time: the product's own table is what is tested
PUBLIC = {
    "c10d::allreduce_": "all_reduce",
    "c10d::allreduce_coalesced_": "all_reduce",
    "c10d::broadcast_": "broadcast",
    "c10d::reduce_": "reduce",
    "c10d::allgather_": "all_gather",
    "c10d::_allgather_base_": "all_gather",
    "c10d::allgather_into_tensor_coalesced_": "all_gather",
    "c10d::reduce_scatter_": "reduce_scatter",
    "c10d::_reduce_scatter_base_": "reduce_scatter",
    "c10d::reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "c10d::gather_": "gather",
    "c10d::scatter_": "scatter",
    "c10d::alltoall_": "all_to_all",
    "c10d::alltoall_base_": "all_to_all",
    "c10d::barrier": "barrier",
    "c10d::send": "send",
    "c10d::recv_": "recv",
    "c10d::recv_any_source_": "recv",
}
# gloo carries a reduce_scatter as an all-reduce, a list of pieces as one for each piece, and says so
GLOOS = {
    "c10d::reduce_scatter_": ["gloo:all_reduce"] * 2,
    "c10d::_reduce_scatter_base_": ["gloo:all_reduce"],
    "c10d::reduce_scatter_tensor_coalesced_": ["gloo:all_reduce"],
    "c10d::recv_any_source_": ["gloo:recvAnySource"],
}


@pytest.fixture(scope="module", autouse=True)  # there before processes are counted
def cluster():
    with Cluster(2) as ranks:
        ranks.run(dist.get_rank)
        yield ranks


def calls(trace: Trace, rank: int) -> list[tuple[str, int]]:
    return [(one.name, one.nbytes) for one in trace.only(Kind.COLLECTIVE, rank=rank)]


def user_calls() -> None:
    n, rank, t = dist.get_world_size(), dist.get_rank(), torch.ones(4)
    dist.broadcast(t, 1)
    dist.reduce(t, 1)
    dist.all_reduce(t)
    dist.scatter(torch.empty(2), [torch.ones(2)] * n if rank == 0 else None, 0)
    dist.gather(t, [torch.empty(4) for _ in range(n)] if rank == 0 else None, 0)
    dist.all_gather([torch.empty(4) for _ in range(n)], t)
    dist.reduce_scatter(torch.empty(2), [torch.ones(2) for _ in range(n)])
    dist.all_to_all_single(torch.empty(n), torch.ones(n))
    dist.all_to_all([torch.empty(3) for _ in range(n)], [torch.ones(3) for _ in range(n)])
    dist.all_reduce(t, async_op=True).wait()
    dist.barrier()


def point_to_point() -> None:
    rank, t = dist.get_rank(), torch.ones(3)
    if rank == 0:
        dist.send(t, 1)
        dist.recv(t, 1)
    else:
        dist.recv(t, 0)
        dist.send(t, 0)
    for work in [dist.isend(t, 1 - rank), dist.irecv(torch.empty(3), 1 - rank)]:
        work.wait()
    batch = [dist.P2POp(dist.isend, t, 1 - rank), dist.P2POp(dist.irecv, torch.empty(3), 1 - rank)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    if rank == 0:
        dist.send(t, 1)
    else:
        dist.recv(t)


def objects() -> None:
    found = [None] * 2
    dist.broadcast_object_list([1, "a"], 0)
    dist.all_gather_object(found, dist.get_rank())
    dist.gather_object(1, found if dist.get_rank() == 0 else None, 0)


def ddp() -> None:
    model = DDP(nn.Sequential(nn.Linear(600, 600), nn.Linear(600, 600), nn.Linear(600, 5)))
    for _ in range(3):
        model(torch.ones(2, 600)).sum().backward()


def batch_norm() -> None:
    model = DDP(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)))
    for _ in range(2):
        model(torch.randn(4, 8)).sum().backward()


def layers() -> nn.Sequential:
    return nn.Sequential(*[nn.Linear(16, 16) for _ in range(4)])


def fsdp1() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    model = FullyShardedDataParallel(
        layers(), auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), device_id=torch.device("cpu")
    )
    model(torch.ones(2, 16)).sum().backward()


def fsdp2() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    model = layers()
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model(torch.ones(2, 16)).sum().backward()


def functional() -> None:
    from torch.distributed import _functional_collectives as functions

    t, group = torch.ones(4), dist.group.WORLD
    for made in (
        functions.all_reduce(t, "sum", group),
        functions.all_to_all_single(t, None, None, group),
        functions.broadcast(t, 0, group),
    ):
        made + 1  # it waits here


def tensor_parallel() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize_module(model, init_device_mesh("cpu", (2,)), plan)
    model(torch.ones(2, 16)).sum().backward()


def coalesced() -> None:
    from torch.distributed.distributed_c10d import _coalescing_manager

    with _coalescing_manager():
        dist.all_reduce(torch.ones(2))
        dist.all_reduce(torch.ones(5))


SHARD, LAYER = 16 * 17 * 4 // 2, 16 * 17 * 4
CASES = {
    user_calls: [
        ("broadcast", 16),
        ("reduce", 16),
        ("all_reduce", 16),
        ("scatter", 8),
        ("gather", 16),
        ("all_gather", 16),
        ("reduce_scatter", 16),
        ("all_to_all", 8),
        ("all_to_all", 24),
        ("all_reduce", 16),
        ("barrier", 0),
    ],
    # the constructor compares and sends parameters; iteration 1 rebuilds the buckets, which takes two broadcasts
    ddp: [
        ("all_gather", 8),
        ("broadcast", 144),
        ("broadcast", 2896820),
        ("all_reduce", 2896820),
        ("broadcast", 28),
        ("broadcast", 8),
        ("all_reduce", 1454420),
        ("all_reduce", 1442400),
        ("all_reduce", 1454420),
        ("all_reduce", 1442400),
    ],
    # 4 layers gathered forward and backward, resharded between: the last one is gathered twice all the same
    fsdp1: [("all_gather", SHARD)] * 6
    + [("reduce_scatter", LAYER), ("all_gather", SHARD)] * 2
    + [("reduce_scatter", LAYER)] * 2,
    fsdp2: [("all_gather", SHARD)] * 6
    + [("reduce_scatter", LAYER), ("all_gather", SHARD)] * 2
    + [("reduce_scatter", LAYER)] * 2,
    functional: [("all_reduce", 16), ("all_to_all", 16), ("broadcast", 16)],
    tensor_parallel: [("scatter", 1024), ("scatter", 64), ("scatter", 1024), ("broadcast", 64), ("all_reduce", 128)],
    coalesced: [("all_reduce", 28)],
    point_to_point: None,
    objects: None,
    batch_norm: None,
}


@pytest.mark.parametrize("job", CASES, ids=lambda job: job.__name__)
def test_every_call_is_there_once_as_torchs_profiler_saw_it(job) -> None:
    def profiled() -> list[str]:
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            job()
        events = sorted(profiler.events(), key=lambda event: event.time_range.start)
        return [event.name for event in events if event.name.startswith(("c10d::", "gloo:"))]

    seen = run(profiled, record=True)
    for rank, names in enumerate(seen.values):
        recorded = seen.trace.only(Kind.COLLECTIVE, rank=rank)
        operators = [name for name in names if name.startswith("c10d::")]
        assert [one.name for one in recorded] == [PUBLIC[name] for name in operators]
        carried = [carrier for name in operators for carrier in GLOOS.get(name, [f"gloo:{PUBLIC[name]}"])]
        assert Counter(carried) == Counter(name for name in names if name.startswith("gloo:"))
        assert all(one.end_ns > one.start_ns for one in recorded)
        if CASES[job] is not None:
            assert calls(seen.trace, rank) == CASES[job]


def test_a_call_tells_group_ranks_order_peer_and_line() -> None:
    def job() -> None:
        pair, rest = dist.new_group([1, 2]), dist.new_group([0])
        mine = rest if dist.get_rank() == 0 else pair
        dist.all_reduce(torch.ones(2), group=mine)
        dist.broadcast(torch.ones(1), 0 if mine is rest else 2, group=mine)
        dist.barrier()

    trace = run(job, world_size=3, record=True).trace
    for rank, group in enumerate([(0,), (1, 2), (1, 2)]):
        reduced, sent, barrier = trace.only(Kind.COLLECTIVE, rank=rank)
        assert (reduced.ranks, sent.ranks, barrier.ranks) == (group, group, (0, 1, 2))
        assert (reduced.sequence, sent.sequence, barrier.sequence) == (1, 2, 1)
        assert (reduced.peer, sent.peer) == (None, group[-1])
        assert reduced.group == sent.group != barrier.group
        assert (reduced.file, reduced.line) == (__file__, job.__code__.co_firstlineno + 3)


def test_point_to_point_ends_when_its_wait_returns(cluster) -> None:
    def late_sender() -> None:
        if dist.get_rank() == 0:
            time.sleep(0.3)
            dist.send(torch.ones(1), 1)
        else:
            work = dist.irecv(torch.ones(1), 0)
            work.wait()

    trace = cluster.run(late_sender, record=True).trace
    (received,) = trace.only(Kind.COLLECTIVE, rank=1)
    (sent,) = trace.only(Kind.COLLECTIVE, rank=0)
    assert received.start_ns < sent.start_ns < received.end_ns


def test_what_nobody_waited_for_is_there_too() -> None:
    def careless() -> None:
        dist.all_reduce(torch.ones(1), async_op=True)
        if dist.get_rank() == 0:
            dist.isend(torch.ones(1), 1)
        else:
            dist.recv(torch.ones(1), 0)

    trace = run(careless, record=True).trace  # on ranks of its own: such a call costs a cluster its ranks
    assert [calls(trace, rank) for rank in range(2)] == [
        [("all_reduce", 4), ("send", 4)],
        [("all_reduce", 4), ("recv", 4)],
    ]


def training_step() -> list[tuple[str, ...]]:
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(600, 600), nn.ReLU(), nn.Linear(600, 600), nn.Linear(600, 5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        nn.MSELoss()(model(torch.ones(2, 600)), torch.ones(2, 5)).backward()
        optimizer.step()
    return [name for name, _ in model.module.named_parameters()]


def test_a_step_is_forward_backward_and_optimizer_in_three_iterations(cluster) -> None:
    run = cluster.run(training_step, record=True)
    for rank in range(2):
        steps = run.trace.only(Kind.FORWARD, Kind.BACKWARD, Kind.OPTIMIZER, rank=rank)
        assert [(one.name, one.iteration) for one in steps] == [
            (name, iteration) for iteration in range(3) for name in ("forward", "backward", "optimizer")
        ]
        for one, following in zip(steps, steps.spans[1:], strict=False):
            assert one.end_ns <= following.start_ns
    assert run.trace.iterations == [0, 1, 2]


def test_each_gradient_is_ready_once_an_iteration_inside_backward(cluster) -> None:
    run = cluster.run(training_step, record=True)
    sizes = {"0.weight": 1440000, "0.bias": 2400, "2.weight": 1440000, "2.bias": 2400, "3.weight": 12000, "3.bias": 20}
    for rank in range(2):
        for iteration in range(3):
            (backward,) = run.trace.only(Kind.BACKWARD, rank=rank, iteration=iteration)
            ready = run.trace.only(Kind.GRADIENT, rank=rank, iteration=iteration)
            assert {one.name: one.nbytes for one in ready} == sizes
            assert len(ready) == len(sizes)
            assert [one.name for one in ready][-2:] != [one.name for one in ready][:2]
            assert {one.name[0] for one in ready.spans[:2]} == {"3"}
            assert all(backward.start_ns <= one.start_ns == one.end_ns <= backward.end_ns for one in ready)


def test_each_bucket_is_there_with_its_parameters_and_its_collective(cluster) -> None:
    run = cluster.run(training_step, record=True)
    everything = set(run[0])
    for rank in range(2):
        for iteration in range(3):
            found = run.trace.only(rank=rank, iteration=iteration)
            filled, sent = found.only(Kind.BUCKET), [one for one in found if one.bucket is not None]
            reductions = [one for one in sent if one.kind is Kind.COLLECTIVE]
            assert len(filled) == (1 if iteration == 0 else 2)
            assert [one.bucket for one in reductions] == sorted(one.bucket for one in filled)
            assert {one.bucket: one.nbytes for one in filled} == {one.bucket: one.nbytes for one in reductions}
            assert sorted(name for one in filled for name in one.parameters) == sorted(everything)
            ready = {one.name: one.start_ns for one in found.only(Kind.GRADIENT)}
            for bucket in filled:
                (reduction,) = [one for one in reductions if one.bucket == bucket.bucket]
                assert bucket.start_ns == min(ready[name] for name in bucket.parameters)
                assert bucket.end_ns == max(ready[name] for name in bucket.parameters)
                assert bucket.end_ns <= reduction.start_ns < reduction.end_ns


def test_other_all_reduces_are_no_buckets(cluster) -> None:
    def job() -> None:
        model = DDP(nn.Linear(10, 10))
        loss = model(torch.ones(1, 10)).sum()
        dist.all_reduce(loss.detach())
        loss.backward()
        dist.all_reduce(torch.ones(110))

    trace = cluster.run(job, record=True).trace
    reductions = [one for one in trace.only(Kind.COLLECTIVE, rank=0) if one.name == "all_reduce"]
    assert [(one.nbytes, one.bucket) for one in reductions] == [(4, None), (440, 0), (440, None)]


def test_a_communication_hook_keeps_its_place_and_its_buckets_are_told(cluster) -> None:
    def job() -> None:
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        model = DDP(nn.Linear(10, 10))
        model.register_comm_hook(None, fp16_compress_hook)
        model(torch.ones(1, 10)).sum().backward()

    trace = cluster.run(job, record=True).trace
    (bucket,) = trace.only(Kind.BUCKET, rank=0)
    (sent,) = [one for one in trace.only(Kind.COLLECTIVE, rank=0) if one.bucket == 0]
    assert (bucket.nbytes, sent.nbytes) == (440, 220)


def test_accumulation_counts_micro_steps_and_sends_once(cluster) -> None:
    def job() -> None:
        model = DDP(nn.Linear(10, 10))
        with model.no_sync():
            model(torch.ones(1, 10)).sum().backward()
        model(torch.ones(1, 10)).sum().backward()

    trace = cluster.run(job, record=True).trace.only(rank=1)
    assert [len(trace.only(Kind.GRADIENT, iteration=iteration)) for iteration in range(2)] == [2, 2]
    assert [one.iteration for one in trace.only(Kind.BUCKET)] == [1]


def test_a_hand_written_loop_and_a_checkpointed_block_have_landmarks_too(cluster) -> None:
    def job() -> None:
        from torch.utils.checkpoint import checkpoint

        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        for _ in range(2):
            hidden = checkpoint(model[0], torch.ones(1, 4), use_reentrant=False)
            model[1](hidden).sum().backward()

    trace = cluster.run(job, record=True).trace.only(rank=0)
    assert [one.name for one in trace if one.iteration == 1 and one.kind is not Kind.GRADIENT] == [
        "forward",
        "forward",
        "backward",
    ]
    assert len(trace.only(Kind.GRADIENT, iteration=1)) == 4


def test_regions_nest_close_when_they_raise_and_the_trace_is_kept() -> None:
    def fails() -> None:
        with span("outer"), span("doomed"):
            time.sleep(0.01)
            raise ValueError("bad luck")

    with pytest.raises(RankFailed) as caught:
        run(fails, record=True)
    outer, doomed = caught.value.run.trace.only(Kind.REGION, rank=0)
    assert (outer.name, doomed.name) == ("outer", "doomed")
    assert outer.start_ns <= doomed.start_ns < doomed.end_ns <= outer.end_ns
    assert {one.rank for one in caught.value.run.trace} == {0, 1}


def test_a_region_around_a_step_belongs_to_that_step(cluster) -> None:
    def job() -> None:
        model = nn.Linear(2, 2)
        for _ in range(3):
            with span("step"):
                model(torch.ones(1, 2)).sum().backward()

    trace = cluster.run(job, record=True).trace
    assert [one.iteration for one in trace.only(Kind.REGION, rank=1)] == [0, 1, 2]


def test_one_clock_that_tells_the_time() -> None:
    trace = run(user_calls, record=True).trace
    assert [one.start_ns for one in trace] == sorted(one.start_ns for one in trace)
    assert abs(trace.wall_offset_ns + trace.end_ns - time.time_ns()) < 60e9
    assert (trace.truth, trace.backend, trace.device, trace.world_size) == ("real", "gloo", "cpu", 2)
    barriers = [one for one in trace if one.name == "barrier"]  # nobody leaves before the last has come
    assert max(one.start_ns for one in barriers) < min(one.end_ns for one in barriers)


def test_nothing_is_recorded_unless_asked_and_torch_is_left_as_it_was(cluster) -> None:
    def what_stands_in_torch() -> tuple[object, ...]:
        from torch.nn.modules import module
        from torch.optim import optimizer

        hooks = [module._global_forward_hooks, module._global_forward_pre_hooks]
        hooks += [optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks]
        names = [dist.Work.wait.__module__, torch.autograd.backward.__module__]
        import threading

        return [len(one) for one in hooks], names, [one.name for one in threading.enumerate()]

    before = cluster.run(what_stands_in_torch)
    assert before.trace is None
    assert before[0][0] == [0, 0, 0, 0]
    pids = before.pids
    cluster.run(training_step, record=True)
    after = cluster.run(what_stands_in_torch)
    assert after.pids == pids
    assert after.values == before.values


def test_span_outside_a_run_does_nothing() -> None:
    with span("nothing"):
        pass


def test_ranks_that_hang_are_named_while_recording() -> None:
    def deadlock() -> None:
        dist.recv(torch.ones(1), 1 - dist.get_rank())

    with pytest.raises(RunTimeout, match="rank 0 waits in recv from rank 1"):
        run(deadlock, record=True, timeout=2)


def test_bad_extras_are_refused_before_anything_starts() -> None:
    with pytest.raises(UsageError, match="record=1 is neither True nor False"):
        run(user_calls, record=1)
    with pytest.raises(UsageError, match=r"link=3 is not a lablib\.Link"):
        run(user_calls, link=3)
    with Cluster(2) as cluster, pytest.raises(UsageError, match="record='yes'"):
        cluster.run(user_calls, record="yes")
