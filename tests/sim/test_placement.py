"""Who holds what and how many bytes travel: against NumPy, against closed forms, and step by step."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lablib.errors import UsageError
from lablib.sim import OPERATIONS, Collective, Tile, Undefined, compare, place, predict, results
from lablib.sim.placement import IN_FLIGHT

CUT = ("scatter", "reduce_scatter", "reduce_scatter_single", "all_to_all", "all_to_all_single")
PAIRS = ("send_recv", "isend_irecv")


def numbers(call, rows=3):
    """Return an input for each rank: rank 2 brings 20, 21, 22 …"""
    sizes = [
        rows * (len(call.group) if call.op in CUT and rank in call.group else 1) for rank in range(call.world_size)
    ]
    return [10 * rank + np.arange(size, dtype="float32") for rank, size in enumerate(sizes)]


def outcome(placement):
    """Return what each rank ends with, slots joined; None where it may not be read."""
    return [
        None
        if any(isinstance(slot, Undefined) for slot in holding.slots)
        else [value for slot in holding.slots for value in slot.values]
        for holding in placement.after
    ]


@st.composite
def calls(draw):
    op = draw(st.sampled_from(list(OPERATIONS)))
    n = draw(st.integers(2 if op in PAIRS else 1, 9))
    group = draw(st.none() | st.sets(st.integers(0, n - 1), min_size=2 if op in PAIRS else 1).map(tuple))
    root = draw(st.sampled_from(sorted(group or range(n))))
    reduce_op = draw(st.sampled_from(["SUM", "AVG", "MIN", "MAX"]))
    return Collective(op, n, root=root, reduce_op=reduce_op, ranks=group)


@given(calls(), st.integers(0, 4))
def test_tiles_that_travel_end_where_numpy_says(call, rows):
    inputs = numbers(call, rows)
    predicted = [None if isinstance(one, Undefined) else one.ravel().tolist() for one in results(call, inputs)]
    placement = place(call, inputs)
    assert outcome(placement) == predicted
    for holding in placement.before:
        if holding.rank not in call.group:
            held = [one[holding.rank] for one in (placement.start, *(step.holdings for step in placement.steps))]
            assert set(held) == {holding} == {placement.after[holding.rank]}


@given(calls(), st.integers(1, 4))
def test_bytes_sent_are_bytes_received_and_sum_over_the_steps(call, rows):
    placement = place(call, numbers(call, rows))
    moves = [move for step in placement.steps for move in step.moves]
    assert sum(placement.sent) == sum(placement.received) == sum(move.nbytes for move in moves)
    assert all(move.source != move.target for move in moves)
    assert {rank for move in moves for rank in (move.source, move.target)} <= set(call.group)


@pytest.mark.parametrize("n", range(1, 10))
def test_textbook_bytes(n):
    def sent_and_received(op, rows=n, **options):
        placement = place(Collective(op, n, **options), numbers(Collective(op, n), rows))
        return placement.sent, placement.received

    size = 4 * n  # bytes of a tensor of n float32
    everyone = ((n - 1) * size,) * n
    assert sent_and_received("all_gather") == (everyone, everyone)
    assert sent_and_received("reduce_scatter") == (everyone, everyone)
    assert sent_and_received("all_to_all") == (everyone, everyone)
    ring = (2 * (n - 1) * size // n,) * n
    assert sent_and_received("all_reduce") == (ring, ring)
    once = tuple(0 if rank == n - 1 else size for rank in range(n))
    root_only = tuple((n - 1) * size if rank == n - 1 else 0 for rank in range(n))
    assert sent_and_received("scatter", root=n - 1) == (root_only, once)
    assert sent_and_received("gather", root=n - 1) == (once, root_only)
    assert sent_and_received("broadcast", root=n - 1)[1] == once
    assert sent_and_received("reduce", root=n - 1)[0] == once
    assert sent_and_received("broadcast")[0][0] == (ceil(log2(n)) * size if n > 1 else 0)
    assert sent_and_received("barrier") == ((0,) * n, (0,) * n)


def test_a_tensor_that_does_not_divide_moves_the_same_bytes_in_all():
    placement = place(Collective("all_reduce", 4), [np.ones(6, "float32")] * 4)
    assert sum(placement.sent) == 2 * 3 * 24
    assert [len(slot.values) for slot in placement.before[0].slots] == [2, 2, 1, 1]


def test_every_operation_of_four_ranks():
    ranks = [[0.0, 1, 2, 3], [10.0, 11, 12, 13], [20.0, 21, 22, 23], [30.0, 31, 32, 33]]

    def lists(op, **options):
        return [one if isinstance(one, Undefined) else one.tolist() for one in predict(op, ranks, **options)]

    total = [60, 64, 68, 72]
    joined = [value for rank in ranks for value in rank]
    assert lists("broadcast", root=2) == [ranks[2]] * 4
    assert lists("all_reduce") == [total] * 4
    assert lists("all_reduce", reduce_op="AVG") == [[15, 16, 17, 18]] * 4
    assert lists("all_reduce", reduce_op="MAX") == [ranks[3]] * 4
    reduced = lists("reduce", root=1)
    assert reduced[1] == total
    assert all(isinstance(reduced[rank], Undefined) and "do not read" in reduced[rank].why for rank in (0, 2, 3))
    assert lists("scatter", root=1) == [[10], [11], [12], [13]]
    assert lists("gather", root=3) == [*ranks[:3], joined]
    assert lists("all_gather") == [joined] * 4
    assert lists("reduce_scatter") == [[60], [64], [68], [72]]
    assert lists("all_to_all") == [[0, 10, 20, 30], [1, 11, 21, 31], [2, 12, 22, 32], [3, 13, 23, 33]]
    assert lists("barrier") == ranks
    assert lists("send_recv", root=0, to=3) == [*ranks[:3], ranks[0]]
    assert lists("batch_isend_irecv") == [ranks[3], *ranks[:3]]


def test_a_subgroup_leaves_the_others_what_they_held():
    held = [[1.0], [2.0], [3.0], [4.0]]
    assert [one.tolist() for one in predict("all_reduce", held, ranks=[3, 1])] == [[1], [6], [3], [6]]
    assert [one.tolist() for one in predict("broadcast", held, ranks=[1, 3], root=3)] == [[1], [4], [3], [4]]


def test_uneven_sizes():
    rows = [np.arange(4.0) + 10 * rank for rank in range(2)]
    assert [one.tolist() for one in predict("reduce_scatter", rows, splits=(1, 3))] == [[10], [12, 14, 16]]
    swapped = predict("all_to_all_single", rows, splits=((1, 3), (4, 0)))
    assert [one.tolist() for one in swapped] == [[0, 10, 11, 12, 13], [1, 2, 3]]
    assert [one.tolist() for one in predict("all_gather", [[1], [2, 3]], splits=(1, 2))] == [[1, 2, 3]] * 2
    table = predict("scatter", [np.arange(8).reshape(4, 2), None])
    assert [one.tolist() for one in table] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


def test_number_types_behave_as_on_the_ranks():
    assert predict("all_reduce", [np.array([200], "uint8")] * 4)[0].tolist() == [32]  # it wraps
    assert predict("all_reduce", [[2049.0], [0.0]], dtype="float16")[0].tolist() == [2048]  # eleven bits
    assert predict("all_reduce", [[257.0], [2.0]], dtype="bfloat16")[0].tolist() == [258]  # eight bits, ties to even
    assert predict("all_reduce", [[6], [3]], reduce_op="BXOR")[0].tolist() == [5]
    assert predict("all_reduce", [[1.5], [2.0]])[0].dtype == np.float32  # as torch.tensor([1.5])
    assert predict("all_reduce", [[1], [2]])[0].dtype == np.int64


def test_adding_partial_tiles_unions_the_ranks_and_never_the_pieces():
    one, other = Tile(frozenset({0}), 1, (1.0, 2.0)), Tile(frozenset({2, 3}), 1, (10.0, 20.0))
    assert one + other == Tile(frozenset({0, 2, 3}), 1, (11.0, 22.0))
    assert one.combined(other, "MAX").values == (10.0, 20.0)
    with pytest.raises(UsageError, match="different parts"):
        one + replace(other, piece=2)
    with pytest.raises(UsageError, match="rank 2 is in both"):
        other + replace(one, ranks=frozenset({1, 2}))


def test_a_ring_collects_one_rank_a_step():
    placement = place(Collective("all_reduce", 4), numbers(Collective("all_reduce", 4), 4))
    widest = [max(len(slot.ranks) for held in step.holdings for slot in held.slots) for step in placement.steps]
    assert widest == [2, 3, 4, 4, 4, 4]
    assert [step.label for step in placement.steps][2:4] == ["ring, reduce-scatter 3 of 3", "ring, all-gather 1 of 3"]
    complete = [
        sum(len(slot.ranks) == 4 for slot in placement.holdings(step)[0].slots)
        for step in range(len(placement.steps) + 1)
    ]
    assert complete == [0, 0, 0, 1, 2, 3, 4]
    with pytest.raises(UsageError, match="steps 0 to 6"):
        placement.holdings(7)


def test_a_handle_promises_nothing_before_wait():
    placement = place(Collective("isend_irecv", 2), [[1.0], [2.0]])
    posted, waited = placement.steps
    assert posted.holdings[1].slots == (Undefined((1,), IN_FLIGHT),)
    assert waited.holdings[1].slots[0].values == (1.0,)
    assert (posted.moves[0].nbytes, waited.moves) == (4, ())


def test_reduce_shows_the_partial_results_that_travel():
    placement = place(Collective("reduce", 4), [[1.0], [2.0], [3.0], [4.0]])
    assert [sorted(held.slots[0].ranks) for held in placement.steps[0].holdings] == [[0, 2], [1, 3], [2], [3]]
    assert placement.after[0].slots[0].values == (10.0,)


def test_a_difference_is_told_from_rounding_and_from_what_nobody_reads():
    placement = place(Collective("reduce", 2), [np.float32([0.1, 5]), np.float32([0.2, 7])])
    measured = np.nextafter(np.float32([0.3, 12]), np.float32(1))
    assert placement.after[0].slots[0].values != tuple(measured.tolist())
    agreement = compare(placement, [measured, np.float32([99, 99])])
    assert [[slot.verdict for slot in rank] for rank in agreement.ranks] == [["rounding"], ["unread"]]
    wrong = compare(placement, [np.float32([0.3, 12.1]), np.float32([99])])
    assert wrong.count("different") == 2
    copies = place(Collective("broadcast", 2), [np.float32([0.3]), np.float32([0])])
    assert compare(copies, [np.float32([0.3]), np.float32([0.30000004])]).count("different") == 1
    with pytest.raises(UsageError, match="give one a rank"):
        compare(placement, [measured])


def test_a_rank_that_has_less_or_something_else_differs():
    placement = place(Collective("all_reduce", 2), [[1.0], [2.0]])
    for found in ([], [3.0, 3.0], [np.nan], [np.inf]):
        assert compare(placement, [[3.0], found]).count("different") == 1
    for nothing in (None, "3", [1j]):
        with pytest.raises(UsageError, match=r"rank 1 gave a \w+, which is no tensor of real numbers"):
            compare(placement, [[3.0], nothing])


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("values", [[], [7.0], [np.nan, np.inf, -np.inf, 1.0]], ids=["empty", "one", "nan and inf"])
def test_odd_tensors_travel_as_numpy_says(op, values):
    call = Collective(op, 4)
    if op in CUT and len(values) == 1:
        with pytest.raises(UsageError, match="1 rows do not divide among 4 ranks; try 4 rows"):
            place(call, [values] * 4)
        return
    placement = place(call, [values] * 4)
    found = [np.zeros(one.shape) if isinstance(one, Undefined) else one for one in results(call, [values] * 4)]
    agreement = compare(placement, found)
    assert (agreement.count("different"), agreement.count("rounding")) == (0, 0)
    assert (agreement.count("equal") > 0) == bool(values)


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ({"op": "allreduce", "inputs": [[1.0]]}, "choose broadcast, reduce, all_reduce"),
        ({"op": "scatter", "inputs": [np.arange(10)] * 4}, "10 rows do not divide among 4 ranks; try 8 or 12 rows"),
        ({"op": "all_reduce", "inputs": [[1], [2]], "reduce_op": "AVG"}, "use SUM and divide"),
        ({"op": "all_reduce", "inputs": [[1.0], [2.0]], "reduce_op": "BOR"}, "bits of integers"),
        ({"op": "all_reduce", "inputs": [[1.0], [2.0]], "reduce_op": "MEAN"}, "choose SUM, AVG"),
        ({"op": "all_reduce", "inputs": [[1.0], [2.0]], "dtype": "int16"}, "choose float32"),
        ({"op": "all_reduce", "inputs": [[1.0], [2.0, 3.0]]}, "one shape"),
        ({"op": "all_reduce", "inputs": [["a"], ["b"]], "dtype": "float32"}, "give numbers"),
        ({"op": "all_reduce", "inputs": [[1j], [2.0]], "dtype": "float32"}, "complex128 are no real numbers"),
        ({"op": "all_reduce", "inputs": [[np.nan], [2.0]], "dtype": "int32"}, "int32 has no nan and no infinity"),
        ({"op": "broadcast", "inputs": [[1], [-np.inf]], "dtype": "uint8"}, "choose a floating dtype"),
        ({"op": "all_reduce", "inputs": [[1.0], [np.nan]], "reduce_op": "MAX"}, "MAX of nan cannot be predicted"),
        ({"op": "broadcast", "inputs": [[1.0], [2.0]], "root": 2}, r"not in the group \[0, 1\]"),
        ({"op": "broadcast", "inputs": [[1.0], [2.0]], "ranks": [0, 5]}, "name each rank once, from 0 to 1"),
        ({"op": "broadcast", "inputs": [[1.0], [2.0]], "splits": (1, 0)}, "no uneven form"),
        ({"op": "reduce_scatter", "inputs": [[1.0], [2.0]], "splits": (1,)}, "a tuple of 2 sizes"),
        ({"op": "reduce_scatter", "inputs": [[1.0], [2.0]], "splits": (2, 3)}, "make them equal"),
        ({"op": "all_to_all", "inputs": [[1.0], [2.0]], "splits": (1, 0)}, r"\[sender\]\[receiver\]"),
        ({"op": "all_to_all", "inputs": [[1.0] * 2, [2.0] * 4]}, "needs splits"),
        ({"op": "all_gather", "inputs": [1.0, 2.0]}, "give tensors with one"),
        ({"op": "send_recv", "inputs": [[1.0], [2.0]], "to": 0}, "give another rank"),
        ({"op": "send_recv", "inputs": [[1.0]]}, "add another"),
        ({"op": "all_reduce", "inputs": []}, "give 1 or more"),
    ],
)
def test_a_wrong_call_says_what_to_write(arguments, advice):
    with pytest.raises(UsageError, match=advice):
        predict(**arguments)


def test_the_code_shown_is_the_call_made():
    assert Collective("reduce", 4, root=2, reduce_op="MAX").code == "dist.reduce(t, dst=2, op=dist.ReduceOp.MAX)"
    assert Collective("broadcast", 4, ranks=(1, 2)).code == "dist.broadcast(t, src=1, group=group)"
    assert Collective("barrier", 4, ranks=(1, 2)).code == "dist.barrier(group=group)"
    assert Collective("send_recv", 4, root=3).code.startswith("dist.send(t, dst=0)")


def test_predicting_loads_no_torch():
    code = "import lablib.sim, sys; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
