"""What a step leaves in memory: the closed forms against the storages of real ranks, to the byte."""

from __future__ import annotations

import contextlib
import random
from collections import Counter

import memory_jobs
import pytest

from lablib import Cluster
from lablib.sim.memory import STAGES, payload, states
from lablib.sim.sharding import Parameter, partition
from lablib.trace.spans import Kind

WIDTHS = [7, 5, 3, 6, 2]
WRAPPED = ["0", "4"]
FEW = ["ddp", "zero1_torch", "zero2", "fsdp1_full_shard", "fsdp2"]


@pytest.fixture(scope="module")
def clusters():
    """Return ranks that stay warm between tests, by world size."""
    with contextlib.ExitStack() as opened:
        yield {ranks: opened.enter_context(Cluster(ranks, backend="gloo")) for ranks in (1, 2, 3, 4)}


def check(ranks, stages, optimizer, *, frozen=(), dtype="float32") -> None:
    """Compare bytes of parameters, gradients, optimizer state and buckets on every rank."""
    run = ranks.run(memory_jobs.kept, WIDTHS, stages, optimizer, WRAPPED, list(frozen), dtype)
    for rank, found in enumerate(run.values):
        for stage, (parameters, measured) in found.items():
            hybrid = {"ranks_per_node": 2} if stage == "fsdp1_hybrid_shard" else {}
            facts = {"stage": stage, "world_size": len(run.values), "rank": rank, **hybrid}
            predicted = states(parameters, optimizer=optimizer, dtype=dtype, **facts)
            assert list(predicted.values()) == measured, (stage, rank)


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_every_way_to_share_leaves_what_is_predicted(clusters, world_size) -> None:
    stages = [stage for stage in STAGES if world_size == 4 or stage != "fsdp1_hybrid_shard"]
    check(clusters[world_size], stages, "adam")


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adagrad", "adamw"])
def test_every_optimizer_keeps_what_is_predicted(clusters, optimizer) -> None:
    check(clusters[2], FEW, optimizer)


@pytest.mark.slow
def test_a_bfloat16_model_has_a_bfloat16_state(clusters) -> None:
    check(clusters[2], FEW, "adam", dtype="bfloat16")


@pytest.mark.slow
def test_frozen_parameters_stay_whole_and_have_nothing_else(clusters) -> None:
    stages = ["alone", "ddp", "ddp_bucket_view", "zero1_torch", "zero1", "zero2", "zero3", "fsdp2"]
    check(clusters[4], stages, "adam", frozen=["0.weight", "2.bias"])


def sent(span):
    """Return what a rank sends in a call, as the textbook counts."""
    n = len(span.ranks)
    shares = {"all_reduce": 2 / n, "all_gather": 1, "reduce_scatter": 1 / n, "broadcast": 1 / n}
    return span.nbytes * (n - 1) * shares[span.name]


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_what_is_sent_is_what_is_predicted(clusters, stage) -> None:
    widths = [32, 64, 66, 16]
    shapes = (8, 32), (8, 16)
    run = clusters[4].run(
        memory_jobs.train, "mlp", {"widths": widths}, shapes, stage, "sgd", ["0", "2"], {}, record=True
    )
    found: Counter[str] = Counter()
    for span in run.trace.only(Kind.COLLECTIVE, rank=0, iteration=2):
        found[span.name] += sent(span)
    hybrid = {"ranks_per_node": 2} if stage == "fsdp1_hybrid_shard" else {}
    assert payload(run[0], stage=stage, world_size=4, **hybrid) == found


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_whole_parameters_go_where_torch_puts_them(clusters, world_size) -> None:
    dice = random.Random(0)
    shapes = [
        [tuple(dice.randint(1, 6) for _ in range(dice.randint(0, 2))) for _ in range(dice.randint(world_size, 12))]
        for _ in range(40)
    ]
    found = clusters[world_size].run(memory_jobs.partitions, shapes)[0]
    for sizes, measured in zip(shapes, found, strict=True):
        shares = partition([Parameter(str(place), size) for place, size in enumerate(sizes)], world_size)
        assert [[int(one.name) for one in share] for share in shares] == measured
