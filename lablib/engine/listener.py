"""Who is told what happens during a run, and how a terminal shows it."""

from __future__ import annotations

import sys
from typing import Protocol, TextIO

from lablib.engine.result import Run

PATIENCE_S = 0.5  # how long a start may take before anybody is told why


class Listener(Protocol):
    """Be told of one run as it goes; every call comes from the thread that called `run`."""

    def started(self, world_size: int, about: str, start: str) -> None:
        """Learn that a run begins.

        Args:
            world_size: number of ranks.
            about: backend, device and the reason for them, in words.
            start: why the ranks may take long to start, in words.
        """

    def output(self, rank: int, text: str) -> None:
        """Learn that a rank printed ``text``: some lines, or a part of one."""

    def state(self, rank: int, state: str) -> None:
        """Learn that a rank is now ``starting``, ``running``, ``done``, ``failed`` or ``lost``."""

    def tick(self, seconds: float) -> None:
        """Learn that the run goes on, ten times a second at the least; ``seconds`` since its start."""

    def done(self, run: Run) -> None:
        """Learn that the run is over; ``run`` has every output that arrived, also after a failure."""


class Frontend(Protocol):
    """Know where the learner's code comes from and where runs are shown: a terminal, or a notebook."""

    def listener(self) -> Listener:
        """Return the listener of a run that begins."""

    def label_of(self, filename: str) -> str:
        """Return how tracebacks should name a code object's file, such as ``cell [12]``."""


class TerminalListener:
    """Print each line that a rank prints, with its rank in front, as it comes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._begun: dict[int, str] = {}
        self._start = ""
        self._running = False

    def started(self, world_size: int, about: str, start: str) -> None:
        """Keep silent: a script's output is its own."""
        self._start = start

    def output(self, rank: int, text: str) -> None:
        """Print the lines that are complete."""
        *lines, rest = (self._begun.pop(rank, "") + text).split("\n")
        if rest:
            self._begun[rank] = rest
        for line in lines:
            print(f"[rank {rank}] {line}", file=self._stream)

    def state(self, rank: int, state: str) -> None:
        """Remember that ranks are up."""
        self._running = self._running or state != "starting"

    def tick(self, seconds: float) -> None:
        """Say once why the first start takes long."""
        if seconds > PATIENCE_S and not self._running and self._start:
            print(self._start, file=self._stream)
            self._start = ""

    def done(self, run: Run) -> None:
        """Print what ended without a line break."""
        for rank in sorted(self._begun):
            print(f"[rank {rank}] {self._begun[rank]}", file=self._stream)


class Terminal:
    """Be the frontend of a plain Python process."""

    def listener(self) -> Listener:
        """Return a listener that prints."""
        return TerminalListener()

    def label_of(self, filename: str) -> str:
        """Return the file name itself."""
        return filename


frontend: Frontend = Terminal()


def use(chosen: Frontend) -> None:
    """Show runs in this frontend from now on."""
    global frontend
    frontend = chosen
