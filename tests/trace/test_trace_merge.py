"""Traces of single ranks become one, on one clock."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lablib.errors import TraceError
from lablib.trace import Category, Kind, MemorySample, Span, Trace


def of_rank(rank, *times, world_size=4, wall_offset_ns=0, **facts):
    spans = [Span(rank, "forward", Kind.FORWARD, time, time + 3) for time in times]
    return Trace.of_spans(spans, world_size=world_size, wall_offset_ns=wall_offset_ns, **facts)


@settings(deadline=None)
@given(st.lists(st.tuples(st.lists(st.integers(0, 1000), max_size=4), st.integers(1, 10**18)), min_size=1, max_size=4))
def test_every_span_keeps_its_moment_since_1970(held):
    parts = [of_rank(rank, *times, wall_offset_ns=offset) for rank, (times, offset) in enumerate(held)]
    merged = Trace.merge(parts)
    wall = [
        dataclasses.replace(
            span, start_ns=span.start_ns + trace.wall_offset_ns, end_ns=span.end_ns + trace.wall_offset_ns
        )
        for trace in parts
        for span in trace
    ]
    assert merged.wall_offset_ns == held[0][1]
    moved = Trace.of_spans(wall, world_size=4)
    assert [(span.rank, span.start_ns + merged.wall_offset_ns) for span in merged] == [
        (span.rank, span.start_ns) for span in moved
    ]
    assert [span.length_ns for span in merged] == [3] * len(wall)


def test_one_clock_needs_no_shift():
    parts = [of_rank(0, 5), of_rank(1, 4)]
    assert Trace.merge(parts).spans == (*parts[1].spans, *parts[0].spans)
    assert Trace.merge(iter(parts)).world_size == 4


def test_samples_of_memory_come_along_on_one_clock():
    of = MemorySample.of
    parts = [
        dataclasses.replace(of_rank(0, wall_offset_ns=100), memory=(of(0, 5, {Category.OTHER: 1}),)),
        dataclasses.replace(of_rank(1, wall_offset_ns=97), memory=(of(1, 7, {Category.OTHER: 2}),)),
    ]
    assert Trace.merge(parts).memory == (of(1, 4, {Category.OTHER: 2}), of(0, 5, {Category.OTHER: 1}))
    with pytest.raises(TraceError, match="rank 0 is in trace 1 and in trace 2"):
        Trace.merge([parts[0], parts[0]])


def test_parts_may_hold_several_ranks():
    merged = Trace.merge([Trace.merge([of_rank(0, 1), of_rank(2, 2)]), of_rank(1, 3)])
    assert [span.rank for span in merged] == [0, 2, 1]


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([], "there is no trace to merge"),
        ([of_rank(0, 1), of_rank(3, 1), of_rank(3, 9)], "rank 3 is in trace 2 and in trace 3"),
        ([of_rank(0, 1), of_rank(1, 1, world_size=2)], "trace 2 has world_size 2, trace 1 has 4: they are not of one"),
        ([of_rank(0, 1), of_rank(1, 1, truth="simulated")], "trace 2 has truth simulated, trace 1 has real"),
        ([of_rank(0, 1), of_rank(1, 1, backend="nccl")], "trace 2 has backend nccl, trace 1 has None"),
        ([of_rank(0, 1, wall_offset_ns=5), of_rank(1, 1)], "the clock of trace 2 is not known"),
    ],
)
def test_what_is_not_of_one_job_is_refused(parts, said):
    with pytest.raises(TraceError) as caught:
        Trace.merge(parts)
    assert str(caught.value).startswith(said)
