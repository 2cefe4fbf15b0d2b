"""The file for Perfetto keeps to Chrome's Trace Event Format, and to the trace."""

import collections
import dataclasses
import gzip
import json
from fractions import Fraction

import pytest
from any_traces import traces
from hypothesis import given, settings
from hypothesis import strategies as st

from lablib.trace import Category, Kind, Span, Trace
from lablib.trace.chrome import events_of


def written(trace):
    return json.loads(json.dumps(events_of(trace)))


def lanes(document):
    """Return the slices and instants of each named thread."""
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"}
    held = collections.defaultdict(list)
    for event in document["traceEvents"]:
        if event["ph"] not in "MC":
            held[event["pid"], names[event["pid"], event["tid"]]].append(event)
    return held


def names_of(document):
    return {lane: [event["name"] for event in events] for lane, events in lanes(document).items()}


def ns(microseconds):
    """Return whole nanoseconds, as the digits in the file say."""
    exact = Fraction(repr(microseconds)) * 1000
    assert exact.denominator == 1
    return int(exact)


def a(name, kind, start, end, rank=0, **facts):
    return Span(rank, name, Kind(kind), start, end, **facts)


@st.composite
def near_traces(draw):
    """Return traces of less than a hundred days, in which spans often meet."""
    some = draw(traces(max_size=14))
    moments = st.integers(0, 6) | st.integers(0, 2**52)
    moved = []
    for span in some:
        start, end = sorted((draw(moments), draw(moments)))
        moved.append(Span(span.rank, span.name, span.kind, start, end, group=draw(st.sampled_from(["", "0"]))))
    looked = tuple(dataclasses.replace(sample, time_ns=draw(moments)) for sample in some.memory)
    return dataclasses.replace(some.with_spans(moved), memory=looked)


@settings(deadline=None)
@given(near_traces())
def test_slices_of_a_thread_are_nested_or_apart(trace):
    for events in lanes(written(trace)).values():
        open_ends = []
        for event in events:
            if event["ph"] == "X":
                start, end = ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])
                while open_ends and open_ends[-1] <= start:
                    open_ends.pop()
                assert not open_ends or end <= open_ends[-1]
                open_ends.append(end)


@settings(deadline=None)
@given(near_traces())
def test_every_span_is_there_once_to_the_nanosecond(trace):
    document = written(trace)
    found = collections.Counter()
    for event in document["traceEvents"]:
        if event["ph"] in "Xi":
            start = ns(event["ts"]) + document["otherData"]["start_ns"]
            found[event["pid"], event["name"], event["cat"], start, ns(event.get("dur", 0))] += 1
    gradient = Kind.GRADIENT
    assert found == collections.Counter(
        (s.rank, s.name, s.kind.value, s.start_ns, 0 if s.kind == gradient else s.length_ns) for s in trace
    )


@settings(deadline=None)
@given(near_traces())
def test_every_sample_of_memory_is_a_counter_of_its_rank(trace):
    document = written(trace)
    begin_ns = document["otherData"]["start_ns"]
    found = collections.Counter(
        (event["pid"], ns(event["ts"]) + begin_ns, tuple(event["args"].items()))
        for event in document["traceEvents"]
        if event["ph"] == "C"
    )
    assert found == collections.Counter(
        (sample.rank, sample.time_ns, tuple((category.value, sample[category]) for category in Category))
        for sample in trace.memory
    )


@settings(deadline=None)
@given(near_traces())
def test_the_format_is_kept(trace):
    document = written(trace)
    events = document["traceEvents"]
    timed = [event for event in events if event["ph"] != "M"]
    assert {event["ph"] for event in events} <= {"M", "X", "i", "C"}
    assert [event["ts"] for event in timed] == sorted(event["ts"] for event in timed)
    assert all(event["ts"] >= 0 and event.get("dur", 0) >= 0 for event in timed)
    assert all(event["s"] == "t" for event in timed if event["ph"] == "i")
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name" and e["ph"] == "M"}
    assert processes == {one.rank: f"rank {one.rank}" for one in (*trace, *trace.memory)}
    threads = [(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name" and e["ph"] == "M"]
    assert len(threads) == len(set(threads)) == len({tid for _, tid in threads})
    assert {(event["pid"], event["tid"]) for event in timed if event["ph"] != "C"} == set(threads)
    assert not {tid for _, tid in threads} & processes.keys()


def test_the_lanes_of_a_rank_in_order():
    group = {"group": "0"}
    trace = Trace.of_spans(
        [
            a("all_reduce", "collective", 1, 5, lane="stream 40", **group),
            a("gemm", "compute", 1, 5, lane="stream 7"),
            a("broadcast", "collective", 1, 5, **group),
            a("barrier", "collective", 1, 5, group="1"),
            a("bucket 0", "bucket", 1, 5),
            a("0.weight", "gradient", 2, 2),
            a("layer1 forward", "compute", 1, 5),
            a("optimizer", "optimizer", 6, 7),
            a("backward", "backward", 4, 6),
            a("forward", "forward", 1, 4),
            a("load", "region", 1, 5),
        ],
        world_size=1,
    )
    assert names_of(written(trace)) == {
        (0, "regions"): ["load"],
        (0, "forward, backward, optimizer"): ["forward", "backward", "optimizer"],
        (0, "compute"): ["layer1 forward"],
        (0, "compute, stream 7"): ["gemm"],
        (0, "gradients"): ["0.weight"],
        (0, "buckets"): ["bucket 0"],
        (0, "communication, group 0"): ["broadcast"],
        (0, "communication, group 0, stream 40"): ["all_reduce"],
        (0, "communication, group 1"): ["barrier"],
    }
    sort = [e for e in written(trace)["traceEvents"] if e["name"] == "thread_sort_index"]
    assert [e["args"]["sort_index"] for e in sort] == list(range(1, 10))


def test_collectives_on_their_way_together_go_side_by_side():
    sent = [a(f"b{n}", "collective", 10 * n, 10 * n + 25, group="0") for n in range(4)]
    inside = a("inside", "collective", 3, 4, group="0")
    assert names_of(written(Trace.of_spans([*sent, inside], world_size=1))) == {
        (0, "communication, group 0"): ["b0", "b3"],
        (0, "communication, group 0 (2)"): ["inside", "b1"],
        (0, "communication, group 0 (3)"): ["b2"],
    }


def test_regions_nest_and_only_what_crosses_goes_aside():
    regions = [a("inner", "region", 0, 8), a("outer", "region", 0, 10), a("crossing", "region", 5, 12)]
    assert names_of(written(Trace(tuple(regions), 1))) == {
        (0, "regions"): ["outer", "inner"],
        (0, "regions (2)"): ["crossing"],
    }


def test_a_slice_tells_its_facts():
    facts = {"nbytes": 64, "iteration": 0, "bucket": 0, "group": "0", "ranks": (0, 1), "sequence": 3, "peer": 0}
    span = a("reduce", "collective", 1, 5, file="train.py", line=7, **facts)
    bucket = a("bucket 0", "bucket", 1, 5, parameters=("w", "b"))
    told = {e["name"]: e["args"] for e in written(Trace.of_spans([span, bucket], world_size=2))["traceEvents"]}
    facts["bytes"] = facts.pop("nbytes")
    assert told["reduce"] == facts | {"ranks": [0, 1], "source": "train.py:7"}
    assert told["bucket 0"] == {"parameters": ["w", "b"]}


@pytest.mark.parametrize("name", ["viewer.json", "viewer.json.gz"])
def test_the_file_holds_the_events(tmp_path, name):
    trace = Trace.of_spans([a("forward", "forward", 1_000_000_001, 1_000_002_002)], world_size=1)
    trace.to_chrome(tmp_path / name)
    data = (tmp_path / name).read_bytes()
    document = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
    assert document == written(trace)
    assert document["otherData"]["truth"] == "real"
    [event] = lanes(document)[0, "forward, backward, optimizer"]
    assert (event["ts"], event["dur"]) == (0, 2.001)
