"""The life of DDP's buckets: when each fills, waits for the buckets before it, and travels."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from lablib.errors import UsageError
from lablib.trace import Kind, Span, Trace
from lablib.trace.spans import Truth

_Key = tuple[int, int | None, int | None]


@dataclass(frozen=True)
class BucketRow:
    """Tell the life of one bucket on one rank in one iteration.

    Args:
        rank, iteration, bucket: which one; buckets leave in the order of their index.
        nbytes: size of its buffer.
        parameters: names of its parameters, in its order.
        ready: (parameter, moment in nanoseconds) for each gradient that was recorded, earliest first.
        first_ready_ns: when its first gradient is ready.
        full_ns: when its last gradient is ready.
        sent_ns: when its reduction starts; None where it never did.
        done_ns: when its reduction is complete; None likewise.
    """

    rank: int
    iteration: int | None
    bucket: int
    nbytes: int
    parameters: tuple[str, ...]
    ready: tuple[tuple[str, int], ...]
    first_ready_ns: int
    full_ns: int
    sent_ns: int | None = None
    done_ns: int | None = None

    @property
    def filling_ns(self) -> int:
        """Return how long it fills."""
        return self.full_ns - self.first_ready_ns

    @property
    def waiting_ns(self) -> int | None:
        """Return how long it is full and not sent: earlier buckets go first."""
        return None if self.sent_ns is None else self.sent_ns - self.full_ns

    @property
    def travelling_ns(self) -> int | None:
        """Return how long its reduction takes, waiting for other ranks included."""
        return None if self.sent_ns is None or self.done_ns is None else self.done_ns - self.sent_ns


@dataclass(frozen=True)
class Buckets:
    """Hold the buckets of a run, and where they come from.

    Args:
        rows: by iteration, rank and index.
        backward: the BACKWARD spans of these iterations.
        world_size, truth, backend, device: as in `Trace`.
    """

    rows: tuple[BucketRow, ...]
    backward: tuple[Span, ...]
    world_size: int
    truth: Truth
    backend: str | None
    device: str

    @property
    def iterations(self) -> list[int]:
        """Return the iterations in which a bucket filled."""
        return sorted({row.iteration for row in self.rows if row.iteration is not None})

    @cached_property
    def start_ns(self) -> int:
        """Return when the first backward begins; without any, when the first gradient is ready."""
        return min([one.start_ns for one in self.backward] or [row.first_ready_ns for row in self.rows])

    @cached_property
    def end_ns(self) -> int:
        """Return when the last backward ends and the last bucket is done."""
        over = [row.full_ns if row.done_ns is None else row.done_ns for row in self.rows]
        return max([*over, *(one.end_ns for one in self.backward)])

    def only(self, *, iteration: int) -> Buckets:
        """Return the buckets of one iteration.

        Raises:
            UsageError: there are none.
        """
        rows = tuple(row for row in self.rows if row.iteration == iteration)
        if not rows:
            raise _not_there(iteration, self.iterations)
        return replace(self, rows=rows, backward=tuple(one for one in self.backward if one.iteration == iteration))


def buckets(trace: Trace, *, iteration: int | None = None) -> Buckets:
    """Return the life of every bucket of a trace.

    Args:
        trace: a run or simulation of DistributedDataParallel.
        iteration: which one; left out, all of them.

    Raises:
        UsageError: the trace has no buckets, or none in this iteration.
    """
    filled: dict[_Key, list[Span]] = defaultdict(list)
    sent: dict[_Key, list[Span]] = defaultdict(list)
    ready: dict[tuple[int, int | None, str], int] = {}
    backward: list[Span] = []
    seen: set[int | None] = set()
    for span in trace:
        kind = span.kind
        if kind is Kind.BUCKET:
            seen.add(span.iteration)
        if iteration is not None and span.iteration != iteration:
            continue
        if kind is Kind.GRADIENT:
            ready[span.rank, span.iteration, span.name] = span.start_ns
        elif kind is Kind.BACKWARD:
            backward.append(span)
        elif span.bucket is not None and kind in (Kind.BUCKET, Kind.COLLECTIVE):
            (filled if kind is Kind.BUCKET else sent)[span.rank, span.iteration, span.bucket].append(span)
    if not seen:
        raise UsageError("this trace has no buckets: run a step of DistributedDataParallel with record=True")
    if not filled:
        raise _not_there(iteration, seen)
    rows = [
        _row(span, [call for call in sent[key] if span.start_ns <= call.start_ns < before], ready)
        for key, spans in filled.items()
        # a bucket may fill more than once in an iteration, and a hook may reduce it in more than one call
        for span, before in zip(spans, [*(later.start_ns for later in spans[1:]), math.inf], strict=True)
    ]
    return Buckets(
        tuple(sorted(rows, key=lambda row: (-1 if row.iteration is None else row.iteration, row.rank, row.bucket))),
        tuple(backward),
        trace.world_size,
        trace.truth,
        trace.backend,
        trace.device,
    )


def _not_there(iteration: int | None, seen: Iterable[int | None]) -> UsageError:
    some = sorted(one for one in seen if one is not None)
    return UsageError(f"no bucket filled in iteration {iteration}; some did in {some}")


def _row(span: Span, calls: list[Span], ready: dict[tuple[int, int | None, str], int]) -> BucketRow:
    assert span.bucket is not None, "only spans with an index come here"
    moments = [
        (name, at)
        for name in span.parameters
        if (at := ready.get((span.rank, span.iteration, name))) is not None and span.start_ns <= at <= span.end_ns
    ]
    return BucketRow(
        span.rank,
        span.iteration,
        span.bucket,
        span.nbytes,
        span.parameters,
        tuple(sorted(moments, key=lambda moment: moment[1])),
        span.start_ns,
        span.end_ns,
        min((call.start_ns for call in calls), default=None),
        max((call.end_ns for call in calls), default=None),
    )
