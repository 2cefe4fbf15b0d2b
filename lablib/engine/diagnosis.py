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
    r"|peer closed|socket closed",
    re.IGNORECASE,
)
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
    return bool(_PEER_IS_GONE.search(failure.message))


def explain(evidence: Sequence[Evidence], *, timeout_s: float | None) -> RunError:
    """Return the error for a run that went wrong.

    Args:
        evidence: one for each rank, in rank order.
        timeout_s: the limit that was reached, or None where a rank failed or was lost.
    """
    failed = sorted((one for one in evidence if one.failure), key=lambda one: one.failure.at_ns if one.failure else 0)
    causes = [one for one in failed if one.failure and not is_consequence(one.failure)]
    lost = [one for one in evidence if one.state == "lost"]
    if causes:
        return _failed(causes[0], evidence)
    if lost:
        return _lost(lost, evidence)
    if failed:
        return _failed(failed[0], evidence)
    return _timeout(evidence, timeout_s or 0.0)


def _failed(culprit: Evidence, evidence: Sequence[Evidence]) -> RankFailed:
    failure = culprit.failure
    assert failure is not None
    same = [
        one.rank
        for one in evidence
        if one.failure and (one.failure.kind, one.failure.message) == (failure.kind, failure.message)
    ]
    who = _ranks(same) if len(same) > 1 else f"rank {culprit.rank}"
    message = failure.message.strip().splitlines()[0] if failure.message.strip() else ""
    own = places.learners(failure.frames) or list(failure.frames[-1:])
    if failure.refused:
        summary, own = f"{who}: {message}", []
    elif is_consequence(failure):
        summary = f"{who} lost the connection to another rank"
    else:
        summary = f"{who} raised {failure.kind}" + (f": {message}" if message else "")
    lines = [f"  {places.say(frame)}, in {frame.function}\n    {frame.text.strip()}" for frame in own]
    if "\n" in failure.message.strip():
        lines.append(failure.message.strip())
    others = [one for one in evidence if one.rank not in same]
    return RankFailed(
        summary,
        details="\n".join([*lines, *_doing(others)]),
        rank=culprit.rank,
        tracebacks=_tracebacks(evidence),
    )


def _lost(lost: Sequence[Evidence], evidence: Sequence[Evidence]) -> RankLost:
    first = lost[0]
    alike = [one.rank for one in lost if one.ended == first.ended]
    who = _ranks(alike) if len(alike) > 1 else f"rank {first.rank}"
    summary = f"{who} {_plural(first.ended, len(alike))} before the function returned"
    lines = []
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
        details="\n".join([*lines, *_doing(others)]),
        rank=first.rank,
        tracebacks=_tracebacks(evidence),
    )


def _timeout(evidence: Sequence[Evidence], timeout_s: float) -> RunTimeout:
    waiting = [one for one in evidence if one.state == "running" and _waits_in(one)]
    busy = [one for one in evidence if one.state == "running" and not _waits_in(one)]
    absent: list[int] = []
    story = ""
    for one in waiting:
        call = one.calls[-1]
        if call.op in _POINT_TO_POINT:
            continue
        disagreeing = _disagreement(call, evidence)
        absent = _absent(call, evidence)
        if disagreeing is not None:
            other, theirs = disagreeing
            story = (
                f"call {call.sequence} on {_group(call)} is {_sized(call)} on rank {one.rank}{_at(call)} "
                f"but {_sized(theirs)} on rank {other}{_at(theirs)}"
            )
            absent = []
            break
        if absent:
            together = [
                r.rank for r in waiting if (r.calls[-1].group, r.calls[-1].sequence) == (call.group, call.sequence)
            ]
            verb = "waits" if len(together) == 1 else "wait"
            story = f"{_ranks(together)} {verb} in {call.op}{_at(call)}, and {_ranks(absent)} never arrived"
            break
    if not story and waiting:
        story = "; ".join(
            f"rank {one.rank} waits in {_call_with_peer(one.calls[-1])}{_at(one.calls[-1])}" for one in waiting
        )
    if not story and busy:
        story = "; ".join(f"rank {one.rank} is still {_where(one)}" for one in busy)
    if not story:
        story = f"{_ranks([one.rank for one in evidence if one.state == 'starting'])} did not start"
    return RunTimeout(
        f"time is up after {timeout_s:g} s: {story}",
        details="\n".join(_doing(evidence)),
        rank=absent[0] if absent else (busy[0].rank if len(busy) == 1 else None),
        tracebacks=_tracebacks(evidence),
    )


def _waits_in(one: Evidence) -> bool:
    return bool(one.calls) and any(_COLLECTIVE_FILES.search(frame.file) for frame in one.stack[-4:])


def _absent(call: Entry, evidence: Sequence[Evidence]) -> list[int]:
    def arrived(one: Evidence) -> bool:
        return any(other.group == call.group and other.sequence >= call.sequence for other in _collectives(one))

    return [one.rank for one in evidence if one.rank in call.ranks and not arrived(one)]


def _disagreement(call: Entry, evidence: Sequence[Evidence]) -> tuple[int, Entry] | None:
    for one in evidence:
        for other in _collectives(one):
            if (other.group, other.sequence) == (call.group, call.sequence) and (
                other.op != call.op
                or (other.nbytes != call.nbytes and call.op in ("all_reduce", "broadcast", "reduce"))
            ):
                return one.rank, other
    return None


def _collectives(one: Evidence) -> list[Entry]:
    return [call for call in one.calls if call.op not in _POINT_TO_POINT]


def _doing(evidence: Sequence[Evidence]) -> list[str]:
    return [f"rank {one.rank} {_activity(one)}" for one in evidence]


def _activity(one: Evidence) -> str:
    if one.failure and is_consequence(one.failure):
        return "then lost its connection, which is a consequence"
    if one.failure:
        first, *_ = one.failure.message.strip().splitlines() or [""]
        return f"raised {one.failure.kind}: {first}".rstrip(": ")
    if one.state == "lost":
        return one.ended
    if one.state == "done":
        return "had returned"
    if one.state == "starting":
        return "was starting"
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
