"""Buckets of one model for every setting that changes them, and what holds for all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lablib.errors import UsageError
from lablib.sim.buckets import Parameter, predict_buckets

MIB = 1 << 20
TWELVE = [
    Parameter(f"{layer}.{kind}", nbytes)
    for layer in range(12)
    for kind, nbytes in [("weight", 4 * MIB), ("bias", 4096)]
]


def sizes(iteration, **settings):
    return [round(bucket.nbytes / MIB, 2) for bucket in predict_buckets(TWELVE, iteration=iteration, **settings)]


def test_default_is_one_bucket_then_a_small_first_one():
    assert sizes(0) == [48.05]
    assert sizes(1) == sizes(2) == [4.0, 28.03, 16.02]
    first, second, third = predict_buckets(TWELVE, iteration=1)
    assert first.parameters == ("11.bias", "11.weight")
    assert second.parameters[0] == "10.bias"
    assert third.parameters[-1] == "0.weight"
    assert [bucket.index for bucket in (first, second, third)] == [0, 1, 2]


def test_first_iteration_holds_parameters_in_their_registered_order():
    (only,) = predict_buckets(TWELVE, iteration=0)
    assert only.parameters == tuple(parameter.name for parameter in TWELVE)


def test_a_cap_of_ones_own_takes_the_small_first_bucket_away():
    assert sizes(1, bucket_cap_mb=25) == [28.03, 20.02]
    assert sizes(1, bucket_cap_mb=5) == [8.01] * 6
    assert sizes(0, bucket_cap_mb=5) == [48.05]


def test_a_list_of_caps_cuts_the_first_iteration_too():
    # the list is for the order of registration at first, where the small bucket is sent last
    assert sizes(0, bucket_cap_mb_list=[1, 25]) == [16.02, 28.03, 4.0]
    assert sizes(1, bucket_cap_mb_list=[1, 25]) == [4.0, 28.03, 16.02]


def test_unused_parameters_keep_the_first_buckets_and_send_the_last_layers_first():
    kept = predict_buckets(TWELVE, iteration=0, find_unused_parameters=True)
    assert kept == predict_buckets(TWELVE, iteration=2, find_unused_parameters=True)
    assert [bucket.parameters[0] for bucket in kept] == ["7.bias", "0.bias", "0.weight"]
    assert kept[-1].parameters == ("0.weight",)


def test_a_static_graph_rebuilds_one_iteration_later_and_even_with_unused_parameters():
    for unused in (False, True):
        assert sizes(1, static_graph=True, find_unused_parameters=unused) == [48.05]
        assert sizes(2, static_graph=True, find_unused_parameters=unused) == [4.0, 28.03, 16.02]
    used = ["11.weight", "11.bias"]
    buckets = predict_buckets(TWELVE, iteration=2, static_graph=True, ready_order=used)
    assert buckets[0].parameters == ("11.weight",)
    assert buckets[1].parameters[:3] == ("11.bias", "0.weight", "0.bias")


def test_the_last_bucket_of_the_dtype_met_last_comes_first():
    mixed = [Parameter("a", 8), Parameter("b", 8, "float16"), Parameter("c", 8), Parameter("d", 8, "bfloat16")]
    assert [bucket.parameters for bucket in predict_buckets(mixed, iteration=0)] == [("d",), ("b",), ("a", "c")]
    assert [bucket.parameters for bucket in predict_buckets(mixed, iteration=1)] == [("b",), ("c", "a"), ("d",)]


def test_what_is_no_model_is_refused():
    with pytest.raises(UsageError, match="list a tied parameter once"):
        predict_buckets([Parameter("a", 4), Parameter("a", 4)], iteration=0)
    with pytest.raises(UsageError, match="different names"):
        predict_buckets([], iteration=0)
    with pytest.raises(UsageError, match="count iterations from 0"):
        predict_buckets(TWELVE, iteration=-1)
    with pytest.raises(UsageError, match="-3 is not a number of MiB"):
        predict_buckets(TWELVE, iteration=0, bucket_cap_mb=-3)
    with pytest.raises(UsageError, match=r"'9\.w'"):
        predict_buckets(TWELVE, iteration=1, ready_order=["9.w"])
    with pytest.raises(UsageError, match="find_unused_parameters=True"):
        predict_buckets(TWELVE, iteration=1, ready_order=["3.weight"])
    with pytest.raises(UsageError, match="twice"):
        predict_buckets(TWELVE, iteration=1, ready_order=["3.weight", "3.weight"])


@given(
    st.lists(st.tuples(st.integers(0, 3 * MIB), st.sampled_from(["float32", "float16"])), min_size=1, max_size=40),
    st.floats(0, 4),
    st.randoms(),
)
def test_every_gradient_is_in_one_bucket_and_a_bucket_closes_once_it_reached_the_cap(drawn, cap, rng):
    parameters = [Parameter(str(place), nbytes, dtype) for place, (nbytes, dtype) in enumerate(drawn)]
    size = {parameter.name: parameter.nbytes for parameter in parameters}
    order = rng.sample(list(size), len(size))
    buckets = predict_buckets(parameters, iteration=1, ready_order=order, bucket_cap_mb=cap)
    assert sorted(name for bucket in buckets for name in bucket.parameters) == sorted(size)
    for bucket in buckets:
        assert bucket.nbytes == sum(size[name] for name in bucket.parameters)
        assert list(bucket.parameters) == [name for name in order if name in bucket.parameters]
        assert len(bucket.parameters) == 1 or bucket.nbytes - size[bucket.parameters[-1]] < int(cap * MIB)
    below = [bucket for bucket in buckets if bucket.nbytes < int(cap * MIB)]
    assert len(below) <= len({parameter.dtype for parameter in parameters})
    assert below == list(buckets[len(buckets) - len(below) :])
