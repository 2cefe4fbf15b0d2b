"""Which rank sees which sample: how an epoch is dealt out, and the table of who loaded what.

A table is made of batches of indices, wherever they come from: predicted in one process, or loaded on real ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lablib.errors import UsageError

Batches = Sequence[Sequence[int]]  # what one rank loads in one epoch
_LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True)
class Sharding:
    """Say how the samples of a data set are dealt to ranks.

    Args:
        samples: how many there are.
        world_size: number of ranks.
        batch_size: samples in a batch of one rank.
        shuffle: whether the sampler shuffles.
        seed: the sampler's seed, or one for each rank; they should be the same.
        epochs: how many are loaded.
        set_epoch: whether the sampler is told which epoch it is.
        drop_last: whether the sampler drops the tail that not every rank gets a part of; it repeats samples if not.
        loader_drop_last: whether the loader drops a last batch that is not full.

    Raises:
        UsageError: nothing can be dealt like this; the message says what to give.
    """

    samples: int
    world_size: int = 2
    batch_size: int = 1
    shuffle: bool = True
    seed: int | tuple[int, ...] = 0
    epochs: int = 1
    set_epoch: bool = True
    drop_last: bool = False
    loader_drop_last: bool = False

    def __post_init__(self) -> None:
        for name, least in (("samples", 0), ("world_size", 1), ("batch_size", 1), ("epochs", 1)):
            value = getattr(self, name)
            if not _is_whole(value) or value < least:
                raise UsageError(f"{name}={value!r}: give a whole number from {least} on")
        if isinstance(self.seed, tuple) and len(self.seed) != self.world_size:
            raise UsageError(f"{len(self.seed)} seeds for {self.world_size} ranks: give one, or one for each rank")
        for seed in self.seed if isinstance(self.seed, tuple) else (self.seed,):
            if not _is_whole(seed) or not 0 <= seed <= _LARGEST_SEED:
                raise UsageError(f"seed={seed!r}: give a whole number from 0 to 2**63 - 1")

    def seed_of(self, rank: int) -> int:
        """Return the seed of this rank's sampler."""
        return self.seed[rank] if isinstance(self.seed, tuple) else self.seed


class Sighting(NamedTuple):
    """Tell where a sample was seen: on this rank, in its batch so many, at this place in it."""

    rank: int
    batch: int
    place: int


class _Turns(NamedTuple):
    """Hold the samples that were seen, in order, where ranks take turns: index, rank, whether it is the first time."""

    indices: NDArray[np.int64]
    ranks: NDArray[np.int64]
    is_first: NDArray[np.bool_]


@dataclass(frozen=True)
class Shards:
    """Hold who loaded which samples; make it with `of`.

    Args:
        samples: how many there are; their indices begin with 0.
        batches: epoch, rank, batch -> indices.
    """

    samples: int
    batches: tuple[tuple[tuple[tuple[int, ...], ...], ...], ...]

    @classmethod
    def of(cls, ranks: Iterable[Sequence[Batches]], *, samples: int) -> Shards:
        """Make the table of what each rank loaded: for each rank a list of epochs, each a list of batches.

        Raises:
            UsageError: there are no ranks or epochs, not equally many epochs, or indices that no sample has.
        """
        loaded = [[tuple(tuple(map(int, batch)) for batch in epoch) for epoch in epochs] for epochs in ranks]
        lengths = {len(epochs) for epochs in loaded}
        if len(lengths) != 1 or 0 in lengths:
            raise UsageError(f"ranks with {sorted(lengths)} epochs: give the same epochs, one or more, for every rank")
        for rank, epochs in enumerate(loaded):
            for index in {index for epoch in epochs for batch in epoch for index in batch}:
                if not 0 <= index < samples:
                    raise UsageError(f"rank {rank} loaded sample {index}, and there are {samples}, from 0 on")
        return cls(samples, tuple(zip(*loaded, strict=True)))

    @property
    def epochs(self) -> int:
        """Return the number of epochs."""
        return len(self.batches)

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return len(self.batches[0])

    def indices(self, *, epoch: int, rank: int) -> tuple[int, ...]:
        """Return what a rank saw in an epoch, in order."""
        return tuple(index for batch in self.batches[epoch][rank] for index in batch)

    def lengths(self, *, epoch: int) -> tuple[int, ...]:
        """Return how many batches each rank had."""
        return tuple(len(batches) for batches in self.batches[epoch])

    def counts(self, *, epoch: int) -> NDArray[np.int64]:
        """Return how often each sample was seen."""
        return np.bincount(self._turns[epoch].indices, minlength=self.samples)

    def first_ranks(self, *, epoch: int) -> NDArray[np.int64]:
        """Return the rank that saw each sample first, where ranks take turns, sample by sample; -1 where none did."""
        turns = self._turns[epoch]
        found = np.full(self.samples, -1)
        found[turns.indices[turns.is_first]] = turns.ranks[turns.is_first]
        return found

    def is_first(self, *, epoch: int, rank: int) -> NDArray[np.bool_]:
        """Return for each sample that a rank saw, in order, whether it was the first time that any rank did."""
        turns = self._turns[epoch]
        firsts: NDArray[np.bool_] = turns.is_first[turns.ranks == rank]
        return firsts

    def sightings(self, *, epoch: int) -> tuple[tuple[Sighting, ...], ...]:
        """Return where each sample was seen, the first time first."""
        found: list[list[tuple[int, Sighting]]] = [[] for _ in range(self.samples)]
        for rank, batches in enumerate(self.batches[epoch]):
            position = 0
            for number, batch in enumerate(batches):
                for place, index in enumerate(batch):
                    found[index].append((position, Sighting(rank, number, place)))
                    position += 1
        return tuple(tuple(sighting for _, sighting in sorted(places)) for places in found)

    def again(self, *, epoch: int) -> tuple[int, ...]:
        """Return the samples that were seen more than once."""
        return tuple(np.flatnonzero(self.counts(epoch=epoch) > 1).tolist())

    def repeats(self, *, epoch: int) -> dict[int, tuple[int, ...]]:
        """Return the samples that were seen more than once, each with the ranks that saw it, the first one first."""
        turns = self._turns[epoch]
        found: dict[int, list[int]] = {index: [] for index in self.again(epoch=epoch)}
        for index, rank in zip(turns.indices.tolist(), turns.ranks.tolist(), strict=True):
            if index in found:
                found[index].append(rank)
        return {index: tuple(ranks) for index, ranks in found.items()}

    def never(self, *, epoch: int) -> tuple[int, ...]:
        """Return the samples that no rank saw."""
        return tuple(np.flatnonzero(self.counts(epoch=epoch) == 0).tolist())

    def differences(self, other: Shards) -> tuple[tuple[int, int, int], ...]:
        """Return epoch, rank and number of each batch that another table has otherwise, or not at all.

        Raises:
            UsageError: the other one has not the same ranks and epochs.
        """
        mine, theirs = ((one.samples, one.epochs, one.world_size) for one in (self, other))
        if mine != theirs:
            raise UsageError(f"(samples, epochs, ranks) are {mine} here and {theirs} there: compare equal settings")
        return tuple(
            (epoch, rank, number)
            for epoch in range(self.epochs)
            for rank in range(self.world_size)
            for number in _unequal(self.batches[epoch][rank], other.batches[epoch][rank])
        )

    @cached_property
    def _turns(self) -> tuple[_Turns, ...]:
        return tuple(self._turns_in(epoch) for epoch in range(self.epochs))

    def _turns_in(self, epoch: int) -> _Turns:
        rows = [np.array(self.indices(epoch=epoch, rank=rank), dtype=np.int64) for rank in range(self.world_size)]
        ranks = np.repeat(np.arange(self.world_size), [len(row) for row in rows])
        positions = np.concatenate([np.arange(len(row)) for row in rows])
        order = np.lexsort((ranks, positions))
        indices = np.concatenate(rows)[order]
        is_first = np.zeros(len(indices), dtype=bool)
        is_first[np.unique(indices, return_index=True)[1]] = True
        return _Turns(indices, ranks[order], is_first)


@dataclass(frozen=True)
class Accuracy:
    """Hold how many answers are right: of all samples, and as counted by ranks that saw some twice or never.

    Args:
        right, samples: of all samples, each once.
        counted_right, counted: of what the ranks saw.
    """

    right: int
    samples: int
    counted_right: int
    counted: int

    @property
    def exact(self) -> float | None:
        """Return the share of right answers; None without samples."""
        return self.right / self.samples if self.samples else None

    @property
    def as_counted(self) -> float | None:
        """Return the share that the ranks find; None where they saw nothing."""
        return self.counted_right / self.counted if self.counted else None

    @property
    def bias(self) -> float | None:
        """Return by how much the counted share is too high."""
        exact, counted = self.exact, self.as_counted
        return None if exact is None or counted is None else counted - exact


def accuracy(table: Shards, right: Sequence[bool] | NDArray[np.bool_], *, epoch: int = 0) -> Accuracy:
    """Count right answers as ranks count them that evaluate what they see.

    Args:
        table: who sees what.
        right: for each sample, whether the model's answer is right.
        epoch: which epoch of the table.

    Raises:
        UsageError: there is not one answer for each sample.
    """
    answers = np.asarray(right, dtype=bool)
    if answers.shape != (table.samples,):
        raise UsageError(f"{answers.size} answers for {table.samples} samples: give one for each")
    counts = table.counts(epoch=epoch)
    return Accuracy(int(answers.sum()), table.samples, int(counts[answers].sum()), int(counts.sum()))


def answers(samples: int, *, share: float, seed: int = 0) -> NDArray[np.bool_]:
    """Return for each sample whether the answer is right: for this share of them, chosen by the seed."""
    if not 0 <= share <= 1:
        raise UsageError(f"share={share} is no share; give a number from 0 to 1")
    order = np.random.default_rng(seed).permutation(samples)
    return order < round(share * samples)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _unequal(one: Batches, other: Batches) -> list[int]:
    longest = max(len(one), len(other))
    return [number for number in range(longest) if one[number : number + 1] != other[number : number + 1]]
