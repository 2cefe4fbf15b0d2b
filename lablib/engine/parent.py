"""Conduct one job on a team: send it out, listen to everything, and tell the first cause when it goes wrong.

jobs ──► team ──► messages, output, exit codes ──► Outcome ──► Run, or an error with a Run inside
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lablib.engine import diagnosis, forking, places, wire
from lablib.engine.listener import Listener
from lablib.engine.logbook import Entry
from lablib.engine.stop import StopButton
from lablib.engine.team import Member, Team

START_TIMEOUT_S = 120.0
_TICK_S = 0.1
_SETTLE_S = 0.25  # after a cause: time for the other ranks to report the same, or what it did to them
_SETTLE_AFTER_CONSEQUENCE_S = 5.0  # a peer that hung up may still be busy tearing down before it reports
_STACKS_S = 0.5
_ENDED = ("done", "failed", "lost")


@dataclass
class Progress:
    """How far one rank is."""

    state: str = "starting"
    sent: bool = False
    waits: bool = False
    done: wire.Done | None = None
    failure: wire.Failed | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of a job: each rank's progress, and whether time ran out or stop was pressed.

    Where it did not go well, ``calls`` and ``stacks`` say of each rank which collectives it began and where it was.
    """

    progress: list[Progress]
    timed_out: float | None
    interrupted: bool
    calls: list[list[Entry]]
    stacks: list[tuple[wire.Frame, ...]]

    @property
    def went_well(self) -> bool:
        """Return whether every rank returned."""
        return all(one.state == "done" for one in self.progress)


def conduct(team: Team, jobs: Sequence[wire.Job], listener: Listener, stop: StopButton, *, timeout_s: float) -> Outcome:
    """Run one job a rank to its end, failure or timeout.

    Args:
        team: the ranks; idle ones take their job at once, new ones when they are up.
        jobs: one for each rank, in rank order.
        listener: is told what happens.
        stop: ends the run.
        timeout_s: seconds from the moment when every rank has begun the function.

    Raises:
        ServerDied: no rank was given its job, and a new team can take it.
    """
    return _Conductor(team, jobs, listener, stop, timeout_s).conduct()


class _Conductor:
    def __init__(
        self, team: Team, jobs: Sequence[wire.Job], listener: Listener, stop: StopButton, timeout_s: float
    ) -> None:
        self._team, self._jobs, self._listener, self._stop, self._timeout_s = (
            team,
            jobs,
            listener,
            stop,
            timeout_s,
        )
        self._progress = [Progress() for _ in team.members]
        self._begun = time.monotonic()
        self._deadline = self._begun + START_TIMEOUT_S
        self._limit_s = START_TIMEOUT_S
        self._settled_at = float("inf")

    def conduct(self) -> Outcome:
        timed_out: float | None = None
        interrupted = False
        with selectors.DefaultSelector() as self._selector:
            for member in self._team.members:
                member.output.read()
                member.output.forget()
                self._watch(member)
                self._offer(member)
            while not all(one.state in _ENDED for one in self._progress):
                if self._stop.take():
                    interrupted = True
                    break
                now = time.monotonic()
                if now >= min(self._settled_at, self._deadline):
                    timed_out = self._limit_s if self._settled_at == float("inf") else None
                    break
                self._listen(min(self._settled_at, self._deadline, now + _TICK_S) - now)
                self._listener.tick(time.monotonic() - self._begun)
            calls, stacks = [], []
            if any(one.state != "done" for one in self._progress):
                # first the logbooks: the signal that asks for stacks also ends a rank's sleep
                calls = [member.logbook.entries() for member in self._team.members]
                stacks = self._stacks()
        return Outcome(self._progress, timed_out, interrupted, calls, stacks)

    def _watch(self, member: Member) -> None:
        self._selector.register(member.channel, selectors.EVENT_READ, (member, "message"))
        self._selector.register(member.output, selectors.EVENT_READ, (member, "output"))
        if member.birth.fileno() >= 0:
            self._selector.register(member.birth, selectors.EVENT_READ, (member, "news"))

    def _offer(self, member: Member) -> None:
        progress = self._progress[member.rank]
        if member.hello is not None and not progress.sent and not member.channel.closed:
            progress.sent = True
            member.channel.send(self._jobs[member.rank])
            self._send_the_rest(member)

    def _send_the_rest(self, member: Member) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if member.channel.wants_to_send else 0)
        self._selector.modify(member.channel, events, (member, "message"))

    def _listen(self, seconds: float) -> None:
        for key, events in self._selector.select(seconds):
            member, what = key.data
            if what == "output":
                self._read_output(member)
            elif what == "message":
                if events & selectors.EVENT_WRITE:
                    member.channel.flush()
                    self._send_the_rest(member)
                self._read_messages(member)
        for member in self._team.members:
            if member.alive:
                member.birth.poll()
                if not member.alive:
                    self._lose(member)

    def _read_output(self, member: Member) -> None:
        text = member.output.read()
        if text:
            self._listener.output(member.rank, text)
        if member.output.closed:
            self._unwatch(member.output)

    def _read_messages(self, member: Member) -> None:
        for message in member.messages():
            self._take(member, message)
        self._offer(member)
        if member.channel.closed:
            self._unwatch(member.channel)

    def _take(self, member: Member, message: Any) -> None:
        progress = self._progress[member.rank]
        if isinstance(message, wire.Ready):
            self._tell(member, "running")
            progress.waits = message.waits
            if not any(one.state in ("starting", "failed", "lost") for one in self._progress):
                self._begin()
        elif isinstance(message, wire.Done):
            progress.done = message
            self._read_output(member)
            self._tell(member, "done")
        elif isinstance(message, wire.Failed):
            progress.failure = message
            self._read_output(member)
            self._tell(member, "failed")
            consequence = diagnosis.is_consequence(message)
            self._settle(_SETTLE_AFTER_CONSEQUENCE_S if consequence else _SETTLE_S)

    def _begin(self) -> None:
        self._limit_s = self._timeout_s
        self._deadline = time.monotonic() + self._timeout_s
        for member, progress in zip(self._team.members, self._progress, strict=True):
            if progress.waits and not member.channel.closed:
                member.channel.send(wire.Go())

    def _lose(self, member: Member) -> None:
        if not member.channel.closed:
            self._read_messages(member)
        if not member.output.closed:
            self._read_output(member)
        if member.birth.fileno() >= 0:
            self._unwatch(member.birth)
        if member.birth.exitcode == forking.SERVER_DIED and not any(one.sent for one in self._progress):
            raise forking.ServerDied
        if self._progress[member.rank].state not in _ENDED:
            self._tell(member, "lost")
            self._settle(_SETTLE_S)

    def _settle(self, seconds: float) -> None:
        self._settled_at = min(self._settled_at, time.monotonic() + seconds)

    def _tell(self, member: Member, state: str) -> None:
        self._progress[member.rank].state = state
        self._listener.state(member.rank, state)

    def _unwatch(self, source: Any) -> None:
        if source.fileno() >= 0 and source.fileno() in self._selector.get_map():
            self._selector.unregister(source)

    def _stacks(self) -> list[tuple[wire.Frame, ...]]:
        """Ask the ranks that are still busy where they are."""
        busy = [member for member in self._team.members if self._progress[member.rank].state == "running"]
        for member in busy:
            member.ask_for_stacks()
        deadline = time.monotonic() + _STACKS_S
        waiting = list(busy)
        while waiting and time.monotonic() < deadline:
            time.sleep(0.02)
            # a dump is written in one go: it is complete when it has begun and nothing more comes
            waiting = [member for member in waiting if member.stacks.read() or not member.stacks.text]
        frames: list[tuple[wire.Frame, ...]] = []
        for member in self._team.members:
            member.stacks.read()  # a rank that crashed wrote its own
        for member in self._team.members:
            thread = member.hello.main_thread if member.hello else 0
            sources = self._jobs[member.rank].parcel.sources
            frames.append(tuple(places.parse_stacks(member.stacks.text, thread=thread, sources=sources)))
        return frames
