"""Lab 04's checks: the solution passes, each known mistake gets its own reason, and nothing raises."""

import numpy as np
import pytest
import torch
from stranger import Stranger

from lablib import RunTimeout
from lablib.checks import NOT_ATTEMPTED, PASSED, lab04
from lablib.checks.lab04_rows import wrong_weights

GUESS = {"DDP": [0, 3.5], "one process": [1, 3]}
PHASES = ("constructor", "forward 0", "backward 0", "forward 1", "backward 1", "forward 2", "backward 2")
SILENT = {"Linear": ("forward 0", "forward 2"), "with BatchNorm": ()}
CALLS = {
    model: {phase: [] if phase in silent else ["all_reduce"] for phase in PHASES} for model, silent in SILENT.items()
}
TALK = {model: [phase for phase, calls in found.items() if calls] for model, found in CALLS.items()}
SAME = {
    "weights before DDP": False,
    "weights after DDP": True,
    "momentum after DDP": False,
    "gradient of the weight": True,
    "gradient of the bias": False,
}
LINEAR = ["SGD", "momentum", "Nesterov", "weight decay"]
GAPS = dict.fromkeys(LINEAR, 2e-16) | {"Adam": 0.5, "AdamW": 0.5, "Adagrad": 0.3, "RMSprop": 4.4}
CLIPPED = {"clip, then average": 2e-7, "average, then clip": 0.9999997}
NORMAL = {
    "weights on both ranks, after a step": True,
    "running mean on both ranks, after a step": False,
    "running mean on both ranks, inside the next forward": True,
    "gradient of DDP and of the big batch": False,
}
MORE = {"global batch": 16, "steps": 4, "one sample": 1 / 16}
SHARE = {"mean of the ranks": 5 / 8, "all samples": 4 / 7}


def guessed(name, value):
    return lab04.two_gradients({**GUESS, name: value}, [0.0, 3.5], [1.0, 3.0])


def talked(model, *, without=None, beside=None):
    phases = [phase for phase in TALK[model] if phase != without] + [beside] * (beside is not None)
    return lab04.talk({**TALK, model: phases}, CALLS)


def same(name, value):
    return lab04.copies({**SAME, name: value}, SAME)


def normal(name, value):
    return lab04.batch_norm({**NORMAL, name: value}, NORMAL)


def clipped(name, value):
    return lab04.clip({"clip, then average": 0, "average, then clip": 1, name: value}, CLIPPED)


def more(name, value):
    return lab04.more_ranks({**MORE, name: value})


def shared(name, value):
    return lab04.two_accuracies({**SHARE, name: value})


def off(lr):
    """Return how far off an epoch ends whose right learning rate is 0.04."""
    return abs(lr - 0.04) / 0.04


@pytest.mark.parametrize(
    "verdict",
    [
        lab04.two_gradients(GUESS, [0.0, 3.5], [1.0000001, 3.0]),
        guessed("DDP", torch.tensor([0.0, 3.5])),
        lab04.forgot("(a)"),
        same("gradient of the bias", np.False_),
        lab04.weight(lambda n, total, ranks: ranks * n / total),
        lab04.weight(lambda n, total, ranks: torch.tensor(n * ranks / total)),
        lab04.multiple(0.5, 2),
        lab04.talk(TALK, CALLS),
        lab04.talk({model: set(phases) for model, phases in TALK.items()}, CALLS),
        lab04.copies(SAME, SAME),
        lab04.bug_line(8),
        lab04.rows([4, 3], [4, 3]),
        lab04.commute(LINEAR, GAPS),
        lab04.commute(tuple(reversed(LINEAR)), GAPS),
        lab04.clip({"clip, then average": 0, "average, then clip": 1.0}, CLIPPED),
        lab04.forgot(" A"),
        lab04.batch_norm(NORMAL, NORMAL),
        lab04.more_ranks(MORE),
        more("one sample", np.float32(0.0625)),
        lab04.learning_rate(0.041, 0.01, off),
        lab04.two_accuracies(SHARE),
        shared("all samples", 0.57),
        shared("mean of the ranks", 0.63),
    ],
)
def test_right_answers_pass(verdict):
    assert verdict == PASSED


@pytest.mark.parametrize(
    "verdict",
    [
        lab04.two_gradients({"DDP": ..., "one process": ...}, [0.0, 3.5], [1.0, 3.0]),
        lab04.multiple(..., 2),
        lab04.bug_line(...),
        lab04.rows(..., [4, 3]),
        lab04.commute(..., GAPS),
        lab04.forgot(...),
        lab04.learning_rate(..., 0.01, off),
        same("weights after DDP", ...),
        talked("Linear", beside=...),
    ],
)
def test_what_is_left_open_is_not_attempted(verdict):
    assert verdict == NOT_ATTEMPTED


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (guessed("DDP", [1, 3]), "does not know how many samples"),
        (guessed("DDP", [0, 7]), "that is the sum"),
        (guessed("DDP", [7, 0]), "rank 0's own"),
        (guessed("DDP", [5, 5]), "divide by the number of ranks"),
        (guessed("DDP", [0, 3.5, 1]), "DDP: got 3 items"),
        (guessed("one process", [0, 3.5]), "mean of two means"),
        (guessed("one process", [-1, 4]), "weights are swapped"),
        (guessed("one process", [7, 21]), "sum over the samples"),
        (lab04.multiple(1, 2), "divides the sum of the gradients by the number of ranks"),
        (lab04.multiple(2, 2), "and divides by the number of ranks"),
        (lab04.multiple(4 / 7, 2), "sums need no weights"),
        (lab04.multiple(0.3, 2), "only DDP divides"),
        (talked("Linear", without="constructor"), "Linear, constructor: models may differ"),
        (talked("Linear", without="forward 1"), "Linear, forward 1: once the first backward"),
        (talked("Linear", beside="forward 0"), "Linear, forward 0: weights are equal already"),
        (talked("with BatchNorm", without="forward 2"), "with BatchNorm, forward 2: BatchNorm has buffers"),
        (talked("with BatchNorm", without="backward 0"), "in every backward"),
        (talked("Linear", beside="optimizer"), "optimizer is none of constructor, forward 0"),
        (lab04.talk({"Linear": TALK["Linear"]}, CALLS), "with BatchNorm is missing"),
        (same("weights before DDP", True), "its own random weights"),
        (same("weights after DDP", False), "gives rank 0's weights to everyone"),
        (same("momentum after DDP", True), "none of DDP's business"),
        (same("gradient of the bias", True), "the bias was frozen then"),
        (same("gradient of the bias", 1), "got 1; wanted: True or False"),
        (lab04.copies({"weights before DDP": False}, SAME), "weights after DDP is missing"),
        (lab04.bug_line(2), "how DDP is built on a CPU"),
        (lab04.bug_line(3), "the same parameters"),
        (lab04.bug_line(9), "averages gradients"),
        (lab04.bug_line(12), "lines 1 to 11"),
        (lab04.rows([7, 7], [4, 3]), "DDP gathers no outputs"),
        (lab04.rows([7, 0], [4, 3]), "that would be DataParallel"),
        (lab04.rows([3, 4], [4, 3]), "do not change places"),
        (lab04.commute(LINEAR[:1], GAPS), "momentum is missing: momentum is a weighted sum"),
        (lab04.commute(["SGD", "momentum", "Nesterov"], GAPS), "weight decay is missing: weight decay adds a multiple"),
        (lab04.commute([*LINEAR, "Adam"], GAPS), "Adam ends elsewhere: its step divides"),
        (lab04.commute([*LINEAR, "AdamW"], GAPS), "its decay would do no harm"),
        (lab04.commute(["Lion"], GAPS), "Lion is none of SGD"),
        (clipped("clip, then average", 3), "without clipping"),
        (clipped("clip, then average", 1), "rank 1's gradient is negative"),
        (clipped("average, then clip", 3), "longer than 1"),
        (clipped("average, then clip", 0), "the mean of 8 and -2 is not 0"),
        (clipped("average, then clip", "x"), "average, then clip: got a str; wanted: a number"),
        (lab04.forgot("b"), "averaged, not added"),
        (lab04.forgot("c"), "nothing is there that could differ"),
        (lab04.forgot("z"), "wanted: one of the letters"),
        (normal("weights on both ranks, after a step", False), "those are averaged"),
        (normal("running mean on both ranks, after a step", True), "a buffer has no gradient"),
        (normal("running mean on both ranks, inside the next forward", False), "rank 0's buffers go to everyone"),
        (normal("gradient of DDP and of the big batch", True), "mean and variance of its own batch"),
        (more("global batch", 4), "the batch of one rank"),
        (more("steps", 16), "four ranks use four batches"),
        (more("one sample", 0.25), "DDP then divides"),
        (more("one sample", 1), "a sample is one of many"),
        (lab04.learning_rate(0.01, 0.01, off), "75 % of the way off; a mean does not grow"),
        (lab04.learning_rate(0.02, 0.01, off), "a square root is a rule"),
        (lab04.learning_rate(0.0025, 0.01, off), "the other way round"),
        (lab04.learning_rate(0.03, 0.01, off), "how many steps must one of the new ones replace"),
        (lab04.learning_rate(-1, 0.01, off), "a number above 0"),
        (shared("mean of the ranks", 4 / 7), "knows nothing of counts"),
        (shared("mean of the ranks", 1.25), "sum of the shares"),
        (shared("all samples", 5 / 8), "mean of means"),
        (shared("all samples", 0.9), "count what is right"),
    ],
)
def test_a_known_mistake_is_named(verdict, reason):
    assert verdict.status == "failed"
    assert reason in verdict.reason


@pytest.mark.parametrize(
    ("weight", "reason"),
    [
        (lambda n, total, ranks: n / total, "DDP divides by the number of ranks on top"),
        (lambda n, total, ranks: 1, "DDP's plain mean"),
        (lambda n, total, ranks: total / n / ranks, "upside down"),
        (lambda n, total, ranks: ranks / total, "counts each rank the same"),
        (lambda n, total, ranks: n / ranks, "to undo that, multiply"),
        (lambda n, total, ranks: ranks * n, "the gradient of the sum"),
        (lambda n, total, ranks: 17, "add up to the number of ranks"),
        (lambda n, total, ranks: n / ranks / total, "that would be twice"),
        (lambda n, total, ranks: ranks, "the same for each rank"),
        (lambda n, total, ranks: 1 / ranks, "DDP divides by the number of ranks itself"),
        (lambda n, total, ranks: 1 / n, "the loss is a mean over n already"),
        (lambda n, total, ranks: None, "got None"),
        (lambda n: n, "raised TypeError"),
    ],
)
def test_a_wrong_weight_is_told_why(weight, reason):
    verdict = lab04.weight(weight)
    assert verdict.status == "failed"
    assert reason in verdict.reason


@pytest.mark.parametrize(("n", "total", "ranks"), [(4, 7, 2), (3, 7, 2)])
def test_the_right_weight_is_no_known_mistake(n, total, ranks):
    assert all(abs(wrong - ranks * n / total) > 0.01 for wrong, _ in wrong_weights(n, total, ranks))


def no_ranks(*args, **options):
    raise RunTimeout("time is up")


JUNK = [None, True, "", "x", b"x", 33, float("nan"), [], [[]], {}, {"DDP": Stranger(), "steps": "x"}, Stranger(), print]


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_junk_fails_with_a_reason(junk):
    answers = [
        lab04.two_gradients(junk, [0, 3.5], [1, 3]),
        lab04.weight(junk),
        lab04.multiple(junk, 2),
        lab04.talk(junk, CALLS),
        lab04.copies(junk, SAME),
        lab04.bug_line(junk),
        lab04.rows(junk, [4, 3]),
        lab04.commute(junk, GAPS),
        lab04.clip(junk, CLIPPED),
        lab04.forgot(junk),
        lab04.batch_norm(junk, NORMAL),
        lab04.more_ranks(junk),
        lab04.learning_rate(junk, 0.01, off),
        lab04.two_accuracies(junk),
        *(getattr(lab04, name)(junk, no_ranks) for name in ("of_the_sum", "word_loss", "train_step", "accuracy")),
    ]
    assert all(verdict.status == "failed" and verdict.reason for verdict in answers)
