"""What an operation costs on a slow network: against the moves of the simulated algorithms, step by step."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lablib.engine import probes
from lablib.errors import UsageError
from lablib.links import MIB, Link
from lablib.sim import Collective, place

RINGS = ("all_reduce", "reduce_scatter", "all_gather")
PAYLOAD = 4 * 720  # a multiple of every number of ranks up to 6, and of 8, 9, 10


def summed_ms(link, op, n, root):
    """Return the milliseconds of an algorithm: in each step the busiest card decides; it sends while it receives."""
    pieces = n if op == "scatter" else 1
    placement = place(Collective(op, n, root=root), [np.zeros(pieces * PAYLOAD // 4, "float32") for _ in range(n)])
    total = 0.0
    for step in placement.steps:
        cards = Counter()
        for move in step.moves:
            if link.node(move.source) != link.node(move.target):
                cost = link.latency_ms + 1e3 * move.nbytes / (link.bandwidth_mib_s * MIB)
                cards["out", link.node(move.source)] += cost
                cards["in", link.node(move.target)] += cost
        total += max(cards.values(), default=0)
    return total


@given(
    st.sampled_from([*RINGS, "broadcast", "reduce", "scatter", "gather", "all_to_all"]),
    st.sampled_from([2, 3, 4, 5, 6, 8]),
    st.integers(0, 7),
    st.floats(0, 50),
    st.floats(0.001, 10),
)
def test_lengths_are_the_sums_over_the_algorithms_steps(op, n, root, latency_ms, mib_s):
    link = Link(latency_ms=latency_ms, bandwidth_mib_s=mib_s)
    root %= n
    assert link.length_ns(op, PAYLOAD, range(n), peer=root) / 1e6 == pytest.approx(
        summed_ms(link, op, n, root), abs=1e-6
    )


@given(st.sampled_from([*RINGS, "gather", "scatter"]), st.sampled_from([4, 6, 8]), st.integers(1, 3), st.integers(0, 7))
def test_messages_within_a_node_are_free(op, n, ranks_per_node, root):
    link = Link(latency_ms=3, bandwidth_mib_s=1, ranks_per_node=ranks_per_node)
    root %= n
    assert link.length_ns(op, PAYLOAD, range(n), peer=root) / 1e6 == pytest.approx(
        summed_ms(link, op, n, root), abs=1e-6
    )


def test_trees_grow_over_nodes_and_all_to_all_fills_the_busiest_card():
    link = Link(latency_ms=1, bandwidth_mib_s=1, ranks_per_node=2)
    assert link.length_ns("broadcast", MIB, range(8)) == 2 * 1_001_000_000
    assert link.length_ns("barrier", 0, range(8)) == 2_000_000
    # four of six ranks' sixths leave each of the two ranks of a node
    assert link.length_ns("all_to_all", MIB, range(6)) == 5_000_000 + round(2 * 4 / 6 * 1e9)


def test_one_node_is_free_whoever_is_in_the_group():
    link = Link(latency_ms=5, bandwidth_mib_s=1, ranks_per_node=4)
    for op in ("all_reduce", "barrier", "send"):
        assert link.length_ns(op, MIB, [4, 7]) == 0
        assert link.length_ns(op, MIB, [3, 4]) > 0
        assert link.length_ns(op, MIB, [3]) == 0


def test_without_limits_nothing_takes_time():
    assert Link().length_ns("all_reduce", 10**12, range(8)) == 0


def test_every_recorded_operation_has_a_length():
    for op in {one.name for one in probes._OPS.values()}:
        assert Link(latency_ms=1).length_ns(op, 8, [0, 1], peer=0) >= 1_000_000


def test_what_is_no_link_is_refused():
    for latency_ms in (-1, float("inf"), float("nan")):
        with pytest.raises(UsageError, match="latency_ms"):
            Link(latency_ms=latency_ms)
    for mib_s in (0, -5, float("nan")):
        with pytest.raises(UsageError, match="bandwidth_mib_s"):
            Link(bandwidth_mib_s=mib_s)
    for ranks_per_node in (0, 1.5):
        with pytest.raises(UsageError, match="ranks_per_node"):
            Link(ranks_per_node=ranks_per_node)
    with pytest.raises(ValueError, match="'all_redcue'"):
        Link().length_ns("all_redcue", 8, [0])
