"""The textbook algorithm of each operation: what travels when, by position in the group.

Every algorithm here moves the fewest bytes in all. Real backends may choose another; what ranks hold at the end is the
same. Sources: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH" (2005) for
trees and pairwise exchange; Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations"
(2009) for rings; Hensgen, Finkel, Manber, "Two Algorithms for Barrier Synchronization" (1988).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Hop:
    """Send one slot of a rank to one slot of another; ranks are positions in the group."""

    source: int
    target: int
    from_slot: int
    to_slot: int
    combines: bool = False


Round = tuple[str, list[Hop]]


def tree_out(n: int, root: int) -> Iterator[Round]:
    """Yield a binomial tree from the root: in each round everyone who has the tensor passes it on."""
    reach, level, levels = 1, 1, (n - 1).bit_length()
    while reach < n:
        pairs = [(i, i + reach) for i in range(min(reach, n - reach))]
        yield f"tree, level {level} of {levels}", [Hop((root + i) % n, (root + j) % n, 0, 0) for i, j in pairs]
        reach, level = 2 * reach, level + 1


def tree_in(n: int, root: int) -> Iterator[Round]:
    """Yield the same tree backwards: partial results are combined on the way to the root."""
    levels = [hops for _, hops in tree_out(n, root)]
    for number, hops in enumerate(reversed(levels), 1):
        back = [Hop(hop.target, hop.source, 0, 0, combines=True) for hop in hops]
        yield f"tree, level {number} of {len(levels)}", back


def ring_reduce_scatter(n: int) -> Iterator[Round]:
    """Yield the ring in which piece j starts behind rank j and collects a contribution at each hop."""
    for s in range(n - 1):
        hops = [Hop(i, (i + 1) % n, (i - 1 - s) % n, (i - 1 - s) % n, combines=True) for i in range(n)]
        yield f"ring, reduce-scatter {s + 1} of {n - 1}", hops


def ring_all_gather(n: int) -> Iterator[Round]:
    """Yield the ring in which everyone passes on what it got last."""
    for s in range(n - 1):
        hops = [Hop(i, (i + 1) % n, (i - s) % n, (i - s) % n) for i in range(n)]
        yield f"ring, all-gather {s + 1} of {n - 1}", hops


def direct_out(n: int, root: int) -> Iterator[Round]:
    """Yield the root sending each rank its part."""
    if n > 1:
        yield "rank by rank", [Hop(root, i, i, i) for i in range(n) if i != root]


def direct_in(n: int, root: int) -> Iterator[Round]:
    """Yield each rank sending its part to the root."""
    if n > 1:
        yield "rank by rank", [Hop(i, root, 0, i) for i in range(n) if i != root]


def pairwise(n: int) -> Iterator[Round]:
    """Yield each rank sending to the one `s` further on, for every distance `s`."""
    for s in range(1, n):
        yield f"pairwise, distance {s} of {n - 1}", [Hop(i, (i + s) % n, (i + s) % n, i) for i in range(n)]


def dissemination(n: int) -> Iterator[Round]:
    """Yield signals without data: after the last round everyone has heard of everyone."""
    distance, number, rounds = 1, 1, (n - 1).bit_length()
    while distance < n:
        yield f"signals, round {number} of {rounds}", [Hop(i, (i + distance) % n, 0, 0) for i in range(n)]
        distance, number = 2 * distance, number + 1
