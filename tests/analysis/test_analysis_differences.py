"""Two traces side by side."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_traces import ddp_rank, span, trace

from lablib.analysis import differences
from lablib.errors import UsageError

RUN = [*ddp_rank(0), *ddp_rank(1, late=5)]


def slower(spans, factor):
    return [replace(one, start_ns=one.start_ns * factor, end_ns=one.end_ns * factor) for one in spans]


def test_a_slower_run_is_the_same():
    found = differences(trace(*RUN, truth="simulated"), trace(*slower(RUN, 3), truth="real"))
    assert found.same
    assert (found.first, found.missing, found.extra, found.left_out) == ("", (), (), ())
    assert len(found.pairs) == len(RUN)
    assert {pair.ratio for pair in found.pairs} == {3.0, None}  # None: a gradient takes no time
    assert found.ratio() == found.ratio("collective") == 3.0
    assert found.ratio("gradient") is None


def test_what_is_missing_and_what_is_extra():
    other = [one for one in RUN if not (one.bucket == 1 and one.rank == 1)]
    other.append(span(0, "barrier", "collective", 70, 71, iteration=1))
    found = differences(trace(*RUN), trace(*other))
    assert [one.name for one in found.missing] == ["bucket 1", "all_reduce"]
    assert [one.name for one in found.extra] == ["barrier"]
    assert found.first == "rank 1, bucket in iteration 1: bucket 1 (60 B) in the first trace, no more in the other"
    assert not found.same


def test_another_order_is_a_difference():
    def sent(*order):
        return [
            span(0, "all_reduce", "collective", at, at + 1, bucket=bucket, iteration=0)
            for at, bucket in enumerate(order)
        ]

    found = differences(trace(*sent(0, 1, 2), truth="simulated"), trace(*sent(0, 2, 1), truth="emulated"))
    assert (len(found.pairs), found.missing, found.extra) == (3, (), ())
    assert found.first == (
        "rank 0, collective in iteration 0: all_reduce of bucket 1 in the simulated trace, "
        "all_reduce of bucket 2 in the emulated one"
    )


def test_other_bytes_are_a_difference():
    other = [replace(one, nbytes=one.nbytes * 2) if one.kind == "bucket" else one for one in RUN]
    found = differences(trace(*RUN), trace(*other))
    assert "bucket 0 (40 B) in the first trace, bucket 0 (80 B) in the other" in found.first


def test_kinds_that_one_trace_does_not_record_are_left_out():
    layers = [span(0, "layer0 forward", "compute", 0, 5, iteration=1)]
    found = differences(trace(*RUN, *layers), trace(*RUN))
    assert found.same
    assert found.left_out == ("compute",)
    assert not differences(trace(*RUN, *layers), trace(*RUN), kinds=["compute"]).same
    with pytest.raises(UsageError, match="one trace has compute spans, the other forward, backward"):
        differences(trace(*layers), trace(*RUN))


def test_one_iteration_alone():
    other = [*RUN, span(0, "broadcast", "collective", -5, -1)]
    assert differences(trace(*RUN), trace(*other)).extra
    assert differences(trace(*RUN), trace(*other), iteration=1).same


@given(st.sets(st.integers(0, len(RUN) - 1)), st.sets(st.integers(0, len(RUN) - 1)))
def test_spans_are_matched_missing_or_extra(left, right):
    one, other = ([span for number, span in enumerate(RUN) if number in chosen] for chosen in (left, right))
    kinds = {span.kind for span in RUN}
    found = differences(trace(*one), trace(*other), kinds=kinds)
    assert {pair.one for pair in found.pairs} == set(one) & set(other)
    assert set(found.missing) == set(one) - set(other)
    assert set(found.extra) == set(other) - set(one)
    assert found.same == (set(one) == set(other))
    turned = differences(trace(*other), trace(*one), kinds=kinds)
    assert (len(turned.pairs), turned.missing, turned.extra) == (len(found.pairs), found.extra, found.missing)
