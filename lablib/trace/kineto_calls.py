"""Each collective exactly once, though torch.profiler shows it up to four times.

    NCCL   c10d::allreduce_ ⊃ record_param_comms ⊃ nccl:all_reduce ⊃ launch ─► kernel on a stream
    gloo   c10d::allreduce_ ─► gloo:all_reduce on a thread of the backend

The operator tells which call it was (gloo carries reduce_scatter as an all-reduce), its parameters tell bytes and
group, and the kernel or the backend's thread tells when it really ran.
"""

from __future__ import annotations

import bisect
import json
import math
import re
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lablib.trace.kineto_events import PARAMETERS, Event, Profile, Thread, ranks_in
from lablib.trace.spans import Kind, Span

_KERNEL = re.compile(r"(?:void )?nccl\w*Kernel(?:_([A-Za-z]+))?")
# From torch/csrc/distributed/c10d: how operators, backends and NCCL's kernels begin; the first that fits
_NAMES = {
    "allreduce": "all_reduce",
    "sparseallreduce": "all_reduce",
    "broadcast": "broadcast",
    "reducescatter": "reduce_scatter",
    "reduce": "reduce",
    "allgather": "all_gather",
    "gather": "gather",
    "scatter": "scatter",
    "alltoall": "all_to_all",
    "barrier": "barrier",
    "monitoredbarrier": "monitored_barrier",
    "sendrecv": "send_recv",
    "send": "send",
    "recv": "recv",
    "coalesced": "coalesced",
}
_CARRIED_AS = {"reduce_scatter": "all_reduce"}  # by gloo
_WITHOUT_PAYLOAD = ("barrier", "monitored_barrier")
# c10::toString of a type, and what the profiler writes for a tensor's type
_SIZES = {
    1: "byte char bool unsigned_char signed_char float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz",
    2: "short short_int half bfloat16 uint16 unsigned_short",
    4: "int float uint32 unsigned_int complexhalf complex<half>",
    8: "long long_int long_long double uint64 unsigned_long complexfloat complex<float>",
    16: "complexdouble complex<double>",
}
_NBYTES = {name: nbytes for nbytes, names in _SIZES.items() for name in names.split()}


def is_communication(kernel: Event) -> bool:
    """Return whether a kernel is one of NCCL's."""
    return _KERNEL.match(kernel.name) is not None


def lane(kernel: Event) -> str:
    """Return the name of the stream that a kernel ran on."""
    return f"stream {kernel.args.get('stream', kernel.thread)}"


def collectives(profile: Profile, iteration: Callable[[int], int | None]) -> list[Span]:
    """Return each collective once.

    Args:
        profile: one rank's.
        iteration: which iteration a moment in nanoseconds belongs to.
    """
    calls = _calls(profile.communication)
    alone = _give_kernels(calls, profile)
    return [_span(call, profile, iteration(call.start_ns)) for call in _join_threads(calls) + alone]


@dataclass
class _Call:
    """What belongs to one call: nested events of its thread, outermost first; and what ran for it elsewhere."""

    events: list[Event]
    ran: list[Event] = field(default_factory=list)

    @property
    def start_ns(self) -> int:
        return self.events[0].start_ns

    @property
    def op(self) -> str:
        return next(filter(None, map(_op, self.events)), "")

    @property
    def is_asked(self) -> bool:
        """Whether an operator asked for it."""
        return not _is_mark(self.events[0])

    @property
    def is_carried(self) -> bool:
        """Whether it is known when it ran."""
        return bool(self.ran) or any(map(_is_mark, self.events))


def _is_mark(event: Event) -> bool:
    return event.name != PARAMETERS and not event.name.startswith("c10d::")


def _op(event: Event) -> str:
    kernel = _KERNEL.match(event.name)
    name = event.text("Collective name") or (kernel[1] or "" if kernel else event.name.split(":")[-1])
    plain = name.replace("_", "").lower()
    return next((op for start, op in _NAMES.items() if plain.startswith(start)), "")


def _calls(events: list[Event]) -> list[_Call]:
    """Return calls from nested events, by their start; what is no collective, such as a wait, is left out."""
    calls: list[_Call] = []
    open_calls: dict[Thread, _Call] = {}
    for event in sorted(events, key=lambda event: (event.start_ns, -event.end_ns)):
        outer = open_calls.get(event.thread)
        if outer is not None and event.start_ns < outer.events[0].end_ns:
            outer.events.append(event)
        elif _op(event):
            calls.append(_Call([event]))
            open_calls[event.thread] = calls[-1]
    return calls


def _give_kernels(calls: list[_Call], profile: Profile) -> list[_Call]:
    """Give each call the kernels that it launched; return a call for each kernel that none of them did."""
    by_thread: dict[Thread, list[_Call]] = defaultdict(list)
    by_id: dict[int | None, _Call] = {}
    for call in calls:
        by_thread[call.events[0].thread].append(call)
        by_id |= dict.fromkeys((event.number("External id") for event in call.events), call)
    by_id.pop(None, None)
    alone = []
    for kernel in filter(is_communication, profile.kernels):
        thread, moment_ns = profile.launch(kernel)
        before = by_thread[thread]
        at = bisect.bisect_right(before, moment_ns, key=lambda call: call.start_ns) - 1
        if at >= 0 and moment_ns < before[at].events[0].end_ns:
            before[at].ran.append(kernel)
        elif (found := by_id.get(kernel.number("External id"))) is not None:
            found.ran.append(kernel)
        else:
            alone.append(_Call([kernel], ran=[kernel]))
    return alone


def _join_threads(calls: list[_Call]) -> list[_Call]:
    """Give what ran on a backend's thread to the operator that asked for it, first come, first served."""
    asked: dict[str, deque[_Call]] = defaultdict(deque)
    kept = []
    for call in calls:
        if call.is_asked or call.ran:
            kept.append(call)
            if not call.is_carried:
                asked[_CARRIED_AS.get(call.op, call.op)].append(call)
        elif asked[_CARRIED_AS.get(call.op, call.op)]:
            asked[_CARRIED_AS.get(call.op, call.op)].popleft().ran = call.events
        else:
            kept.append(call)
    return kept


def _span(call: _Call, profile: Profile, iteration: int | None) -> Span:
    known = call.events + call.ran
    op = call.op or call.events[0].name
    told = next((event for event in known if "In msg nelems" in event.args and _op(event)), None)
    group, sequence, peer = "", 0, None
    ranks: tuple[int, ...] = ()
    if told is not None:
        group = told.text("Process Group Name")
        ranks = _ranks(told, group, profile)
        sequence = max(0, told.number("Seq") or 0)
        peer = told.number("Dst Rank" if op == "send" else "Src Rank")
    elif len(profile.groups) == 1:
        [(group, ranks)] = profile.groups.items()
    ran = call.ran or call.events[:1]
    return Span(
        profile.rank,
        op,
        Kind.COLLECTIVE,
        min(event.start_ns for event in ran),
        max(event.end_ns for event in ran),
        nbytes=0 if op in _WITHOUT_PAYLOAD else _told_nbytes(told, op) if told else _seen_nbytes(known, op),
        iteration=iteration,
        group=group,
        ranks=ranks,
        sequence=sequence,
        peer=peer if peer in range(profile.world_size) else None,
        lane=lane(ran[0]) if is_communication(ran[0]) else "",
    )


def _ranks(told: Event, group: str, profile: Profile) -> tuple[int, ...]:
    """Return the group's ranks; the profiler shortens long lists with dots, then the file's own list is asked."""
    value = told.args.get("Process Group Ranks")
    if type(value) is str:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    return ranks_in(value, profile.world_size) or profile.groups.get(group, ())


def _told_nbytes(told: Event, op: str) -> int:
    elements = told.number("Out msg nelems" if op in ("scatter", "recv") else "In msg nelems") or 0
    return max(0, elements) * _element_nbytes(told.text("dtype"))


def _seen_nbytes(events: list[Event], op: str) -> int:
    """Return the bytes of the tensors that a backend's mark shows, where shapes were recorded; else 0."""
    if op == "scatter":  # its mark shows what the root gives to all
        return 0
    for event in filter(_is_mark, events):
        shapes, types = event.args.get("Input Dims"), event.args.get("Input type")
        if type(shapes) is list and type(types) is list:
            return sum(_elements(shape) * _element_nbytes(name) for shape, name in zip(shapes, types, strict=False))
    return 0


def _elements(shape: Any) -> int:
    if type(shape) is not list or not all(type(size) is int and size >= 0 for size in shape):
        return 0
    return math.prod(shape)


def _element_nbytes(dtype: Any) -> int:
    return _NBYTES.get(dtype.replace("c10::", "").replace(" ", "_").lower(), 0) if type(dtype) is str else 0
