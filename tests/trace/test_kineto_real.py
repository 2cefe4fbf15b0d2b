"""Real profiles: of GPU jobs where they lie beside the project, and of gloo ranks made here."""

import collections
import gzip
import json
import time

import pytest
import torch
import torch.distributed as dist
from profiles import real

from lablib import run
from lablib.analysis.overlap import overlap
from lablib.errors import TraceError
from lablib.trace import Kind, Span, Trace

DDP = "ddp_2gpu_nccl_rank0.json.gz"
OLD = "sampled_128gpu_rank0.json.gz"


@pytest.fixture(scope="module")
def ddp():
    return Trace.load(real(DDP))


def raw_events(name):
    return json.loads(gzip.decompress(real(name).read_bytes()))["traceEvents"]


def counted(trace, *kinds):
    return collections.Counter(span.name for span in trace.only(*kinds))


def test_a_ddp_job_on_gpus(ddp):
    assert (ddp.world_size, ddp.backend, ddp.device, ddp.truth) == (2, "nccl", "cuda", "real")
    assert counted(ddp, Kind.COLLECTIVE) == {"all_reduce": 15, "broadcast": 6}
    assert counted(ddp, Kind.FORWARD, Kind.BACKWARD, Kind.OPTIMIZER) == {"forward": 3, "backward": 3, "optimizer": 3}
    assert ddp.iterations == [4, 5, 6]
    assert {span.iteration for span in ddp} == {4, 5, 6}
    assert ddp.wall_offset_ns + ddp.start_ns == 1716423322416788066  # 2024-05-23 00:15:22 UTC


def test_its_collectives_carry_bytes_group_and_stream(ddp):
    elements = [2049000, 7875584, 6563840, 6637568, 2431040]
    for iteration in ddp.iterations:
        reduced = ddp.only(Kind.COLLECTIVE, name="all_reduce", iteration=iteration)
        assert [span.nbytes for span in reduced] == [4 * count for count in elements]
        sent = ddp.only(Kind.COLLECTIVE, name="broadcast", iteration=iteration)
        assert [span.nbytes for span in sent] == [4 * 53120, 8 * 53]
    assert {(s.group, s.ranks, s.lane) for s in ddp.only(Kind.COLLECTIVE)} == {("0", (0, 1), "stream 40")}


def test_its_kernels_are_all_there_once_with_their_times(ddp):
    kernels = [event for event in raw_events(DDP) if event.get("cat") == "kernel"]
    found = sorted((s.start_ns, s.end_ns) for s in ddp.only(Kind.COMPUTE, Kind.COLLECTIVE))
    assert len(found) == len(kernels) == 2700
    for (start, end), event in zip(found, sorted(kernels, key=lambda event: event["ts"]), strict=True):
        assert abs(start - event["ts"] * 1000) <= 1  # a float of this size knows half nanoseconds
        assert abs(end - start - event["dur"] * 1000) <= 1


def test_its_backward_passes_lie_in_what_the_script_marked(ddp):
    for iteration in ddp.iterations:
        [marked] = ddp.only(Kind.REGION, name="## backward ##", iteration=iteration)
        [passed] = ddp.only(Kind.BACKWARD, iteration=iteration)
        assert marked.start_ns <= passed.start_ns < passed.end_ns <= marked.end_ns
        assert passed.length_ns > 0.75 * marked.length_ns


def test_its_overlap_is_that_of_holistic_trace_analysis(ddp):
    # HolisticTraceAnalysis 0.5.0 leaves the last step out and shrinks every event to whole microseconds: 14.31 %.
    # With HTA_DISABLE_NS_ROUNDING=1 it says 14.76 %.
    counted = ddp.with_spans(span for span in ddp if span.iteration in (4, 5))
    [exact] = overlap(counted)
    assert round(100 * exact.hidden_share, 2) == 14.76
    [rounded] = overlap(counted.with_spans(map(whole_microseconds, counted)))
    assert round(100 * rounded.hidden_share, 2) == 14.31


def whole_microseconds(span):
    start_ns, end_ns = -(-span.start_ns // 1000) * 1000, span.end_ns // 1000 * 1000
    return Span(span.rank, span.name, span.kind, start_ns, max(start_ns, end_ns), iteration=span.iteration)


def test_an_old_profile_of_many_ranks():
    trace = Trace.load(real(OLD))
    assert (trace.world_size, trace.backend, trace.iterations) == (128, "nccl", [551, 552])
    assert counted(trace, Kind.COLLECTIVE) == {"all_to_all": 4, "all_reduce": 4, "all_gather": 2}
    assert [(s.name, s.iteration, s.nbytes, s.lane) for s in trace.only(Kind.COLLECTIVE)] == [
        ("all_to_all", 551, 8 * 384, "stream 84"),
        ("all_to_all", 551, 419430400, "stream 84"),
        ("all_reduce", 551, 4 * 19618307, "stream 84"),
        ("all_reduce", 551, 4 * 26955536, "stream 84"),
        ("all_gather", 551, 16777216, "stream 203"),
        ("all_to_all", 552, 419430400, "stream 84"),
        ("all_to_all", 552, 4 * 2846720, "stream 84"),
        ("all_reduce", 552, 4 * 26258430, "stream 84"),
        ("all_reduce", 552, 4 * 5716654, "stream 84"),
        ("all_gather", 552, 16777216, "stream 203"),
    ]
    assert trace.wall_offset_ns == 1682725898 * 10**9


def test_two_ranks_of_one_job_merge_on_one_clock():
    parts = [Trace.load(real(f"sampled_128gpu_rank{rank}.json.gz")) for rank in (0, 1)]
    merged = Trace.merge(parts)
    assert len(merged) == sum(map(len, parts))
    steps = [span for span in merged if span.name == "ProfilerStep#551"]
    assert [(s.rank, s.start_ns + merged.wall_offset_ns) for s in steps] == [
        (0, 1682725898079292000),
        (1, 1682725898079484000),
    ]


def test_profiles_of_different_jobs_do_not_merge():
    with pytest.raises(TraceError, match="they are not of one job"):
        Trace.merge([Trace.load(real(DDP)), Trace.load(real("sampled_128gpu_rank1.json.gz"))])


def test_a_real_profile_survives_saving_and_goes_to_viewers(ddp, tmp_path):
    ddp.save(tmp_path / "saved.jsonl.gz")
    assert Trace.load(tmp_path / "saved.jsonl.gz") == ddp
    ddp.to_chrome(tmp_path / "viewer.json")
    events = json.loads((tmp_path / "viewer.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names == {
        "regions",
        "forward, backward, optimizer",
        "compute, stream 7",
        "communication, group 0, stream 40",
    }


def test_reading_costs_little_more_than_the_json_in_the_file():
    path = real(DDP)

    def seconds(read):
        start = time.process_time()
        read()
        return time.process_time() - start

    def plain():
        json.loads(gzip.decompress(path.read_bytes()))

    ratios = [seconds(lambda: Trace.load(path)) / seconds(plain) for _ in range(3)]
    assert min(ratios) < 4  # HolisticTraceAnalysis 0.5.0 takes 4 to 6 times as long


def profiled(folder):
    """Call every kind of collective under torch.profiler, and DDP."""
    rank = dist.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        model(torch.ones(3, 8)).sum().backward()
        optimizer.step()

    for _ in range(2):  # the reducer rebuilds its buckets, with collectives of its own
        step()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        for _ in range(2):
            with torch.profiler.record_function("step"):
                step()
        dist.all_reduce(torch.ones(10, dtype=torch.float64))
        work = dist.all_reduce(torch.ones(5, dtype=torch.bfloat16), async_op=True)
        work.wait()
        dist.reduce_scatter_single(torch.empty(4), torch.ones(8))
        dist.all_gather([torch.empty(4), torch.empty(4)], torch.ones(4))
        dist.all_gather_single(torch.empty(8), torch.ones(4))
        dist.broadcast(torch.ones(3, dtype=torch.int32), 1)
        dist.reduce(torch.ones(7), 1)
        dist.gather(torch.ones(2), [torch.empty(2), torch.empty(2)] if rank == 0 else None, dst=0)
        dist.all_to_all_single(torch.empty(4), torch.ones(4))
        if rank == 0:
            dist.send(torch.ones(3), 1)
        else:
            dist.recv(torch.ones(3), 0)
        dist.barrier()
    profiler.export_chrome_trace(f"{folder}/rank{rank}.json")


@pytest.mark.slow
def test_each_collective_of_gloo_ranks_exactly_once(tmp_path, no_orphans):
    recorded = run(profiled, str(tmp_path), world_size=2, record=True).trace
    trace = Trace.load(tmp_path)
    recorded.save(tmp_path / "recorded.jsonl")
    assert Trace.load(tmp_path / "recorded.jsonl") == recorded
    assert (trace.world_size, trace.backend, trace.device) == (2, "gloo", "cpu")
    for rank in (0, 1):
        found = [(s.name, s.nbytes, s.group, s.ranks) for s in trace.only(Kind.COLLECTIVE, rank=rank)]
        assert [fact[:2] for fact in found] == [
            *[("all_reduce", 128), ("all_reduce", 128)],
            *[("all_reduce", 80), ("all_reduce", 10), ("reduce_scatter", 32), ("all_gather", 16), ("all_gather", 16)],
            *[("broadcast", 12), ("reduce", 28), ("gather", 8), ("all_to_all", 16)],
            *[("send" if rank == 0 else "recv", 12), ("barrier", 0)],
        ]
        ours = [(s.name, s.nbytes, s.group, s.ranks) for s in recorded.only(Kind.COLLECTIVE, rank=rank)]
        assert ours[-len(found) :] == found
        steps = trace.only(Kind.FORWARD, Kind.BACKWARD, Kind.OPTIMIZER, Kind.REGION, rank=rank)
        one = ["forward", "backward", "optimizer"]
        assert [(s.name, s.iteration) for s in steps] == [
            ("step", None),
            *[(name, 0) for name in one],
            ("step", 0),  # it begins before the forward that begins iteration 1
            *[(name, 1) for name in one],
        ]
