"""Predicted buckets are those of DDP's own reducer, for random models and settings, and ranks that differ in order."""

from __future__ import annotations

import pytest
from bucket_models import ELEMENT, Case, random_case

from lablib import run
from lablib.sim.buckets import Parameter, predict_buckets

ITERATIONS = 3
RealBucket = tuple[int, tuple[str, ...], int]


def real_buckets(cases: list[Case]) -> list[list[tuple[list[str], list[RealBucket]]]]:
    """Train each model for three iterations; return the order in which gradients became ready, and the buckets."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from lablib.torch_private import ddp_buckets

    class Layer(nn.Module):
        def __init__(self, one: Parameter) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(one.nbytes // ELEMENT[one.dtype], dtype=getattr(torch, one.dtype)))

        def forward(self, _: torch.Tensor) -> torch.Tensor:
            return self.weight

    class Model(nn.Module):
        def __init__(self, case: Case) -> None:
            super().__init__()
            for one in case.parameters:
                rows = one.nbytes // 4 // ELEMENT[one.dtype]
                layer = nn.Embedding(rows, 4, sparse=True) if one.sparse else Layer(one)
                self.add_module(one.name.removesuffix(".weight"), layer.requires_grad_(one.name not in case.frozen))
            self.again = nn.ParameterList(self.get_parameter(name) for name in case.tied)
            self.used = [name.removesuffix(".weight") for name in case.used[dist.get_rank()]]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for name in self.used:
                x = x + self.get_submodule(name)(torch.zeros(1, dtype=torch.long)).sum().float()
            return x

    def train(case: Case) -> list[tuple[list[str], list[RealBucket]]]:
        dist._DEFAULT_FIRST_BUCKET_BYTES = int(case.settings.get("first_bucket_mb", 1.0) * (1 << 20))
        model = Model(case)
        ddp = DistributedDataParallel(model, **{k: v for k, v in case.settings.items() if k != "first_bucket_mb"})
        ready: list[str] = []
        for name, one in model.named_parameters():
            if one.requires_grad:
                one.register_post_accumulate_grad_hook(lambda _, name=name: ready.append(name))
        iterations = []
        for _ in range(ITERATIONS):
            ready.clear()
            ddp(torch.zeros(1)).sum().backward()
            iterations.append((list(ready), ddp_buckets(ddp)))
        return iterations

    return [train(case) for case in cases]


@pytest.mark.slow
@pytest.mark.parametrize(("world_size", "seeds"), [(1, range(200)), (2, range(1_000, 1_050))])
def test_buckets_are_those_of_ddp(world_size, seeds):
    cases = [random_case(seed, world_size) for seed in seeds]
    ranks = run(real_buckets, cases, world_size=world_size, backend="gloo")
    for place, case in enumerate(cases):
        for rank, models in enumerate(ranks.values):
            for iteration, (ready, real) in enumerate(models[place]):
                predicted = predict_buckets(
                    case.trained, iteration=iteration, ready_order=case.ready(0), **case.settings
                )
                about = f"seed {seeds[place]}, rank {rank}, iteration {iteration}, {case.settings}"
                assert ready == case.ready(rank), about
                assert [(one.index, one.parameters, one.nbytes) for one in predicted] == real, about
    # the cases cover what decides about buckets
    assert {len(models[iteration][1]) > 1 for models in ranks[0] for iteration in range(ITERATIONS)} == {True, False}
    assert any(one.sparse for case in cases for one in case.trained)
    assert any(len({one.dtype for one in case.trained}) > 2 for case in cases)
    assert any(case.tied for case in cases)
    if world_size > 1:
        assert any(case.ready(0) != case.ready(1) for case in cases)


def train_sparse() -> None:
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    ddp = DistributedDataParallel(nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 4)))
    for _ in range(2):
        ddp(torch.tensor([1, 2])).sum().backward()


@pytest.mark.slow
def test_a_sparse_gradient_overtakes_the_bucket_that_fills_as_it_arrives():
    trace = run(train_sparse, world_size=2, backend="gloo", record=True).trace
    parameters = [Parameter("0.weight", 160, sparse=True), Parameter("1.weight", 64), Parameter("1.bias", 16)]
    for iteration, expected in enumerate(([80, 160], [160, 80])):
        predicted = predict_buckets(parameters, iteration=iteration)
        real = trace.only("collective", rank=1, iteration=iteration, name="all_reduce")
        assert [bucket.nbytes for bucket in predicted] == [span.nbytes for span in real] == expected
