"""What the two ways to begin a rank have in common: what its parent may ask of it, and what it is given."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from lablib.engine.wire import Seat

ROOT = str(Path(__file__).parents[2])


class Birth(Protocol):
    """A rank's process as its parent knows it."""

    pid: int | None
    exitcode: int | None

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when there is news, or -1 where only polling tells."""

    def poll(self) -> None:
        """Bring ``pid`` and ``exitcode`` up to date; never blocks."""

    def kill(self) -> None:
        """Kill the process and the children it has; harmless when it is gone."""

    def close(self) -> None:
        """Forget the process."""


def descriptors(seat: Seat) -> list[int]:
    """Return the file descriptors that the rank inherits."""
    always = [seat.control, seat.output, seat.stacks, seat.logbook, seat.cards]
    return always if seat.listener is None else [*always, seat.listener]


@contextlib.contextmanager
def stop_button_held() -> Iterator[None]:
    """Let a process begin deaf to the stop button, until it says itself how it takes it."""
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def idle_threads_sleep() -> dict[str, str]:
    """Return what torch must find when it is imported: threads that spin while they wait take cores from ranks."""
    return {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
