"""The fork server's first import: importing this module *is* its work, and only a fork server does.

    kernel ──starts──► fork server (this module: torch is imported once) ──forks──► rank 0 … rank n−1

The server sits in a session of its own, so that neither the stop button nor a kernel's killed process group reaches
it. It ends when the kernel does, however that happened, and takes every rank and its children along. It has one thread
and no CUDA context when it forks, which is what makes forking safe.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import socket
import sys
import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

from lablib.engine import endings, pages
from lablib.engine.forking import PARENT_VARIABLE, TRAINING_AFTER_VARIABLE

_SETTLES_AFTER_S = 0.2


@dataclass(frozen=True)
class _Kernel:
    """The process that this server works for.

    Args:
        pid: its process id.
        sockets: the folder in which it makes the sockets of its servers; None where none is found.
    """

    pid: int
    sockets: Path | None

    def is_gone(self, *, within_s: float = 0.0) -> bool:
        """Return whether it has ended; its pipes close a little sooner than that."""
        deadline = time.monotonic() + within_s
        while os.getppid() == self.pid:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.005)
        return True


def _sockets() -> Path | None:
    """Return the folder of the socket on which this server is asked for ranks."""
    for descriptor in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(descriptor))) as one:
            if one.family == socket.AF_UNIX and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return Path(one.getsockname()).parent
    return None


def _leave_when_orphaned(kernel: _Kernel, ready: threading.Event) -> None:
    while not ready.wait(0.2):
        if kernel.is_gone():
            _leave(os.getpid(), kernel)


def _leave(server: int, kernel: _Kernel) -> None:
    """End every rank and whatever ranks started, and remove the sockets, which a killed kernel cannot do itself."""
    if os.getpid() != server:
        return
    endings.end_children()
    if kernel.sockets and kernel.is_gone(within_s=0.5):  # one that lives makes its next server's socket there
        with contextlib.suppress(OSError):
            for own in kernel.sockets.glob("listener-*"):  # this server's, and those of servers that were killed
                own.unlink()
            kernel.sockets.rmdir()
    os._exit(0)  # taking torch apart would take longer than all this


def _import(kernel: _Kernel, *, training: bool) -> None:
    """Import what ranks would, so that they share it; leave with the kernel, whose end an import does not notice."""
    ready = threading.Event()
    watch = threading.Thread(target=_leave_when_orphaned, args=(kernel, ready))
    watch.start()
    gc.disable()  # imports make 280,000 objects that stay: looking through them again and again takes half a second
    try:
        from lablib.engine import worker

        worker.preload(training=training)
    finally:
        atexit.unregister(_leave)
        atexit.register(_leave, os.getpid(), kernel)  # after the imports: before whatever they have registered
        ready.set()
        watch.join()
        sys.stdout.flush()
        sys.stderr.flush()
        sys.path_importer_cache.clear()  # done here, a rank need not touch it
        gc.freeze()  # a collection in a rank would otherwise write to, and so copy, every page that holds an object
        gc.enable()


def _prepare(kernel: _Kernel, *, training_after_s: float) -> None:
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    endings.adopt_orphans()
    warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")  # an orphan
    _import(kernel, training=not training_after_s)
    signal.signal(signal.SIGALRM, lambda *_: _settle(kernel, training_after_s))
    signal.setitimer(signal.ITIMER_REAL, _SETTLES_AFTER_S)


def _settle(kernel: _Kernel, training_after_s: float) -> None:
    """Make forking cheap once the first ranks are on their way: it takes as long as several forks."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    pages.collapse()
    if training_after_s:
        _train_when_idle(kernel, training_after_s)


def _train_when_idle(kernel: _Kernel, seconds: float) -> None:
    """Get ready for training once there was no rank for so many seconds."""

    def wait() -> None:
        if signal.getsignal(signal.SIGALRM) is ring:  # not in a rank that forks, nor when it is done
            signal.setitimer(signal.ITIMER_REAL, seconds)

    def ring(*_: object) -> None:
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            with contextlib.suppress(Exception):  # ranks that need it import it themselves, and tell the error
                _import(kernel, training=True)
                pages.collapse()
        else:  # ranks are at work, and need the cores themselves
            wait()

    signal.signal(signal.SIGALRM, ring)
    os.register_at_fork(after_in_parent=wait)
    wait()


if os.environ.pop(PARENT_VARIABLE, None) == str(os.getppid()):
    _prepare(
        _Kernel(os.getppid(), _sockets()), training_after_s=float(os.environ.pop(TRAINING_AFTER_VARIABLE, "") or 0)
    )
