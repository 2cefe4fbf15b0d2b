"""Ranks that are new interpreters, which import torch themselves, and their keepers.

kernel ──starts──► rank 0 … rank n−1, each with a keeper: a shell that waits for the end of the kernel, however it
                   comes, and kills the rank's process group: the rank may be stuck, and its children know nothing
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import replace

from lablib.engine import endings
from lablib.engine.newborn import ROOT, descriptors, idle_threads_sleep, stop_button_held
from lablib.engine.wire import Seat

_KEEPER = ["/bin/sh", "-c", "read _; kill -s KILL -- -$1", "lablib-keeper"]


class Spawned:
    """A rank in an interpreter of its own, and its keeper."""

    def __init__(self, seat: Seat) -> None:
        seat = replace(seat, bound_to_parent=threading.current_thread() is threading.main_thread())
        first_lines = f"import sys; sys.path.insert(0, {ROOT!r}); from lablib.engine import spawned; spawned.live()"
        with stop_button_held():
            self._process = subprocess.Popen(
                [sys.executable, "-c", first_lines],
                stdin=subprocess.PIPE,
                pass_fds=descriptors(seat),
                env={**os.environ, **idle_threads_sleep()},
            )
            self._keeper = subprocess.Popen(
                [*_KEEPER, str(self._process.pid)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # out of reach of the stop button, and of a kernel that ends its process group
            )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as pipe:
            pickle.dump(seat, pipe)
        self.pid: int | None = self._process.pid
        self.exitcode: int | None = None

    def fileno(self) -> int:
        return -1

    def poll(self) -> None:
        self.exitcode = self._process.poll()

    def kill(self) -> None:
        self.poll()
        endings.kill_with_children(self._process.pid, itself=self.exitcode is None)

    def close(self) -> None:
        self._keeper.kill()  # first: its pipe closes next
        self._keeper.communicate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
