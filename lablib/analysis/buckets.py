"""The life of DDP's buckets: when each fills, waits for the buckets before it, and travels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

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

    def only(self, *, iteration: int) -> Buckets:
        """Return the buckets of one iteration.

        Raises:
            UsageError: there are none.
        """
        rows = tuple(row for row in self.rows if row.iteration == iteration)
        if not rows:
            raise UsageError(f"no bucket filled in iteration {iteration}; some did in {self.iterations}")
        return replace(self, rows=rows, backward=tuple(one for one in self.backward if one.iteration == iteration))


def buckets(trace: Trace, *, iteration: int | None = None) -> Buckets:
    """Return the life of every bucket of a trace.

    Args:
        trace: a run or simulation of DistributedDataParallel.
        iteration: which one; left out, all of them.

    Raises:
        UsageError: the trace has no buckets, or none in this iteration.
    """
    filled = [span for span in trace if span.kind is Kind.BUCKET and span.bucket is not None]
    if not filled:
        raise UsageError("this trace has no buckets: run a step of DistributedDataParallel with record=True")
    sent = _by_key(span for span in trace if span.kind is Kind.COLLECTIVE and span.bucket is not None)
    ready = {(span.rank, span.iteration, span.name): span.start_ns for span in trace if span.kind is Kind.GRADIENT}
    rows = []
    for key, spans in _by_key(filled).items():
        # a bucket may fill more than once in an iteration, and a hook may reduce it in more than one call
        for span, following in zip(spans, [*spans[1:], None], strict=True):
            calls = [
                call
                for call in sent.get(key, [])
                if span.start_ns <= call.start_ns and (following is None or call.start_ns < following.start_ns)
            ]
            rows.append(_row(span, calls, ready))
    table = Buckets(
        tuple(sorted(rows, key=lambda row: (-1 if row.iteration is None else row.iteration, row.rank, row.bucket))),
        trace.only(Kind.BACKWARD).spans,
        trace.world_size,
        trace.truth,
        trace.backend,
        trace.device,
    )
    return table if iteration is None else table.only(iteration=iteration)


def _by_key(spans: Iterable[Span]) -> dict[_Key, list[Span]]:
    grouped: dict[_Key, list[Span]] = defaultdict(list)
    for span in spans:
        grouped[span.rank, span.iteration, span.bucket].append(span)
    return grouped


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
