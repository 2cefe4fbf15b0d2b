"""Traces of single ranks, or of some ranks each, become one trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from lablib.errors import TraceError
from lablib.trace.spans import Trace

_OF_THE_JOB = ("world_size", "truth", "backend", "device")


def merge(traces: Iterable[Trace], *, names: Sequence[str] = ()) -> Trace:
    """Return one trace of all ranks, on the clock of the first.

    Args:
        traces: of one job, each with other ranks.
        names: what to call them in an error, such as their files; "trace 1" and so on where left out.

    Raises:
        TraceError: there is none, two hold the same rank, they are not of one job, or only some clocks are known.
    """
    traces = tuple(traces)
    if not traces:
        raise TraceError("there is no trace to merge")
    names = names or [f"trace {number}" for number in range(1, len(traces) + 1)]
    first = traces[0]
    home: dict[int, str] = {}
    for name, trace in zip(names, traces, strict=True):
        for fact in _OF_THE_JOB:
            here, there = getattr(trace, fact), getattr(first, fact)
            if here != there:
                raise TraceError(f"{name} has {fact} {here}, {names[0]} has {there}: they are not of one job")
        for rank in sorted({span.rank for span in trace} | {sample.rank for sample in trace.memory}):
            if rank in home:
                raise TraceError(f"rank {rank} is in {home[rank]} and in {name}; leave one of them out")
            home[rank] = name
    unknown = [name for name, trace in zip(names, traces, strict=True) if not trace.wall_offset_ns]
    if unknown and len(unknown) < len(traces):
        raise TraceError(f"the clock of {unknown[0]} is not known, that of others is: they cannot be brought together")
    shifted = [_shifted(trace, first) for trace in traces]
    return Trace.of_spans(
        (span for trace in shifted for span in trace.spans),
        memory=(sample for trace in shifted for sample in trace.memory),
        wall_offset_ns=first.wall_offset_ns,
        **{fact: getattr(first, fact) for fact in _OF_THE_JOB},
    )


def _shifted(trace: Trace, first: Trace) -> Trace:
    """Return a trace on the clock of the first one."""
    by_ns = trace.wall_offset_ns - first.wall_offset_ns
    if not by_ns:
        return trace
    return dataclasses.replace(
        trace,
        spans=tuple(
            dataclasses.replace(one, start_ns=one.start_ns + by_ns, end_ns=one.end_ns + by_ns) for one in trace.spans
        ),
        memory=tuple(dataclasses.replace(one, time_ns=one.time_ns + by_ns) for one in trace.memory),
    )
