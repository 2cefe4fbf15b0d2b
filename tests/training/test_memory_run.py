"""Real ranks hold what the closed forms say, under every way to share the work."""

from functools import partial

import pytest

import lablib
from lablib.analysis.memory import at_end
from lablib.errors import RankFailed
from lablib.sim.memory import STAGES
from lablib.sim.memory_plan import AUTOCAST, MemoryPlan
from lablib.training.memory_run import measured

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_orphans")]


def assert_as_predicted(plan, cluster):
    trace = cluster.run(partial(measured, plan), memory=True).trace
    for rank, wanted in enumerate(plan.states()):
        for iteration in (1, 2, 3):
            found = at_end(trace, rank=rank, phase="optimizer", iteration=iteration)
            assert {one: found[one] for one in wanted} == wanted, (plan.stage, rank, iteration)


def test_every_way_leaves_in_memory_what_its_closed_form_says():
    with lablib.Cluster(2) as cluster:
        for stage in STAGES:
            if stage != "alone":
                assert_as_predicted(MemoryPlan(layers=3, hidden=32, batch=4, stage=stage), cluster)


@pytest.mark.parametrize(
    "plan",
    [
        MemoryPlan("transformer", layers=2, hidden=64, batch=2, sequence=8, stage="zero2", checkpoint="selective"),
        MemoryPlan("transformer", layers=1, hidden=64, batch=2, sequence=8, stage="fsdp2", checkpoint="full"),
        MemoryPlan(layers=4, hidden=32, batch=4, dtype=AUTOCAST, checkpoint="full"),
        MemoryPlan(layers=2, hidden=32, batch=4, dtype="bfloat16", optimizer="adagrad", stage="ddp_bucket_view"),
        MemoryPlan(layers=2, hidden=32, batch=4, optimizer="sgd", stage="zero1_torch"),
        MemoryPlan(layers=2, hidden=32, batch=4, optimizer="momentum", stage="fsdp1_full_shard"),
    ],
    ids=lambda plan: f"{plan.model} {plan.stage} {plan.optimizer}",
)
def test_models_number_types_and_optimizers(plan):
    with lablib.Cluster(2) as cluster:
        assert_as_predicted(plan, cluster)


def test_a_plan_for_other_ranks_is_refused():
    with pytest.raises(RankFailed, match="the plan is for 4 ranks: run it with world_size=4"):
        lablib.run(partial(measured, MemoryPlan(world_size=4)), world_size=2)
