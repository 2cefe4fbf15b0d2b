"""Lab 05's checks: the solution passes, each known mistake gets its own reason, and nothing raises."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from stranger import Stranger
from torch.utils.data import DataLoader, DistributedSampler

from lablib import Cluster, RunTimeout
from lablib.checks import NOT_ATTEMPTED, PASSED, lab05
from lablib.checks.lab05_rows import COUNTED, EPOCHS, FEW, FIRST_LOOK, LENGTHS, LOST, TEN, TEN_MISTAKES
from lablib.sim.shards import Sharding, accuracy
from lablib.training.sampling import shards

pytestmark = pytest.mark.slow

RIGHT = {
    "first_look": {name: right for name, (right, *_) in FIRST_LOOK.items()},
    "few": {name: right for name, (right, *_) in FEW.items()},
    "epochs": {name: right for name, (right, *_) in EPOCHS.items()},
    "lengths": {name: right for name, (right, *_) in LENGTHS.items()},
    "counted": {name: right for name, (right, *_) in COUNTED.items()},
}
NEVER = 0.321


def changed(check, name, value):
    return getattr(lab05, check)({**RIGHT[check], name: value})


@pytest.mark.parametrize(
    "verdict",
    [
        *(getattr(lab05, check)(right) for check, right in RIGHT.items()),
        changed("first_look", "letters of rank 0", ("a", " E ")),
        lab05.ten([[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]]),
        lab05.ten(torch.tensor(TEN)),
        lab05.lost({9, 8}),
        changed("few", "torch says", " C "),
        lab05.never_seen(0.32, NEVER),
        lab05.never_seen(0.75**4, NEVER),
        changed("lengths", "len(loader)", np.int64(196)),
        lab05.shuffled_twice("B"),
        lab05.own_data("b"),
        lab05.workers("a"),
        changed("counted", "as counted", 8 / 12),
        changed("counted", "exact", torch.tensor(0.8)),
    ],
)
def test_right_answers_pass(verdict):
    assert verdict == PASSED


def test_the_right_answers_are_torchs():
    letters = shards(Sharding(8, 4, shuffle=False))
    assert RIGHT["first_look"]["letters of rank 0"] == tuple("ABCDEFGH"[i] for i in letters.indices(epoch=0, rank=0))
    assert tuple(shards(Sharding(10, 4, shuffle=False)).indices(epoch=0, rank=rank) for rank in range(4)) == TEN
    assert shards(Sharding(10, 4, shuffle=False, drop_last=True)).never(epoch=0) == LOST[0]
    assert len(shards(Sharding(3, 8, shuffle=False)).repeats(epoch=0)[0]) == RIGHT["few"]["ranks that see sample 0"]
    assert set(shards(Sharding(3, 8, drop_last=True)).lengths(epoch=0)) == {0}
    for called, name in ((False, "without"), (True, "with")):
        table = shards(Sharding(12, 4, 3, epochs=3, set_epoch=called))
        assert len(set(table.batches)) == RIGHT["epochs"][f"different orders {name} set_epoch"]
        assert table.again(epoch=1) == ()
    own = DistributedSampler(range(50_000), 8, 0)
    loader = DataLoader(range(50_000), batch_size=32, sampler=own)
    assert (len(own), len(loader)) == (RIGHT["lengths"]["samples of a rank"], RIGHT["lengths"]["len(loader)"])
    found = accuracy(shards(Sharding(10, 4, shuffle=False)), [False, False] + [True] * 8)
    assert RIGHT["counted"] == {"as counted": round(found.as_counted, 3), "exact": found.exact}


@pytest.mark.parametrize(
    "verdict",
    [
        changed("first_look", "letters of rank 0", ...),
        lab05.ten([[0, 4, 8], ..., ..., ...]),
        lab05.lost(...),
        changed("few", "torch says", ...),
        changed("epochs", "different orders with set_epoch", ...),
        lab05.never_seen(..., NEVER),
        changed("lengths", "samples in a step", ...),
        lab05.shuffled_twice(...),
        lab05.own_data(...),
        lab05.workers(...),
        changed("counted", "exact", ...),
        lab05.same_data(..., None),
        lab05.exact_accuracy(..., None),
        lab05.resume(...),
    ],
)
def test_open_answers_are_not_attempted(verdict):
    assert verdict == NOT_ATTEMPTED


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (changed("first_look", "letters loaded without a sampler", 8), "DDP splits no data"),
        (changed("first_look", "letters loaded without a sampler", 16), "those are batches"),
        (changed("first_look", "letters loaded with a sampler", 32), "that is without"),
        (changed("first_look", "letters loaded with a sampler", 2), "one rank's share"),
        (changed("first_look", "letters of rank 0", ["A", "B"]), "those would be blocks"),
        (changed("first_look", "letters of rank 0", list("ABCDEFGH")), "that is without a sampler"),
        (changed("first_look", "letters of rank 0", ["A"]), "deals in turn"),
        (changed("first_look", "letters of rank 0", 3), "letters of rank 0: got 3"),
        (lab05.first_look({}), "letters loaded without a sampler: missing"),
        *((lab05.ten(wrong), reason[:30]) for wrong, reason in TEN_MISTAKES.items()),
        (lab05.ten([[0, 1], [2], [3], [4]]), "every rank gets equally many"),
        (lab05.ten([[9, 8, 7], [6, 5, 4], [3, 2, 1], [0, 9, 8]]), "dealt in turn"),
        (lab05.lost([]), "drops what is left over"),
        (lab05.lost([9]), "two are left over"),
        (lab05.lost([0, 1]), "seen twice without drop_last"),
        (lab05.lost([1, 2, 3]), "two rounds of dealing"),
        (changed("few", "ranks that see sample 0", 1), "the list goes round until"),
        (changed("few", "ranks that see sample 0", 2), "more than twice"),
        (changed("few", "steps of a rank with drop_last", 1), "one round of dealing needs 8"),
        (changed("few", "torch says", "a"), "a loader may be empty"),
        (changed("few", "torch says", "b"), "no warning either"),
        (changed("few", "torch says", "z"), 'choose "a", "b" or "c"'),
        (changed("epochs", "different orders without set_epoch", 3), "shuffle=True is not enough"),
        (changed("epochs", "different orders with set_epoch", 1), "another one each time"),
        (changed("epochs", "samples that two ranks see", 12), "all ranks deal the same order"),
        (lab05.never_seen(0, NEVER), "the ranks no longer share one list"),
        (lab05.never_seen(0.25, NEVER), "one rank sees"),
        (lab05.never_seen(0.75, NEVER), "all four must miss"),
        (lab05.never_seen(0.684, NEVER), "the share that is seen"),
        (lab05.never_seen(0.5, NEVER), "with what probability"),
        (lab05.never_seen(32, NEVER), "got 32, which is no share"),
        (changed("lengths", "samples of a rank", 50_000), "deals them to 8 ranks"),
        (changed("lengths", "len(loader)", 1563), "that is without a sampler"),
        (changed("lengths", "len(loader)", 25), "batch_size is per rank"),
        (changed("lengths", "len(loader)", 195), "the last batch is not full, and it counts"),
        (changed("lengths", "samples in a step", 32), "one rank's batch"),
        (changed("lengths", "samples in a step", 4), "batch_size is per rank"),
        (changed("lengths", "len(loader) with drop_last in the loader", 196), "not full: it goes"),
        (lab05.shuffled_twice("a"), "the sampler's business alone"),
        (lab05.shuffled_twice("c"), "exclude each other"),
        (lab05.shuffled_twice("d"), "wanted: one of the letters"),
        (lab05.own_data("a"), "another sample on each rank"),
        (lab05.own_data("c"), "nothing compares the data"),
        (lab05.workers("b"), "in the sampler's order"),
        (lab05.workers("c"), "they split nothing again"),
        (changed("counted", "as counted", 0.8), "are counted twice"),
        (changed("counted", "as counted", 10 / 12), "adds to the count"),
        (changed("counted", "exact", 8 / 12), "that is as counted"),
    ],
)
def test_a_known_mistake_is_named(verdict, reason):
    assert verdict.status == "failed"
    assert reason in verdict.reason


# Resuming is judged in this process, for samplers of all ranks.


def rest(sampler, epoch, steps, batch_size):
    sampler.set_epoch(epoch)
    return list(sampler)[steps * batch_size :]


def rest_by_iterator(sampler, epoch, steps, batch_size):
    sampler.set_epoch(epoch)
    left = iter(sampler)
    for _ in range(steps * batch_size):
        next(left)
    return left


def of_epoch_0(sampler, epoch, steps, batch_size):
    return list(sampler)[steps * batch_size :]


def anew(sampler, epoch, steps, batch_size):
    sampler.set_epoch(epoch)
    return list(sampler)


def steps_for_samples(sampler, epoch, steps, batch_size):
    sampler.set_epoch(epoch)
    return list(sampler)[steps:]


def all_ranks(sampler, epoch, steps, batch_size):
    sampler.set_epoch(epoch)
    return list(sampler)[steps * batch_size * sampler.num_replicas :]


def what_was_seen(sampler, epoch, steps, batch_size):
    sampler.set_epoch(epoch)
    return list(sampler)[: steps * batch_size]


def a_batch_too_many(sampler, epoch, steps, batch_size):
    return rest(sampler, epoch, steps + 1, batch_size)


def a_sample_too_few(sampler, epoch, steps, batch_size):
    sampler.set_epoch(epoch)
    return list(sampler)[max(0, steps * batch_size - 1) :]


def nothing(sampler, epoch, steps, batch_size):
    return None


def raises(*_):
    raise KeyError("no")


def test_resuming_exactly_passes_by_list_or_iterator():
    assert lab05.resume(rest) == lab05.resume(rest_by_iterator) == PASSED


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (of_epoch_0, "that is the order of epoch 0"),
        (anew, "the epoch begins anew"),
        (steps_for_samples, "steps are batches"),
        (all_ranks, "this sampler gives one rank's share only"),
        (what_was_seen, "that is what was seen already"),
        (a_batch_too_many, "6 of 24 are never seen"),
        (a_sample_too_few, "2 of 24 are seen again"),
        (nothing, "got no list of indices"),
        (raises, "your answer raised KeyError"),
    ],
)
def test_resuming_wrongly_is_told_why(answer, reason):
    verdict = lab05.resume(answer)
    assert verdict.status == "failed"
    assert reason in verdict.reason


JUNK = [None, True, "", "x", b"x", -7, float("nan"), [], [[]], {}, {"exact": Stranger()}, Stranger(), print, int]


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_junk_fails_with_a_reason(junk):
    def no_ranks(*args, **options):
        raise RunTimeout("time is up")

    names = ("ten", "lost", "shuffled_twice", "own_data", "workers", "resume", *RIGHT)
    answers = [getattr(lab05, name)(junk) for name in names]
    answers += [lab05.same_data(junk, no_ranks), lab05.exact_accuracy(junk, no_ranks)]
    answers += [changed(check, name, junk) for check, right in RIGHT.items() for name in right]
    answers.append(lab05.never_seen(junk, NEVER))
    assert all(verdict.status == "failed" and verdict.reason for verdict in answers)


# The other functions are judged on four real ranks, which stay warm between the tests.


@pytest.fixture(scope="module")
def cluster():
    with Cluster(4, backend="gloo") as cluster:
        yield cluster


def my_part(samples):
    return range(dist.get_rank(), samples, dist.get_world_size())


def exact(is_right, samples):
    mine = my_part(samples)
    total = torch.tensor([is_right(mine).sum(), len(mine)])
    dist.all_reduce(total)
    return total[0] / total[1]


def masked(is_right, samples):
    mine = list(DistributedSampler(range(samples), shuffle=False))
    place = torch.arange(len(mine)) * dist.get_world_size() + dist.get_rank()
    total = (is_right(mine) & (place < samples)).sum()
    dist.all_reduce(total)
    return total.item() / samples


def padded(is_right, samples):
    mine = list(DistributedSampler(range(samples), shuffle=False))
    total = torch.tensor([is_right(mine).sum(), len(mine)])
    dist.all_reduce(total)
    return total[0] / total[1]


def cut(is_right, samples):
    mine = list(DistributedSampler(range(samples), shuffle=False, drop_last=True))
    total = torch.tensor([is_right(mine).sum(), len(mine)])
    dist.all_reduce(total)
    return total[0] / max(1, total[1])


def alone(is_right, samples):
    found = is_right(my_part(samples))
    return found.float().mean() if len(found) else 0.0


def mean_of_means(is_right, samples):
    mean = is_right(my_part(samples)).float().mean()
    dist.all_reduce(mean)
    return mean / dist.get_world_size()


def unsummed(is_right, samples):
    return is_right(my_part(samples)).sum() / samples


def count_only(is_right, samples):
    total = is_right(my_part(samples)).sum()
    dist.all_reduce(total)
    return total


def everything_everywhere(is_right, samples):
    return is_right(range(samples)).float().mean()


def only_where_there_is_something(is_right, samples):
    mine = my_part(samples)
    if not len(mine):
        return 0.0
    total = torch.tensor([is_right(mine).sum(), len(mine)])
    dist.all_reduce(total)
    return total[0] / total[1]


def outside(is_right, samples):
    return is_right([samples])[0]


@pytest.mark.parametrize("answer", [exact, masked])
def test_exact_accuracy_passes(cluster, answer):
    assert lab05.exact_accuracy(answer, cluster.run) == PASSED


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (padded, "10 samples: the repeats are still counted"),
        (cut, "samples: samples are left out"),
        (alone, "10 samples: each rank returns its own accuracy"),
        (mean_of_means, "10 samples: that is the mean of the ranks' means"),
        (unsummed, "10 samples: rank 0 says 0.2, exact is 0.8"),
        (count_only, "10 samples: that is the number of right answers"),
        (everything_everywhere, "the long way: every rank evaluated every sample"),
        (only_where_there_is_something, "some ranks wait for ever"),
        (outside, "there is no sample 10 among 10"),
    ],
)
def test_an_accuracy_that_is_off_is_told_why(cluster, answer, reason):
    def impatient(fn, *args, timeout):
        return cluster.run(fn, *args, timeout=min(timeout, 1.5))

    verdict = lab05.exact_accuracy(answer, impatient)
    assert verdict.status == "failed"
    assert reason in verdict.reason


def seeded(samples):
    return torch.randn(samples, 2, generator=torch.Generator().manual_seed(1))


def sent(samples):
    data = torch.randn(samples, 2)
    dist.broadcast(data, src=0)
    return data


def plain_lists(samples):
    return [[float(index), 1.0] for index in range(samples)]


def unseeded(samples):
    return torch.randn(samples, 2)


def seeded_by_rank(samples):
    return torch.randn(samples, 2, generator=torch.Generator().manual_seed(dist.get_rank()))


def all_alike(samples):
    return torch.zeros(samples, 2)


def on_rank_0_only(samples):
    return seeded(samples) if dist.get_rank() == 0 else None


def my_quarter(samples):
    return seeded(samples)[dist.get_rank() :: 4]


@pytest.mark.parametrize("answer", [seeded, sent, plain_lists])
def test_the_same_data_everywhere_passes(cluster, answer):
    assert lab05.same_data(answer, cluster.run) == PASSED


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (unseeded, "nothing makes them draw the same numbers"),
        (seeded_by_rank, "each rank seeds with another number"),
        (all_alike, "all samples are the same"),
        (on_rank_0_only, "rank 1 made no data set: it has a NoneType"),
        (my_quarter, "rank 0 made 2 samples, and 6 were asked for"),
        (raises, "KeyError"),
    ],
)
def test_data_that_differ_are_told_why(cluster, answer, reason):
    verdict = lab05.same_data(answer, cluster.run)
    assert verdict.status == "failed"
    assert reason in verdict.reason
