"""Lab 04's problems: the numbers that its text promises, and the same everywhere."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss

from lablib import run
from lablib.training import gradients as problems


@pytest.mark.parametrize(("part", "wanted"), [((0, 4), (7, 0)), ((4, 7), (-7, 7)), ((0, 7), (1, 3))])
def test_the_seven_samples_have_the_gradients_that_the_text_says(part: tuple[int, int], wanted: object) -> None:
    model = problems.line(torch.float64)
    x, y = (numbers[slice(*part)] for numbers in problems.seven_samples(torch.float64))
    mse_loss(model(x), y).backward()  # type: ignore[no-untyped-call]
    assert problems.gradient_of(model).tolist() == pytest.approx(wanted, abs=1e-15)


def test_the_sentences_have_sixteen_words_and_their_plain_mean_leads_the_other_way() -> None:
    own, everything = [], problems.sentences()
    for words in (*everything, torch.cat(everything)):
        model = problems.WordCounter()
        cross_entropy(model(words), words).backward()  # type: ignore[no-untyped-call]
        own.append(problems.gradient_of(model))
    *own, true = own
    assert [int((words != problems.PADDING).sum()) for words in everything] == [8, 5, 2, 1]
    plain = torch.stack(own).mean(0)
    assert torch.cosine_similarity(plain, true, dim=0) < -0.9


def test_a_gradient_that_is_not_there_is_zeros() -> None:
    model = problems.net()
    assert problems.gradient_of(model).equal(torch.zeros(4 * 8 + 8 + 8 + 1))


def test_problems_are_the_same_in_every_process_and_leave_the_random_state_alone() -> None:
    def made() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, bool]:
        before = torch.random.get_rng_state()
        x, y = problems.regression(5)
        weights = problems.weights_of(problems.net())
        return x, y, weights, bool(torch.random.get_rng_state().equal(before))

    here = made()
    assert here[3]
    for there in run(made, world_size=2, backend="gloo"):
        assert all(torch.equal(one, other) for one, other in zip(here[:3], there[:3], strict=True))
        assert there[3]


def test_average_puts_the_mean_into_each_tensor() -> None:
    def averaged() -> tuple[float, list[float]]:
        import torch.distributed as dist

        one, two = torch.tensor(float(dist.get_rank())), torch.tensor([4.0 * dist.get_rank(), 1.0])
        problems.average([one, None, two])
        return one.item(), two.tolist()

    assert run(averaged, world_size=2, backend="gloo").values == [(0.5, [2.0, 1.0])] * 2


def test_apart_is_the_largest_difference() -> None:
    assert problems.apart(torch.tensor([1.0, 5.0]), torch.tensor([2.0, -1.0])) == 6.0
