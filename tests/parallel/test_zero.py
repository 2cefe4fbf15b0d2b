"""ZeRO by hand against Adam of one process at every step, and what each stage holds and sends, to the byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from lablib import Cluster
from lablib.errors import UsageError
from lablib.parallel import zero
from lablib.parallel.zero import Stage1, Stage1AllReduce, Stage2, Stage3
from lablib.trace import Kind

STEPS, ROWS, WIDTH = 8, 12, 5
STAGES = {"stage 1, all_reduce": Stage1AllReduce, "stage 1": Stage1, "stage 2": Stage2, "stage 3": Stage3}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
}
SIZES = [35, 7, 49, 7, 21, 3]  # of the trained parameters of `Model`, in their order: 122, no multiple of 3 or 4
TRAINED, FROZEN, BUFFERS = sum(SIZES), 11, 1


class Model(nn.Module):
    """A model with a tied weight, a frozen parameter, a buffer and sizes that no world size divides."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.middle, self.last = nn.Linear(5, 7), nn.Linear(7, 7), nn.Linear(7, 3)
        self.again = nn.Linear(7, 7, bias=False)
        self.again.weight = self.middle.weight
        self.frozen = nn.Parameter(torch.rand(FROZEN), requires_grad=False)
        self.register_buffer("scale", torch.rand(BUFFERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.middle(torch.tanh(self.first(x * self.scale))))
        return self.last(torch.tanh(self.again(hidden * self.frozen.sum())))


def batch(step: int) -> torch.Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(step))


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in [*model.parameters(), *model.buffers()]])


def alone(optimizer: str) -> list[torch.Tensor]:
    model, found = Model(seed=0), []
    stepper = OPTIMIZERS[optimizer]([one for one in model.parameters() if one.requires_grad])
    for step in range(STEPS):
        stepper.zero_grad()
        model(batch(step)).square().mean().backward()
        stepper.step()
        found.append(flat(model))
    return found


def step_of(sharded: Stage1AllReduce, x: torch.Tensor) -> None:
    sharded.zero_grad()
    sharded(x).square().mean().backward()
    sharded.reduce()
    sharded.step()


def on_a_rank(stage: str, optimizer: str, same: bool) -> list[torch.Tensor]:
    rank, n = dist.get_rank(), dist.get_world_size()
    sharded, found = STAGES[stage](Model(seed=rank), OPTIMIZERS[optimizer]), []
    for step in range(STEPS):
        step_of(sharded, batch(step) if same else batch(step).chunk(n)[rank])
        sharded.gather()
        found.append(flat(sharded.module))
        if isinstance(sharded, Stage3):
            sharded.free()
    return found


@pytest.fixture(scope="module", params=[1, 2, 3, 4])
def cluster(request):
    with Cluster(request.param) as ranks:
        yield ranks


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_step_equals_one_process_on_all_the_data(cluster, optimizer, stage) -> None:
    oracle = alone(optimizer)
    for steps in cluster.run(on_a_rank, stage, optimizer, False).values:
        assert len(steps) == STEPS
        for one, other in zip(steps, oracle, strict=True):
            torch.testing.assert_close(one, other, atol=1e-6, rtol=0)


@pytest.mark.parametrize("stage", STAGES)
def test_every_step_is_adams_bit_for_bit_where_the_mean_is_exact(cluster, stage) -> None:
    atol = 1e-6 if cluster.world_size == 3 else 0  # three equal gradients, added up and divided by three, are rounded
    oracle = alone("adam")
    for steps in cluster.run(on_a_rank, stage, "adam", True).values:
        for one, other in zip(steps, oracle, strict=True):
            torch.testing.assert_close(one, other, atol=atol, rtol=0)


def held(tensors: Iterable[torch.Tensor]) -> int:
    storages = {one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in tensors}
    return sum(storages.values())


def holdings(stage: str) -> dict[str, list[int]]:
    """Return bytes of parameters, gradients and optimizer state: after building, in forward, after backward, a step."""
    rank, n = dist.get_rank(), dist.get_world_size()
    sharded = STAGES[stage](Model(seed=rank), OPTIMIZERS["adam"])
    moments: list[list[int]] = []

    def look(*_: Any) -> None:
        owned = list(sharded.parameters())
        state = [one for some in sharded.optimizer.state.values() for one in some.values()]
        gradients = [one.grad for one in owned if one.grad is not None]
        moments.append([held(owned), held(gradients), held(state)])

    look()
    sharded.module.register_forward_hook(look)
    loss = sharded(batch(0).chunk(n)[rank]).square().mean()
    look()
    loss.backward()
    look()
    sharded.reduce()
    look()
    sharded.step()
    look()
    names = "built", "in forward", "after forward", "after backward", "reduced", "stepped"
    return dict(zip(names, moments, strict=True))


@pytest.mark.parametrize("stage", STAGES)
def test_what_a_rank_holds_is_known_to_the_byte(cluster, stage) -> None:
    n = cluster.world_size
    part = 4 * -(-TRAINED // n)
    whole, state = n * part, 2 * part + 4
    kept = part if stage == "stage 3" else whole
    reduced = whole if stage.startswith("stage 1") else part
    parameters = {"in forward": whole, "after backward": whole}
    if stage == "stage 3":
        parameters = dict.fromkeys(parameters, whole + part)
    for found in cluster.run(holdings, stage).values:
        for moment, nbytes in found.items():
            gradients = {"after backward": 4 * TRAINED, "reduced": reduced, "stepped": reduced}.get(moment, 0)
            owned = parameters.get(moment, kept) + 4 * FROZEN
            assert nbytes == [owned, gradients, state if moment == "stepped" else 0], moment


def recorded(stage: str) -> None:
    rank, n = dist.get_rank(), dist.get_world_size()
    sharded = STAGES[stage](Model(seed=rank), OPTIMIZERS["adam"])
    for step in range(3):
        step_of(sharded, batch(step).chunk(n)[rank])


@pytest.mark.parametrize("stage", STAGES)
def test_what_a_step_sends_is_known_to_the_byte(cluster, stage) -> None:
    n = cluster.world_size
    part = 4 * -(-TRAINED // n)
    reduce = ("all_reduce", n * part) if stage == "stage 1, all_reduce" else ("reduce_scatter", n * part)
    gather = "all_gather", part
    calls = [gather, gather, reduce] if stage == "stage 3" else [reduce, gather]
    trace = cluster.run(recorded, stage, record=True).trace.only(Kind.COLLECTIVE)
    assert trace.iterations == [0, 1, 2]
    for rank in range(n):
        for iteration in trace.iterations:
            found = [(one.name, one.nbytes) for one in trace.only(rank=rank, iteration=iteration)]
            assert found == calls


def test_an_unused_parameter_keeps_its_value_and_the_ranks_make_the_same_calls(cluster) -> None:
    def job(stage: str) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(0)
        layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)])
        before = flat(layers)
        used = [0, 2] if dist.get_rank() == 0 else [0]  # the second layer nowhere, the third on one rank
        layers.forward = lambda x: sum(layers[place](x) for place in used)
        sharded = STAGES[stage](layers, OPTIMIZERS["adam"])
        step_of(sharded, torch.ones(1, 2))
        sharded.gather()
        return before, flat(layers)

    for stage in STAGES:
        runs = cluster.run(job, stage).values
        for before, after in runs:
            moved = [bool((a != b).any()) for a, b in zip(before.split(6), after.split(6), strict=True)]
            assert moved == [True, False, True]
            assert torch.equal(after, runs[0][1])


def test_stage_3_without_gradients_gathers_once_and_frees(cluster) -> None:
    def job() -> tuple[torch.Tensor, torch.Tensor, int]:
        sharded = Stage3(Model(seed=dist.get_rank()), OPTIMIZERS["adam"])
        with torch.no_grad():
            found = sharded(batch(0))
        return found, Model(seed=0)(batch(0)).detach(), held([sharded.flat])

    run = cluster.run(job, record=True)
    for found, wanted, left in run.values:
        assert torch.equal(found, wanted)
        assert left == 0
    assert len(run.trace.only(Kind.COLLECTIVE, rank=0, name="all_gather")) == 1


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 7])
def test_joined_is_padded_with_the_fewest_zeros_and_pieces_take_it_apart(world_size) -> None:
    tensors = [torch.rand(2, 3), torch.rand(5), torch.tensor(2.0), torch.rand(0)]
    vector = zero.joined(tensors, world_size)
    assert len(vector) % world_size == 0
    assert 12 <= len(vector) < 12 + world_size
    assert not vector[12:].any()
    for one, piece in zip(tensors, zero.pieces(vector, tensors), strict=True):
        assert torch.equal(one, piece)
        assert piece.untyped_storage()._cdata == vector.untyped_storage()._cdata


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [([], "no parameter is trained"), ([torch.ones(1), torch.ones(1).bfloat16()], "differ in dtype")],
)
def test_what_does_not_fit_into_one_vector_is_refused(tensors, reason) -> None:
    with pytest.raises(UsageError, match=reason):
        zero.joined(tensors, 2)
