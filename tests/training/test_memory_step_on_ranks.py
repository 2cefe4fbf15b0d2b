"""The predicted peak of a training step against the samples of real ranks."""

from __future__ import annotations

import memory_jobs
import pytest

from lablib import Cluster
from lablib.analysis.memory import at_end, peak
from lablib.sim.activations import mlp, transformer
from lablib.sim.memory_step import simulate
from lablib.trace.memory import Category
from lablib.trace.spans import Kind

WIDE = {"widths": [32, 64, 64, 64, 16]}
ODD = {"widths": [70, 50, 31, 66, 23]}
DEEP = {"widths": [32] + [48] * 8, "activation": "gelu", "checkpoint": 3}
BLOCKS = {"layers": 3, "hidden": 32, "heads": 4}
FULL, SELECTIVE = {**BLOCKS, "checkpoint": "full", "attention": "flash"}, {**BLOCKS, "checkpoint": "selective"}
TIE = 1.005  # a mesh takes some bytes, and a checkpoint stops some operations before the end
IN_FLIGHT = 1.05  # FSDP2 lets go of a gradient's copy when its reduce_scatter is through, sooner or later

CASES = [
    # model, sizes of a batch, stage, world size, optimizer, other facts
    (WIDE, (256,), "alone", 1, "adam", {}),
    (WIDE, (2,), "ddp", 1, "adamw", {}),
    (WIDE, (2,), "ddp", 2, "adam", {"foreach": True}),
    (WIDE, (256,), "ddp", 2, "momentum", {}),
    (WIDE, (16,), "ddp_bucket_view", 2, "sgd", {}),
    (WIDE, (2,), "zero1_torch", 2, "adam", {}),
    (WIDE, (256,), "zero1_torch", 2, "adagrad", {}),
    (WIDE, (64,), "zero1", 2, "adam", {}),
    (WIDE, (64,), "zero2", 2, "adam", {}),
    (WIDE, (64,), "zero3", 2, "adam", {}),
    (DEEP, (200,), "ddp", 2, "adam", {}),
    (WIDE, (2,), "ddp", 2, "adam", {"dtype": "bfloat16"}),
    (WIDE, (2,), "ddp", 2, "adam", {"dtype": "bfloat16", "master_weights": True}),
    (WIDE, (64,), "ddp", 2, "sgd", {"autocast": True}),
    (BLOCKS, (4, 16), "ddp", 1, "adam", {}),
    (BLOCKS, (4, 16), "ddp", 2, "sgd", {"autocast": True}),
    (FULL, (16, 16), "ddp_bucket_view", 2, "adam", {}),
    (FULL, (4, 16), "zero3", 2, "adam", {}),
    (SELECTIVE, (4, 32), "zero1_torch", 2, "adam", {}),
    (SELECTIVE, (4, 32), "zero2", 2, "momentum", {"dtype": "bfloat16"}),
    *[
        case
        for stage in ("fsdp1_full_shard", "fsdp1_shard_grad_op", "fsdp1_no_shard", "fsdp2")
        for case in [
            (WIDE, (64,), stage, 1, "adam", {}),
            (WIDE, (64,), stage, 2, "adam", {}),
            (BLOCKS, (4, 16), stage, 2, "adam", {}),
            (FULL, (4, 16), stage, 2, "adam", {}),
        ]
    ],
    (WIDE, (64,), "fsdp1_hybrid_shard", 4, "adam", {"ranks_per_node": 2}),
    (BLOCKS, (4, 16), "fsdp2", 4, "sgd", {}),
    (ODD, (9,), "fsdp1_full_shard", 4, "adam", {}),
    (ODD, (9,), "fsdp2", 4, "adam", {}),
]


@pytest.fixture(scope="module")
def clusters():
    """Return ranks that stay warm between tests, by world size."""
    with Cluster(1, backend="gloo") as one, Cluster(2, backend="gloo") as pair, Cluster(4, backend="gloo") as four:
        yield {1: one, 2: pair, 4: four}


def both(clusters, facts, batch, stage, world_size, optimizer, how):
    """Return what real ranks did, and what is predicted of them."""
    common = {name: value for name, value in how.items() if name in ("dtype", "autocast")}
    if "widths" in facts:
        kind, wrapped, widths = "mlp", ["0", "2", "4"], facts["widths"]
        shapes = (*batch, widths[0]), (*batch, widths[-1])
        others = {name: value for name, value in facts.items() if name != "widths"}
        activations = mlp(widths, batch=batch[0], **others, **common)
    else:
        kind, wrapped = "transformer", [f"blocks.{place}" for place in range(facts["layers"])]
        shapes = ((*batch, facts["hidden"]),) * 2
        activations = transformer(**facts, batch=batch[0], sequence=batch[1], **common)
    job = clusters[world_size].run(memory_jobs.train, kind, facts, shapes, stage, optimizer, wrapped, how, memory=True)
    others = {name: value for name, value in how.items() if name != "autocast"}
    return job.trace, simulate(job[0], activations, stage=stage, world_size=world_size, optimizer=optimizer, **others)


@pytest.mark.slow
@pytest.mark.parametrize(("facts", "batch", "stage", "world_size", "optimizer", "how"), CASES)
def test_the_peak_is_where_it_is_predicted_and_as_high(
    clusters, facts, batch, stage, world_size, optimizer, how
) -> None:
    real, predicted = both(clusters, facts, batch, stage, world_size, optimizer, how)
    for rank in range(world_size):
        measured, told = peak(real, rank=rank, iteration=2), peak(predicted, rank=rank)
        near = IN_FLIGHT if stage == "fsdp2" else TIE
        assert measured.total / near <= told.total <= measured.total * near
        assert told.phase == measured.phase


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["ddp", "ddp_bucket_view", "zero1_torch", "zero1", "zero2"])
def test_after_each_part_of_a_step_there_is_what_is_predicted(clusters, stage) -> None:
    real, predicted = both(clusters, WIDE, (64,), stage, 2, "adam", {})
    for rank in range(2):
        for phase in ("forward", "optimizer"):
            measured = at_end(real, rank=rank, phase=phase, iteration=2)
            assert at_end(predicted, rank=rank, phase=phase) == measured


@pytest.mark.slow
def test_the_first_step_has_no_state_before_the_optimizer_makes_it(clusters) -> None:
    real, _ = both(clusters, WIDE, (256,), "ddp", 2, "adam", {})
    parameters = memory_jobs.parameters_of(memory_jobs.MLP(**WIDE))
    first = simulate(
        parameters, mlp(WIDE["widths"], batch=256), stage="ddp", world_size=2, optimizer="adam", iteration=0
    )
    assert at_end(first, rank=0, phase="backward")[Category.OPTIMIZER] == 0
    for phase in ("backward", "optimizer"):
        highest = [
            max(one.total for one in trace.memory if one.phase == phase and one.iteration == 0 and one.rank == 0)
            for trace in (first, real)
        ]
        assert highest[0] == highest[1], phase
    assert [span.kind for span in first.only(rank=0)] == [Kind.FORWARD, Kind.BACKWARD, Kind.OPTIMIZER]
