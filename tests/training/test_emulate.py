"""Sleeping layers: their names, sizes, order and spans are the plan's."""

from __future__ import annotations

import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lablib.errors import UsageError
from lablib.sim.buckets import Parameter
from lablib.sim.plan import Layer, Plan, chain
from lablib.trace import recorder as recorders
from lablib.trace.spans import Kind
from lablib.training.emulate import Sleeper, SleepingModel, SleepingOptimizer


@st.composite
def plans(draw):
    layers = tuple(
        Layer(
            f"layer{place}",
            0,
            0,
            tuple(
                Parameter(
                    f"layer{place}.p{index}", 8 * numel, draw(st.sampled_from(["float32", "float64", "bfloat16"]))
                )
                for index, numel in enumerate(sizes)
            ),
        )
        for place, sizes in enumerate(draw(st.lists(st.lists(st.integers(1, 9), max_size=6), min_size=1, max_size=5)))
    )
    return Plan(layers, registered=tuple(draw(st.permutations([layer.name for layer in layers]))))


@settings(deadline=None)
@given(plans())
def test_parameters_and_the_order_of_their_gradients_are_the_plans(plan):
    model = SleepingModel(plan)
    real = [(name, one.nbytes, str(one.dtype)) for name, one in model.named_parameters()]
    assert real == [(one.name, one.nbytes, f"torch.{one.dtype}") for one in plan.parameters]
    ready = []
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: ready.append(name))
    for _ in range(2):
        model(torch.zeros(1, requires_grad=True)).sum().backward()
    assert ready == list(plan.ready_order) * 2
    assert all((parameter.grad == 2).all() for parameter in model.parameters())


def test_each_direction_of_a_layer_is_a_span_as_long_as_planned():
    plan = chain([0.01] * 3, forward_ms=10, backward_ms=20)
    model = SleepingModel(plan)
    recorders.current = recorder = recorders.Recorder(0)
    try:
        model(torch.zeros(1, requires_grad=True)).sum().backward()
    finally:
        recorders.current = None
    spans = recorder.spans()
    assert recorder.emulated
    assert {span.kind for span in spans} == {Kind.COMPUTE}
    names = [f"layer{place} forward" for place in (0, 1, 2)] + [f"layer{place} backward" for place in (2, 1, 0)]
    assert [span.name for span in spans] == names
    lengths = [span.length_ns / 1e6 for span in spans]
    assert 3 * 10 + 3 * 20 <= sum(lengths) < 120
    assert lengths[0] >= 10
    assert lengths[3] > max(lengths[1:3]) / 2


def test_gradients_arrive_at_the_end_of_the_sleep():
    model = SleepingModel(chain([0.01], forward_ms=0, backward_ms=30))
    arrived = []
    next(model.parameters()).register_post_accumulate_grad_hook(lambda _: arrived.append(time.perf_counter_ns()))
    loss = model(torch.zeros(1, requires_grad=True)).sum()
    start = time.perf_counter_ns()
    loss.backward()
    assert arrived[0] - start >= 30e6


@pytest.mark.slow
def test_the_optimizer_takes_its_time_and_changes_nothing():
    model = SleepingModel(chain([0.01], forward_ms=0, backward_ms=0))
    optimizer = SleepingOptimizer(model.parameters(), step_ms=20)
    model(torch.zeros(1, requires_grad=True)).sum().backward()
    start = time.perf_counter_ns()
    optimizer.step()
    assert time.perf_counter_ns() - start >= 20e6
    assert all((parameter == 0).all() for parameter in model.parameters())


def test_what_was_late_is_made_up_for():
    sleeper = Sleeper()
    start = time.perf_counter_ns()
    sleeper.sleep(5, meanwhile=lambda: time.sleep(0.04))
    assert time.perf_counter_ns() - start >= 40e6
    sleeper.sleep(20)
    sleeper.sleep(75)
    took_ms = (time.perf_counter_ns() - start) / 1e6
    assert 100 <= took_ms < 120
    sleeper.sleep(5, meanwhile=lambda: time.sleep(0.04))
    sleeper.forget()
    start = time.perf_counter_ns()
    sleeper.sleep(20)
    assert time.perf_counter_ns() - start >= 20e6


def test_sparse_gradients_are_refused():
    plan = Plan((Layer("embedding", 0, 0, (Parameter("embedding.weight", 64, sparse=True),)),))
    with pytest.raises(UsageError, match=r"embedding\.weight is sparse"):
        SleepingModel(plan)
