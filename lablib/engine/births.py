"""How a rank's process begins, seen from its parent.

    start_method   who makes the process                                     whose child it is
    forkserver     the fork server, torch already imported (milliseconds)    the server's
    spawn          a new interpreter that imports torch (seconds)            this process's

Both give a `Birth`: a process id, an exit code when it is over, and a way to kill it together with its own children.
"""

from __future__ import annotations

import resource
import selectors
import sys
from pathlib import Path

from lablib.engine.forking import Forked, ensure_server
from lablib.engine.newborn import Birth
from lablib.engine.spawning import Spawned
from lablib.engine.wire import Seat
from lablib.errors import UsageError

START_METHODS = ("forkserver", "spawn")


def default_start_method() -> str:
    """Return ``forkserver`` where forking is safe, ``spawn`` elsewhere."""
    return "forkserver" if sys.platform == "linux" else "spawn"


def check_start_method(start_method: str | None) -> str:
    """Return the start method to use.

    Raises:
        UsageError: it is unknown, or this host does not have it.
    """
    if sys.platform == "win32":
        raise UsageError(
            "ranks need POSIX processes and signals; on Windows run JupyterLab inside WSL2 (see the README)"
        )
    if start_method is None:
        return default_start_method()
    if start_method not in START_METHODS:
        raise UsageError(
            f"start_method={start_method!r} is not one of 'forkserver' and 'spawn'; leave it out for this host's best"
        )
    return start_method


def warm_up(*, training: bool) -> None:
    """Start this kernel's fork server, which imports torch by itself; returns at once."""
    if default_start_method() == "forkserver":
        ensure_server(training=training)


def check_room(ranks: int) -> None:
    """Raise UsageError where this process may not open as many files as so many ranks need."""
    needed = 8 * ranks + 24
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    listing = Path("/dev/fd")
    used = len(list(listing.iterdir())) if listing.exists() else 0
    if allowed - used < needed:
        raise UsageError(
            f"{ranks} ranks need {needed} more open files, and this process has {used} of {allowed} that it may have; "
            "use fewer ranks, or raise the limit (ulimit -n 4096) where you start Jupyter"
        )


def bear(start_method: str, seat: Seat) -> Birth:
    """Begin the process of a rank; the seat's descriptors stay open here and are the caller's to close."""
    return Forked(seat) if start_method == "forkserver" else Spawned(seat)


def wait_for_news(births: list[Birth], timeout_s: float) -> None:
    """Wait until one of these processes has news, or the time is over."""
    with selectors.DefaultSelector() as selector:
        for birth in births:
            if birth.fileno() >= 0:
                selector.register(birth.fileno(), selectors.EVENT_READ)
        selector.select(timeout_s if selector.get_map() else min(timeout_s, 0.02))
    for birth in births:
        birth.poll()
