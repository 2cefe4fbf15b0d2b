"""A rank's record of one job: regions that the learner marks, and whatever else tells this recorder.

The current recorder is this rank's own. Where there is none, `span` marks nothing and costs next to nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from lablib.trace.spans import Kind, Span

current: Recorder | None = None


class Recorder:
    """Collect the spans of one rank; any thread may add one, since backends end operations on their own.

    Args:
        rank: the rank whose spans these are.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.iteration: int | None = None
        self.emulated = False
        self._spans: list[Span] = []

    def add(self, name: str, kind: Kind, start_ns: int, end_ns: int, **facts: Any) -> None:
        """Add a span of the current iteration; ``facts`` are more of `Span`'s arguments."""
        facts.setdefault("iteration", self.iteration)
        self._spans.append(Span(self.rank, name, kind, start_ns, end_ns, **facts))

    def spans(self) -> tuple[Span, ...]:
        """Return what was recorded, in order of start."""
        return tuple(sorted(self._spans, key=lambda span: (span.start_ns, -span.end_ns)))


@contextlib.contextmanager
def span(name: str) -> Iterator[None]:
    """Mark a region of a rank's function in the trace: ``with span("load data"): …``.

    The region closes when it raises, too. It belongs to the iteration in which it ends, so that one around a whole step
    belongs to that step. Where nothing is recorded, this does nothing.

    Args:
        name: what the picture calls the region.
    """
    with recorded(name, Kind.REGION):
        yield


@contextlib.contextmanager
def recorded(name: str, kind: Kind, *, emulated: bool = False, **facts: Any) -> Iterator[None]:
    """Record a block as a span of any kind; ``emulated`` says that its length was made up."""
    recorder = current
    if recorder is None:
        yield
        return
    recorder.emulated |= emulated
    start_ns = time.perf_counter_ns()
    try:
        yield
    finally:
        recorder.add(name, kind, start_ns, time.perf_counter_ns(), **facts)
