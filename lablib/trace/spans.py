"""One stretch of time on one rank, and all of them together.

A trace is made by real ranks (`engine`), by a simulation (`sim`) or read from a file; pictures and tables take any.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from typing import Literal

from lablib.trace.memory import MemorySample

Truth = Literal["real", "emulated", "simulated"]


class Kind(str, enum.Enum):
    """What a span is about."""

    REGION = "region"
    """A part of the learner's code, marked with ``span(name)``."""
    FORWARD = "forward"
    """A call of an outermost module."""
    BACKWARD = "backward"
    """A backward pass through the graph."""
    OPTIMIZER = "optimizer"
    """An optimizer's step."""
    COMPUTE = "compute"
    """Work of one layer or kernel: an emulated layer's, a simulated layer's, a GPU kernel's."""
    GRADIENT = "gradient"
    """The moment at which a parameter's gradient is ready; start and end are the same. Its name is the parameter's."""
    BUCKET = "bucket"
    """A DDP bucket fills: from its first ready gradient to its last."""
    COLLECTIVE = "collective"
    """A collective or point-to-point operation, from its call to its completion on this rank."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Span:
    """One stretch of time on one rank.

    Args:
        rank: the global rank.
        name: the region's, layer's or parameter's name, or the operation, such as ``all_reduce``.
        kind: what it is about.
        start_ns, end_ns: on ``time.perf_counter_ns``, one clock for all ranks of a host.
        nbytes: payload of a collective's call on this rank; size of a gradient or bucket; otherwise 0.
        iteration: which iteration it belongs to, from 0: a forward that follows a backward begins the next.
            None before the first forward.
        bucket: index of the DDP bucket that a BUCKET fills or a COLLECTIVE reduces; None elsewhere.
        parameters: names of a BUCKET's parameters, in the bucket's order.
        group: name of a COLLECTIVE's process group.
        ranks: global ranks in that group.
        sequence: which call on this group it was, from 1; each point-to-point direction counts on its own.
        peer: root, source or destination of a COLLECTIVE, as a global rank; None where there is none.
        file, line: where the learner's code made the call; line 0 where no Python code of theirs did.
        lane: where it ran, such as ``stream 7``; empty for the rank's own thread.
    """

    rank: int
    name: str
    kind: Kind
    start_ns: int
    end_ns: int
    nbytes: int = 0
    iteration: int | None = None
    bucket: int | None = None
    parameters: tuple[str, ...] = ()
    group: str = ""
    ranks: tuple[int, ...] = ()
    sequence: int = 0
    peer: int | None = None
    file: str = ""
    line: int = 0
    lane: str = ""

    @property
    def length_ns(self) -> int:
        """Return how long it took."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Trace:
    """Everything that was recorded or predicted of one run.

    Args:
        spans: in order of their start; `Trace.of_spans` sorts.
        world_size: number of ranks.
        truth: ``real`` processes and arithmetic; ``emulated`` where compute sleeps or links delay; ``simulated``.
        backend: ``gloo`` or ``nccl``; None where no group was made.
        device: ``cpu`` or ``cuda``.
        wall_offset_ns: add it to a span's times to get nanoseconds since 1970; 0 where unknown.
        memory: what was in the ranks' memory, in order of time; empty where nobody looked.
    """

    spans: tuple[Span, ...]
    world_size: int
    truth: Truth = "real"
    backend: str | None = None
    device: str = "cpu"
    wall_offset_ns: int = 0
    memory: tuple[MemorySample, ...] = ()

    @classmethod
    def of_spans(
        cls,
        spans: Iterable[Span],
        *,
        world_size: int,
        truth: Truth = "real",
        backend: str | None = None,
        device: str = "cpu",
        wall_offset_ns: int = 0,
        memory: Iterable[MemorySample] = (),
    ) -> Trace:
        """Return a trace of spans and samples in any order."""
        ordered = tuple(sorted(spans, key=lambda span: (span.start_ns, span.rank, -span.end_ns)))
        sampled = tuple(sorted(memory, key=lambda sample: (sample.time_ns, sample.rank)))
        return cls(ordered, world_size, truth, backend, device, wall_offset_ns, sampled)

    def __iter__(self) -> Iterator[Span]:
        return iter(self.spans)

    def __len__(self) -> int:
        return len(self.spans)

    def only(
        self,
        *kinds: Kind | str,
        rank: int | None = None,
        iteration: int | None = None,
        name: str | None = None,
    ) -> Trace:
        """Return the spans of these kinds, rank, iteration and name; what is left out is not asked for.

        Samples of memory stay whole: see `lablib.analysis.memory`.
        """
        wanted = {Kind(kind) for kind in kinds}
        return self.with_spans(
            span
            for span in self.spans
            if (not wanted or span.kind in wanted)
            and (rank is None or span.rank == rank)
            and (iteration is None or span.iteration == iteration)
            and (name is None or span.name == name)
        )

    def with_spans(self, spans: Iterable[Span]) -> Trace:
        """Return the same run with other spans."""
        return Trace.of_spans(
            spans,
            world_size=self.world_size,
            truth=self.truth,
            backend=self.backend,
            device=self.device,
            wall_offset_ns=self.wall_offset_ns,
            memory=self.memory,
        )

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Trace:
        """Read a trace that `save` or torch.profiler wrote (Kineto's JSON), gzip or not.

        Args:
            path: a file, or a folder with one file for each rank.

        Raises:
            TraceError: it is missing, empty, damaged, cut off, of a newer version, or no trace at all; the message
                names the file and the line.
        """
        from lablib.trace import files

        return files.load(path)

    @classmethod
    def merge(cls, traces: Iterable[Trace]) -> Trace:
        """Return one trace of all ranks from traces that hold some ranks each, on the clock of the first.

        Raises:
            TraceError: there is none, two hold the same rank, they are not of one job, or only some clocks are known.
        """
        from lablib.trace.merge import merge

        return merge(traces)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the trace as JSON lines, whole or not at all; ``.gz`` at the end of the name compresses.

        Raises:
            TraceError: the folder is missing, the file cannot be written, or a span could not be read back.
        """
        from lablib.trace import files

        files.save(self, path)

    def to_chrome(self, path: str | PathLike[str]) -> None:
        """Write the trace for ui.perfetto.dev or chrome://tracing; ``.gz`` at the end of the name compresses.

        Raises:
            TraceError: the folder is missing, or the file cannot be written.
        """
        from lablib.trace import chrome

        chrome.save(self, path)

    @property
    def iterations(self) -> list[int]:
        """Return the iterations that were recorded."""
        return sorted({span.iteration for span in self.spans if span.iteration is not None})

    @property
    def start_ns(self) -> int:
        """Return when the first span starts, or memory is first looked at; 0 for an empty trace."""
        return min((*(span.start_ns for span in self.spans), *(one.time_ns for one in self.memory)), default=0)

    @property
    def end_ns(self) -> int:
        """Return when the last span ends, or memory is last looked at; 0 for an empty trace."""
        return max((*(span.end_ns for span in self.spans), *(one.time_ns for one in self.memory)), default=0)

    def __repr__(self) -> str:
        ranks = f"{self.world_size} rank{'s' if self.world_size != 1 else ''}"
        samples = f", {len(self.memory)} samples of memory" if self.memory else ""
        length_ms = (self.end_ns - self.start_ns) / 1e6
        return f"Trace({self.truth}, {ranks}, {len(self.spans)} spans{samples}, {length_ms:.1f} ms)"
