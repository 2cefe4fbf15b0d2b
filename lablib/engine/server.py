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
import sys
import threading
import warnings
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from lablib.engine import endings, pages
from lablib.engine.forking import PARENT_VARIABLE, TRAINING_AFTER_VARIABLE

_SETTLES_AFTER_S = 0.2


def _leave_when_orphaned(server: int, parent: int, ready: threading.Event) -> None:
    while not ready.wait(0.2):
        if os.getppid() != parent:
            _leave(server)


def _leave(server: int) -> None:
    """End every rank and whatever ranks started, and remove the socket, which a killed kernel cannot do itself."""
    if os.getpid() != server:
        return
    endings.end_children()
    inherited: Any = forkserver._forkserver
    if inherited._forkserver_address:
        address = Path(inherited._forkserver_address)
        with contextlib.suppress(OSError):
            address.unlink(missing_ok=True)
            address.parent.rmdir()
    os._exit(0)  # taking torch apart would take longer than all this


def _import(parent: int, *, training: bool) -> None:
    """Import what ranks would, so that they share it; leave with the kernel, whose end an import does not notice."""
    server, ready = os.getpid(), threading.Event()
    watch = threading.Thread(target=_leave_when_orphaned, args=(server, parent, ready))
    watch.start()
    gc.disable()  # imports make 280,000 objects that stay: looking through them again and again takes half a second
    try:
        from lablib.engine import worker

        worker.preload(training=training)
    finally:
        atexit.unregister(_leave)
        atexit.register(_leave, server)  # after the imports: before whatever they have registered
        ready.set()
        watch.join()
    sys.stdout.flush()
    sys.stderr.flush()
    sys.path_importer_cache.clear()  # done here, a rank need not touch it
    gc.freeze()  # a collection in a rank would otherwise write to, and so copy, every page that holds an object
    gc.enable()


def _prepare(parent: int, *, training_after_s: float) -> None:
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    endings.adopt_orphans()
    warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")  # an orphan
    _import(parent, training=not training_after_s)
    signal.signal(signal.SIGALRM, lambda *_: _settle(parent, training_after_s))
    signal.setitimer(signal.ITIMER_REAL, _SETTLES_AFTER_S)


def _settle(parent: int, training_after_s: float) -> None:
    """Make forking cheap once the first ranks are on their way: it takes as long as several forks."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    pages.collapse()
    if training_after_s:
        _train_when_idle(parent, training_after_s)


def _train_when_idle(parent: int, seconds: float) -> None:
    """Get ready for training once there was no rank for so many seconds."""

    def wait() -> None:
        if signal.getsignal(signal.SIGALRM) is ring:  # not in a rank that forks, nor when it is done
            signal.setitimer(signal.ITIMER_REAL, seconds)

    def ring(*_: object) -> None:
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            _import(parent, training=True)
            pages.collapse()
        else:  # ranks are at work, and need the cores themselves
            wait()

    signal.signal(signal.SIGALRM, ring)
    os.register_at_fork(after_in_parent=wait)
    wait()


if os.environ.pop(PARENT_VARIABLE, None) == str(os.getppid()):
    _prepare(os.getppid(), training_after_s=float(os.environ.pop(TRAINING_AFTER_VARIABLE, "") or 0))
