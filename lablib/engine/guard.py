"""A rank goes when its parent goes, however that happens, and its own children go, too.

On Linux the kernel kills a rank at its parent's death, even while native code holds the GIL. A thread that watches the
control socket is the second line, for other systems and for ranks started from a thread that may end before them. What
the rank itself started is then ended by the fork server, or by the keeper of a spawned rank.
Imported before torch: a spawned rank is guarded while it imports.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import sys
import threading

from lablib.engine.wire import Seat

_PR_SET_PDEATHSIG = 1


def protect(seat: Seat, control: socket.socket) -> None:
    """Give this rank a process group of its own, deaf to the stop button, that ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.setpgid(0, 0)
    if sys.platform == "linux" and seat.bound_to_parent:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != seat.parent:
            os._exit(1)
    else:
        threading.Thread(target=_leave_with_parent, args=(control,), daemon=True, name="lablib-leash").start()


def _leave_with_parent(control: socket.socket) -> None:
    hang_up = select.poll()
    hang_up.register(control, 0)  # no event asked for: a hang-up is always told
    hang_up.poll()
    os.killpg(0, signal.SIGKILL)
