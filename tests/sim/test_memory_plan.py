"""What decides about memory, beside the real models: the same parameters, and closed forms of the right ones."""

import pytest

from lablib.errors import UsageError
from lablib.sim.memory import STAGES, payload, states
from lablib.sim.memory_plan import AUTOCAST, MemoryPlan, ranks_per_node
from lablib.trace import Category

PLANS = [
    MemoryPlan(),
    MemoryPlan(layers=1, hidden=32),
    MemoryPlan(layers=5, hidden=64, checkpoint="full"),
    MemoryPlan("transformer", layers=2, hidden=128, batch=2, sequence=16),
    MemoryPlan("transformer", layers=1, hidden=32, batch=2, sequence=16, checkpoint="selective"),
    MemoryPlan("transformer", layers=1, hidden=64, dtype=AUTOCAST, checkpoint="full"),
]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.model} {plan.layers} {plan.checkpoint}")
def test_parameters_and_units_are_those_of_the_real_model(plan):
    from lablib.training.memory_models import parameters_of
    from lablib.training.memory_run import model_of

    model = model_of(plan)
    assert list(plan.parameters) == parameters_of(model, wrapped=plan.wrapped)
    assert {one.unit for one in plan.parameters} == set(plan.wrapped)


@pytest.mark.parametrize("stage", STAGES)
def test_closed_forms_are_asked_with_the_plans_own_facts(stage):
    world_size = 1 if stage == "alone" else 4
    plan = MemoryPlan(optimizer="momentum", dtype="bfloat16", stage=stage, world_size=world_size)
    facts = {"stage": stage, "world_size": world_size, "dtype": "bfloat16"}
    facts |= {"ranks_per_node": 2} if stage == "fsdp1_hybrid_shard" else {}
    wanted = [states(plan.parameters, optimizer="momentum", rank=rank, **facts) for rank in range(world_size)]
    assert plan.states() == wanted
    assert plan.payload() == payload(plan.parameters, **facts)


@pytest.mark.parametrize("stage", ["ddp", "zero1_torch", "zero2", "zero3"])
def test_peaks_are_those_of_simulating_every_rank(stage):
    plan = MemoryPlan(layers=3, hidden=32, stage=stage, world_size=3)
    trace = plan.simulate()
    assert plan.peaks() == [max(one.total for one in trace.memory if one.rank == rank) for rank in range(3)]
    assert {one.rank for one in plan.simulate([1]).memory} == {1}


def test_what_a_caller_does_to_the_states_stays_with_the_caller():
    plan = MemoryPlan()
    plan.states()[0][Category.PARAMETERS] = -1
    assert plan.states()[0][Category.PARAMETERS] == 4 * sum(one.numel for one in plan.parameters)


def test_autocast_keeps_a_model_in_float32():
    one, other = MemoryPlan(dtype=AUTOCAST), MemoryPlan()
    assert one.states() == other.states()
    assert one.activations.nbytes != other.activations.nbytes


def test_half_of_the_ranks_are_a_node():
    assert [ranks_per_node(n) for n in range(1, 9)] == [1, 2, 3, 2, 5, 3, 7, 4]


def test_mistakes_say_what_to_do():
    with pytest.raises(UsageError, match="choose MLP, transformer"):
        MemoryPlan("CNN")
    with pytest.raises(UsageError, match="for this model choose none, full"):
        MemoryPlan("MLP", checkpoint="selective")
