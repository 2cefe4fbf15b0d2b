"""multiprocessing's resource tracker, started so that a Jupyter kernel can leave.

    kernel, told to shut down ──SIGTERM──► the processes of its group; waits for them; leaves, its exit handlers run
                                           (the tracker is deaf to SIGTERM: in that group it held the kernel for
                                           seconds, until Jupyter lost patience and killed it)

The tracker ends by itself when the last process has closed its pipe.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from multiprocessing import resource_tracker, util
from typing import Any

_one_at_a_time = threading.Lock()


def ensure_running() -> None:
    """Start the tracker in a process group of its own, where it does not run yet."""
    with _spawned_in_its_own_group():
        resource_tracker.ensure_running()


@contextlib.contextmanager
def _spawned_in_its_own_group() -> Iterator[None]:
    internals: Any = util
    with _one_at_a_time:
        original = internals.spawnv_passfds
        internals.spawnv_passfds = _spawn
        try:
            yield
        finally:
            internals.spawnv_passfds = original


def _spawn(path: str, args: list[str], passfds: list[int]) -> int:
    keep = [(os.POSIX_SPAWN_DUP2, fd, fd) for fd in passfds]  # onto itself: stays open in the new process
    return os.posix_spawn(path, args, os.environ, file_actions=keep, setpgroup=0)
