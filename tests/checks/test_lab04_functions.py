"""The functions that lab 04 asks for, judged on real ranks, which stay warm between the tests."""

import pytest
import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss

from lablib import Cluster
from lablib.checks import PASSED, lab04

pytestmark = pytest.mark.slow


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


def doubled(loss):
    return loss * 2


def sixteen_words(losses, is_word):
    return losses.sum() * dist.get_world_size() / 16


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


def only_on_rank_0(correct, count):
    share = of_counts(correct, count)
    return share if dist.get_rank() == 0 else None


def reduced_to_rank_0(correct, count):
    right = torch.tensor(correct)
    dist.reduce(right, dst=0)
    return right.item() / count


def in_per_cent(correct, count):
    return 100 * of_counts(correct, count)


def of_seven(correct, count):
    right = torch.tensor(correct)
    dist.all_reduce(right)
    return right.item() / 7


def a_text(correct, count):
    return "57 %"


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


@pytest.mark.parametrize(
    ("check", "answer", "reason"),
    [
        ("of_the_sum", as_it_is, "a quarter of it"),
        ("of_the_sum", reduced_loss, "only what backward() starts from changes"),
        ("of_the_sum", divided, "a sixteenth of it"),
        ("of_the_sum", doubled, "a fixed 2 is right for two"),
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
        ("word_loss", sixteen_words, "right for 16 words only"),
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
        ("accuracy", only_on_rank_0, "rank 1: got None"),
        ("accuracy", reduced_to_rank_0, "all that is right, divided by this rank's samples"),
        ("accuracy", in_per_cent, "that is per cent"),
        ("accuracy", of_seven, "2 of 9 are right"),
    ],
)
def test_a_wrong_function_is_told_why(four, pair, check, answer, reason):
    ranks = four if check in ("of_the_sum", "word_loss") else pair
    verdict = getattr(lab04, check)(answer, ranks.run)
    assert verdict.status == "failed"
    assert reason in verdict.reason


def test_a_call_that_one_rank_makes_alone_is_a_wait(four):
    verdict = lab04.word_loss(one_rank_counts, lambda fn, *args, timeout: four.run(fn, *args, timeout=1.5))
    assert verdict.status == "failed"
    assert "every rank must make the same calls" in verdict.reason or "it went wrong" in verdict.reason
