"""The simulation of DDP against real DDP on sleeping layers: the same spans in the same order, and as long."""

from __future__ import annotations

from functools import partial

import pytest

from lablib import Cluster
from lablib.links import Link
from lablib.sim.ddp import simulate
from lablib.sim.plan import chain
from lablib.trace.spans import Kind
from lablib.training.emulate import train

# of what happens at the same simulated moment, causes come first
CAUSES_FIRST = [
    Kind.FORWARD, Kind.GRADIENT, Kind.BUCKET, Kind.COLLECTIVE, Kind.BACKWARD, Kind.OPTIMIZER, Kind.COMPUTE
]  # fmt: skip
BRIEF = chain([1 / 64] * 5, forward_ms=1, backward_ms=1, optimizer_ms=1)
BIASED = chain([1 / 64] * 5, forward_ms=1, backward_ms=1, optimizer_ms=1, bias_nbytes=64)
LONG = chain([1 / 32] * 4, forward_ms=10, backward_ms=40, optimizer_ms=10)


@pytest.fixture(scope="module")
def clusters():
    """Return ranks that stay warm between tests, by world size."""
    with Cluster(2, backend="gloo") as pair, Cluster(4, backend="gloo") as four:
        yield {2: pair, 4: four}


def in_order(trace, rank):
    """Return what a rank did, in the order in which it began; a bucket, in which it was full."""

    def place(span):
        iteration = -1 if span.iteration is None else span.iteration
        moment = span.end_ns if span.kind is Kind.BUCKET else span.start_ns
        return iteration, moment, CAUSES_FIRST.index(span.kind), span.sequence

    return [
        (one.iteration, one.kind, one.name, one.bucket, one.parameters, one.nbytes, one.sequence, one.peer, one.ranks)
        for one in sorted(trace.only(rank=rank), key=place)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "ddp"),
    [
        (BIASED, {}),
        (BIASED, {"bucket_cap_mb": 0.03}),
        (BRIEF, {"bucket_cap_mb_list": [0, 0.03]}),
        (BRIEF, {"bucket_cap_mb": 0.03, "find_unused_parameters": True}),
        (BRIEF, {"bucket_cap_mb": 0.03, "static_graph": True}),
        (BRIEF, {"bucket_cap_mb": 0.03, "gradient_as_bucket_view": True}),
        ([BRIEF, BRIEF.flipped()], {"bucket_cap_mb": 0.01}),
        ([BRIEF.flipped(), BRIEF], {"bucket_cap_mb": 0.01}),
    ],
)
def test_real_ranks_do_what_is_simulated_in_the_same_order(plan, ddp, clusters):
    real = clusters[2].run(partial(train, plan, steps=4, **ddp), record=True).trace
    simulated = simulate(plan, iterations=range(4), constructor=True, **ddp)
    assert real.truth == "emulated"
    for rank in range(2):
        assert in_order(real, rank) == in_order(simulated, rank)


@pytest.mark.slow
def test_a_static_graph_finds_its_map_of_used_parameters_moved_long_ago(clusters):
    """DDP waits for the map after all buckets, when the network is through with it."""
    link = Link(latency_ms=3)
    real = clusters[2].run(partial(train, BRIEF, static_graph=True), record=True, link=link).trace
    simulated = simulate(BRIEF, constructor=True, link=link, static_graph=True)
    assert in_order(real, 1) == in_order(simulated, 1)


def lengths(trace):
    """Return milliseconds of each rank's iterations, and of each bucket from sent to done."""
    found = {
        (span.rank, span.iteration, span.bucket): span.length_ns / 1e6
        for span in trace.only(Kind.COLLECTIVE)
        if span.bucket is not None
    }
    for begin in trace.only(Kind.FORWARD):
        (end,) = trace.only(Kind.OPTIMIZER, rank=begin.rank, iteration=begin.iteration)
        found[begin.rank, begin.iteration, "whole"] = (end.end_ns - begin.start_ns) / 1e6
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "world_size", "mib_s", "cap_mb"),
    [
        (LONG, 2, 1, 0.06),  # the network keeps up
        (LONG, 2, 0.5, 0.03),  # buckets queue before the card
        (LONG.slowed(1.5), 4, 1, 0.06),
        ([LONG, LONG.slowed(1.5)], None, 1, 0.06),
        ([LONG, LONG, LONG.slowed(1.3), LONG], None, 1.5, 25),
    ],
)
def test_real_ranks_take_as_long_as_is_simulated(plan, world_size, mib_s, cap_mb, clusters):
    link = Link(latency_ms=1, bandwidth_mib_s=mib_s)
    simulated = simulate(plan, world_size=world_size, link=link, constructor=True, bucket_cap_mb=cap_mb)
    predicted = lengths(simulated)
    off = dict.fromkeys(predicted, float("inf"))
    for _ in range(5):  # the machine may be busy with something else
        job = partial(train, plan, bucket_cap_mb=cap_mb)
        real = clusters[simulated.world_size].run(job, record=True, link=link).trace
        for rank in range(simulated.world_size):
            assert in_order(real, rank) == in_order(simulated, rank)
        measured = lengths(real)
        assert measured.keys() == predicted.keys()
        off = {key: min(off[key], abs(measured[key] / predicted[key] - 1)) for key in predicted}
        if max(off.values()) <= 0.15:
            break
    assert {key: share for key, share in off.items() if share > 0.15} == {}
