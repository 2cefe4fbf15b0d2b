"""A `Trace` from what torch.profiler wrote: one rank's Kineto JSON, from CPUs or GPUs, of old releases or new.

    user_annotation    → REGION, FORWARD, OPTIMIZER, and the iteration from ProfilerStep#n
    autograd's nodes   → BACKWARD
    kernels            → COMPUTE, on a lane for each stream; NCCL's → COLLECTIVE
    c10d operators, record_param_comms, gloo: and nccl: marks → COLLECTIVE

Copies and fills of GPU memory are no compute and are left out. Buckets and single gradients cannot be seen, nor can the
bytes of gloo's calls where the profiler ran without ``record_shapes``: they read 0.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable

from lablib.trace.kineto_calls import collectives, is_communication, lane
from lablib.trace.kineto_events import Event, Profile, Thread, rank_in_name, read
from lablib.trace.spans import Kind, Span, Trace

__all__ = ["decode", "rank_in_name"]

_STEP = "ProfilerStep#"
_FORWARD = ("DistributedDataParallel.forward", "FullyShardedDataParallel.forward")
_OPTIMIZER = "Optimizer.step#"
_FOREVER_NS = 1 << 63

Iteration = Callable[[int], "int | None"]


def decode(data: bytes, *, name: str, world_size: int = 1) -> Trace:
    """Return the trace of one rank.

    Args:
        data: the file's bytes, unzipped.
        name: the file's name, which is asked for the rank where the file does not tell.
        world_size: the number of ranks where the file does not tell.

    Raises:
        TraceError: it is no file of torch.profiler, or damaged; the message says where.
    """
    profile = read(data, name=name, world_size=world_size)
    forwards = _outermost(event for event in profile.marks if event.name in _FORWARD)
    backwards = _backwards(profile.nodes)
    iteration = _iterations(profile.marks, forwards, backwards)
    main = _main_thread(profile.marks)

    def span(kind: Kind, name: str, event: Event, lane: str = "") -> Span:
        return Span(
            profile.rank, name, kind, event.start_ns, event.end_ns, iteration=iteration(event.start_ns), lane=lane
        )

    spans = [span(Kind.FORWARD, "forward", event) for event in forwards]
    spans += [span(Kind.BACKWARD, "backward", event) for event in backwards]
    for event in profile.marks:
        if event.name.startswith(_OPTIMIZER):
            spans.append(span(Kind.OPTIMIZER, "optimizer", event))
        elif event.name not in _FORWARD:
            spans.append(span(Kind.REGION, event.name, event, "" if event.thread == main else f"thread {event.thread}"))
    spans += _kernels(profile, iteration)
    spans += collectives(profile, iteration)
    return Trace.of_spans(
        spans,
        world_size=profile.world_size,
        backend=profile.backend,
        device=profile.device,
        wall_offset_ns=profile.wall_offset_ns,
    )


def _kernels(profile: Profile, iteration: Iteration) -> list[Span]:
    """Return compute kernels, each in the iteration that launched it: the GPU runs behind."""
    return [
        Span(
            profile.rank,
            kernel.name,
            Kind.COMPUTE,
            kernel.start_ns,
            kernel.end_ns,
            iteration=iteration(profile.launch(kernel)[1]),
            lane=lane(kernel),
        )
        for kernel in profile.kernels
        if not is_communication(kernel)
    ]


def _main_thread(marks: list[Event]) -> Thread:
    """Return the thread that the profiler's steps are on, else the first mark."""
    return min(marks, key=lambda mark: (not mark.name.startswith(_STEP), mark.start_ns)).thread if marks else ""


def _outermost(events: Iterable[Event]) -> list[Event]:
    """Return events that are in no other of them on their thread: FSDP marks the forward of every part."""
    kept: list[Event] = []
    ends: dict[Thread, int] = {}
    for event in sorted(events, key=lambda event: (event.start_ns, -event.end_ns)):
        if event.start_ns >= ends.get(event.thread, -_FOREVER_NS):
            kept.append(event)
            ends[event.thread] = event.end_ns
    return kept


def _backwards(nodes: list[Event]) -> list[Event]:
    """Return a backward pass for each row of nodes whose sequence numbers fall.

    Autograd evaluates what forward made last first, so a number that rises begins the next pass
    (torch/csrc/autograd/engine.cpp). Passes on several threads at one time are one pass.
    """
    passes: list[list[Event]] = []
    of_thread: dict[Thread, tuple[list[Event], int | None]] = {}
    for node in _outermost(nodes):
        held, last = of_thread.get(node.thread, (None, None))
        number = node.number("Sequence number")
        if held is None or (number is not None and last is not None and number > last):
            held = []
            passes.append(held)
        held.append(node)
        of_thread[node.thread] = (held, last if number is None else number)
    joined: list[Event] = []
    for held in passes:
        start_ns, end_ns = held[0].start_ns, max(node.end_ns for node in held)
        if joined and start_ns < joined[-1].end_ns:
            before = joined.pop()
            start_ns, end_ns = before.start_ns, max(before.end_ns, end_ns)
        joined.append(Event("backward", start_ns, end_ns, held[0].thread, {}))
    return joined


def _iterations(marks: list[Event], forwards: list[Event], backwards: list[Event]) -> Iteration:
    """Return a function from a moment to its iteration, or None: by the profiler's steps, else by forwards."""
    begins: list[tuple[int, int, int]] = []
    for mark in marks:
        number = mark.name.removeprefix(_STEP)
        if mark.name.startswith(_STEP) and number.isdecimal() and len(number) < 19:
            begins.append((mark.start_ns, mark.end_ns, int(number)))
    if not begins:
        turned = True
        for moment_ns, is_forward in sorted(
            [(event.start_ns, True) for event in forwards] + [(event.start_ns, False) for event in backwards]
        ):
            if is_forward and turned:
                begins.append((moment_ns, _FOREVER_NS, len(begins)))
            turned = not is_forward
    begins.sort()
    starts = [start for start, _, _ in begins]

    def iteration(moment_ns: int) -> int | None:
        at = bisect.bisect_right(starts, moment_ns) - 1
        return begins[at][2] if at >= 0 and moment_ns < begins[at][1] else None

    return iteration
