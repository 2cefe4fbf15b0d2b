"""From what the ranks left behind to one error: the first cause, and what the others were doing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lablib.engine import places
from lablib.engine.logbook import NO_PEER, Entry
from lablib.engine.wire import Failed, Frame
from lablib.errors import RankFailed, RankLost, RunError, RunTimeout

_PEER_IS_GONE = re.compile(
    r"closed by peer|connection reset|connection was (likely )?closed|broken pipe|remote process exited|ncclRemoteError"
    r"|peer closed|socket closed|failed to (recv|send)",
    re.IGNORECASE,
)
_FROM_A_BACKEND = re.compile(r"\.(cc|cpp|h|hpp):\d+|nccl|store", re.IGNORECASE)
_BACKEND_ERRORS = ("RuntimeError", "DistError", "DistBackendError", "DistNetworkError", "DistStoreError")
_ADDRESS = re.compile(r"\[[\w.:]+\]:\d+|(?<=:)\d{4,5}\b|0x[0-9a-f]{6,}")
_SUMMARY_CHARS = 300
_SHOWN_FRAMES = 4  # at each end of a deep traceback
_POINT_TO_POINT = ("send", "recv")
_COLLECTIVE_FILES = re.compile(r"torch[/\\]distributed[/\\]")
_LAST_LINES = 5


@dataclass(frozen=True)
class Evidence:
    """What is known of one rank when a run has gone wrong.

    Args:
        state: ``starting``, ``running``, ``done``, ``failed`` or ``lost``.
        failure: its exception, where it reported one.
        ended: how its process ended, such as ``was killed by SIGKILL``, where it did.
        stack: what its main thread was doing, outermost frame first.
        calls: the last collectives it began.
        output: what it printed.
    """

    rank: int
    state: str
    failure: Failed | None = None
    ended: str = ""
    stack: tuple[Frame, ...] = ()
    calls: tuple[Entry, ...] = ()
    output: str = ""


def is_consequence(failure: Failed) -> bool:
    """Return whether an exception only says that another rank went away."""
    from_a_backend = failure.kind in _BACKEND_ERRORS and _FROM_A_BACKEND.search(failure.message)
    return bool(from_a_backend and _PEER_IS_GONE.search(failure.message))


def explain(evidence: Sequence[Evidence], *, timeout_s: float | None) -> RunError:
    """Return the error for a run that went wrong.

    Args:
        evidence: one for each rank, in rank order.
        timeout_s: the limit that was reached, or None where a rank failed or was lost.
    """
    failed = [one for one in evidence if one.failure]
    causes = [one for one in failed if one.failure and not is_consequence(one.failure)]
    lost = [one for one in evidence if one.state == "lost"]
    if causes:
        return _failed(causes, evidence)
    if lost:
        return _lost(lost, evidence)
    if failed:
        return _failed(failed, evidence)
    return _timeout(evidence, timeout_s or 0.0)


def _failed(causes: Sequence[Evidence], evidence: Sequence[Evidence]) -> RankFailed:
    first = min(causes, key=_moment)
    # ranks that fail at the same line do so in any order: the lowest one speaks for all
    alike = [one for one in causes if _scene(one) == _scene(first)]
    culprit = alike[0]
    failure = culprit.failure
    assert failure is not None
    who = _ranks([one.rank for one in alike])
    message = _first_line(failure.message)
    own = places.learners(failure.frames) or list(failure.frames[-1:])
    if failure.refused:
        summary, own = f"{who}: {message}", []
    else:
        summary = f"{who} raised {failure.kind}" + (f": {message}" if message else "")
    lines = [f"  {places.say(frame)}, in {frame.function}\n    {frame.text.strip()}" for frame in own]
    if len(lines) > 2 * _SHOWN_FRAMES:
        gap = f"  … {len(lines) - 2 * _SHOWN_FRAMES} more lines; error.tracebacks[{culprit.rank}] has them"
        lines = [*lines[:_SHOWN_FRAMES], gap, *lines[-_SHOWN_FRAMES:]]
    if "\n" in failure.message.strip():
        lines.append(failure.message.strip()[: 10 * _SUMMARY_CHARS])
    lines += [f"  {line}" for line in failure.background]
    others = [one for one in evidence if one not in alike]
    return RankFailed(
        _bounded(summary),
        details="\n".join([*lines, *doing(others)]),
        rank=culprit.rank,
        tracebacks=_tracebacks(evidence),
    )


def _moment(one: Evidence) -> int:
    return one.failure.at_ns if one.failure else 0


def _scene(one: Evidence) -> tuple[str, Frame | None]:
    assert one.failure is not None
    own = places.learners(one.failure.frames) or one.failure.frames
    return one.failure.kind, own[-1] if own else None


def _first_line(message: str) -> str:
    first, *_ = message.strip().splitlines() or [""]
    return _ADDRESS.sub("…", first) if _FROM_A_BACKEND.search(first) else first


def _bounded(summary: str) -> str:
    return summary if len(summary) <= _SUMMARY_CHARS else f"{summary[:_SUMMARY_CHARS]}…"


def _lost(lost: Sequence[Evidence], evidence: Sequence[Evidence]) -> RankLost:
    first = lost[0]
    alike = [one.rank for one in lost if one.ended == first.ended]
    who = _ranks(alike) if len(alike) > 1 else f"rank {first.rank}"
    summary = f"{who} {_plural(first.ended, len(alike))} before the function returned"
    lines = []
    if first.stack:
        lines.append(f"  it was {_where(first)}")
    if first.calls:
        lines.append(f"  the last call it began: {_call(first.calls[-1])}")
    printed = first.output.rstrip().splitlines()[-_LAST_LINES:]
    if printed:
        lines += ["  the last lines it printed:", *(f"    {line}" for line in printed)]
    if "SIGKILL" in first.ended:
        lines.append("  the system kills the largest process in this way when memory runs out")
    others = [one for one in evidence if one.rank not in alike]
    return RankLost(
        summary,
        details="\n".join([*lines, *doing(others)]),
        rank=first.rank,
        tracebacks=_tracebacks(evidence),
    )


def _timeout(evidence: Sequence[Evidence], timeout_s: float) -> RunTimeout:
    running = [one for one in evidence if one.state == "running"]
    busy = [one for one in running if not _waits_in(one)]
    absent: list[int] = []
    story = _unmade_group(running)
    if not story:
        story, absent = _unmet_collective(running, evidence)
    waiting = [one for one in running if _waits_in(one)]
    if not story and waiting:
        story = "; ".join(f"rank {one.rank} waits in {_call_with_peer(one.calls[-1])}{_spot(one)}" for one in waiting)
    if not story and busy:
        story = "; ".join(f"rank {one.rank} is still {_where(one)}" for one in busy)
    if not story:
        story = f"{_ranks([one.rank for one in evidence if one.state == 'starting'])} did not start"
    return RunTimeout(
        _bounded(f"time is up after {timeout_s:g} s: {story}"),
        details="\n".join(doing(evidence)),
        rank=absent[0] if absent else (busy[0].rank if len(busy) == 1 else None),
        tracebacks=_tracebacks(evidence),
    )


def _unmade_group(running: Sequence[Evidence]) -> str:
    waiting = [one for one in running if _makes_a_group(one)]
    if not waiting:
        return ""
    own = places.learners(waiting[0].stack)
    place = f" at {places.say(own[-1])}" if own else ""
    verb = "waits" if len(waiting) == 1 else "wait"
    who = _ranks([one.rank for one in waiting])
    return f"{who} {verb} in new_group{place}; every rank must make every group, in the same order"


def _makes_a_group(one: Evidence) -> bool:
    return any(frame.function == "new_group" and _COLLECTIVE_FILES.search(frame.file) for frame in one.stack)


def _unmet_collective(running: Sequence[Evidence], evidence: Sequence[Evidence]) -> tuple[str, list[int]]:
    """Return the story of a collective that some rank began and another never reached, and who that is."""
    for one in running:
        collectives = _collectives(one)
        if not collectives:
            continue
        call = collectives[-1]
        disagreeing = _disagreement(call, evidence)
        if disagreeing is not None:
            other, theirs = disagreeing
            return (
                f"call {call.sequence} on {_group(call)} is {_sized(call)} on rank {one.rank}{_at(call)} "
                f"but {_sized(theirs)} on rank {other}{_at(theirs)}"
            ), []
        absent = _absent(call, evidence)
        if absent:
            together = _ranks([other.rank for other in running if _reached(other, call)])
            return f"{together} began {call.op}{_spot(one, call)}, and {_ranks(absent)} never arrived", absent
    return "", []


def _reached(one: Evidence, call: Entry) -> bool:
    return any(_same_group(other, call) and other.sequence == call.sequence for other in _collectives(one))


def _same_group(one: Entry, other: Entry) -> bool:
    # groups are called by their count, so that two of them may have one name
    return (one.group, one.members) == (other.group, other.members)


def _spot(one: Evidence, call: Entry | None = None) -> str:
    """Return where a call was made; for one that autograd made, where the learner's code waits for it."""
    call = call or one.calls[-1]
    own = places.learners(one.stack)
    return _at(call) or (f" at {places.say(own[-1])}" if own else "")


def _waits_in(one: Evidence) -> bool:
    return bool(one.calls) and any(_COLLECTIVE_FILES.search(frame.file) for frame in one.stack[-4:])


def _absent(call: Entry, evidence: Sequence[Evidence]) -> list[int]:
    def arrived(one: Evidence) -> bool:
        return any(_same_group(other, call) and other.sequence >= call.sequence for other in _collectives(one))

    return [one.rank for one in evidence if one.rank in call.ranks and not arrived(one)]


def _disagreement(call: Entry, evidence: Sequence[Evidence]) -> tuple[int, Entry] | None:
    for one in evidence:
        for other in _collectives(one):
            if (_same_group(other, call) and other.sequence == call.sequence) and (
                other.op != call.op
                or (other.nbytes != call.nbytes and call.op in ("all_reduce", "broadcast", "reduce"))
            ):
                return one.rank, other
    return None


def _collectives(one: Evidence) -> list[Entry]:
    return [call for call in one.calls if call.op not in _POINT_TO_POINT]


def doing(evidence: Sequence[Evidence]) -> list[str]:
    """Return a line for each rank: what it was doing at the end."""
    return [f"rank {one.rank} {_activity(one)}" for one in evidence]


def _activity(one: Evidence) -> str:
    if one.failure and is_consequence(one.failure):
        return "then lost its connection, which is a consequence"
    if one.failure:
        return _bounded(f"raised {one.failure.kind}: {_first_line(one.failure.message)}".rstrip(": "))
    if one.state == "lost":
        return one.ended
    if one.state == "done":
        return "had returned"
    if one.state == "starting":
        return "was starting"
    if _makes_a_group(one):
        return f"was in new_group, {_where(one)}"
    if _waits_in(one):
        own = places.learners(one.stack)
        return f"was waiting in {_call_with_peer(one.calls[-1])}" + (
            f" at {places.say_with_text(own[-1])}" if own else ""
        )
    return f"was {_where(one)}"


def _where(one: Evidence) -> str:
    frames = places.learners(one.stack) or list(one.stack[-1:])
    return f"at {places.say_with_text(frames[-1])}" if frames else "busy, and gave no answer"


def _call(call: Entry) -> str:
    return f"{_call_with_peer(call)}, {call.nbytes:,} bytes{_at(call)}"


def _call_with_peer(call: Entry) -> str:
    word = {"send": " to", "recv": " from"}.get(call.op)
    return f"{call.op}{word} rank {call.peer}" if word and call.peer != NO_PEER else call.op


def _sized(call: Entry) -> str:
    return f"{call.op} of {call.nbytes:,} bytes" if call.nbytes else call.op


def _at(call: Entry) -> str:
    return f" at {places.say(Frame(call.file, call.line, ''))}" if call.line else ""


def _group(call: Entry) -> str:
    return "the default group" if call.group == "0" else f"the group of {_ranks(call.ranks)}"


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _plural(ended: str, count: int) -> str:
    return ended.replace("was ", "were ", 1) if count > 1 else ended


def _tracebacks(evidence: Sequence[Evidence]) -> dict[int, str]:
    found = {}
    for one in evidence:
        if one.failure:
            found[one.rank] = one.failure.traceback
        elif one.stack:
            found[one.rank] = "\n".join(
                f'  File "{frame.file}", line {frame.line}, in {frame.function}' for frame in one.stack
            )
    return found
