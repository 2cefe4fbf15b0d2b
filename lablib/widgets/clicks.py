"""A click on a button, as the kernel sees it: when it was made, and on which thread it arrives.

JupyterLab sends a click to the main thread or to a subshell thread, as it does with all messages of widgets. The stop
button reaches the main thread only, so what it shall stop has to run there.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from IPython import get_ipython


def moment_of_click() -> float:
    """Return when the click that is being handled was made, by the browser's clock; now, where no browser made it."""
    kernel = _kernel()
    header = kernel.get_parent().get("header", {}) if kernel is not None else {}
    date = header.get("date")
    return date.timestamp() if header.get("msg_type") == "comm_msg" and isinstance(date, datetime) else time.time()


def on_main_thread(act: Callable[[], None]) -> None:
    """Call `act` on the kernel's main thread: now, where this is it; else as soon as it is free."""
    loop = getattr(_kernel(), "io_loop", None)
    if loop is None or threading.current_thread() is threading.main_thread():
        act()
    else:
        loop.add_callback(act)


@contextmanager
def stoppable() -> Iterator[None]:
    """Let the stop button raise KeyboardInterrupt here: between messages a kernel ignores it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _kernel() -> Any:
    return getattr(get_ipython(), "kernel", None)
