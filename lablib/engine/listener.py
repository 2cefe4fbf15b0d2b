"""Who is told what happens during a run, and how a terminal shows it."""

from __future__ import annotations

import sys
from typing import Protocol, TextIO

from lablib.engine.result import Run


class Listener(Protocol):
    """Be told of one run as it goes; every call comes from the thread that called `run`."""

    def started(self, world_size: int, about: str) -> None:
        """Learn that a run begins; ``about`` is backend, device and the reason in words."""

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
        self._told_of_start = False
        self._running = False

    def started(self, world_size: int, about: str) -> None:
        """Keep silent: a script's output is its own."""

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
        if seconds > 0.5 and not self._running and not self._told_of_start:
            self._told_of_start = True
            print("starting ranks (once, about 3 s)", file=self._stream)

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
