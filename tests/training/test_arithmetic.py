"""Real layers of a plan: their bytes are the plan's, and DDP trains them as one process does."""

from __future__ import annotations

import torch
import torch.distributed as dist

from lablib import run
from lablib.sim.plan import chain
from lablib.trace import Kind
from lablib.training import arithmetic

PLAN = chain([0.25, 0.001, 0.5], forward_ms=1, backward_ms=1, bias_nbytes=12)


def test_parameters_are_the_plans_by_name_order_and_bytes() -> None:
    found = [(name, one.nbytes) for name, one in arithmetic.RealModel(PLAN).named_parameters()]
    assert found == [(one.name, one.nbytes) for one in PLAN.parameters]


def test_every_number_of_every_parameter_gets_a_gradient() -> None:
    model = arithmetic.RealModel(PLAN)
    model(torch.randn(arithmetic.BATCH, arithmetic.WIDTH)).pow(2).mean().backward()
    assert all(bool(parameter.grad.ne(0).all()) for parameter in model.parameters())


def test_ranks_end_with_the_same_parameters_and_other_than_they_began() -> None:
    def trained() -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(dist.get_rank())
        kept: list[torch.nn.Module] = []
        original = arithmetic.DistributedDataParallel

        def keeping(module: torch.nn.Module, **settings: object) -> torch.nn.Module:
            kept.append(module)
            return original(module, **settings)

        arithmetic.DistributedDataParallel = keeping
        try:
            arithmetic.train(PLAN, steps=0)
            before = torch.cat([one.detach().flatten() for one in kept[0].parameters()]).clone()
            arithmetic.train(PLAN, steps=2, bucket_cap_mb=0.25)
        finally:
            arithmetic.DistributedDataParallel = original
        return before, torch.cat([one.detach().flatten() for one in kept[1].parameters()])

    made = run(trained, record=True)
    (before, first), (_, second) = made.values
    assert torch.equal(first, second)
    assert not torch.equal(before, first)
    assert made.trace.truth == "real"
    assert {one.iteration for one in made.trace.only(Kind.BUCKET)} == {0, 1}
