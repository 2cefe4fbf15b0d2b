"""What torch.profiler wrote (Kineto's Chrome JSON), checked and sorted out: the events that a `Trace` needs.

Only complete events (``"ph": "X"``) of few kinds matter; aten operators, copies, flow arrows and the rest are left.
"""

from __future__ import annotations

import decimal
import json
import re
import reprlib
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from lablib.errors import TraceError

PARAMETERS = "record_param_comms"
NODE = "autograd::engine::evaluate_function"

_BACKEND = re.compile(r"(?:nccl|gloo|mpi|ucc|xccl|hccl):[^:]")
_RANK = re.compile(r"rank[-_. ]?(\d{1,6})", re.IGNORECASE)
_SCHEMA = 1
_EPOCH_US = (
    10**15
)  # microseconds since 1970 have been more since 2001; no clock that starts with the machine gets there
_MOST_US = 1 << 53  # so that nanoseconds fit into 64 bits

Thread = int | str


@dataclass(frozen=True, slots=True)
class Event:
    """One complete event of the profiler, in nanoseconds."""

    name: str
    start_ns: int
    end_ns: int
    thread: Thread
    args: dict[str, Any]

    def number(self, key: str) -> int | None:
        """Return an argument that is a whole number, or None."""
        value = self.args.get(key)
        return value if type(value) is int else None

    def text(self, key: str) -> str:
        """Return an argument that is a text, or an empty one."""
        value = self.args.get(key)
        return value if type(value) is str else ""


@dataclass
class Profile:
    """One rank's profile: its facts, and its events by what they tell.

    Args:
        rank, world_size, backend, device, wall_offset_ns: as in `Trace`.
        groups: process group to its global ranks, where the file lists them.
        marks: what the learner's code, DDP, optimizers and the profiler marked.
        communication: ``c10d::`` operators, their recorded parameters, and what backends marked.
        nodes: nodes of the graph that a backward pass evaluates.
        kernels: on the GPU.
        launches: correlation to the thread and moment at which a kernel was launched.
    """

    rank: int
    world_size: int
    backend: str | None
    device: str
    wall_offset_ns: int
    groups: dict[str, tuple[int, ...]]
    marks: list[Event] = field(default_factory=list)
    communication: list[Event] = field(default_factory=list)
    nodes: list[Event] = field(default_factory=list)
    kernels: list[Event] = field(default_factory=list)
    launches: dict[int, tuple[Thread, int]] = field(default_factory=dict)

    def launch(self, kernel: Event) -> tuple[Thread, int]:
        """Return the thread and moment of a kernel's launch; no thread and its own start where that is not known."""
        return self.launches.get(kernel.number("correlation") or 0, ("", kernel.start_ns))


def rank_in_name(name: str) -> int | None:
    """Return the rank that a file's name tells, such as 3 for ``trace_rank3.json``."""
    found = _RANK.search(name)
    return int(found[1]) if found else None


def read(data: bytes, *, name: str, world_size: int) -> Profile:
    """Sort out what torch.profiler wrote.

    Args:
        data: the file's bytes.
        name: the file's name, asked for the rank where the file does not tell.
        world_size: the number of ranks where the file does not tell.

    Raises:
        TraceError: it is no such file, or damaged; the message says where.
    """
    document = _parsed(data)
    events = document.get("traceEvents") if type(document) is dict else None
    if type(events) is not list:
        raise TraceError("this is JSON, but neither a trace that lablib saved nor one of torch.profiler")
    if type(version := document.get("schemaVersion", _SCHEMA)) is not int or version > _SCHEMA:
        raise TraceError(f"schemaVersion {reprlib.repr(version)} of torch.profiler is not known; {_SCHEMA} is")
    profile = _facts(document, name, world_size)
    zero_ns = 0
    if not profile.wall_offset_ns:
        profile.wall_offset_ns = zero_ns = _epoch_second_ns(events)
    for position, event in enumerate(events):
        if type(event) is not dict:
            raise TraceError(f"event {position} is {reprlib.repr(event)}, not an object in braces")
        if event.get("ph") == "X":
            _put(profile, event, position, zero_ns)
    seen = profile.marks or profile.communication or profile.nodes or profile.kernels
    if not seen and "schemaVersion" not in document:
        raise TraceError("it holds no event of torch.profiler: another program's trace, or one for viewers (to_chrome)")
    if profile.kernels:
        profile.device = "cuda"
    return profile


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data.decode(), parse_float=Decimal)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise TraceError(f"{where}: {error.msg}: the file is damaged, cut off, or no trace") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TraceError(f"line {line}: not text ({error.reason}): the file is damaged, or no trace") from None
    except (ValueError, RecursionError, decimal.DecimalException) as error:
        raise TraceError(f"the file is damaged, or no trace: {error}") from None


def _facts(document: dict[str, Any], name: str, world_size: int) -> Profile:
    told = document.get("distributedInfo", {})
    if type(told) is not dict:
        raise TraceError(f"distributedInfo is {reprlib.repr(told)}, not an object in braces")
    rank = told.get("rank", rank_in_name(name) or 0)
    size = told.get("world_size", max(world_size, rank + 1) if type(rank) is int else world_size)
    if type(rank) is not int or type(size) is not int or not 0 <= rank < size:
        raise TraceError(f"distributedInfo: rank {reprlib.repr(rank)} of {reprlib.repr(size)} cannot be")
    base_ns = document.get("baseTimeNanoseconds", 0)
    if type(base_ns) is not int or not 0 <= base_ns < 1000 * _MOST_US:
        raise TraceError(f"baseTimeNanoseconds is {reprlib.repr(base_ns)}, not a number of nanoseconds")
    backend = told.get("backend")
    backend = None if type(backend) is not str else "nccl" if "nccl" in backend else backend
    return Profile(rank, size, backend, "cuda" if backend == "nccl" else "cpu", base_ns, _groups(told, size))


def _groups(told: dict[str, Any], world_size: int) -> dict[str, tuple[int, ...]]:
    listed = told.get("pg_config")
    groups = {}
    for group in listed if type(listed) is list else []:
        if type(group) is dict and type(group.get("pg_name")) is str:
            groups[group["pg_name"]] = ranks_in(group.get("ranks"), world_size)
    return groups


def ranks_in(value: Any, world_size: int) -> tuple[int, ...]:
    """Return a list of ranks; none where it is no such list, or a shortened one."""
    if type(value) is not list or not all(type(rank) is int and 0 <= rank < world_size for rank in value):
        return ()
    return tuple(value)


def _epoch_second_ns(events: list[Any]) -> int:
    """Return the second at which old profiles begin, whose times count from 1970; 0 where they do not."""
    for event in events:
        ts = event.get("ts") if type(event) is dict else None
        if isinstance(ts, (int, Decimal)) and _EPOCH_US < ts < _MOST_US:
            return int(ts) // 1_000_000 * 1_000_000_000
    return 0


def _put(profile: Profile, raw: dict[str, Any], position: int, zero_ns: int) -> None:
    category, name = raw.get("cat"), raw.get("name")
    if type(category) is not str:
        return
    if type(name) is not str:
        raise TraceError(f"event {position} has the name {reprlib.repr(name)}, not a text")
    if category in ("cpu_op", "Operator"):
        if name.startswith("c10d::") or name == PARAMETERS:
            profile.communication.append(_event(raw, name, position, zero_ns))
        elif name.startswith(NODE):
            profile.nodes.append(_event(raw, name, position, zero_ns))
    elif category in ("kernel", "Kernel"):
        profile.kernels.append(_event(raw, name, position, zero_ns))
    elif category == "user_annotation":
        kept = profile.communication if _BACKEND.match(name) else profile.marks
        kept.append(_event(raw, name, position, zero_ns))
    elif category.endswith(("_runtime", "_driver", "Runtime")):
        args = raw.get("args")
        correlation = args.get("correlation") if type(args) is dict else None
        if type(correlation) is int and "aunch" in name:
            event = _event(raw, name, position, zero_ns)
            profile.launches[correlation] = (event.thread, event.start_ns)


def _event(raw: dict[str, Any], name: str, position: int, zero_ns: int) -> Event:
    start_ns = _ns(raw.get("ts"), "ts", name, position)
    length_ns = _ns(raw.get("dur"), "dur", name, position)
    if length_ns < 0:
        raise TraceError(f"event {position} ({name}) ends before it starts: dur is {raw['dur']}")
    thread, args = raw.get("tid"), raw.get("args", {})
    if not isinstance(thread, (int, str)):
        raise TraceError(f"event {position} ({name}) has the tid {reprlib.repr(thread)}, not a thread")
    if type(args) is not dict:
        raise TraceError(f"event {position} ({name}) has the args {reprlib.repr(args)}, not an object in braces")
    return Event(name, start_ns - zero_ns, start_ns + length_ns - zero_ns, thread, args)


def _ns(microseconds: Any, key: str, name: str, position: int) -> int:
    if isinstance(microseconds, (int, Decimal)) and -_MOST_US < microseconds < _MOST_US:
        return round(microseconds * 1000)
    raise TraceError(f"event {position} ({name}): {key} is {reprlib.repr(microseconds)}, not a time in microseconds")
