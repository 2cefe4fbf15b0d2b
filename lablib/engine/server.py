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
from lablib.engine.forking import PARENT_VARIABLE

_SETTLES_AFTER_S = 0.2


def _leave_when_orphaned(parent: int, ready: threading.Event) -> None:
    while not ready.wait(0.2):
        if os.getppid() != parent:
            os._exit(1)


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


def _prepare(parent: int) -> None:
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    endings.adopt_orphans()
    warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")  # an orphan
    ready = threading.Event()
    watch = threading.Thread(target=_leave_when_orphaned, args=(parent, ready))
    watch.start()
    gc.disable()  # imports make 280,000 objects that stay: looking through them again and again takes half a second
    try:
        from lablib.engine import worker

        worker.preload()
    finally:
        atexit.register(_leave, os.getpid())  # after the imports: before whatever they have registered
        ready.set()
        watch.join()
    sys.stdout.flush()
    sys.stderr.flush()
    sys.path_importer_cache.clear()  # done here, a rank need not touch it
    gc.freeze()  # a collection in a rank would otherwise write to, and so copy, every page that holds an object
    gc.enable()
    signal.signal(signal.SIGALRM, _settle)
    signal.setitimer(signal.ITIMER_REAL, _SETTLES_AFTER_S)


def _settle(*_: object) -> None:
    """Make forking cheap once the first ranks are on their way: it takes as long as several forks."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    pages.collapse()


if os.environ.pop(PARENT_VARIABLE, None) == str(os.getppid()):
    _prepare(os.getppid())
