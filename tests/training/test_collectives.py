"""The prediction against real tensors: every operation, world size, root and number type, and many shapes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lablib
from lablib.sim import DTYPES, OPERATIONS, REDUCE_OPS, Collective, Undefined, compare, place, results
from lablib.training.collectives import measure, perform

WORLD_SIZES = range(2, 9)
CUT = ("scatter", "reduce_scatter", "reduce_scatter_single", "all_to_all", "all_to_all_single")
PAIRS = ("send_recv", "isend_irecv")

Case = tuple[Collective, list[Any]]


def reductions(op: str, dtype: str) -> Iterator[str]:
    """Yield the reductions that exist for this type; one name where nothing is reduced."""
    for reduce_op in REDUCE_OPS if OPERATIONS[op].reduces else ("SUM",):
        bits = reduce_op in ("BAND", "BOR", "BXOR")
        if not (bits if DTYPES[dtype].is_float else reduce_op == "AVG" and OPERATIONS[op].reduces):
            yield reduce_op


def values(call: Collective, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return numbers that every order of additions and multiplications treats alike, in the type's whole range else."""
    random, dtype = np.random.default_rng(seed), DTYPES[call.dtype]
    if not dtype.is_float:
        most = np.iinfo(dtype.carrier)
        return random.integers(most.min, most.max, shape, dtype=dtype.carrier, endpoint=True)
    if call.kind.reduces and call.reduce_op == "PRODUCT":
        return dtype.cast(random.choice([-2.0, -1.0, 1.0, 2.0], shape))
    if call.kind.reduces and call.reduce_op in ("SUM", "AVG"):
        return dtype.cast(random.integers(-16, 17, shape))
    return dtype.cast(random.normal(0, 1000, shape))


def case(call: Collective, rows: int = 2, tail: tuple[int, ...] = (), seed: int = 0) -> Case:
    """Return the call with an input for each rank, cut as its splits say."""
    sizes = []
    for rank in range(call.world_size):
        if rank not in call.group:
            sizes.append(1)
        elif call.splits is None:
            sizes.append(rows * len(call.group) if call.op in CUT else rows)
        else:
            row = call.splits[call.group.index(rank)] if call.kind.splits == "matrix" else call.splits
            sizes.append(sum(row))
    return call, [values(call, (size, *tail), seed * 97 + rank) for rank, size in enumerate(sizes)]


def every_combination(n: int) -> list[Case]:
    """Return each operation with each root and type, and with each reduction and type."""
    calls = {}
    for op, dtype in itertools.product(OPERATIONS, DTYPES):
        possible = list(reductions(op, dtype))
        for number, root in enumerate(range(n) if OPERATIONS[op].root else [None]):
            calls[Collective(op, n, root=root, reduce_op=possible[number % len(possible)], dtype=dtype)] = None
        for reduce_op in possible:
            calls[Collective(op, n, root=n // 2, reduce_op=reduce_op, dtype=dtype)] = None
    return [case(call, seed=number) for number, call in enumerate(calls)]


@st.composite
def recipes(draw: st.DrawFn, n: int) -> tuple[Collective, int, tuple[int, ...], int]:
    """Draw the arguments of `case` for any operation, subgroup, shape, cut, root and type."""
    op, dtype = draw(st.sampled_from(list(OPERATIONS))), draw(st.sampled_from(list(DTYPES)))
    smallest = 2 if op in PAIRS else 1
    ranks = draw(st.none() | st.sets(st.integers(0, n - 1), min_size=smallest).map(tuple))
    group = sorted(ranks or range(n))
    root = draw(st.sampled_from(group))
    to = draw(st.sampled_from([rank for rank in group if rank != root])) if op in PAIRS else None
    size = st.integers(0, 4)
    splits = None
    if op == "reduce_scatter":
        splits = draw(st.none() | st.tuples(*[size] * len(group)))
    elif op == "all_to_all_single":
        splits = draw(st.none() | st.tuples(*[st.tuples(*[size] * len(group))] * len(group)))
    reduce_op = draw(st.sampled_from(list(reductions(op, dtype))))
    call = Collective(op, n, root=root, to=to, reduce_op=reduce_op, dtype=dtype, ranks=ranks, splits=splits)
    tail = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    return call, draw(st.integers(0, 5)), tail, draw(st.integers(0, 1000))


def check(cases: list[Case], measured: lablib.Run) -> None:
    for number, (call, inputs) in enumerate(cases):
        found = [measured[rank][number] for rank in range(call.world_size)]
        for rank, (predicted, real) in enumerate(zip(results(call, inputs), found, strict=True)):
            assert predicted.shape == real.shape, (call, rank)
            if not isinstance(predicted, Undefined):
                assert predicted.dtype == real.dtype, (call, rank)
                assert np.array_equal(predicted, real), (call, rank, predicted, real)
        agreement = compare(place(call, inputs), found)
        assert agreement.count("different") == agreement.count("rounding") == 0, call


@pytest.mark.slow
@pytest.mark.parametrize("n", WORLD_SIZES)
def test_the_prediction_equals_the_real_tensors(n: int, no_orphans: None) -> None:
    def measure_all(cases: list[Case]) -> list[np.ndarray]:
        return [measure(call, inputs) for call, inputs in cases]

    with lablib.Cluster(n) as cluster:

        @settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(st.lists(recipes(n), min_size=20, max_size=25))
        def for_any_shape(drawn: list[Any]) -> None:
            cases = [case(*recipe) for recipe in drawn]
            check(cases, cluster.run(measure_all, cases))

        cases = every_combination(n)
        check(cases, cluster.run(measure_all, cases))
        for_any_shape()


def test_every_combination_is_every_combination() -> None:
    calls = [call for call, _ in every_combination(3)]
    assert {call.op for call in calls} == set(OPERATIONS)
    assert {(call.op, call.root) for call in calls if call.kind.root} == {
        (op, root) for op, kind in OPERATIONS.items() if kind.root for root in range(3)
    }
    assert {call.dtype for call in calls} == set(DTYPES)
    reduced = {(call.op, call.reduce_op, call.dtype) for call in calls if call.kind.reduces}
    assert len({op for op, _, _ in reduced}) == 4
    assert {reduce_op for op, reduce_op, _ in reduced if op == "reduce"} == set(REDUCE_OPS)
    assert len({pair[1:] for pair in reduced if pair[0] == "reduce"}) == 4 * 5 + 4 * 7


def test_what_the_prediction_refuses_gloo_refuses_too(no_orphans: None) -> None:
    def refused() -> list[str]:
        import torch.distributed as dist

        found = []
        for reduce_op, dtype in itertools.product(REDUCE_OPS, DTYPES):
            try:
                dist.all_reduce(torch.ones(2, dtype=getattr(torch, dtype)), op=getattr(dist.ReduceOp, reduce_op))
            except RuntimeError:
                found.append(f"{reduce_op} {dtype}")
        return found

    ours = []
    for reduce_op, dtype in itertools.product(REDUCE_OPS, DTYPES):
        try:
            Collective("all_reduce", 2, reduce_op=reduce_op, dtype=dtype)
        except lablib.UsageError:
            ours.append(f"{reduce_op} {dtype}")
    assert lablib.run(refused).values == [ours, ours]


def test_odd_tensors_travel_as_predicted(no_orphans: None) -> None:
    odd = ([], [7.0], [np.nan, np.inf, -np.inf, 1.0])
    calls = [
        (Collective(op, 4), [values] * 4) for op in OPERATIONS for values in odd if op not in CUT or values != odd[1]
    ]

    def measure_all() -> list[np.ndarray]:
        return [measure(call, inputs) for call, inputs in calls]

    found = lablib.run(measure_all, world_size=4).values
    for number, (call, inputs) in enumerate(calls):
        agreement = compare(place(call, inputs), [rank[number] for rank in found])
        assert agreement.count("different") == agreement.count("rounding") == 0, call


def test_a_nan_among_the_greatest_is_refused_since_gloo_may_lose_it(no_orphans: None) -> None:
    inputs = [[np.nan, 1.0], [1.0, np.nan], [1.0, 1.0], [1.0, 1.0]]
    with pytest.raises(lablib.UsageError, match="gloo keeps or loses it"):
        place(Collective("all_reduce", 4, reduce_op="MAX"), inputs)
    found = lablib.run(lambda: measure(Collective("all_reduce", 4, reduce_op="MAX"), inputs), world_size=4)[0]
    assert np.isnan(found).sum() < 2


def test_additions_in_another_order_are_told_from_real_differences(no_orphans: None) -> None:
    call = Collective("all_reduce", 4)
    inputs = [np.random.default_rng(rank).normal(0, 1, 1000).astype("float32") for rank in range(4)]
    measured = list(lablib.run(measure, call, inputs, world_size=4))
    agreement = compare(place(call, inputs), measured)
    assert agreement.count("different") == 0
    measured[2][0] += 0.01
    assert compare(place(call, inputs), measured).count("different") == 1


def test_perform_changes_a_tensor_in_place_where_torch_does(no_orphans: None) -> None:
    def in_place() -> bool:
        tensor = torch.ones(3)
        return perform(Collective("all_reduce", 2), tensor) is tensor and tensor.tolist() == [2.0] * 3

    assert lablib.run(in_place).values == [True, True]


def test_no_call_warns_about_an_old_name(no_orphans: None) -> None:
    def quiet() -> None:
        import warnings

        warnings.simplefilter("error")
        for op in OPERATIONS:
            perform(Collective(op, 2), torch.ones(2))

    lablib.run(quiet)
