"""Data parallelism by hand against one process on all the data, at every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from lablib import Cluster
from lablib.parallel.data_parallel import Bucketed, Overlapped, Synchronous
from lablib.trace import Kind

STEPS, PER_RANK, WIDTH = 20, 3, 6
WRAPPERS: dict[str, Callable[[nn.Module], Synchronous]] = {
    "synchronous": Synchronous,
    "overlapped": Overlapped,
    "bucketed": lambda module: Bucketed(module, cap_mb=4e-5),
}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
}


class Tied(nn.Module):
    """A model with a tied weight and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.last = nn.Linear(WIDTH, WIDTH)
        self.last.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.frozen(torch.tanh(self.first(x)))))


def batches(world_size: int) -> torch.Tensor:
    return torch.randn(STEPS, world_size * PER_RANK, WIDTH, generator=torch.Generator().manual_seed(1))


def alone(optimizer: str, world_size: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = Tied()
    stepper = OPTIMIZERS[optimizer](model.parameters())
    return [flat(model) for batch in batches(world_size) if step(model, model.zero_grad, stepper, batch) is None]


def on_a_rank(wrapper: str, optimizer: str) -> list[torch.Tensor]:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)  # every rank begins elsewhere; rank 0 begins where `alone` does
    model = WRAPPERS[wrapper](Tied())
    stepper = OPTIMIZERS[optimizer](model.parameters())
    mine = slice(rank * PER_RANK, (rank + 1) * PER_RANK)
    return [
        flat(model.module)
        for batch in batches(world_size)
        if step(model, model.zero_grad, stepper, batch[mine], model.finish) is None
    ]


def step(
    model: nn.Module,
    zero: Callable[[], None],
    stepper: torch.optim.Optimizer,
    batch: torch.Tensor,
    finish: Callable[[], None] = lambda: None,
) -> None:
    zero()
    (model(batch) - batch).pow(2).mean().backward()
    finish()
    stepper.step()


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.fixture(scope="module", params=[2, 4])
def cluster(request):
    with Cluster(request.param) as ranks:
        ranks.run(dist.get_rank)
        yield ranks


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_every_step_equals_one_process_on_all_the_data(cluster, wrapper, optimizer) -> None:
    oracle = alone(optimizer, cluster.world_size)
    for steps in cluster.run(on_a_rank, wrapper, optimizer).values:
        assert len(steps) == len(oracle) == STEPS
        for one, other in zip(steps, oracle, strict=True):
            torch.testing.assert_close(one, other, atol=1e-6, rtol=0)


def reductions(wrapper: str) -> list[list[str]]:
    model = WRAPPERS[wrapper](Tied())
    for _ in range(2):
        model.zero_grad()
        model(torch.ones(1, WIDTH)).sum().backward()
        model.finish()
    return [] if wrapper != "bucketed" else [[str(tuple(one.shape)) for one in bucket] for bucket in model.buckets]


def test_calls_are_one_a_parameter_or_one_a_bucket_and_overlapped_ones_begin_in_backward(cluster) -> None:
    sizes = {"synchronous": [144, 24, 24], "overlapped": [24, 144, 24], "bucketed": None}
    for wrapper in WRAPPERS:
        run = cluster.run(reductions, wrapper, record=True)
        for rank in range(cluster.world_size):
            for iteration in range(2):
                found = run.trace.only(rank=rank, iteration=iteration)
                (backward,) = found.only(Kind.BACKWARD)
                calls = [one for one in found.only(Kind.COLLECTIVE) if one.name == "all_reduce"]
                inside = [backward.start_ns < one.start_ns < backward.end_ns for one in calls]
                assert inside == [wrapper != "synchronous"] * len(calls)
                if wrapper == "bucketed":
                    assert len(calls) == len(run[rank]) == 2
                    assert sum(one.nbytes for one in calls) == 144 + 24 + 24
                else:
                    assert sorted(one.nbytes for one in calls) == sorted(sizes[wrapper])


def test_buffers_are_rank_0s(cluster) -> None:
    def job() -> torch.Tensor:
        torch.manual_seed(dist.get_rank())
        model = Synchronous(nn.BatchNorm1d(2))
        for _ in range(2):
            model(torch.randn(4, 2))
        model(torch.zeros(4, 2))
        return model.module.num_batches_tracked, model.module.running_mean

    def oracle() -> torch.Tensor:
        torch.manual_seed(0)
        norm = nn.BatchNorm1d(2)
        for _ in range(2):
            norm(torch.randn(4, 2))
        norm(torch.zeros(4, 2))
        return norm.running_mean

    for tracked, mean in cluster.run(job).values:
        assert tracked == 3
        torch.testing.assert_close(mean, oracle())


def test_a_bucket_waits_for_those_before_it() -> None:
    kept: list[int] = []

    class Quiet(Bucketed):
        def __init__(self) -> None:
            nn.Module.__init__(self)
            self.buckets = [[nn.Parameter(torch.ones(1))] for _ in range(3)]
            self._bucket_of = {bucket[0]: index for index, bucket in enumerate(self.buckets)}
            self._missing = [1, 1, 1]
            self._sent = []

    model = Quiet()
    original = dist.all_reduce
    dist.all_reduce = lambda flat, async_op: kept.append(int(flat))
    try:
        for index in (2, 1, 0):
            model.buckets[index][0].grad = torch.full((1,), float(index))
            model._ready(model.buckets[index][0])
            assert kept == ([0, 1, 2] if index == 0 else [])
    finally:
        dist.all_reduce = original


class Product(nn.Module):
    """Multiply by 1 and by 10, in either order: the gradients are 10 and 1."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(10.0))
        self.order = order

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name in self.order:
            x = x * getattr(self, name)
        return x


@pytest.mark.parametrize(
    ("wrapper", "found"), [("synchronous", (10, 1)), ("overlapped", (5.5, 5.5)), ("bucketed", (10, 1))]
)
def test_calls_as_gradients_come_mix_parameters_up_where_ranks_use_them_in_another_order(
    cluster, wrapper, found
) -> None:
    def job() -> tuple[float, float]:
        model = WRAPPERS[wrapper](Product("ba" if dist.get_rank() % 2 else "ab"))
        model(torch.tensor(1.0)).backward()
        model.finish()
        return model.module.a.grad.item(), model.module.b.grad.item()

    assert cluster.run(job).values == [found] * cluster.world_size
