"""A network that can be slow: latency and bandwidth between ranks, one network card a node.

The simulation adds these costs up; the engine lets real collectives take this long. Both ask this file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lablib.errors import UsageError

MIB = 1 << 20


@dataclass(frozen=True)
class Link:
    """A network between ranks, by the alpha-beta model: a message of S bytes takes ``latency + S ÷ bandwidth``.

    Args:
        latency_ms: milliseconds a message takes however small it is.
        bandwidth_mib_s: MiB a second that one network card sends, and at the same time receives.
        ranks_per_node: ranks that share one card; between them messages cost nothing.

    Raises:
        UsageError: a value is negative, zero where it must not be, or not a number.
    """

    latency_ms: float = 0.0
    bandwidth_mib_s: float = float("inf")
    ranks_per_node: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.latency_ms < float("inf"):
            raise UsageError(f"latency_ms={self.latency_ms!r} is not a number of milliseconds from 0 on")
        if not self.bandwidth_mib_s > 0:
            raise UsageError(f"bandwidth_mib_s={self.bandwidth_mib_s!r} is not a number of MiB a second above 0")
        if not isinstance(self.ranks_per_node, int) or self.ranks_per_node < 1:
            raise UsageError(f"ranks_per_node={self.ranks_per_node!r} is not a whole number from 1 on")

    def node(self, rank: int) -> int:
        """Return the node that a rank is on."""
        return rank // self.ranks_per_node

    def length_ns(self, op: str, nbytes: int, ranks: Sequence[int], *, peer: int | None = None) -> int:
        """Return how long an operation holds the network cards of its group, in nanoseconds.

        Rings for all_reduce, reduce_scatter and all_gather (Patarasuk and Yuan, 2009), binomial trees for broadcast and
        reduce, direct messages for the rest (Thakur, Rabenseifner, Gropp, 2005). A group on one node costs nothing.

        Args:
            op: a name that a COLLECTIVE span has, such as ``all_reduce``.
            nbytes: payload of the call on one rank: what it brings; for scatter, what it gets.
            ranks: the group, as global ranks; for a send or recv the two of them.
            peer: the root of a rooted operation.

        Raises:
            ValueError: there is no such operation.
        """
        n = len(ranks)
        on_node = Counter(self.node(rank) for rank in ranks)
        most = max(size * (n - size) for size in on_node.values())
        far = n - on_node[self.node(ranks[0] if peer is None else peer)]
        tree = (len(on_node) - 1).bit_length()
        messages, moved = {
            "all_reduce": (2 * (n - 1), 2 * (n - 1) / n),
            "reduce_scatter": (n - 1, (n - 1) / n),
            "all_gather": (n - 1, n - 1),
            "broadcast": (tree, tree),
            "reduce": (tree, tree),
            "scatter": (far, far),
            "gather": (far, far),
            "all_to_all": (n - 1, most / n),
            "barrier": (tree, 0),
            "monitored_barrier": (2, 0),
            "send": (1, 1),
            "recv": (1, 1),
        }.get(op, (None, 0.0))
        if messages is None:
            raise ValueError(f"there is no operation {op!r}")
        if len(on_node) < 2:
            return 0
        seconds = messages * self.latency_ms / 1e3 + moved * nbytes / (self.bandwidth_mib_s * MIB)
        return round(seconds * 1e9)
