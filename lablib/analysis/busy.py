"""When a rank computes and when it communicates.

COMPUTE spans are the truth where a rank has any: emulated and simulated layers, kernels on a GPU. A real trace of CPU
ranks has none, because nobody times single layers there. Then the rank's thread computes

    FORWARD     ───────────▒▒▒▒───  but not during operations called inside: torch waits for those at once
    BACKWARD    ───────────────┤    up to the last ready gradient: after it DDP waits for its last buckets
    OPTIMIZER   ──────

An operation that is called inside BACKWARD and waited for there, by a hook say, counts as if it ran beside compute: a
trace does not tell the two apart. Record such a step in emulated mode.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lablib.analysis.intervals import Intervals, common, union, without
from lablib.errors import UsageError
from lablib.trace import Kind, Span, Trace


@dataclass(frozen=True, eq=False)
class Busy:
    """Hold when one rank was busy, as arrays of (start, end) in nanoseconds.

    Args:
        rank: the global rank.
        compute: when it computed.
        communication: when at least one operation was on its way, waiting for other ranks included.
    """

    rank: int
    compute: Intervals
    communication: Intervals

    @cached_property
    def hidden(self) -> Intervals:
        """Return when both went on."""
        return common(self.compute, self.communication)


def busy(trace: Trace, *, iteration: int | None = None) -> list[Busy]:
    """Return when each rank of a trace computed and communicated, lowest rank first.

    Args:
        trace: any trace.
        iteration: which one; left out, the whole trace, with what came before its first forward.

    Raises:
        UsageError: the trace has no such iteration, or nothing of the kind.
    """
    if iteration is not None and iteration not in trace.iterations:
        raise UsageError(f"iteration {iteration} is not in this trace; it has {_listed(trace.iterations)}")
    spans: dict[int, list[Span]] = defaultdict(list)
    timed: set[int] = set()
    for span in trace:
        if span.kind is Kind.COMPUTE:
            timed.add(span.rank)
        if span.kind in _TELLING and iteration in (None, span.iteration):
            spans[span.rank].append(span)
    if not spans:
        raise UsageError("this trace has neither compute nor communication: run the training step with record=True")
    return [
        Busy(rank, _layers(mine) if rank in timed else _phases(mine), _communication(mine))
        for rank, mine in sorted(spans.items())
    ]


_TELLING = frozenset(Kind) - {Kind.REGION}


def _layers(spans: Sequence[Span]) -> Intervals:
    return _times(spans, Kind.COMPUTE)


def _phases(spans: Sequence[Span]) -> Intervals:
    calls = [span for span in spans if span.kind is Kind.COLLECTIVE]
    ready = [span.end_ns for span in spans if span.kind in (Kind.GRADIENT, Kind.BUCKET)]
    inside = [
        (call.start_ns, call.end_ns)
        for forward in spans
        if forward.kind is Kind.FORWARD
        for call in calls
        if forward.start_ns <= call.start_ns < forward.end_ns
    ]
    backward = [
        (span.start_ns, max((at for at in ready if span.start_ns <= at <= span.end_ns), default=span.end_ns))
        for span in spans
        if span.kind is Kind.BACKWARD
    ]
    forward = without(_times(spans, Kind.FORWARD), union(inside))
    return union([*map(tuple, forward.tolist()), *backward, *map(tuple, _times(spans, Kind.OPTIMIZER).tolist())])


def _communication(spans: Sequence[Span]) -> Intervals:
    return _times(spans, Kind.COLLECTIVE)


def _times(spans: Sequence[Span], kind: Kind) -> Intervals:
    return union((span.start_ns, span.end_ns) for span in spans if span.kind is kind)


def _listed(numbers: Sequence[int]) -> str:
    if not numbers:
        return "none"
    if len(numbers) == 1:
        return f"only {numbers[0]}"
    return f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 4 else ", ".join(map(str, numbers))
