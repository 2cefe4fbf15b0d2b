"""End processes together with those that they started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def kill_with_children(pid: int, *, itself: bool) -> None:
    """Kill a rank and what it started.

    Args:
        pid: process id of the rank, which is the id of its process group as well.
        itself: the rank is still there; without, only its group is.
    """
    # before it leads its group, only the process itself can be named
    _kill([pid, *descendants(pid)] if itself else [])
    _kill_group(pid)


def descendants(pid: int) -> list[int]:
    """Return the children of a process and theirs, as far as /proc tells; some may have left its process group."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_children(*, patience_s: float = 5.0) -> None:
    """Kill every process below this one, and wait until none is left.

    One look is not enough: while some of the children are going, Linux may leave others out of the list (proc(5)).
    """
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        family = descendants(os.getpid())
        _kill(family)
        for pid in family:
            _kill_group(pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
