"""A trace for Perfetto and chrome://tracing: a process for each rank, a thread for each lane.

Format: Chrome's Trace Event Format. Slices of one thread must be nested or apart, so what overlaps otherwise, as
collectives on their way do, goes to another thread of the same name. Memory is a counter with a series for each
category. Times are microseconds since the trace's start, with nanoseconds after the point.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from lablib.trace.files import write
from lablib.trace.memory import Category, MemorySample
from lablib.trace.spans import Kind, Span, Trace

_STEPS = "forward, backward, optimizer"
_LANES = {
    Kind.REGION: "regions",
    Kind.FORWARD: _STEPS,
    Kind.BACKWARD: _STEPS,
    Kind.OPTIMIZER: _STEPS,
    Kind.COMPUTE: "compute",
    Kind.GRADIENT: "gradients",
    Kind.BUCKET: "buckets",
    Kind.COLLECTIVE: "communication",
}
_ORDER = list(dict.fromkeys(_LANES.values()))
_NESTED = ("regions", _STEPS)
_THREADS = 1000  # room for the lanes of one rank; viewers take equal ids of process and thread for the main thread


def save(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace for Perfetto, whole or not at all.

    Args:
        trace: what to write.
        path: the file, replaced where it exists; ``.gz`` at its end compresses.

    Raises:
        TraceError: the folder is missing, or the file cannot be written.
    """
    write(json.dumps(events_of(trace)).encode(), path)


def events_of(trace: Trace) -> dict[str, Any]:
    """Return a trace as an object of Chrome's Trace Event Format."""
    begin_ns = trace.start_ns
    names: list[dict[str, Any]] = []
    events: list[tuple[int, int, dict[str, Any]]] = []
    by_rank: dict[int, list[Span]] = defaultdict(list)
    for span in trace:
        by_rank[span.rank].append(span)
    for sample in trace.memory:
        by_rank.setdefault(sample.rank, [])
    for rank, held in sorted(by_rank.items()):
        names += _named(rank, 0, process_name={"name": f"rank {rank}"}, process_sort_index={"sort_index": rank})
        for number, (lane, spans) in enumerate(_threads(held), start=1):
            thread = _THREADS * (rank + 1) + number
            names += _named(rank, thread, thread_name={"name": lane}, thread_sort_index={"sort_index": number})
            events += [(span.start_ns, -span.end_ns, _event(span, thread, begin_ns)) for span in spans]
    events += [(sample.time_ns, 0, _counter(sample, begin_ns)) for sample in trace.memory]
    return {
        "displayTimeUnit": "ns",
        "otherData": {
            "source": "lablib",
            "truth": trace.truth,
            "world_size": trace.world_size,
            "backend": trace.backend,
            "device": trace.device,
            "start_ns": begin_ns,
            "wall_offset_ns": trace.wall_offset_ns,
        },
        "traceEvents": names + [event for _, _, event in sorted(events, key=lambda event: event[:2])],
    }


def _named(rank: int, thread: int, **facts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"ph": "M", "name": name, "pid": rank, "tid": thread, "args": args} for name, args in facts.items()]


def _threads(spans: Iterable[Span]) -> list[tuple[str, list[Span]]]:
    """Return threads in the order in which a viewer shows them, each with spans that are nested or apart."""
    lanes: dict[tuple[int, str], list[Span]] = defaultdict(list)
    for span in spans:
        about = _LANES[span.kind]
        group = f"group {span.group}" if span.group else ""
        lanes[_ORDER.index(about), ", ".join(filter(None, (about, group, span.lane)))].append(span)
    threads = []
    for (place, lane), held in sorted(lanes.items(), key=lambda item: item[0]):
        rows = _rows(held, nested=_ORDER[place] in _NESTED)
        threads += [(lane if row == 0 else f"{lane} ({row + 1})", spans) for row, spans in enumerate(rows)]
    return threads


def _rows(spans: list[Span], *, nested: bool) -> list[list[Span]]:
    """Spread the spans of a lane over rows without conflicts: the first row where each fits."""
    rows: list[tuple[list[Span], list[int]]] = []
    for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns)):
        for _, ends in rows:
            while ends and ends[-1] <= span.start_ns:
                ends.pop()
        fitting = (row for row in rows if not row[1] or (nested and span.end_ns <= row[1][-1]))
        if (row := next(fitting, None)) is None:
            row = ([], [])
            rows.append(row)
        row[0].append(span)
        row[1].append(span.end_ns)
    return [held for held, _ in rows]


def _counter(sample: MemorySample, begin_ns: int) -> dict[str, Any]:
    args = {category.value: nbytes for category, nbytes in zip(Category, sample.nbytes, strict=True)}
    at = (sample.time_ns - begin_ns) / 1000
    return {"ph": "C", "name": "memory (bytes)", "pid": sample.rank, "tid": 0, "ts": at, "args": args}


def _event(span: Span, thread: int, begin_ns: int) -> dict[str, Any]:
    event: dict[str, Any] = {
        "name": span.name,
        "cat": span.kind.value,
        "pid": span.rank,
        "tid": thread,
        "ts": (span.start_ns - begin_ns) / 1000,
        "args": _args(span),
    }
    if span.kind == Kind.GRADIENT:
        return event | {"ph": "i", "s": "t"}
    return event | {"ph": "X", "dur": span.length_ns / 1000}


def _args(span: Span) -> dict[str, Any]:
    facts = {
        "bytes": span.nbytes or None,
        "iteration": span.iteration,
        "bucket": span.bucket,
        "parameters": list(span.parameters) or None,
        "group": span.group or None,
        "ranks": list(span.ranks) or None,
        "sequence": span.sequence or None,
        "peer": span.peer,
        "source": f"{span.file}:{span.line}" if span.line else None,
    }
    return {name: fact for name, fact in facts.items() if fact is not None}
