"""Bytes that forward keeps for backward: the closed forms beside what autograd really keeps."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lablib.errors import UsageError
from lablib.sim.activations import Activations, mlp, transformer
from lablib.training.memory_models import MLP, Transformer


def kept(model: nn.Module, inputs: Tensor, *, autocast: bool = False) -> dict[str, int]:
    """Return the bytes of the storages that autograd keeps, without parameters, by the innermost module."""
    seen = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    alive: list[Tensor] = []
    inside: list[str] = []
    found: dict[str, int] = {}
    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda _, __, name=name: inside.append(name))
        module.register_forward_hook(lambda *_: forget(inside.pop()))

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in seen:
            seen.add(tensor.untyped_storage().data_ptr())
            alive.append(tensor.detach())  # so that no later tensor gets its address
            found[inside[-1]] = found.get(inside[-1], 0) + tensor.untyped_storage().nbytes()
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=autocast),
    ):
        model(inputs)
    return found


def forget(_: object) -> None:
    """Return nothing: what a hook returns would take the place of the output."""


def check(predicted: Activations, measured: dict[str, int], *, by_module: bool) -> None:
    assert predicted.nbytes == sum(measured.values())
    if by_module:
        assert {name: nbytes for name, nbytes in predicted if nbytes} == measured


PRECISIONS = [("float32", False), ("bfloat16", False), ("float32", True)]
precisions = pytest.mark.parametrize(("dtype", "autocast"), PRECISIONS)


@settings(deadline=None)
@given(
    widths=st.lists(st.integers(1, 20), min_size=2, max_size=6),
    batch=st.integers(1, 9),
    activation=st.sampled_from(["relu", "gelu"]),
    precision=st.sampled_from(PRECISIONS),
    checkpoint=st.integers(0, 5),
)
def test_an_mlp_keeps_what_is_predicted(widths, batch, activation, precision, checkpoint) -> None:
    dtype, autocast = precision
    checkpoint = min(checkpoint, len(widths) - 1)
    model = MLP(widths, activation=activation, checkpoint=checkpoint).to(getattr(torch, dtype))
    inputs = torch.randn(batch, widths[0], dtype=getattr(torch, dtype))
    predicted = mlp(widths, batch=batch, activation=activation, dtype=dtype, autocast=autocast, checkpoint=checkpoint)
    check(predicted, kept(model, inputs, autocast=autocast), by_module=not checkpoint)


@precisions
@pytest.mark.parametrize("checkpoint", ["none", "full", "selective"])
@pytest.mark.parametrize("attention", ["math", "flash"])
def test_a_transformer_keeps_what_is_predicted(attention, checkpoint, dtype, autocast) -> None:
    facts = {"layers": 3, "hidden": 24, "heads": 2, "attention": attention, "checkpoint": checkpoint, "mlp_ratio": 3}
    model = Transformer(**facts).to(getattr(torch, dtype))
    inputs = torch.randn(3, 10, 24, dtype=getattr(torch, dtype))
    predicted = transformer(**facts, batch=3, sequence=10, dtype=dtype, autocast=autocast)
    check(predicted, kept(model, inputs, autocast=autocast), by_module=checkpoint != "full")


@pytest.mark.parametrize(
    ("attention", "checkpoint", "form"),
    [
        ("math", "none", lambda t, s, rows, heads: 16 * t + s + 4 * rows),
        ("flash", "none", lambda t, s, rows, heads: 16 * t + 4 * rows + heads * rows),
        ("math", "selective", lambda t, s, rows, heads: 16 * t + 4 * rows),
        ("math", "full", lambda t, s, rows, heads: t),
    ],
)
def test_a_block_follows_its_formula(attention, checkpoint, form) -> None:
    sizes = {"batch": 2, "sequence": 64, "hidden": 32, "heads": 4}
    predicted = transformer(layers=5, attention=attention, checkpoint=checkpoint, **sizes)
    rows = 2 * 64
    assert predicted.nbytes == 5 * 4 * form(rows * 32, rows * 4 * 64, rows, 4)


def test_gelu_keeps_twice_what_relu_keeps_and_bfloat16_half() -> None:
    widths = [64, 64, 64, 64]
    relu, gelu = (mlp(widths, batch=8, activation=name).nbytes for name in ("relu", "gelu"))
    assert gelu - relu == 2 * 8 * 64 * 4
    assert mlp(widths, batch=8, dtype="bfloat16").nbytes * 2 == relu


@pytest.mark.parametrize(("batch", "costs"), [(8, True), (1024, False)])
def test_autocast_costs_memory_where_the_batch_is_small(batch, costs) -> None:
    widths = [256] * 5
    assert (mlp(widths, batch=batch, autocast=True).nbytes > mlp(widths, batch=batch).nbytes) is costs


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: mlp([4], batch=1), "at least the numbers"),
        (lambda: mlp([4, 0], batch=1), r"widths\[1\]=0"),
        (lambda: mlp([4, 4], batch=-1), "batch=-1"),
        (lambda: mlp([4, 4], batch=1, activation="tanh"), "choose relu, gelu"),
        (lambda: mlp([4, 4], batch=1, dtype="int64"), "no gradients"),
        (lambda: mlp([4, 4], batch=1, dtype="bfloat16", autocast=True), "float32 model"),
        (lambda: mlp([4, 4, 4], batch=1, checkpoint=3), "1 to 2 segments"),
        (lambda: transformer(layers=1, batch=1, sequence=4, hidden=10, heads=4), "try 12"),
        (lambda: transformer(layers=1, batch=1, sequence=4, hidden=8, heads=4, attention="x"), "math, flash"),
        (lambda: transformer(layers=1, batch=1, sequence=4, hidden=8, heads=4, checkpoint="x"), "none, full"),
    ],
)
def test_wrong_models_are_told_what_to_give(call, says) -> None:
    with pytest.raises(UsageError, match=says):
        call()
