"""Compute, communication and what of it is hidden."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_traces import US, ddp_rank, span, trace

from lablib.analysis import busy, overlap, textbook_coefficient
from lablib.errors import UsageError


def test_layers_and_collectives_that_overlap_count_once():
    [row] = overlap(
        trace(
            span(0, "layer1 backward", "compute", 0, 10),
            span(0, "layer0 backward", "compute", 10, 30),
            span(0, "all_reduce", "collective", 8, 20),
            span(0, "all_reduce", "collective", 15, 45),
        )
    )
    assert (row.compute_ns, row.communication_ns, row.hidden_ns, row.exposed_ns) == (
        30 * US,
        37 * US,
        22 * US,
        15 * US,
    )
    assert (row.busy_ns, row.best_ns, row.worst_ns) == (45 * US, 37 * US, 67 * US)
    assert row.coefficient == 22 / 30
    assert row.hidden_share == 22 / 37


def test_without_layers_backward_computes_until_its_last_gradient():
    rows = overlap(trace(*ddp_rank(0), *ddp_rank(1, late=5)))
    assert [row.rank for row in rows] == [0, 1]
    assert rows[0].compute_ns == (30 + 5) * US  # not the 30 in which backward waits for the last bucket
    assert rows[0].communication_ns == (58 - 21) * US
    assert rows[0].hidden_ns == (30 - 21) * US
    assert rows[1].hidden_ns == (35 - 26) * US


def test_backward_without_gradients_computes_to_its_end():
    [row] = overlap(trace(span(0, "backward", "backward", 0, 30), span(0, "all_reduce", "collective", 25, 30)))
    assert (row.compute_ns, row.hidden_ns) == (30 * US, 5 * US)


def test_forward_waits_for_what_it_calls():
    [row] = overlap(
        trace(
            span(0, "forward", "forward", 0, 30),
            span(0, "broadcast", "collective", 5, 15),
            span(0, "all_reduce", "collective", -10, 2),
        )
    )
    assert (row.compute_ns, row.hidden_ns) == (20 * US, 2 * US)


def test_a_rank_with_timed_layers_does_not_count_its_phases():
    spans = [span(0, "backward", "backward", 0, 100, iteration=i) for i in range(2)]
    both = overlap(trace(*spans, span(0, "layer0 backward", "compute", 10, 20, iteration=1)))
    assert both[0].compute_ns == 10 * US
    [first] = overlap(trace(*spans, span(0, "layer0 backward", "compute", 10, 20, iteration=1)), iteration=0)
    assert first.compute_ns == 0
    assert first.coefficient is first.hidden_share is None


def test_one_iteration_or_all_of_them():
    recorded = trace(
        span(0, "broadcast", "collective", 0, 5),
        *ddp_rank(0),
        *(span(0, "layer0 forward", "compute", 100 + 10 * i, 105 + 10 * i, iteration=i) for i in range(2, 4)),
    )
    assert overlap(recorded)[0].compute_ns == 10 * US
    [row] = overlap(recorded, iteration=3)
    assert (row.iteration, row.compute_ns, row.communication_ns) == (3, 5 * US, 0)
    with pytest.raises(UsageError, match="iteration 7 is not in this trace; it has 1, 2, 3"):
        overlap(recorded, iteration=7)
    with pytest.raises(UsageError, match="record=True"):
        overlap(trace(span(0, "load data", "region", 0, 5)))


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), min_size=1),
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), min_size=1),
)
def test_the_coefficient_reaches_one_and_the_textbook_formula_half_of_it(compute, communication):
    spans = [span(0, "layer", "compute", at, at + length) for at, length in compute]
    spans += [span(0, "all_reduce", "collective", at, at + length) for at, length in communication]
    [row] = overlap(trace(*spans))
    assert 0 <= row.hidden_share <= row.coefficient <= 1
    assert row.best_ns <= row.busy_ns <= row.worst_ns
    textbook = textbook_coefficient(
        compute_ns=row.compute_ns, communication_ns=row.communication_ns, total_ns=row.busy_ns
    )
    assert 0 <= textbook <= 0.5
    assert (row.coefficient == 1) == (row.busy_ns == row.best_ns)


def test_the_textbook_formula_gives_a_half_for_perfect_overlap():
    assert textbook_coefficient(compute_ns=20, communication_ns=20, total_ns=20) == 0.5
    assert textbook_coefficient(compute_ns=20, communication_ns=20, total_ns=40) == 0
    with pytest.raises(UsageError, match="divides by their sum"):
        textbook_coefficient(compute_ns=0, communication_ns=0, total_ns=10)


def test_busy_says_when():
    [one] = busy(trace(span(0, "layer", "compute", 0, 10), span(0, "all_reduce", "collective", 4, 20)))
    assert one.hidden.tolist() == [[4 * US, 10 * US]]
