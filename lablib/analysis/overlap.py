"""How much communication is hidden behind compute."""

from __future__ import annotations

from dataclasses import dataclass

from lablib.analysis.busy import busy
from lablib.analysis.intervals import length_ns
from lablib.errors import UsageError
from lablib.trace import Trace


@dataclass(frozen=True)
class Overlap:
    """Say how one rank spent its time; moments at which two things of a kind go on count once.

    Args:
        rank: the global rank.
        iteration: which one; None for the whole trace.
        compute_ns: how long it computed; see `busy`.
        communication_ns: how long at least one operation was on its way.
        hidden_ns: how long both went on.
    """

    rank: int
    iteration: int | None
    compute_ns: int
    communication_ns: int
    hidden_ns: int

    @property
    def exposed_ns(self) -> int:
        """Return how long it communicated and did not compute."""
        return self.communication_ns - self.hidden_ns

    @property
    def busy_ns(self) -> int:
        """Return how long it did either."""
        return self.compute_ns + self.exposed_ns

    @property
    def best_ns(self) -> int:
        """Return how long it would be busy with everything hidden that can be."""
        return max(self.compute_ns, self.communication_ns)

    @property
    def worst_ns(self) -> int:
        """Return how long it would be busy with nothing hidden."""
        return self.compute_ns + self.communication_ns

    @property
    def coefficient(self) -> float | None:
        """Return hidden ÷ the shorter of compute and communication: 0 for nothing, 1 for all that can be hidden.

        None where one of the two is missing.
        """
        shorter = min(self.compute_ns, self.communication_ns)
        return self.hidden_ns / shorter if shorter else None

    @property
    def hidden_share(self) -> float | None:
        """Return hidden ÷ communication, as HolisticTraceAnalysis counts overlap; None without communication."""
        return self.hidden_ns / self.communication_ns if self.communication_ns else None


def overlap(trace: Trace, *, iteration: int | None = None) -> list[Overlap]:
    """Return how much communication each rank hides behind compute, lowest rank first.

    Args:
        trace: any trace.
        iteration: which one; left out, the whole trace, with what came before its first forward.

    Raises:
        UsageError: the trace has no such iteration, or neither compute nor communication.
    """
    return [
        Overlap(one.rank, iteration, *map(length_ns, (one.compute, one.communication, one.hidden)))
        for one in busy(trace, iteration=iteration)
    ]


def textbook_coefficient(*, compute_ns: int, communication_ns: int, total_ns: int) -> float:
    """Return 1 − total ÷ (compute + communication): a formula that some texts give and say tends to 1.

    It cannot: the total is at least the longer of the two, so the value is at most their shorter share, 0.5 where both
    are equal. `Overlap.coefficient` reaches 1.

    Raises:
        UsageError: there is neither compute nor communication.
    """
    if compute_ns + communication_ns <= 0:
        raise UsageError("there is neither compute nor communication: the formula divides by their sum")
    return 1 - total_ns / (compute_ns + communication_ns)
