"""Lab 14's checks: the solution passes, each known mistake gets its own reason, on four real ranks."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
import torch.distributed as dist

from lablib import Cluster
from lablib.checks import NOT_ATTEMPTED, PASSED, lab14
from lablib.parallel import zero

pytestmark = pytest.mark.slow

EACH = {"on one process": 16, "on each of four ranks": 16}
FIRST = {"DDP": 2, "first try": 3}
SENT = {"stage 1": 2, "stage 2": 2, "stage 3": 3}
DIVIDED = {
    "activations, beside DDP": 1.0,
    "multiplications, beside DDP": 1.0,
    "activations, beside one process": 0.25,
}
SIZES = {"0.weight": 6, "0.bias": 1, "2.weight": 20, "2.bias": 2}
NAMES = {"ZeroRedundancyOptimizer": True, "fully_shard": True, "fsdp_checkpointing": False}
UPDATES = {"rank 0": 20, "rank 1": 9}
BUDGET = {
    "smallest stage, 64 ranks of 40 GiB": 2,
    "ranks of 40 GiB, stage 2": 8,
    "ranks of 24 GiB, stage 3": 5,
    "the same, and 8 GiB of activations on each rank": 8,
    "GiB in stage 1 on a million ranks": 57.6,
}


def cut(numel, n):
    part = -(-numel // n)
    return part, n * part - numel


def held(stage, numel, n):
    part = -(-numel // n)
    return 4 * (part if stage == 3 else n * part), 4 * (n * part if stage == 1 else part), 8 * part + 4


def held_but(place, wrong):
    """Return the solution with another entry at one place, where `wrong` gives one."""

    def answer(stage, numel, n):
        right = list(held(stage, numel, n))
        other = wrong(stage, numel, n)
        right[place] = right[place] if other is None else other
        return right

    return answer


def test_the_budget_is_what_sixteen_bytes_a_parameter_make():
    gib = Fraction(288, 10) / 4  # for each byte of a parameter

    def fewest(room, whole, cut):
        return next(n for n in range(1, 1000) if whole * gib + cut * gib / n <= room)

    fits = [16 * gib, 8 * gib + 8 * gib / 64, 4 * gib + 12 * gib / 64, 16 * gib / 64]
    assert {
        "smallest stage, 64 ranks of 40 GiB": next(stage for stage, need in enumerate(fits) if need <= 40),
        "ranks of 40 GiB, stage 2": fewest(40, 4, 12),
        "ranks of 24 GiB, stage 3": fewest(24, 0, 16),
        "the same, and 8 GiB of activations on each rank": fewest(24 - 8, 0, 16),
        "GiB in stage 1 on a million ranks": float(8 * gib),
    } == BUDGET


@pytest.mark.parametrize(
    "verdict",
    [
        lab14.per_parameter(EACH),
        lab14.cut(cut),
        lab14.first_sent(FIRST, FIRST),
        lab14.sent(SENT, SENT),
        lab14.held(held),
        lab14.divided(DIVIDED, DIVIDED),
        lab14.updates(UPDATES, SIZES, UPDATES),
        lab14.names(NAMES, NAMES),
        lab14.budget(BUDGET),
        lab14.budget({**BUDGET, "GiB in stage 1 on a million ranks": 57.60006}),
    ],
)
def test_right_answers_pass(verdict):
    assert verdict == PASSED


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (lab14.per_parameter({**EACH, "on one process": 12}), "Adam keeps two numbers"),
        (lab14.per_parameter({**EACH, "on each of four ranks": 4}), "DDP divides the batch"),
        (lab14.per_parameter({**EACH, "on each of four ranks": 64}), "all ranks together"),
        (lab14.cut(lambda numel, n: (numel // n, 0)), "2 would be left over"),
        (lab14.cut(lambda numel, n: (numel / n, 0)), "no rank can have a part of a number"),
        (lab14.cut(lambda numel, n: (numel // n + 1, -numel % n)), "none is longer"),
        (lab14.cut(lambda numel, n: (-(-numel // n), numel % n)), "how many are missing in the last slice"),
        (lab14.cut(lambda numel, n: (-(-numel // n), n)), "all slices together, less the parameters"),
        (lab14.first_sent({**FIRST, "DDP": 1}, FIRST), "sums go round, then results"),
        (lab14.first_sent({**FIRST, "first try": 2}, FIRST), "the new slices come on top"),
        (lab14.sent({**SENT, "stage 1": 3}, SENT), "half of it is enough"),
        (lab14.sent({**SENT, "stage 2": 1}, SENT), "was never sent"),
        (lab14.sent({**SENT, "stage 3": 2}, SENT), "backward reads them, too"),
        (lab14.sent({**SENT, "stage 3": 4}, SENT), "the next forward does"),
        (lab14.held(held_but(2, lambda s, p, n: 8 * -(-p // n))), "counts its steps"),
        (lab14.held(held_but(2, lambda s, p, n: 4 * -(-p // n) + 4)), "two numbers for each parameter"),
        (lab14.held(held_but(2, lambda s, p, n: 8 * p + 4)), "every stage cuts the state"),
        (lab14.held(held_but(2, lambda s, p, n: 12 * -(-p // n) + 4)), "keeps no copy"),
        (lab14.held(held_but(2, lambda s, p, n: 8 * (p // n) + 4)), "those have a state, too"),
        (lab14.held(held_but(2, lambda s, p, n: 1)), "two numbers for each in the slice"),
        (lab14.held(held_but(0, lambda s, p, n: 4 * p if s < 3 else None)), "they take memory as well"),
        (lab14.held(held_but(0, lambda s, p, n: 4 * -(-p // n))), "stage 1 does not cut the parameters"),
        (lab14.held(held_but(0, lambda s, p, n: 4 * n * -(-p // n))), "that is all of them: stage 3 keeps a slice"),
        (lab14.held(held_but(0, lambda s, p, n: 4 * p / n if s == 3 else None)), "the last ends with zeros"),
        (lab14.held(held_but(1, lambda s, p, n: 4 * -(-p // n))), "stage 1 does not cut the gradients"),
        (lab14.held(held_but(1, lambda s, p, n: 4 * n * -(-p // n))), "all of them: stage 2 keeps a slice"),
        (lab14.held(held_but(1, lambda s, p, n: 4 * (p // n) if s > 1 else None)), "the last ends with zeros"),
        (lab14.divided({**DIVIDED, "activations, beside DDP": 0.25}, DIVIDED), "divides no activations"),
        (lab14.divided({**DIVIDED, "multiplications, beside DDP": 0.25}, DIVIDED), "no model parallelism"),
        (lab14.divided({**DIVIDED, "activations, beside one process": 1}, DIVIDED), "a quarter of the rows"),
        (lab14.updates({**UPDATES, "rank 0": 14}, SIZES, UPDATES), "cuts no parameter in two"),
        (lab14.updates({**UPDATES, "rank 0": 29}, SIZES, UPDATES), "each rank updates a part"),
        (lab14.updates({"rank 0": 9, "rank 1": 20}, SIZES, UPDATES), "another rank's: rank 0 is first"),
        (lab14.updates({**UPDATES, "rank 1": 18}, SIZES, UPDATES), "that is the state"),
        (lab14.updates({"rank 0": 20}, SIZES, UPDATES), "rank 1 is missing"),
        (lab14.names({**NAMES, "fsdp_checkpointing": True}, NAMES), "no file of torch"),
        (lab14.names({**NAMES, "fully_shard": False}, NAMES), "newer interface"),
        (lab14.budget({**BUDGET, "smallest stage, 64 ranks of 40 GiB": 1}), "whole in stage 1: 57.6 GiB"),
        (lab14.budget({**BUDGET, "ranks of 40 GiB, stage 2": 3}), "keeps all parameters"),
        (lab14.budget({**BUDGET, "ranks of 24 GiB, stage 3": 4}), "round up"),
        (lab14.budget({**BUDGET, "the same, and 8 GiB of activations on each rank": 5}), "on top: 16 GiB are left"),
        (
            lab14.budget({**BUDGET, "the same, and 8 GiB of activations on each rank": 6}),
            "divides the activations, too",
        ),
        (lab14.budget({**BUDGET, "GiB in stage 1 on a million ranks": 0}), "only the state is cut"),
    ],
)
def test_a_known_mistake_is_named(verdict, reason):
    assert verdict.status == "failed"
    assert reason in verdict.reason


# Stages, judged on real ranks, which stay warm between the tests.


@pytest.fixture(scope="module")
def four():
    with Cluster(4, backend="gloo") as four:
        yield four


class First(zero.Sliced):
    """Stage 1 as the lab has it first; what differs in wrong answers is a method."""

    def reduce(self):
        gradient = self.joined_gradient()
        self.average(gradient)
        self.mine.grad = gradient.chunk(self.n)[self.owner()]

    def average(self, gradient):
        dist.all_reduce(gradient)
        gradient /= self.n

    def owner(self):
        return self.rank

    def step(self):
        self.optimizer.step()
        self.gather()


class NoMean(First):
    def average(self, gradient):
        dist.all_reduce(gradient)


class AveragedTwice(First):
    def average(self, gradient):
        super().average(gradient)
        gradient /= self.n


class NoCall(First):
    def average(self, gradient):
        pass


class OnACopy(First):
    def average(self, gradient):
        dist.all_reduce(gradient.clone())


class Rank0s(First):
    def owner(self):
        return 0


class NoGradient(First):
    def reduce(self):
        self.average(self.joined_gradient())


class GatheredBefore(First):
    def step(self):
        self.gather()
        self.optimizer.step()


class NeverGathered(First):
    def step(self):
        self.optimizer.step()


class NeverStepped(First):
    def step(self):
        self.gather()


class SteppedTwice(First):
    def step(self):
        self.optimizer.step()
        super().step()


class RankZeroOnly(First):
    def average(self, gradient):
        if self.rank == 0:
            super().average(gradient)


class Open(First):
    def step(self): ...


class OnOpen(Open):
    def step(self):
        self.optimizer.step()


class Second(First):
    """Stage 2 as the lab has it."""

    def reduce(self):
        mine = torch.empty_like(self.mine)
        dist.reduce_scatter(mine, list(self.joined_gradient().chunk(self.n)))
        for parameter in self.trained:
            parameter.grad = None
        self.mine.grad = mine / self.n


class AllKept(Second):
    def reduce(self):
        mine = torch.empty_like(self.mine)
        dist.reduce_scatter(mine, list(self.joined_gradient().chunk(self.n)))
        self.mine.grad = mine / self.n


class AView(Second):
    def reduce(self):
        slices = list(self.joined_gradient().chunk(self.n))
        mine = slices[self.rank]
        dist.reduce_scatter(mine, slices)
        for parameter in self.trained:
            parameter.grad = None
        mine /= self.n
        self.mine.grad = mine


class Third(Second):
    """Stage 3 as the lab has it."""

    def __init__(self, module, make_optimizer):
        super().__init__(module, make_optimizer)
        self.mine.data = self.mine.detach().clone()
        self.free()

    def forward(self, x):
        self.gather()
        output = self.module(x)
        output.register_hook(lambda gradient: self.gather())
        self.free()
        return output

    def reduce(self):
        super().reduce()
        self.free()

    def step(self):
        self.optimizer.step()


class NotInForward(Third):
    def forward(self, x):
        return self.module(x)


class NotInBackward(Third):
    def forward(self, x):
        self.gather()
        output = self.module(x)
        self.free()
        return output


class KeptAfterForward(Third):
    def forward(self, x):
        self.gather()
        return self.module(x)


class KeptAfterReduce(Third):
    def reduce(self):
        Second.reduce(self)


class GatheredInStep(Third):
    def step(self):
        self.optimizer.step()
        self.gather()


class Mute(Third):
    def forward(self, x):
        super().forward(x)


RIGHT = [
    (lab14.first_try, First),
    (lab14.first_try, zero.Stage1AllReduce),
    (lab14.first_try, zero.Stage1),
    (lab14.stage_1, zero.Stage1),
    (lab14.stage_1, Second),
    (lab14.stage_2, Second),
    (lab14.stage_2, zero.Stage2),
    (lab14.stage_3, Third),
    (lab14.stage_3, zero.Stage3),
]


@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_a_right_stage_passes(four, check, answer):
    assert check(answer, four.run) == PASSED


def test_two_ranks_judge_as_well():
    with Cluster(2, backend="gloo") as pair:
        assert {check(answer, pair.run) for check, answer in RIGHT} == {PASSED}


@pytest.mark.parametrize(
    ("check", "answer", "reason"),
    [
        (lab14.first_try, NoMean, "the sum over the ranks: divide by n"),
        (lab14.first_try, AveragedTwice, "divided by n twice"),
        (lab14.first_try, NoCall, "this rank's own: reduce makes no call"),
        (lab14.first_try, OnACopy, "use what the call has brought"),
        (lab14.first_try, Rank0s, "rank 1 has the gradient of rank 0's slice"),
        (lab14.first_try, NoGradient, "mine.grad is None"),
        (lab14.first_try, GatheredBefore, "gathered before the optimizer's step"),
        (lab14.first_try, NeverGathered, "nobody has fetched them"),
        (lab14.first_try, NeverStepped, "steps 0 times"),
        (lab14.first_try, SteppedTwice, "steps twice"),
        (lab14.first_try, zero.Sliced, "the method reduce is missing"),
        (lab14.first_try, OnOpen, "the stage before comes first"),
        (lab14.first_try, 3, "got no class"),
        (lab14.stage_1, First, "an all_reduce sends everybody's mean to everyone"),
        (lab14.stage_2, zero.Stage1, "the gradients of all parameters are still there"),
        (lab14.stage_2, AllKept, "the gradients of all parameters are still there"),
        (lab14.stage_2, AView, "a view of a longer vector"),
        (lab14.stage_3, NotInForward, "no memory in forward"),
        (lab14.stage_3, NotInBackward, "no memory in backward"),
        (lab14.stage_3, KeptAfterForward, "still there when forward is over"),
        (lab14.stage_3, KeptAfterReduce, "still there after reduce"),
        (lab14.stage_3, GatheredInStep, "the next forward does it again"),
        (lab14.stage_3, Mute, "must return what the model returns"),
        (lab14.stage_3, Second, "still there when forward is over"),
    ],
)
def test_a_wrong_stage_is_told_what_is_wrong(four, check, answer, reason):
    verdict = check(answer, four.run)
    assert verdict.status == "failed"
    assert reason in verdict.reason


def test_an_open_stage_is_not_attempted(four):
    assert lab14.first_try(Open, four.run) == NOT_ATTEMPTED


def test_ranks_that_wait_for_ever_are_told(four, monkeypatch):
    monkeypatch.setattr(lab14, "_SECONDS", 2.0)
    assert "every rank must make the same calls" in lab14.first_try(RankZeroOnly, four.run).reason
