"""What lab 04 shows, on real ranks, beside one process that has all the data."""

from functools import partial
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from lablib import Cluster, run, span
from lablib.trace import Kind
from lablib.training.gradients import OPTIMIZERS, apart, average, gradient_of, net, regression, weights_of

pytestmark = pytest.mark.slow

TWENTY = 20
LINEAR = ("SGD", "momentum", "Nesterov", "weight decay")


@pytest.fixture(scope="module")
def pair():
    with Cluster(2, backend="gloo") as pair:
        yield pair


@pytest.fixture(scope="module")
def four():
    with Cluster(4, backend="gloo") as four:
        yield four


def mine(tensors, sizes):
    return tuple(tensor.split(list(sizes))[dist.get_rank()] for tensor in tensors)


def weighted_gradient(sizes, weigh):
    x, y = mine(regression(sum(sizes), dtype=torch.float64), sizes)
    ddp = DistributedDataParallel(net(dtype=torch.float64))
    weight = dist.get_world_size() * len(y) / sum(sizes) if weigh else 1
    (mse_loss(ddp(x), y) * weight).backward()
    return gradient_of(ddp)


def whole_gradient(samples):
    model = net(dtype=torch.float64)
    x, y = regression(samples, dtype=torch.float64)
    mse_loss(model(x), y).backward()
    return gradient_of(model)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(1, 9), min_size=4, max_size=4))
def test_the_weighted_loss_gives_the_gradient_of_the_global_batch_whatever_the_parts(four, sizes):
    for found in four.run(weighted_gradient, sizes, True):
        assert apart(found, whole_gradient(sum(sizes))) < 1e-14


def test_the_plain_mean_is_that_of_the_global_batch_for_equal_parts_only(pair):
    assert apart(pair.run(weighted_gradient, (4, 4), False)[0], whole_gradient(8)) < 1e-14
    assert apart(pair.run(weighted_gradient, (4, 3), False)[0], whole_gradient(7)) > 1e-3


def summed_gradient():
    x, y = mine(regression(7, dtype=torch.float64), (4, 3))
    ddp = DistributedDataParallel(net(dtype=torch.float64))
    mse_loss(ddp(x), y, reduction="sum").backward()
    return gradient_of(ddp)


def test_with_a_sum_for_a_loss_the_gradient_is_divided_by_the_number_of_ranks(pair):
    assert apart(2 * pair.run(summed_gradient)[0], 7 * whole_gradient(7)) < 1e-13


def trained(model, make, x, y, *, steps=TWENTY, averaged=None, max_norm=None, weight=1.0):
    optimizer = make(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        (mse_loss(model(x), y) * weight).backward()
        if averaged == "gradients":
            average(one.grad for one in model.parameters())
        if max_norm is not None:
            clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        if averaged == "parameters":
            average(model.parameters())
    return weights_of(model)


def both_ways(max_norm):
    x, y = mine(regression(16, dtype=torch.float64), (8, 8))
    return {
        name: apart(
            *(
                trained(net(dtype=x.dtype), make, x, y, steps=5, averaged=averaged, max_norm=max_norm)
                for averaged in ("gradients", "parameters")
            )
        )
        for name, make in OPTIMIZERS.items()
    }


def test_averaging_parameters_is_averaging_gradients_where_the_step_is_linear(pair):
    gaps = pair.run(both_ways, None)[0]
    assert {name for name, gap in gaps.items() if gap < 1e-14} == set(LINEAR)
    assert all(gap > 0.01 for name, gap in gaps.items() if name not in LINEAR)


def test_clipping_by_norm_is_not_linear_for_any_optimizer(pair):
    assert all(gap > 1e-3 for gap in pair.run(both_ways, 0.5)[0].values())


def clipped_locally(before):
    layer = nn.Linear(1, 1, bias=False)

    def clip(weight):
        clip_grad_norm_(weight, 1)

    if before:
        layer.weight.register_post_accumulate_grad_hook(clip)
    ddp = DistributedDataParallel(layer)
    ddp(torch.tensor([[8.0, -2.0][dist.get_rank()]])).sum().backward()
    if not before:
        clip(layer.weight)
    return layer.weight.grad.item()


def test_clipping_before_and_after_averaging_are_two_things(pair):
    assert pair.run(clipped_locally, True).values == pytest.approx([0, 0], abs=1e-5)
    assert pair.run(clipped_locally, False).values == pytest.approx([1, 1], abs=1e-5)


def twenty(sizes, seed):
    """Train with DDP on parts of these sizes; without sizes, with all data on each rank."""
    ranks, ends = dist.get_world_size(), {}
    x, y = regression(12, seed=seed) if sizes is None else mine(regression(sum(sizes), seed=seed), sizes)
    weight = 1.0 if sizes is None else ranks * len(y) / sum(sizes)
    for name in ("SGD", "momentum", "Adam", "AdamW"):
        make = partial(OPTIMIZERS[name], lr=0.01)
        ends[name] = trained(DistributedDataParallel(net(seed=seed)), make, x, y, weight=weight)
    return ends


def alone(samples, seed, name):
    return trained(net(seed=seed), partial(OPTIMIZERS[name], lr=0.01), *regression(samples, seed=seed))


@pytest.mark.parametrize(("sizes", "seed"), [((3, 3, 3, 3), 0), ((3, 3, 3, 3), 1), ((5, 1, 4, 2), 2)])
def test_twenty_steps_end_where_one_process_ends(four, sizes, seed):
    ends = four.run(twenty, sizes, seed)
    for name in ends[0]:
        assert all(torch.equal(end[name], ends[0][name]) for end in ends)
        assert apart(ends[0][name], alone(12, seed, name)) < 1e-6
        assert apart(ends[0][name], weights_of(net(seed=seed))) > 1e-3


def test_without_a_sampler_all_ranks_do_the_work_of_one(pair):
    for end in pair.run(twenty, None, 0):
        assert all(apart(end[name], alone(12, 0, name)) < 1e-6 for name in end)


def copied():
    rank, held = dist.get_rank(), {}
    torch.manual_seed(rank)
    layer = nn.Linear(2, 3)
    layer.bias.requires_grad_(False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    optimizer.state[layer.weight]["momentum_buffer"] = torch.full((3, 2), float(rank))
    held["before"] = weights_of(layer)
    ddp = DistributedDataParallel(layer)
    held["after"] = weights_of(layer)
    held["momentum"] = optimizer.state[layer.weight]["momentum_buffer"].clone()
    layer.bias.requires_grad_(True)
    ddp(torch.randn(4, 2)).square().sum().backward()
    return held | {"weight": layer.weight.grad.clone(), "bias": layer.bias.grad.clone()}


def test_what_ddp_makes_the_same_when_it_is_built_and_what_it_leaves_alone(pair):
    zero, one = pair.run(copied)
    same = {name: torch.equal(zero[name], one[name]) for name in zero}
    assert same == {"before": False, "after": True, "momentum": False, "weight": True, "bias": False}
    assert torch.equal(zero["before"], one["after"])
    assert [len(held["after"]) for held in (zero, one)] == [9, 9]
    assert [held["momentum"].unique().tolist() for held in (zero, one)] == [[0.0], [1.0]]


def stepped(make_model):
    with span("constructor"):
        ddp = DistributedDataParallel(make_model())
    for step in range(4):
        with span(f"forward {step}"):
            out = ddp(torch.randn(8, 4))
        with span(f"backward {step}"):
            out.sum().backward()


def linear():
    return nn.Linear(4, 4)


def normed():
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))


def calls(trace, rank):
    made = trace.only(Kind.COLLECTIVE, rank=rank)
    return {
        region.name: {call.name for call in made if region.start_ns <= call.start_ns < region.end_ns}
        for region in trace.only(Kind.REGION, rank=rank)
    }


@pytest.mark.parametrize(("make_model", "talking"), [(linear, {1}), (normed, {0, 1, 2, 3})])
def test_ranks_talk_when_ddp_is_built_in_backward_and_for_buffers_and_new_buckets_in_forward(pair, make_model, talking):
    trace = pair.run(stepped, make_model, record=True).trace
    wanted = {"constructor": {"all_gather", "broadcast"}}
    for step in range(4):
        wanted[f"forward {step}"] = {"broadcast"} if step in talking else set()
        wanted[f"backward {step}"] = {"all_reduce"}
    assert calls(trace, 0) == calls(trace, 1) == wanted


def bypassed(wrapped):
    model = net()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    x, y = mine(regression(16), (8, 8))
    weights = []
    for _ in range(TWENTY):
        optimizer.zero_grad()
        mse_loss((ddp if wrapped else model)(x), y).backward()
        optimizer.step()
        weights.append(weights_of(model))
    return weights


def test_a_bypassed_wrapper_averages_nothing_and_the_weights_drift_apart(pair):
    lost, kept = (pair.run(bypassed, wrapped, record=True) for wrapped in (False, True))
    assert len(lost.trace.only(Kind.COLLECTIVE, rank=0, name="all_reduce")) == 0
    assert len(kept.trace.only(Kind.COLLECTIVE, rank=0, name="all_reduce")) == TWENTY
    drift = [apart(zero, one) for zero, one in zip(*lost, strict=True)]
    assert 0 < drift[0] < drift[-1]
    assert all(torch.equal(zero, one) for zero, one in zip(*kept, strict=True))


class Watching(nn.Linear):
    def forward(self, x):
        self.came_from = x.device.type
        return super().forward(x.new_ones(x.shape, device=self.weight.device))


def in_and_out():
    ddp = DistributedDataParallel(Watching(1, 1))
    out = ddp(torch.empty(4 - dist.get_rank(), 1, device="meta"))
    return len(out), ddp.module.came_from


def test_inputs_are_not_moved_and_outputs_are_not_gathered(pair):
    assert pair.run(in_and_out).values == [(4, "meta"), (3, "meta")]


def with_device_ids():
    with pytest.raises(ValueError, match="device_ids"):
        DistributedDataParallel(nn.Linear(1, 1), device_ids=[dist.get_rank()])


def test_device_ids_are_refused_on_a_cpu(pair):
    pair.run(with_device_ids)


def with_batch_norm():
    x, y = mine(regression(16), (8, 8))
    norm = nn.BatchNorm1d(4)
    ddp, inside = DistributedDataParallel(nn.Sequential(norm, net())), []
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    mse_loss(ddp(x), y).backward()
    gradient = gradient_of(ddp)
    optimizer.step()
    after = norm.running_mean.clone()
    norm.register_forward_pre_hook(lambda *_: inside.append(norm.running_mean.clone()))
    ddp(x)
    return weights_of(ddp), after, inside[0], gradient


def test_buffers_differ_after_each_step_and_rank_0s_win_in_the_next_forward(pair):
    (weights, after, inside, gradient), (weights_1, after_1, inside_1, _) = pair.run(with_batch_norm)
    assert torch.equal(weights, weights_1)
    assert not torch.equal(after, after_1)
    assert torch.equal(inside, after)
    assert torch.equal(inside_1, after)
    big = nn.Sequential(nn.BatchNorm1d(4), net())
    x, y = regression(16)
    mse_loss(big(x), y).backward()
    assert apart(gradient, gradient_of(big)) > 1e-3


def epoch(lr):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    ddp = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=lr)
    x, y = (numbers[rank::ranks] for numbers in regression(64))
    for features, labels in zip(x.split(4), y.split(4), strict=True):
        optimizer.zero_grad()
        mse_loss(ddp(features), labels).backward()
        optimizer.step()
    return len(x.split(4)), weights_of(ddp)


def test_more_ranks_take_fewer_steps_and_go_less_far(pair, four):
    found = [run(epoch, 0.01, world_size=1, backend="gloo")[0], pair.run(epoch, 0.01)[0], four.run(epoch, 0.01)[0]]
    assert [steps for steps, _ in found] == [16, 8, 4]
    start, end = weights_of(net()), found[0][1]
    ways = [(weights - start).norm() for _, weights in found]
    assert all(0.4 < after / before < 0.6 for before, after in pairwise(ways))
    scaled = four.run(epoch, 0.04)[0][1]
    assert (scaled - end).norm() < 0.05 * ways[0] < (found[2][1] - end).norm()
