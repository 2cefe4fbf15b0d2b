"""Simulated DDP steps against sums done by hand, and rules that hold for every plan."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lablib.errors import UsageError
from lablib.links import Link
from lablib.sim.buckets import MIB, Parameter, predict_buckets
from lablib.sim.ddp import simulate
from lablib.sim.plan import Layer, Plan, chain
from lablib.trace.spans import Kind

EIGHT = chain([1] * 8, forward_ms=0, backward_ms=20)
MS = 1_000_000


def slow(ms_per_mib):
    """Return a network on which two ranks need so long for each MiB that they reduce."""
    return Link(bandwidth_mib_s=1000 / ms_per_mib)


def backward_ms(plan, **arguments):
    trace = simulate(plan, iterations=[1], **arguments)
    return [span.length_ns / MS for span in trace.only(Kind.BACKWARD)]


def sent_and_done(trace, rank=0):
    """Return milliseconds of each bucket's call and end, without the microseconds of the rebuild's broadcasts."""
    calls = [span for span in trace.only(Kind.COLLECTIVE, rank=rank) if span.bucket is not None]
    return [(round(span.start_ns / MS, 1), round(span.end_ns / MS, 1)) for span in calls]


def test_buckets_hide_all_but_the_last_transfer():
    assert backward_ms(EIGHT, link=slow(15), bucket_cap_mb=1) == pytest.approx([160 + 15] * 2)
    assert backward_ms(EIGHT, link=slow(15), bucket_cap_mb=100) == pytest.approx([160 + 8 * 15] * 2)
    # where the network is slower than the layers, the first layer is what it hides behind
    assert backward_ms(EIGHT, link=slow(30), bucket_cap_mb=1) == pytest.approx([20 + 8 * 30] * 2)


def test_small_buckets_pay_latency():
    link = Link(latency_ms=25, bandwidth_mib_s=1000 / 15)
    assert backward_ms(EIGHT, link=link, bucket_cap_mb=1) == pytest.approx([20 + 8 * (2 * 25 + 15)] * 2)
    assert backward_ms(EIGHT, link=link, bucket_cap_mb=2) == pytest.approx([40 + 4 * (2 * 25 + 30)] * 2)
    assert backward_ms(EIGHT, link=link, bucket_cap_mb=100) == pytest.approx([160 + 2 * 25 + 120] * 2)


def test_transfers_wait_for_the_card_and_for_the_last_rank():
    trace = simulate([EIGHT, EIGHT.slowed(2)], link=slow(30), iterations=[1], bucket_cap_mb=4)
    assert sent_and_done(trace, 0) == [(80, 280), (160, 440)]
    assert sent_and_done(trace, 1) == [(160, 280), (320, 440)]
    trace = simulate(EIGHT, link=slow(30), iterations=[1], bucket_cap_mb=2)
    assert sent_and_done(trace) == [(40, 100), (80, 160), (120, 220), (160, 280)]


def test_a_late_rank_lengthens_the_backward_of_the_others():
    late = Plan(EIGHT.layers, late_ms=100)
    trace = simulate([EIGHT, late], link=slow(15), iterations=[0])
    first, second = trace.only(Kind.BACKWARD)
    assert (first.length_ns / MS, second.length_ns / MS) == (380, 280)
    assert first.end_ns == second.end_ns
    assert [span.start_ns / MS for span in trace.only(Kind.FORWARD)] == [0, 100]


def test_a_flipped_order_lets_no_bucket_leave_until_the_end():
    trace = simulate([EIGHT, EIGHT.flipped()], iterations=[1], bucket_cap_mb=1)
    filled = {span.bucket: span.end_ns / MS for span in trace.only(Kind.BUCKET, rank=1)}
    assert filled == {index: 160 - 20 * index for index in range(8)}
    assert [sent for sent, _ in sent_and_done(trace, 1)] == [160] * 8
    assert [sent for sent, _ in sent_and_done(trace, 0)] == [20 * place for place in range(1, 9)]
    # the order is rank 0's
    (first,) = [span for span in trace.only(Kind.BUCKET, rank=1) if span.bucket == 0]
    assert first.parameters == ("layer7.weight",)


def test_the_iteration_that_rebuilds_sends_two_broadcasts_in_forward():
    link = Link(latency_ms=1)
    for settings, rebuilding in (({}, 1), ({"static_graph": True}, 2), ({"find_unused_parameters": True}, None)):
        trace = simulate(EIGHT, link=link, bucket_cap_mb=4, **settings)
        broadcasts = trace.only(Kind.COLLECTIVE, rank=0, name="broadcast")
        assert broadcasts.iterations == ([] if rebuilding is None else [rebuilding])
        if rebuilding is not None:
            assert [span.nbytes for span in broadcasts] == [4 * 9, 4 * 2]
            (forward,) = trace.only(Kind.FORWARD, rank=0, iteration=rebuilding)
            assert forward.length_ns == 2 * MS


def test_unused_parameters_are_told_in_a_map():
    trace = simulate(EIGHT, iterations=[0, 1], bucket_cap_mb=4, find_unused_parameters=True)
    calls = [(span.iteration, span.nbytes, span.bucket) for span in trace.only(Kind.COLLECTIVE, rank=1)]
    assert calls == [(i, *call) for i in (0, 1) for call in [(4 * MIB, 0), (4 * MIB, 1), (32, None)]]
    trace = simulate(EIGHT, iterations=[0, 1], static_graph=True)
    calls = [(span.iteration, span.nbytes, span.bucket) for span in trace.only(Kind.COLLECTIVE, rank=1)]
    assert calls == [(0, 32, None), (0, 8 * MIB, 0), (1, 8 * MIB, 0)]


def test_a_static_graph_sends_nothing_before_the_end_of_its_first_backward():
    for iteration, sent in ((0, [160, 160]), (1, [80, 160])):
        trace = simulate(EIGHT, iterations=[iteration], bucket_cap_mb_list=[4], static_graph=True)
        assert [start for start, _ in sent_and_done(trace)] == sent


def test_the_constructor_compares_shapes_and_broadcasts_parameters():
    mixed = Plan((Layer("a", 1, 1, (Parameter("a.x", 8), Parameter("a.y", 6, "float16"), Parameter("a.z", 4))),))
    trace = simulate(mixed, iterations=[0], constructor=True)
    before = [span for span in trace.only(rank=1) if span.iteration is None]
    assert [(span.name, span.nbytes, span.sequence) for span in before] == [
        ("all_gather", 8, 1), ("broadcast", 48, 2), ("broadcast", 6, 3), ("broadcast", 12, 4)
    ]  # fmt: skip


def test_plans_that_do_not_fit_are_refused():
    other = chain([1] * 7, forward_ms=0, backward_ms=20)
    with pytest.raises(UsageError, match="rank 1 has other parameters"):
        simulate([EIGHT, other])
    with pytest.raises(UsageError, match="2 plans for world_size=3"):
        simulate([EIGHT, EIGHT], world_size=3)
    with pytest.raises(UsageError, match="from 1 on"):
        simulate(EIGHT, world_size=0)
    with pytest.raises(UsageError, match="begin it with a"):
        Plan((Layer("a", 1, 1, (Parameter("b.x", 8),)),))
    with pytest.raises(UsageError, match="different names"):
        Plan((Layer("a", 1, 1), Layer("a", 1, 1)))
    with pytest.raises(UsageError, match="must name each"):
        Plan((Layer("a", 1, 1), Layer("b", 1, 1)), registered=("a",))
    with pytest.raises(UsageError, match="milliseconds"):
        Plan((Layer("a", -1, 1),))


@st.composite
def jobs(draw):
    sizes = draw(st.lists(st.floats(0.01, 3), min_size=1, max_size=6))
    ms = st.floats(0, 30)
    plan = chain(
        sizes,
        forward_ms=draw(ms),
        backward_ms=draw(ms),
        optimizer_ms=draw(ms),
        bias_nbytes=draw(st.sampled_from([0, 64])),
    )
    plans = [draw(st.sampled_from([plan, plan.flipped(), plan.slowed(2.5)])) for _ in range(draw(st.integers(1, 4)))]
    link = Link(latency_ms=draw(ms), bandwidth_mib_s=draw(st.floats(1, 1000)))
    settings = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "bucket_cap_mb": st.floats(0, 3),
                "bucket_cap_mb_list": st.lists(st.floats(0, 3), min_size=1, max_size=3),
                "find_unused_parameters": st.booleans(),
                "static_graph": st.booleans(),
            },
        )
    )
    return plans, link, settings


@given(jobs())
def test_rules_of_the_reducer_hold(job):
    plans, link, settings = job
    trace = simulate(plans, link=link, **settings)
    everyone = range(len(plans))
    free = 0
    sequences = sorted({span.sequence for span in trace.only(Kind.COLLECTIVE)})
    by_sequence = {number: [] for number in sequences}
    for span in trace.only(Kind.COLLECTIVE):
        by_sequence[span.sequence].append(span)
    assert sequences == list(range(1, len(sequences) + 1))
    for number in sequences:  # one transfer after the other, each begun when the last rank has called
        calls = by_sequence[number]
        assert [span.rank for span in sorted(calls, key=lambda span: span.rank)] == list(everyone)
        assert len({(span.name, span.nbytes, span.bucket, span.end_ns) for span in calls}) == 1
        start = max(free, *(span.start_ns for span in calls))
        free = calls[0].end_ns
        assert free - start == link.length_ns(calls[0].name, calls[0].nbytes, list(everyone), peer=calls[0].peer)
    for iteration in trace.iterations:
        expected = predict_buckets(
            plans[0].parameters, iteration=iteration, ready_order=plans[0].ready_order, **settings
        )
        for rank in everyone:
            mine = trace.only(rank=rank, iteration=iteration)
            ready = {span.name: span.start_ns for span in mine.only(Kind.GRADIENT)}
            assert list(ready) == sorted(ready, key=ready.__getitem__)
            buckets = sorted(mine.only(Kind.BUCKET), key=lambda span: span.bucket)
            sent = {span.bucket: span for span in mine.only(Kind.COLLECTIVE) if span.bucket is not None}
            assert [(one.bucket, one.parameters, one.nbytes) for one in buckets] == [
                (one.index, one.parameters, one.nbytes) for one in expected
            ]
            for bucket in buckets:
                times = [ready[name] for name in bucket.parameters]
                assert (bucket.start_ns, bucket.end_ns) == (min(times), max(times))
                until = buckets if settings.get("static_graph") and iteration == 0 else buckets[: bucket.bucket + 1]
                assert sent[bucket.bucket].start_ns == max(one.end_ns for one in until)
            ends = [one.end_ns for one in mine.only(Kind.COLLECTIVE, Kind.COMPUTE) if one.name != "broadcast"]
            (backward,) = mine.only(Kind.BACKWARD)
            assert backward.end_ns == max(ends)
