"""The first lines of a rank in a new interpreter: be guarded, then import torch."""

from __future__ import annotations

import pickle
import socket
import sys
from typing import NoReturn

from lablib.engine import guard


def live() -> NoReturn:
    """Be a rank, with the seat read from standard input."""
    seat = pickle.load(sys.stdin.buffer)
    control = socket.socket(fileno=seat.control)
    guard.protect(seat, control)
    from lablib.engine import worker

    worker.preload(training=False)
    worker.live(seat, control)
