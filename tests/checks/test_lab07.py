"""Lab 07's checks: the solution passes, each known mistake gets its own reason, on two real ranks."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from stranger import Stranger
from torch import nn

from lablib import Cluster, Link
from lablib.checks import NOT_ATTEMPTED, PASSED, lab07
from lablib.errors import RunTimeout
from lablib.parallel.data_parallel import Bucketed, Overlapped, Synchronous, fill
from lablib.sim.plan import chain

pytestmark = pytest.mark.slow

PLAN = chain([0.25] * 6, forward_ms=2, backward_ms=15, bias_nbytes=4)
LINK = Link(latency_ms=2.5, bandwidth_mib_s=25)
USED = ["tied", "middle", "tied", "last"]
FIRED = ["last", "middle", "tied"]
SEEN = {"in the hook": 1.0, "after backward": 1.0, "after finish": 1.5}
TRAVELS = {"parameters": 1, "buffers": 21, "gradients": 20}
VERSIONS = {"Synchronous": 210, "Overlapped": 135, "Bucketed": 105}
DATA = {"weights": True, "indices": False, "data set, unseeded": False, "data set, seeded": True}


@pytest.mark.parametrize(
    "verdict",
    [
        lab07.order(FIRED, USED, FIRED),
        lab07.seen(SEEN, SEEN),
        lab07.travels(TRAVELS, TRAVELS),
        lab07.versions(VERSIONS, PLAN, LINK),
        lab07.same_data(DATA, DATA),
    ],
)
def test_right_answers_pass(verdict):
    assert verdict == PASSED


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (lab07.order(["tied", "middle", "last"], USED, FIRED), "do not fire in forward's order"),
        (lab07.order(USED, USED, FIRED), "has one hook"),
        (lab07.order(USED[::-1], USED, FIRED), "fires once"),
        (lab07.order(["last", "tied", "middle"], USED, FIRED), "the sum over both uses"),
        (lab07.order(["middle", "last", "tied"], USED, FIRED), "from the loss to the input"),
        (lab07.order(["head"], USED, FIRED), "head is none of the layers"),
        (lab07.seen({**SEEN, "in the hook": 1.5}, SEEN), "nothing has travelled yet"),
        (lab07.seen({**SEEN, "after backward": 1.5}, SEEN), "knows nothing of other ranks"),
        (lab07.seen({**SEEN, "after finish": 3}, SEEN), "that is the sum"),
        (lab07.seen({**SEEN, "after finish": 1}, SEEN), "puts the mean"),
        (lab07.travels({**TRAVELS, "parameters": 20}, TRAVELS), "does not synchronise parameters every step"),
        (lab07.travels({**TRAVELS, "parameters": 0}, TRAVELS), "nobody but rank 0"),
        (lab07.travels({**TRAVELS, "buffers": 20}, TRAVELS), "at the start they travel, too"),
        (lab07.travels({**TRAVELS, "buffers": 1}, TRAVELS), "no gradient keeps buffers equal"),
        (lab07.travels({**TRAVELS, "gradients": 40}, TRAVELS), "in the same call"),
        (lab07.versions({**VERSIONS, "Synchronous": 120}, PLAN, LINK), "that is the link alone"),
        (lab07.versions({**VERSIONS, "Synchronous": 90}, PLAN, LINK), "computing alone"),
        (lab07.versions({**VERSIONS, "Overlapped": 210}, PLAN, LINK), "the first call leaves"),
        (lab07.versions({**VERSIONS, "Overlapped": 120}, PLAN, LINK), "cannot begin before the first gradient"),
        (lab07.versions({**VERSIONS, "Bucketed": 135}, PLAN, LINK), "paid half as often"),
        (lab07.versions({**VERSIONS, "Bucketed": 155}, PLAN, LINK), "one bucket for everything"),
        (lab07.versions({"Synchronous": 210}, PLAN, LINK), "Overlapped is missing"),
        (lab07.same_data({**DATA, "weights": False}, DATA), "gave rank 0's to all"),
        (lab07.same_data({**DATA, "data set, unseeded": True}, DATA), "draws its own"),
    ],
)
def test_a_known_mistake_is_named(verdict, reason):
    assert verdict.status == "failed"
    assert reason in verdict.reason


# Wrappers, judged on two real ranks, which stay warm between the tests.


@pytest.fixture(scope="module")
def pair():
    with Cluster(2, backend="gloo") as pair:
        yield pair


@pytest.fixture
def run(pair):
    return pair.run


class Start(nn.Module):
    """Step 1 as the lab has it."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.detach(), src=0)

    def forward(self, x):
        for buffer in self.module.buffers():
            dist.broadcast(buffer, src=0)
        return self.module(x)


class Bare(Start):
    def __init__(self, module):
        nn.Module.__init__(self)
        self.module = module


class NoBuffers(Bare):
    def __init__(self, module):
        super().__init__(module)
        for parameter in module.parameters():
            dist.broadcast(parameter.detach(), src=0)


class OnlyTrained(Bare):
    def __init__(self, module):
        super().__init__(module)
        for tensor in [*filter(lambda one: one.requires_grad, module.parameters()), *module.buffers()]:
            dist.broadcast(tensor.detach(), src=0)


class FromRank1(Bare):
    def __init__(self, module):
        super().__init__(module)
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.detach(), src=1)


class Averaged(Bare):
    def __init__(self, module):
        super().__init__(module)
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.all_reduce(tensor.detach())
            tensor.detach().div_(2)


class BuffersOnce(Start):
    def forward(self, x):
        return self.module(x)


class ParametersAlways(Start):
    def forward(self, x):
        for parameter in self.module.parameters():
            dist.broadcast(parameter.detach(), src=0)
        return super().forward(x)


class Mute(Start):
    def forward(self, x):
        super().forward(x)


class OneRankOnly(Bare):
    def __init__(self, module):
        super().__init__(module)
        if dist.get_rank() == 0:
            for tensor in [*module.parameters(), *module.buffers()]:
                dist.broadcast(tensor.detach(), src=0)


def trained(module):
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


class After(Start):
    """Average after backward; what differs is in `reduce`."""

    def finish(self):
        for parameter in trained(self.module):
            self.reduce(parameter)

    def reduce(self, parameter):
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


class NoDivision(After):
    def reduce(self, parameter):
        dist.all_reduce(parameter.grad)


class Twice(After):
    def reduce(self, parameter):
        super().reduce(parameter)
        parameter.grad /= 2


class NoCall(After):
    def reduce(self, parameter):
        pass


class OnACopy(After):
    def reduce(self, parameter):
        flat = parameter.grad.clone()
        dist.all_reduce(flat)
        flat /= 2


class EveryParameter(After):
    def finish(self):
        for parameter in self.module.parameters():
            self.reduce(parameter)


class FrozenToo(After):
    def finish(self):
        for parameter in self.module.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            self.reduce(parameter)


class ByName(After):
    def finish(self):
        for _, parameter in self.module.named_parameters(remove_duplicate=False):
            if parameter.requires_grad:
                self.reduce(parameter)


class ByNameDividedOnce(ByName):
    def reduce(self, parameter):
        dist.all_reduce(parameter.grad)

    def finish(self):
        super().finish()
        for parameter in trained(self.module):
            parameter.grad /= 2


class UnwaitedAfter(After):
    def reduce(self, parameter):
        dist.all_reduce(parameter.grad, async_op=True)
        parameter.grad /= 2


class FromBare(After):
    def __init__(self, module):
        nn.Module.__init__(self)
        self.module = module


class RankZeroOnly(After):
    def finish(self):
        if dist.get_rank() == 0:
            super().finish()


class RanksDisagree(After):
    def finish(self):
        some = trained(self.module)
        for parameter in some if dist.get_rank() == 0 else some[::-1]:
            self.reduce(parameter)


class Early(Start):
    """Begin calls during backward."""

    def __init__(self, module):
        super().__init__(module)
        self.works = []
        for parameter in trained(module):
            parameter.register_post_accumulate_grad_hook(self.ready)

    def ready(self, parameter):
        self.works.append((dist.all_reduce(parameter.grad, async_op=True), parameter))

    def finish(self):
        for work, parameter in self.works:
            work.wait()
            parameter.grad /= 2
        self.works.clear()


class NeverWaits(Early):
    def finish(self):
        for _, parameter in self.works:
            parameter.grad /= 2
        self.works.clear()


class DividesAtOnce(Early):
    def ready(self, parameter):
        super().ready(parameter)
        parameter.grad /= 2

    def finish(self):
        for work, _ in self.works:
            work.wait()
        self.works.clear()


class NeverClears(Early):
    def finish(self):
        for work, parameter in self.works:
            work.wait()
            parameter.grad /= 2


class HooksOnAll(Early):
    def __init__(self, module):
        Start.__init__(self, module)
        self.works = []
        for parameter in module.parameters():
            parameter.register_post_accumulate_grad_hook(self.ready)


class BlocksInBackward(Early):
    def ready(self, parameter):
        dist.all_reduce(parameter.grad)
        self.works.append(parameter)

    def finish(self):
        for parameter in self.works:
            parameter.grad /= 2
        self.works.clear()


class InBuckets(Start):
    """Send buckets in strict order; `joined` and `copied_back` and `sends` differ in wrong answers."""

    def __init__(self, module, cap_mb=25):
        super().__init__(module)
        self.buckets = fill(trained(module)[::-1], cap_mb=cap_mb)
        self.missing = [len(bucket) for bucket in self.buckets]
        self.sent = []
        for parameter in trained(module):
            parameter.register_post_accumulate_grad_hook(self.ready)

    def ready(self, parameter):
        place = next(k for k, bucket in enumerate(self.buckets) if any(one is parameter for one in bucket))
        self.missing[place] -= 1
        while self.may_send(len(self.sent)):
            self.send(len(self.sent))

    def may_send(self, place):
        return place < len(self.buckets) and not self.missing[place]

    def send(self, place):
        flat = torch.cat([one.grad.flatten() for one in self.buckets[place]])
        self.sent.append((dist.all_reduce(flat, async_op=True), flat, self.buckets[place]))

    def finish(self):
        for work, flat, bucket in self.sent:
            work.wait()
            self.copy_back(flat / 2, bucket)
        self.begin_anew()

    def copy_back(self, flat, bucket):
        for one, part in zip(bucket, flat.split([one.numel() for one in bucket]), strict=True):
            one.grad = part.view_as(one)

    def begin_anew(self):
        self.sent.clear()
        self.missing = [len(bucket) for bucket in self.buckets]


class NotCopiedBack(InBuckets):
    def copy_back(self, flat, bucket):
        pass


class PartsMixedUp(InBuckets):
    def copy_back(self, flat, bucket):
        super().copy_back(flat, bucket[::-1])


class LastNeverSent(InBuckets):
    def may_send(self, place):
        return place < len(self.buckets) - 1 and not self.missing[place]


class CountersStay(InBuckets):
    def begin_anew(self):
        self.sent.clear()


class AsTheyFill(InBuckets):
    def ready(self, parameter):
        place = next(k for k, bucket in enumerate(self.buckets) if any(one is parameter for one in bucket))
        self.missing[place] -= 1
        if not self.missing[place]:
            self.send(place)


class AllAtTheEnd(InBuckets):
    def ready(self, parameter):
        pass

    def finish(self):
        for place in range(len(self.buckets)):
            self.send(place)
        super().finish()


class OneBucket(InBuckets):
    def __init__(self, module, cap_mb=25):
        super().__init__(module, cap_mb=25)


class UnwaitedBuckets(InBuckets):
    def finish(self):
        for _, flat, bucket in self.sent:
            self.copy_back(flat / 2, bucket)
        self.begin_anew()


class OneCallEach(Early):
    def __init__(self, module, cap_mb=25):
        super().__init__(module)


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (lab07.same_start, Start),
        (lab07.same_start, Synchronous),
        (lab07.synchronous, After),
        (lab07.synchronous, Synchronous),
        (lab07.overlapped, Early),
        (lab07.overlapped, Overlapped),
        (lab07.bucketed, InBuckets),
        (lab07.bucketed, Bucketed),
    ],
)
def test_a_right_wrapper_passes(run, check, answer):
    assert check(answer, run) == PASSED


@pytest.mark.parametrize(
    ("check", "answer", "reason"),
    [
        (lab07.same_start, Bare, "keep their own weights"),
        (lab07.same_start, NoBuffers, "the buffers are not"),
        (lab07.same_start, OnlyTrained, "the frozen layer differs"),
        (lab07.same_start, FromRank1, "rank 0's shall win"),
        (lab07.same_start, Averaged, "numbers that rank 0 did not have"),
        (lab07.same_start, BuffersOnce, "in every forward"),
        (lab07.same_start, ParametersAlways, "sends the parameters, too"),
        (lab07.same_start, Mute, "return what it returns"),
        (lab07.same_start, OneRankOnly, "rank 0 broadcast of 16, rank 1 no call"),
        (lab07.synchronous, Start, "finish() after backward: it is missing"),
        (lab07.synchronous, FromBare, "step 1 comes first: the ranks keep their own"),
        (lab07.synchronous, NoDivision, "divide by the world size"),
        (lab07.synchronous, Twice, "divided twice"),
        (lab07.synchronous, NoCall, "nothing was averaged"),
        (lab07.synchronous, OnACopy, "was not copied back"),
        (lab07.synchronous, EveryParameter, "a frozen parameter has no gradient"),
        (lab07.synchronous, FrozenToo, "the frozen layer travels"),
        (lab07.synchronous, ByName, "the tied weight travels twice"),
        (lab07.synchronous, ByNameDividedOnce, "the tied weight is added up twice"),
        (lab07.synchronous, UnwaitedAfter, "nobody waited"),
        (lab07.synchronous, RankZeroOnly, "rank 0 all_reduce of 16, rank 1 no call"),
        (lab07.synchronous, RanksDisagree, "the same calls, in the same order"),
        (lab07.synchronous, Early, "that is step 3"),
        (lab07.overlapped, NeverWaits, "nobody waited"),
        (lab07.overlapped, DividesAtOnce, "divide only after wait()"),
        (lab07.overlapped, NeverClears, "something of an earlier step is still there"),
        (lab07.overlapped, HooksOnAll, "a hook on the frozen parameter"),
        (lab07.overlapped, After, "every call is made after backward"),
        (lab07.overlapped, BlocksInBackward, "backward stands still"),
        (lab07.bucketed, NotCopiedBack, "was not copied back"),
        (lab07.bucketed, PartsMixedUp, "change places"),
        (lab07.bucketed, LastNeverSent, "the last bucket was never sent"),
        (lab07.bucketed, CountersStay, "something of an earlier step is still there"),
        (lab07.bucketed, AsTheyFill, "must wait for those before it"),
        (lab07.bucketed, AllAtTheEnd, "every call is made after backward"),
        (lab07.bucketed, OneBucket, "one call for everything"),
        (lab07.bucketed, UnwaitedBuckets, "nobody waited"),
        (lab07.bucketed, OneCallEach, "one call a parameter"),
    ],
)
def test_a_wrong_wrapper_is_told_why(run, check, answer, reason):
    verdict = check(answer, run)
    assert verdict.status == "failed"
    assert reason in verdict.reason


class OpenStart(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = ...


class OnOpenStart(OpenStart):
    def finish(self):
        pass


class OpenFinish(Start):
    def finish(self): ...


def test_open_answers_are_not_attempted():
    assert lab07.same_start(OpenStart, None) == lab07.synchronous(OpenFinish, None) == NOT_ATTEMPTED
    assert lab07.order(..., USED, FIRED) == lab07.seen({**SEEN, "in the hook": ...}, SEEN) == NOT_ATTEMPTED
    assert lab07.travels(..., TRAVELS) == lab07.versions(..., PLAN, LINK) == NOT_ATTEMPTED
    assert lab07.same_data(..., DATA) == NOT_ATTEMPTED
    assert "builds on it" in lab07.synchronous(OnOpenStart, None).reason


JUNK = [None, True, "", "x", b"x", 7, float("nan"), [], [[]], {}, {"Synchronous": Stranger()}, Stranger(), print, int]


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_junk_fails_with_a_reason(junk):
    def no_ranks(*args, **options):
        raise RunTimeout("time is up")

    answers = [check(junk, no_ranks) for check in (lab07.same_start, lab07.synchronous, lab07.bucketed)]
    answers += [lab07.order(junk, USED, FIRED), lab07.seen(junk, SEEN), lab07.travels(junk, TRAVELS)]
    answers += [
        lab07.versions(junk, PLAN, LINK),
        lab07.same_data(junk, DATA),
        lab07.versions({"Synchronous": junk}, PLAN, LINK),
    ]
    assert all(verdict.status == "failed" and verdict.reason for verdict in answers)
