"""The checks of lab 13: what is right passes, and every usual mistake is told its own reason."""

import pytest
import torch

from lablib import checks
from lablib.checks import lab13
from lablib.sim.activations import mlp

EACH = {
    "SGD": 8,
    "SGD with momentum": 12,
    "Adam": 16,
    "Adam, all in bfloat16": 8,
    "Adam under DDP": 20,
    "Adam under DDP, gradient_as_bucket_view=True": 16,
}
MEASURED_EACH = {name: nbytes + 0.00006 for name, nbytes in EACH.items()}
RECIPE = {"parameters": 2, "gradients": 2, "master copy": 4, "Adam's two": 8}
P = 132_096
PEAKS = {0: 19_947_524, 1: 17_065_000, 2: 14_708_800, 3: 14_704_700, 4: 15_753_400, 8: 19_947_524}
AUTOCAST = {16: [40, 89], 32: [80, 113], 64: [160, 161], 128: [320, 257], 256: [640, 449]}
SHRINKS = {"parameters": False, "gradients": False, "optimizer state": False, "activations": True}
FREED = {"DDP": 4, "gradient_as_bucket_view=True": 0}
WHERE = {"batch of 32": "optimizer", "batch of 512": "backward"}


def closed_form(batch):
    return sum(nbytes for _, nbytes in mlp([128] * 9, batch=batch))


def kept(batch):
    return 8 * batch * 128 * 4


def peak(batch):
    return 12 * P + 13 * batch * 512


def largest_batch(budget):
    return (budget - 12 * P) // (13 * 512)


RIGHT = [
    (lab13.each, (EACH, MEASURED_EACH)),
    (lab13.recipe, (RECIPE,)),
    (lab13.billions, (5,)),
    (lab13.where, (WHERE, WHERE)),
    (lab13.heavy, (1 << 18, 1 << 18)),
    (lab13.kept, (kept, closed_form)),
    (lab13.crossing, (517, P)),
    (lab13.best, (3, PEAKS)),
    (lab13.best, (2, PEAKS)),
    (lab13.smallest, (128, AUTOCAST)),
    (lab13.shrinks, (SHRINKS, SHRINKS)),
    (lab13.freed, (FREED, FREED)),
    (lab13.fits, (largest_batch, peak, 6 << 20)),
]


@pytest.mark.parametrize(("check", "given"), RIGHT)
def test_what_is_right_passes(check, given):
    assert repr(check(*given)) == "passed"


@pytest.mark.parametrize(("check", "given"), RIGHT)
def test_what_is_open_is_not_attempted(check, given):
    assert repr(check(..., *given[1:])) == "not attempted"


@pytest.mark.parametrize(("check", "given"), RIGHT)
@pytest.mark.parametrize("nonsense", [None, "many", {"a": 1}, [], lambda: 1, float("nan")])
def test_nonsense_fails_with_what_is_wanted(check, given, nonsense):
    verdict = check(nonsense, *given[1:])
    assert verdict.status == "failed"
    assert verdict.reason


@pytest.mark.parametrize(
    ("name", "guess", "said"),
    [
        ("SGD", 4, "their gradients are there until zero_grad"),
        ("SGD with momentum", 8, "momentum is kept"),
        ("Adam", 12, "Adam keeps two numbers"),
        ("Adam", 8, "that is Adam's own part"),
        ("Adam", 18, "18 is a recipe of mixed precision"),
        ("Adam, all in bfloat16", 16, "every number has 2 bytes here"),
        ("Adam, all in bfloat16", 12, "in the type of the parameters"),
        ("Adam under DDP", 16, "DDP has buckets, too"),
        ("Adam under DDP", 8, "DDP shards nothing"),
        ("Adam under DDP", 24, "one copy of the gradients, not two"),
        ("Adam under DDP, gradient_as_bucket_view=True", 20, "the same memory, counted once"),
    ],
)
def test_each(name, guess, said):
    reason = lab13.each(EACH | {name: guess}, MEASURED_EACH).reason
    assert reason.startswith(f"{name}: ")
    assert said in reason


@pytest.mark.parametrize(
    ("name", "guess", "said"),
    [
        ("parameters", 4, "they are in bfloat16 here"),
        ("gradients", 4, "come to 18"),
        ("master copy", 2, "too coarse"),
        ("Adam's two", 4, "two numbers, in float32 each"),
        ("Adam's two", 12, "has its own line"),
    ],
)
def test_recipe(name, guess, said):
    assert said in lab13.recipe(RECIPE | {name: guess}).reason


@pytest.mark.parametrize(
    ("guess", "said"), [(40, "parameters alone"), (20, "not all"), (5e9, "in billions"), (7, "divide")]
)
def test_billions(guess, said):
    assert said in lab13.billions(guess).reason


@pytest.mark.parametrize(
    ("name", "guess", "said"),
    [
        ("batch of 32", "backward", "Adam then needs room"),
        ("batch of 32", "forward", "activations are little"),
        ("batch of 512", "forward", "one moment later"),
        ("batch of 512", "Optimizer ", "they are gone when the optimizer steps"),
        ("batch of 512", "never", 'write "forward"'),
    ],
)
def test_where(name, guess, said):
    assert said in lab13.where(WHERE | {name: guess}, WHERE).reason


@pytest.mark.parametrize(
    ("guess", "said"),
    [
        (4, "in the same memory"),
        (0, "it is a tensor"),
        (512 * 128, "each has 4 bytes"),
        (512, "one sample's"),
        (7, "as many squares"),
    ],
)
def test_heavy(guess, said):
    assert said in lab13.heavy(guess, 1 << 18).reason


def test_a_loss_keeps_the_memory_of_all_its_squares():
    loss = torch.nn.functional.mse_loss(torch.ones(16, 8), torch.zeros(16, 8))
    assert loss.untyped_storage().nbytes() == 16 * 8 * 4


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda batch: batch * 128 * 4, "one layer's input"),
        (lambda batch: 8 * batch * 128, "a float32 has 4 bytes"),
        (lambda batch: 16 * batch * 128 * 4, "count it once"),
        (lambda batch: 15 * batch * 128 * 4, "count it once"),
        (lambda batch: 9 * batch * 128 * 4, "no layer's input"),
        (lambda batch: 7 * batch * 128 * 4, "the first layer keeps its input, too"),
        (lambda batch: 8 * 128 * 128 * 4, "those are the weights"),
        (lambda batch: 0, "count the inputs"),
    ],
)
def test_kept(function, said):
    assert said in lab13.kept(function, closed_form).reason


@pytest.mark.parametrize(
    ("guess", "said"),
    [
        (130, "more than the parameters"),
        (259, "all of it stays"),
        (646, "no DDP here"),
        (516, "not more yet"),
        (2000, "divide what stays"),
    ],
)
def test_crossing(guess, said):
    assert said in lab13.crossing(guess, P).reason


@pytest.mark.parametrize(
    ("guess", "said"),
    [
        (0, "without checkpointing"),
        (1, "at once"),
        (8, "nothing is saved"),
        (4, "1.00 MiB above the lowest peak"),
        (5, "was not tried"),
    ],
)
def test_best(guess, said):
    assert said in lab13.best(guess, PEAKS).reason


@pytest.mark.parametrize(
    ("guess", "said"), [(16, "costs more"), (64, "costs more"), (256, "smaller batch"), (100, "not tried")]
)
def test_smallest(guess, said):
    assert said in lab13.smallest(guess, AUTOCAST).reason


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("parameters", "whatever the batch"),
        ("gradients", "added up in place"),
        ("optimizer state", "depends on the parameters only"),
        ("activations", "one part's activations"),
    ],
)
def test_shrinks(name, said):
    assert said in lab13.shrinks(SHRINKS | {name: not SHRINKS[name]}, SHRINKS).reason
    assert lab13.shrinks(SHRINKS | {name: "yes"}, SHRINKS).reason == f"{name}: got a str; wanted: True or False"


@pytest.mark.parametrize(
    ("name", "guess", "said"),
    [
        ("DDP", 8, "the buckets stay"),
        ("DDP", 0, "tensors of their own"),
        ("gradient_as_bucket_view=True", 4, "the bucket that it looked at stays"),
    ],
)
def test_freed(name, guess, said):
    assert said in lab13.freed(FREED | {name: guess}, FREED).reason


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda budget: (budget - 16 * P) // (13 * 512), "the gradients are not there yet"),
        (lambda budget: (budget - 12 * P) // (8 * 512), "what stays, or what all layers keep, is not all counted"),
        (lambda budget: (budget - 12 * P) // (12 * 512), "what backward makes while it runs"),
        (lambda budget: budget // (13 * 512), "out of memory"),
        (lambda budget: (12 * P - budget) // (13 * 512), "order of your terms"),
        (lambda budget: budget // 4, "the budget is in bytes"),
    ],
)
def test_fits(function, said):
    assert said in checks.lab13.fits(function, peak, 6 << 20).reason
