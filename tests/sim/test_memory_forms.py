"""What a step leaves in memory and sends: arithmetic that needs no ranks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lablib.analysis.memory import at_end, peak
from lablib.errors import UsageError
from lablib.sim.activations import mlp
from lablib.sim.memory import OPTIMIZERS, STAGES, Parameter, payload, states
from lablib.sim.memory_step import simulate
from lablib.sim.sharding import rows_of
from lablib.trace.memory import Category
from lablib.training.memory_models import MLP, parameters_of

LARGE = [Parameter("weight", (1024, 1024))]
shapes = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple), min_size=1, max_size=6)


def per_parameter(**facts) -> float:
    """Return the bytes for each number of a large parameter, without Adam's count of steps."""
    return (sum(states(LARGE, stage="alone", world_size=1, **facts).values()) - 4) / 1024**2


@pytest.mark.parametrize(
    ("facts", "nbytes"),
    [
        ({}, 16),
        ({"dtype": "bfloat16", "master_weights": True}, 16),
        ({"dtype": "bfloat16", "master_weights": True, "gradient_dtype": "float32"}, 18),
        ({"dtype": "bfloat16"}, 8),
        ({"dtype": "float16", "optimizer": "adagrad", "master_weights": True}, 12),
    ],
)
def test_bytes_for_each_parameter(facts, nbytes) -> None:
    assert per_parameter(**facts) == nbytes


@pytest.mark.parametrize("gradient_dtype", [None, "float32"])
def test_master_weights_by_hand_take_what_is_predicted(gradient_dtype) -> None:
    model = MLP([5, 7, 3]).bfloat16()
    masters = [one.detach().float() for one in model.parameters()]
    adam = torch.optim.Adam(masters)
    model(torch.ones(2, 5, dtype=torch.bfloat16)).sum().backward()
    for master, one in zip(masters, model.parameters(), strict=True):
        master.grad = one.grad.float()
        if gradient_dtype:
            one.grad = None
    adam.step()
    kept = [
        master.grad if gradient_dtype else one.grad for master, one in zip(masters, model.parameters(), strict=True)
    ]
    state = [value for held in adam.state.values() for value in held.values()]
    facts = {"dtype": "bfloat16", "master_weights": True, "gradient_dtype": gradient_dtype}
    predicted = states(parameters_of(model), stage="alone", world_size=1, **facts)
    assert predicted[Category.PARAMETERS] == sum(one.nbytes for one in model.parameters())
    assert predicted[Category.GRADIENTS] == sum(one.nbytes for one in kept)
    assert predicted[Category.OPTIMIZER] == sum(one.nbytes for one in [*masters, *state])


@given(shapes=shapes, world_size=st.integers(1, 9), stage=st.sampled_from(sorted(STAGES)))
def test_the_ranks_together_hold_everything(shapes, world_size, stage) -> None:
    listed = [Parameter(str(place), shape, unit=str(place // 2)) for place, shape in enumerate(shapes)]
    numel = sum(one.numel for one in listed)
    node = {"ranks_per_node": world_size} if stage == "fsdp1_hybrid_shard" else {}
    ranks = [
        states(listed, stage=stage, world_size=world_size, rank=rank, optimizer="momentum", **node)
        for rank in range(world_size)
    ]
    for category in (Category.PARAMETERS, Category.GRADIENTS, Category.OPTIMIZER):
        held = [one[category] for one in ranks]
        assert sum(held) >= 4 * numel
        if stage in ("alone", "ddp", "ddp_bucket_view", "fsdp1_no_shard"):
            assert held == [4 * numel] * world_size


@given(rows=st.integers(0, 40), parts=st.integers(1, 12))
def test_rows_are_dealt_as_torch_chunks_them(rows, parts) -> None:
    chunks = [len(one) for one in torch.chunk(torch.zeros(rows, 2), parts)] if rows else []
    dealt = [rows_of(rows, parts=parts, index=index) for index in range(parts)]
    assert dealt == chunks + [0] * (parts - len(chunks))


@pytest.mark.parametrize(
    ("stage", "times"),
    [("ddp", 2), ("zero1", 2), ("zero2", 2), ("zero3", 3), ("fsdp1_shard_grad_op", 2), ("fsdp1_no_shard", 2)],
)
def test_what_is_sent_in_units_of_all_parameters(stage, times) -> None:
    listed = [Parameter("weight", (64, 64), unit="layer")]
    assert sum(payload(listed, stage=stage, world_size=4).values()) == times * 64 * 64 * 4 * 3 // 4


def test_what_stays_with_the_root_is_gathered_once() -> None:
    inside, root = (Parameter(name, (64, 64), unit=name) for name in ("layer", ""))
    both = sum(payload([inside, root], stage="fsdp2", world_size=4).values())
    assert both == (3 + 2) * 64 * 64 * 4 * 3 // 4


@settings(deadline=None)
@given(
    stage=st.sampled_from(sorted(STAGES)),
    world_size=st.sampled_from([1, 2, 4]),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    checkpoint=st.integers(0, 3),
)
def test_a_simulated_step_ends_where_it_began(stage, world_size, optimizer, checkpoint) -> None:
    widths = [6, 9, 5, 7]
    parameters = parameters_of(MLP(widths), wrapped=["0", "2"])
    node = {"ranks_per_node": max(1, world_size // 2)} if stage == "fsdp1_hybrid_shard" else {}
    facts = {"stage": stage, "world_size": world_size, "optimizer": optimizer, **node}
    trace = simulate(parameters, mlp(widths, batch=3, checkpoint=checkpoint), **facts)
    assert trace.truth == "simulated"
    for rank in range(world_size):
        kept = states(parameters, rank=rank, **facts)
        after = at_end(trace, rank=rank, phase="optimizer")
        assert {category: after[category] for category in kept} == kept
        samples = [one for one in trace.memory if one.rank == rank]
        assert samples[-1][Category.PARAMETERS] == kept[Category.PARAMETERS]
        assert samples[-1][Category.OPTIMIZER] == kept[Category.OPTIMIZER]
        assert samples[-1][Category.ACTIVATIONS] == samples[0][Category.ACTIVATIONS] == (3 * 6 + 3 * 7) * 4
        assert samples[-1][Category.TEMPORARY] == 0
        assert min(min(one.nbytes) for one in samples) >= 0
        assert peak(trace, rank=rank).total >= sum(kept.values())


def test_one_rank_of_many_is_predicted_alone() -> None:
    widths = [6, 9, 5, 7]
    facts = {"stage": "fsdp2", "world_size": 512}
    trace = simulate(parameters_of(MLP(widths)), mlp(widths, batch=3), ranks=[0, 511], **facts)
    assert {one.rank for one in trace.memory} == {0, 511}


ONE = [Parameter("0.weight", (2, 2)), Parameter("0.bias", (2,))]
TWO = [Parameter("a", (2, 2)), Parameter("b", (2,))]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: states(TWO, stage="zero4", world_size=2), "choose ddp"),
        (lambda: states(TWO, stage="ddp", world_size=0), "world_size=0"),
        (lambda: states(TWO, stage="ddp", world_size=2, rank=2), "from 0 to 1"),
        (lambda: states(TWO, stage="ddp", world_size=2, rank=-1), "from 0 to 1"),
        (lambda: states(TWO, stage="ddp", world_size=2, optimizer="lion"), "choose sgd"),
        (lambda: states(TWO, stage="ddp", world_size=2, dtype="int8"), "give float32"),
        (lambda: states(TWO, stage="ddp", world_size=2, master_weights=True), "dtype='bfloat16'"),
        (lambda: states(TWO, stage="fsdp1_hybrid_shard", world_size=4), "divides world_size=4"),
        (lambda: states(TWO, stage="fsdp1_hybrid_shard", world_size=4, ranks_per_node=3), "divides world_size=4"),
        (lambda: states(TWO, stage="fsdp2", world_size=4, ranks_per_node=2), "leave out ranks_per_node"),
        (lambda: states([TWO[0]] * 2, stage="ddp", world_size=2), "different names"),
        (lambda: states([], stage="ddp", world_size=2), "different names"),
        (lambda: states([Parameter("a", ())], stage="fsdp2", world_size=2), "scalar a"),
        (
            lambda: states([*TWO, Parameter("c", (1,), trainable=False)], stage="fsdp1_no_shard", world_size=2),
            "c, which",
        ),
        (lambda: states([Parameter("c", (1,), trainable=False)], stage="ddp", world_size=2), "no parameter"),
        (lambda: Parameter("a", (2, -1)), "from 0 on"),
        (lambda: simulate(TWO, mlp([2, 2], batch=1), stage="ddp", world_size=1), "0.bias"),
        (lambda: simulate(ONE, mlp([2, 2], batch=1), stage="ddp", world_size=1, dtype="bfloat16"), "both the same"),
    ],
)
def test_wrong_calls_are_told_what_to_give(call, says) -> None:
    with pytest.raises(UsageError, match=says):
        call()
