"""Who waits for whom: the same operation on all its ranks, and who called it last."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from lablib.errors import UsageError
from lablib.trace import Kind, Span, Trace

_ONE_WAY = {"send": "send and recv", "recv": "send and recv"}


@dataclass(frozen=True)
class Call:
    """Say what one rank saw of an operation.

    Args:
        rank: the global rank.
        start_ns, end_ns: its call and its completion there.
        waited_ns: how much of that passed before the last rank called.
    """

    rank: int
    start_ns: int
    end_ns: int
    waited_ns: int


@dataclass(frozen=True)
class Meeting:
    """Bring together the calls that make up one operation.

    Args:
        name: the operation; ``send and recv`` for a message.
        group: the process group's name.
        sequence: which call on that group it was; for a message, which one in its direction.
        ranks: who takes part.
        calls: one for each rank that was recorded, earliest call first.
        iteration, bucket, nbytes: as the first of them says.
    """

    name: str
    group: str
    sequence: int
    ranks: tuple[int, ...]
    calls: tuple[Call, ...]
    iteration: int | None = None
    bucket: int | None = None
    nbytes: int = 0

    @property
    def last_rank(self) -> int:
        """Return who called last: all others waited for this rank."""
        return self.calls[-1].rank

    @property
    def last_ns(self) -> int:
        """Return when that rank called."""
        return self.calls[-1].start_ns

    @property
    def missing(self) -> tuple[int, ...]:
        """Return the ranks that take part and were not recorded: they may have called later still, or never."""
        seen = {call.rank for call in self.calls}
        return tuple(rank for rank in self.ranks if rank not in seen)

    def waited_ns(self, rank: int) -> int:
        """Return how long a rank waited for the others; 0 for one that was not recorded."""
        return next((call.waited_ns for call in self.calls if call.rank == rank), 0)


def waits(trace: Trace) -> list[Meeting]:
    """Return every operation of a trace with the calls that belong together, earliest call first.

    Calls belong together when group, sequence number and operation are the same; a send belongs to the recv with the
    same number in that direction. A rank waits from its call until the last rank calls or, where the operation does not
    need everyone, until it is done there.

    Args:
        trace: any trace; ranks may be missing from it.

    Raises:
        UsageError: the trace has no collectives.
    """
    met: dict[tuple[object, ...], list[Span]] = defaultdict(list)
    counted: Counter[tuple[object, ...]] = Counter()
    for span in trace:
        if span.kind is not Kind.COLLECTIVE:
            continue
        key = _key(span)
        number = span.sequence
        if not number:  # a file that does not number its calls: the k-th on one rank is the k-th on every other
            counted[span.rank, key] += 1
            number = counted[span.rank, key]
        met[(*key, number)].append(span)
    if not met:
        raise UsageError("this trace has no collectives: call one, and run with record=True")
    meetings = [_meeting(spans, number) for (*_, number), spans in met.items() if isinstance(number, int)]
    return sorted(meetings, key=lambda meeting: meeting.calls[0].start_ns)


def _key(span: Span) -> tuple[object, ...]:
    name = _ONE_WAY.get(span.name, span.name)
    if span.name in _ONE_WAY:
        return name, span.group, *((span.rank, span.peer) if span.name == "send" else (span.peer, span.rank))
    return name, span.group


def _meeting(spans: list[Span], sequence: int) -> Meeting:
    ordered = sorted(spans, key=lambda span: (span.start_ns, span.rank))
    first, last = ordered[0], ordered[-1]
    ranks = {span.rank for span in spans}
    if first.name in _ONE_WAY:
        ranks |= {first.rank} if first.peer is None else {first.rank, first.peer}
    else:
        ranks.update(*(span.ranks for span in spans))
    return Meeting(
        _ONE_WAY.get(first.name, first.name),
        first.group,
        sequence,
        tuple(sorted(ranks)),
        tuple(
            Call(span.rank, span.start_ns, span.end_ns, max(0, min(last.start_ns, span.end_ns) - span.start_ns))
            for span in ordered
        ),
        first.iteration,
        first.bucket,
        first.nbytes,
    )
