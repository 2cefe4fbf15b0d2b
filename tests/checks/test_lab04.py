"""Lab 04's checks: the solution passes, each known mistake gets its own reason, and nothing raises."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss

from lablib import Cluster, RunTimeout
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
        (same("gradient of the bias", 1), "True or False is wanted"),
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
        (clipped("average, then clip", "x"), "average, then clip: got a str"),
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
        (lambda n, total, ranks: 17, "make the number of ranks"),
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
    assert all(abs(wrong - ranks * n / total) > 0.01 for wrong in wrong_weights(n, total, ranks))


def no_ranks(*args, **options):
    raise RunTimeout("time is up")


JUNK = [None, True, "", "x", b"x", 333, float("nan"), [], [[]], {}, {"DDP": object(), "steps": "x"}, object(), print]


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


# The functions, judged on real ranks, which stay warm between the tests.


@pytest.fixture(scope="module")
def four():
    with Cluster(4, backend="gloo") as four:
        yield four


@pytest.fixture(scope="module")
def pair():
    with Cluster(2, backend="gloo") as pair:
        yield pair


def times_ranks(loss):
    return loss * dist.get_world_size()


def as_it_is(loss):
    return loss


def divided(loss):
    return loss / 4


def squared(loss):
    return loss * 16


def mean_of_all(loss):
    return loss * 4 / 10


def by_own_samples(loss):
    return loss * 4 / (dist.get_rank() + 1)


def reduced_loss(loss):
    total = loss.detach().clone()
    dist.all_reduce(total)
    return loss + (total - loss).detach()


def cut_off(loss, *rest):
    return loss.sum().detach()


def as_number(loss, *rest):
    return loss.sum().item()


def by_words(losses, is_word):
    words = is_word.sum()
    dist.all_reduce(words)
    return losses.sum() * dist.get_world_size() / words


def by_mean_words(losses, is_word):
    words = is_word.sum().float()
    dist.all_reduce(words)
    return losses.sum() / (words / 4)


def weighted_mean(losses, is_word):
    words = is_word.sum()
    total = words.clone()
    dist.all_reduce(total)
    return losses[is_word].mean() * 4 * words / total


def own_mean(losses, is_word):
    return losses.sum() / is_word.sum()


def own_mean_by_ranks(losses, is_word):
    return 4 * own_mean(losses, is_word)


def words_without_ranks(losses, is_word):
    return by_words(losses, is_word) / 4


def with_padding(losses, is_word):
    return losses.mean()


def sums_of_words(losses, is_word):
    return losses.sum()


def reduced_losses(losses, is_word):
    both = torch.stack([losses.detach().sum(), is_word.sum()])
    dist.all_reduce(both)
    loss = losses.sum()
    return (loss + (both[0] - loss).detach()) / both[1]


def one_rank_counts(losses, is_word):
    words = is_word.sum()
    if dist.get_rank() == 0:
        dist.all_reduce(words)
    return losses.sum() * 4 / words


def synchronised(model, ddp_model, optimizer, features, labels):
    optimizer.zero_grad()
    mse_loss(ddp_model(features), labels).backward()
    optimizer.step()


def cleared_afterwards(model, ddp_model, optimizer, features, labels):
    mse_loss(ddp_model(features), labels).backward()
    optimizer.step()
    optimizer.zero_grad()


def by_hand(model, ddp_model, optimizer, features, labels):
    optimizer.zero_grad()
    mse_loss(model(features), labels).backward()
    for weight in model.parameters():
        dist.all_reduce(weight.grad)
        weight.grad /= 2
    optimizer.step()


def bypassed(model, ddp_model, optimizer, features, labels):
    optimizer.zero_grad()
    mse_loss(model(features), labels).backward()
    optimizer.step()


def unwrapped(model, ddp_model, optimizer, features, labels):
    bypassed(ddp_model.module, ddp_model, optimizer, features, labels)


def never_cleared(model, ddp_model, optimizer, features, labels):
    mse_loss(ddp_model(features), labels).backward()
    optimizer.step()


def never_steps(model, ddp_model, optimizer, features, labels):
    optimizer.zero_grad()
    mse_loss(ddp_model(features), labels).backward()


def summing(model, ddp_model, optimizer, features, labels):
    optimizer.zero_grad()
    mse_loss(ddp_model(features), labels, reduction="sum").backward()
    optimizer.step()


def of_counts(correct, count):
    both = torch.tensor([correct, count])
    dist.all_reduce(both)
    return both[0] / both[1]


def mean_of_shares(correct, count):
    share = torch.tensor(correct / count)
    dist.all_reduce(share)
    return share.item() / dist.get_world_size()


def sum_of_shares(correct, count):
    return 2 * mean_of_shares(correct, count)


def own_share(correct, count):
    return correct / count


def right_ones(correct, count):
    total = torch.tensor(correct)
    dist.all_reduce(total)
    return total


def right_ones_of_mine(correct, count):
    return right_ones(correct, count).item() / count


def by_ranks_too(correct, count):
    return of_counts(correct, count) / 2


def a_text(correct, count):
    return "57 %"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "answer"),
    [
        ("of_the_sum", times_ranks),
        ("word_loss", by_words),
        ("word_loss", by_mean_words),
        ("word_loss", weighted_mean),
        ("train_step", synchronised),
        ("train_step", cleared_afterwards),
        ("train_step", by_hand),
        ("accuracy", of_counts),
    ],
)
def test_a_right_function_passes(four, pair, check, answer):
    ranks = four if check in ("of_the_sum", "word_loss") else pair
    assert getattr(lab04, check)(answer, ranks.run) == PASSED


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "answer", "reason"),
    [
        ("of_the_sum", as_it_is, "a quarter of it"),
        ("of_the_sum", reduced_loss, "only what backward() starts from changes"),
        ("of_the_sum", divided, "a sixteenth of it"),
        ("of_the_sum", squared, "divides by the number of ranks once only"),
        ("of_the_sum", mean_of_all, "the gradient of the mean over all samples"),
        ("of_the_sum", by_own_samples, "number of samples plays no part"),
        ("of_the_sum", cut_off, "still hangs on the model"),
        ("of_the_sum", as_number, "still hangs on the model"),
        ("word_loss", own_mean, "each rank divides by its own number of words"),
        ("word_loss", own_mean_by_ranks, "each rank divides by its own number of words"),
        ("word_loss", words_without_ranks, "on top of your division by all words"),
        ("word_loss", reduced_losses, "on top of your division by all words"),
        ("word_loss", with_padding, "padding was counted, too; there are 32 places"),
        ("word_loss", sums_of_words, "nobody divides by the number of words"),
        ("word_loss", cut_off, "still hangs on the model"),
        ("train_step", bypassed, "the wrapper is bypassed"),
        ("train_step", unwrapped, "the wrapper is bypassed"),
        ("train_step", never_cleared, "gradients of earlier steps"),
        ("train_step", never_steps, "no weight has changed"),
        ("train_step", summing, "off those of one process"),
        ("accuracy", mean_of_shares, "mean of the ranks' accuracies"),
        ("accuracy", sum_of_shares, "sum of the ranks' accuracies"),
        ("accuracy", own_share, "this rank's own"),
        ("accuracy", right_ones, "how many are right"),
        ("accuracy", right_ones_of_mine, "divided by this rank's samples"),
        ("accuracy", by_ranks_too, "nothing is to be divided by the number of ranks"),
        ("accuracy", a_text, "got a str, and a number is wanted"),
    ],
)
def test_a_wrong_function_is_told_why(four, pair, check, answer, reason):
    ranks = four if check in ("of_the_sum", "word_loss") else pair
    verdict = getattr(lab04, check)(answer, ranks.run)
    assert verdict.status == "failed"
    assert reason in verdict.reason


@pytest.mark.slow
def test_a_call_that_one_rank_makes_alone_is_a_wait(four):
    verdict = lab04.word_loss(one_rank_counts, lambda fn, *args, timeout: four.run(fn, *args, timeout=1.5))
    assert verdict.status == "failed"
    assert "every rank must make the same calls" in verdict.reason or "it went wrong" in verdict.reason
