"""Who sees which sample, against a count by hand of the same batches."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lablib.errors import UsageError
from lablib.sim.shards import Accuracy, Sharding, Shards, Sighting, accuracy, answers

TEN = [  # 10 samples on 4 ranks, in batches of 2
    [[[0, 4], [8]]],
    [[[1, 5], [9]]],
    [[[2, 6], [0]]],
    [[[3, 7], [1]]],
]


@st.composite
def loads(draw: st.DrawFn) -> tuple[int, list[list[list[list[int]]]]]:
    """Draw what ranks loaded: any batches, also empty ones, of any number of samples."""
    samples = draw(st.integers(0, 12))
    batch = st.lists(st.integers(0, samples - 1), max_size=4) if samples else st.just([])
    epochs, ranks = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    epoch = st.lists(batch, max_size=4)
    return samples, [[draw(epoch) for _ in range(epochs)] for _ in range(ranks)]


def turns(loaded: list[list[list[list[int]]]], epoch: int) -> list[tuple[int, Sighting]]:
    """Return index and place of everything seen in an epoch, in the order in which ranks take turns."""
    found = []
    for rank, epochs in enumerate(loaded):
        position = 0
        for number, batch in enumerate(epochs[epoch]):
            for place, index in enumerate(batch):
                found.append((position, rank, index, Sighting(rank, number, place)))
                position += 1
    return [(index, seen) for _, _, index, seen in sorted(found)]


@given(loads())
def test_every_count_is_that_of_the_batches(drawn):
    samples, loaded = drawn
    table = Shards.of(loaded, samples=samples)
    assert (table.epochs, table.world_size) == (len(loaded[0]), len(loaded))
    for epoch in range(table.epochs):
        seen = turns(loaded, epoch)
        counts = Counter(index for index, _ in seen)
        ranks: dict[int, list[int]] = {}
        for index, where in seen:
            ranks.setdefault(index, []).append(where.rank)
        assert table.counts(epoch=epoch).tolist() == [counts[index] for index in range(samples)]
        assert table.never(epoch=epoch) == tuple(index for index in range(samples) if index not in counts)
        assert table.repeats(epoch=epoch) == {index: tuple(who) for index, who in sorted(ranks.items()) if len(who) > 1}
        assert table.again(epoch=epoch) == tuple(table.repeats(epoch=epoch))
        assert table.first_ranks(epoch=epoch).tolist() == [ranks.get(index, [-1])[0] for index in range(samples)]
        assert table.sightings(epoch=epoch) == tuple(
            tuple(where for other, where in seen if other == index) for index in range(samples)
        )
        assert table.lengths(epoch=epoch) == tuple(len(epochs[epoch]) for epochs in loaded)
        for rank, epochs in enumerate(loaded):
            indices = [index for batch in epochs[epoch] for index in batch]
            assert table.indices(epoch=epoch, rank=rank) == tuple(indices)
            places = [where for where in map(tuple, (w for _, w in seen)) if where[0] == rank]
            firsts = {tuple(table.sightings(epoch=epoch)[index][0]) for index in indices}
            assert table.is_first(epoch=epoch, rank=rank).tolist() == [where in firsts for where in places]


def test_the_ten_samples_of_the_lab():
    table = Shards.of(TEN, samples=10)
    assert table.repeats(epoch=0) == {0: (0, 2), 1: (1, 3)}
    assert table.never(epoch=0) == ()
    assert table.sightings(epoch=0)[0] == (Sighting(0, 0, 0), Sighting(2, 1, 0))
    assert table.is_first(epoch=0, rank=3).tolist() == [True, True, False]


@given(loads(), st.data())
def test_accuracy_as_counted_weighs_each_answer_by_how_often_it_was_seen(drawn, data):
    samples, loaded = drawn
    right = data.draw(st.lists(st.booleans(), min_size=samples, max_size=samples))
    table = Shards.of(loaded, samples=samples)
    seen = [right[index] for index, _ in turns(loaded, 0)]
    assert accuracy(table, right) == Accuracy(sum(right), samples, sum(seen), len(seen))


def test_accuracy_of_padded_evaluation():
    found = accuracy(Shards.of(TEN, samples=10), [False, False] + [True] * 8)
    assert (found.exact, found.as_counted) == (0.8, 8 / 12)
    assert found.bias == pytest.approx(-2 / 15)
    nothing = accuracy(Shards.of([[[]]], samples=2), [True, False])
    assert (nothing.exact, nothing.as_counted, nothing.bias) == (0.5, None, None)
    assert accuracy(Shards.of([[[]]], samples=0), []).exact is None


@pytest.mark.parametrize("share", [0, 0.3, 0.8, 1])
def test_answers_are_right_for_just_this_share_and_the_same_for_the_same_seed(share):
    found = answers(200, share=share, seed=3)
    assert found.sum() == round(share * 200)
    assert np.array_equal(found, answers(200, share=share, seed=3))
    assert share in (0, 1) or not np.array_equal(found, answers(200, share=share, seed=4))


def test_differences_name_each_batch_that_is_another_one_or_missing():
    other = [[[list(batch) for batch in epoch] for epoch in epochs] for epochs in TEN]
    other[1][0][0] = [5, 1]
    other[2][0].pop()
    other[3][0].append([])
    table, changed = Shards.of(TEN, samples=10), Shards.of(other, samples=10)
    assert table.differences(table) == ()
    assert changed.differences(table) == table.differences(changed) == ((0, 1, 0), (0, 2, 1), (0, 3, 2))
    with pytest.raises(UsageError, match="compare equal settings"):
        table.differences(Shards.of(TEN[:3], samples=10))


@pytest.mark.parametrize(
    ("loaded", "samples", "reason"),
    [
        ([[[[0, 10]]], [[[1]]]], 10, "rank 0 loaded sample 10, and there are 10, from 0 on"),
        ([[[[-1]]]], 10, "rank 0 loaded sample -1"),
        ([[[[0]]], [[[0]], [[1]]]], 2, r"ranks with \[1, 2\] epochs"),
        ([[], []], 2, r"ranks with \[0\] epochs"),
        ([], 2, r"ranks with \[\] epochs"),
    ],
)
def test_a_table_that_cannot_be_is_refused(loaded, samples, reason):
    with pytest.raises(UsageError, match=reason):
        Shards.of(loaded, samples=samples)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"samples": -1}, "samples=-1: give a whole number from 0 on"),
        ({"samples": 2.5}, "samples=2.5: give a whole number"),
        ({"samples": True}, "samples=True: give a whole number"),
        ({"world_size": 0}, "world_size=0: give a whole number from 1 on"),
        ({"batch_size": 0}, "batch_size=0: give a whole number from 1 on"),
        ({"epochs": 0}, "epochs=0: give a whole number from 1 on"),
        ({"seed": -1}, "seed=-1: give a whole number from 0"),
        ({"seed": 2**63}, "seed=9223372036854775808: give a whole number from 0 to"),
        ({"seed": (1, 2, 3)}, "3 seeds for 4 ranks: give one, or one for each rank"),
        ({"seed": (1, 2, 3, -4)}, "seed=-4: give a whole number from 0"),
    ],
)
def test_what_cannot_be_dealt_is_refused(settings, reason):
    with pytest.raises(UsageError, match=reason):
        Sharding(**{"samples": 10, "world_size": 4, **settings})


def test_a_share_must_be_one():
    with pytest.raises(UsageError, match=r"share=1.5 is no share"):
        answers(3, share=1.5)
    with pytest.raises(UsageError, match="2 answers for 10 samples: give one for each"):
        accuracy(Shards.of(TEN, samples=10), [True, False])


def test_a_seed_for_all_or_one_for_each():
    assert [Sharding(4, 3, seed=7).seed_of(rank) for rank in range(3)] == [7, 7, 7]
    assert [Sharding(4, 3, seed=(7, 8, 9)).seed_of(rank) for rank in range(3)] == [7, 8, 9]
