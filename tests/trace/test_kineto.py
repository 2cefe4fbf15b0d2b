"""Each kind of event of torch.profiler becomes the right span."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import AUTOGRAD, GLOO, decoded, document, event, kernel, launch, mark, node, op

from lablib.errors import TraceError
from lablib.trace import Kind, Trace


def facts(trace, *kinds):
    return [(s.name, s.start_ns, s.end_ns, s.iteration, s.lane) for s in trace.only(*kinds)]


def test_the_job_is_told_by_distributed_info():
    trace = decoded(document(mark("load", 1, 2), rank=3, world_size=8, backend="nccl"))
    assert (trace.world_size, trace.backend, trace.device, trace.truth) == (8, "nccl", "cuda", "real")
    assert (trace.spans[0].rank, trace.wall_offset_ns) == (3, 10**18)


def test_a_job_without_ranks_is_one_rank():
    written = document(mark("load", 1, 2))
    del written["distributedInfo"]
    trace = decoded(written)
    assert (trace.world_size, trace.spans[0].rank, trace.backend, trace.device) == (1, 0, None, "cpu")


@pytest.mark.parametrize(("name", "rank"), [("rank5.json", 5), ("x_rank_12.pt.trace.json", 12), ("Rank-3.gz", 3)])
def test_the_file_name_tells_the_rank_where_nothing_else_does(name, rank):
    written = document(mark("load", 1, 2))
    del written["distributedInfo"]
    assert decoded(written, name=name).spans[0].rank == rank
    assert decoded(written, name=name).world_size == rank + 1
    assert decoded(written, name=name, world_size=64).world_size == 64


def test_times_keep_their_nanoseconds():
    text = json.dumps(document(mark("load", 1, 2))).replace('"ts": 1,', '"ts": 4458676522690.655,')
    [span] = decoded(text.replace('"dur": 1', '"dur": 156.777')).spans
    assert (span.start_ns, span.length_ns) == (4458676522690655, 156777)


def test_times_since_1970_of_old_profiles_become_an_offset():
    written = document(mark("load", 1682725898236567, 1682725898236667))
    del written["baseTimeNanoseconds"]
    trace = decoded(written)
    assert trace.wall_offset_ns == 1682725898 * 10**9
    assert (trace.start_ns, trace.end_ns) == (236567000, 236667000)


def test_marks_become_regions_steps_and_iterations():
    trace = decoded(
        document(
            mark("ProfilerStep#4", 0, 50),
            mark("load", 1, 5),
            mark("DistributedDataParallel.forward", 5, 20),
            mark("in a hook", 22, 23, AUTOGRAD),
            mark("Optimizer.step#SGD.step", 30, 40),
            mark("Optimizer.zero_grad#SGD.zero_grad", 40, 45),
            mark("ProfilerStep#5", 50, 90),
            mark("load", 51, 52),
            mark("after", 95, 96),
        )
    )
    assert facts(trace) == [
        ("ProfilerStep#4", 0, 50_000, 4, ""),
        ("load", 1000, 5000, 4, ""),
        ("forward", 5000, 20_000, 4, ""),
        ("in a hook", 22_000, 23_000, 4, f"thread {AUTOGRAD}"),
        ("optimizer", 30_000, 40_000, 4, ""),
        ("Optimizer.zero_grad#SGD.zero_grad", 40_000, 45_000, 4, ""),
        ("ProfilerStep#5", 50_000, 90_000, 5, ""),
        ("load", 51_000, 52_000, 5, ""),
        ("after", 95_000, 96_000, None, ""),
    ]
    assert [s.kind for s in trace.spans[1:5]] == [Kind.REGION, Kind.FORWARD, Kind.REGION, Kind.OPTIMIZER]


def test_of_nested_forwards_the_outermost_counts():
    name = "FullyShardedDataParallel.forward"
    trace = decoded(document(mark(name, 0, 10), mark(name, 2, 5), mark(name, 5, 9), mark(name, 10, 12)))
    assert [fact[:3] for fact in facts(trace)] == [("forward", 0, 10_000), ("forward", 10_000, 12_000)]


def test_without_steps_a_forward_after_a_backward_begins_an_iteration():
    forward = "DistributedDataParallel.forward"
    trace = decoded(
        document(
            mark("early", 0, 1),
            *[mark(forward, 10, 20), mark(forward, 21, 25), node(30, 35, 9)],
            *[mark(forward, 40, 50), node(60, 65, 19), mark("Optimizer.step#Adam.step", 70, 75)],
        )
    )
    assert [(s.name, s.iteration) for s in trace] == [
        ("early", None),
        *[("forward", 0), ("forward", 0), ("backward", 0)],
        *[("forward", 1), ("backward", 1), ("optimizer", 1)],
    ]


def test_a_backward_pass_is_a_row_of_falling_numbers():
    trace = decoded(
        document(
            *[node(10, 12, 7), node(12, 13), node(14, 20, 6), node(15, 16, 90), node(21, 22, 6), node(23, 25)],
            *[node(30, 31, 8), node(32, 40, 3)],
        )
    )
    assert [fact[:3] for fact in facts(trace)] == [("backward", 10_000, 25_000), ("backward", 30_000, 40_000)]


def test_passes_of_two_threads_at_one_time_are_one():
    trace = decoded(document(node(10, 12, 7), node(11, 18, 6, AUTOGRAD), node(19, 20, 5, AUTOGRAD), node(13, 14, 2)))
    assert [fact[:3] for fact in facts(trace)] == [("backward", 10_000, 20_000)]


def test_kernels_are_compute_in_the_iteration_that_launched_them():
    trace = decoded(
        document(
            *[mark("ProfilerStep#1", 0, 10), launch(77, 9), mark("ProfilerStep#2", 10, 20)],
            *[kernel("gemm", 12, 14, correlation=77), kernel("relu", 13, 15, stream=20, correlation=78)],
            event("gpu_memcpy", "Memcpy DtoH", 3, 4, 7, stream=7),
            event("gpu_user_annotation", "ProfilerStep#1", 12, 14, 7),
        )
    )
    assert facts(trace, Kind.COMPUTE) == [
        ("gemm", 12_000, 14_000, 1, "stream 7"),
        ("relu", 13_000, 15_000, 2, "stream 20"),
    ]
    assert len(trace) == 4
    assert trace.device == "cuda"


TOLD = {
    "Collective name": "_allgather_base",
    "In msg nelems": 10,
    "Out msg nelems": 20,
    "dtype": "BFloat16",
    "Process Group Name": "3",
    "Process Group Ranks": "[1, 2]",
    "Seq": 12,
}


def nccl_call(at, identity, **told):
    """Return the events of a call as NCCL's process group leaves them, without the kernel."""
    return [
        op("c10d::_allgather_base_", at, at + 9, AUTOGRAD, **{"External id": identity}),
        op("record_param_comms", at + 1, at + 8, AUTOGRAD, **{"External id": identity + 1} | told),
        mark("nccl:_all_gather_base", at + 2, at + 7, AUTOGRAD, **{"External id": identity + 2}),
        launch(identity, at + 3, AUTOGRAD),
    ]


def nccl_kernel(start, end, name="ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", **args):
    return kernel(name, start, end, stream=40, **args)


@pytest.mark.parametrize(
    "link", [{"correlation": 50}, {"correlation": 999, "External id": 51}, {"correlation": 50, "External id": 7}]
)
def test_four_events_of_a_call_on_a_gpu_are_one_collective(link):
    trace = decoded(
        document(mark("ProfilerStep#8", 0, 15), *nccl_call(10, 50, **TOLD), nccl_kernel(18, 90, **link), world_size=4)
    )
    [span] = trace.only(Kind.COLLECTIVE)
    assert (span.name, span.start_ns, span.end_ns, span.lane) == ("all_gather", 18_000, 90_000, "stream 40")
    assert (span.nbytes, span.group, span.ranks, span.sequence, span.iteration) == (20, "3", (1, 2), 12, 8)


def test_a_kernel_without_its_call_tells_what_it_can():
    [bare, told] = decoded(
        document(nccl_kernel(1, 2), nccl_kernel(3, 4, "ncclKernel_Generic", **TOLD), world_size=4)
    ).spans
    assert (bare.name, bare.nbytes, bare.lane) == ("all_gather", 0, "stream 40")
    assert (told.name, told.nbytes, told.ranks) == ("all_gather", 20, (1, 2))


def test_a_call_without_its_kernel_is_there_once_too():
    [span] = decoded(document(*nccl_call(10, 50, **TOLD), world_size=4)).spans
    assert (span.name, span.start_ns, span.end_ns, span.nbytes, span.lane) == ("all_gather", 10_000, 19_000, 20, "")


def test_two_kernels_of_one_call_are_one_collective():
    told = nccl_call(10, 50, **TOLD)
    kernels = [nccl_kernel(20, 30, correlation=50), nccl_kernel(35, 40, **{"External id": 51})]
    [span] = decoded(document(*told, *kernels, world_size=4)).spans
    assert (span.start_ns, span.end_ns) == (20_000, 40_000)


def test_a_wait_is_no_collective():
    assert len(decoded(document(op("record_param_comms", 1, 2, **TOLD | {"Collective name": "wait"})))) == 0


def test_a_shortened_list_of_ranks_is_looked_up():
    groups = [{"pg_name": "3", "ranks": [0, 1, 2, 3]}, {"pg_name": "4", "ranks": [0, 1]}]
    short = TOLD | {"Process Group Ranks": "[0, 1, ..., 3]"}
    written = document(op("record_param_comms", 1, 2, **short), world_size=4)
    written["distributedInfo"]["pg_config"] = groups
    assert decoded(written).spans[0].ranks == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("name", "end", "dtype", "nbytes", "peer"),
    [
        ("send", {"Dst Rank": 1}, "Float", 40, 1),
        ("recv", {"Src Rank": 1}, "Float8_e4m3fn", 20, 1),
        ("scatter", {}, "ComplexDouble", 320, None),
        ("reduce", {"Src Rank": 77}, "Long", 80, None),
        ("barrier", {}, "Byte", 0, None),
        ("allreduce", {}, "Quantum", 0, None),
    ],
)
def test_bytes_and_peers(name, end, dtype, nbytes, peer):
    told = TOLD | end | {"Collective name": name, "dtype": dtype}
    [span] = decoded(document(op("record_param_comms", 1, 2, **told))).spans
    assert (span.nbytes, span.peer) == (nbytes, peer)


def test_gloo_runs_a_call_on_its_own_thread():
    shapes = {"Input Dims": [[8]], "Input type": ["double"]}
    trace = decoded(
        document(
            *[mark("ProfilerStep#2", 0, 30), op("c10d::_reduce_scatter_base_", 10, 11), op("c10d::allreduce_", 12, 13)],
            *[mark("gloo:all_reduce", 12, 29, GLOO, **shapes), mark("gloo:all_reduce", 31, 33, GLOO)],
        )
    )
    found = [(s.name, s.start_ns, s.end_ns, s.nbytes, s.iteration, s.lane) for s in trace.only(Kind.COLLECTIVE)]
    assert found == [("reduce_scatter", 12_000, 29_000, 64, 2, ""), ("all_reduce", 31_000, 33_000, 0, 2, "")]


def test_what_ran_before_and_after_the_window_is_kept():
    trace = decoded(
        document(
            mark("gloo:broadcast", 1, 2, GLOO), op("c10d::broadcast_", 3, 4), mark("gloo:broadcast", 5, 6, GLOO),
            op("c10d::broadcast_", 7, 8), op("c10d::send", 9, 12), mark("gloo:send", 10, 11),
            mark("gloo:send", 13, 14, GLOO),
        )
    )  # fmt: skip
    assert [(s.name, s.start_ns) for s in trace] == [
        ("broadcast", 1000),
        ("broadcast", 5000),
        ("broadcast", 7000),
        ("send", 9000),
        ("send", 13_000),
    ]


def test_the_only_group_is_the_group_of_every_call():
    written = document(op("c10d::barrier", 1, 2))
    written["distributedInfo"]["pg_config"] = [{"pg_name": "0", "ranks": [0, 1]}]
    [span] = decoded(written).spans
    assert (span.name, span.group, span.ranks) == ("barrier", "0", (0, 1))


WHOLE = document(
    *[mark("ProfilerStep#8", 0, 15.5), node(1, 2, 3), mark("DistributedDataParallel.forward", 0.125, 1)],
    *[*nccl_call(10, 50, **TOLD), nccl_kernel(18, 90, correlation=50), kernel("gemm", 1, 2), op("aten::mm", 1, 2)],
    world_size=4,
)
WHOLE["distributedInfo"]["pg_config"] = [{"pg_name": "0", "ranks": [0, 1]}]


def changed(**facts):
    return json.dumps(document(mark("load", 1, 2) | facts))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps(WHOLE)[:-2], "line 1, column"),
        (json.dumps(WHOLE, indent=1)[:-20], r"line \d\d+, column \d+: Expecting"),
        (json.dumps(document(schemaVersion=2)), "schemaVersion 2 of torch.profiler is not known; 1 is"),
        (json.dumps(document(rank=2)), "distributedInfo: rank 2 of 2 cannot be"),
        (json.dumps(document(rank="0")), "distributedInfo: rank '0' of 2 cannot be"),
        (json.dumps(document(distributedInfo=[1])), r"distributedInfo is \[1\], not an object"),
        (json.dumps(document(baseTimeNanoseconds="now")), "baseTimeNanoseconds is 'now', not a number"),
        (json.dumps(document(traceEvents={})), "this is JSON, but neither"),
        (json.dumps(document("text")), "event 0 is 'text', not an object"),
        (changed(ts="12"), r"event 0 \(load\): ts is '12', not a time in microseconds"),
        (changed(ts=1e30), r"event 0 \(load\): ts is"),
        (changed(dur=None), r"event 0 \(load\): dur is None, not a time"),
        (changed(dur=float("nan")), r"event 0 \(load\): dur is nan, not a time"),
        (changed(dur=-1), r"event 0 \(load\) ends before it starts: dur is -1"),
        (changed(tid=[1]), r"event 0 \(load\) has the tid \[1\], not a thread"),
        (changed(args=[1]), r"event 0 \(load\) has the args \[1\], not an object"),
        (changed(name=None), "event 0 has the name None, not a text"),
    ],
)
def test_a_damaged_profile_says_where(tmp_path, text, said):
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(TraceError) as caught:
        Trace.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert re.match(said, str(caught.value).removeprefix(f"{path}: "))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_a_profile_holds_in_one_place_no_other_error_comes(data):
    written = json.loads(json.dumps(WHOLE))
    place = written
    while True:
        key = data.draw(st.sampled_from(sorted(place)) if isinstance(place, dict) else st.integers(0, len(place) - 1))
        if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.integers(0, 3)) == 0:
            break
        place = place[key]
    place[key] = data.draw(ANYTHING)
    try:
        trace = decoded(written)
    except TraceError:
        return
    assert all(0 <= span.rank < trace.world_size and span.start_ns <= span.end_ns for span in trace)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**6), st.binary(max_size=3), st.integers(0, 3))
def test_whatever_bytes_are_damaged_no_other_error_comes(tmp_path_factory, at, other, lost):
    whole = json.dumps(WHOLE).encode()
    at %= len(whole)
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_bytes(whole[:at] + other + whole[at + lost :])
    try:
        Trace.load(path)
    except TraceError as error:
        assert str(path) in str(error)  # noqa: PT017 either is fine, another error is not
