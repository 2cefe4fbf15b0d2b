"""When something happened: on the host at once, on a GPU once its stream gets there."""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """Mark moments cheaply, and say later when they were, on ``time.perf_counter_ns``."""

    def mark(self) -> Any:
        """Mark the moment that is now for the caller's stream of work."""

    def ns(self, mark: Any) -> int:
        """Return when a mark was passed; may wait for it."""


class HostClock:
    """Be the clock of a rank that computes on the CPU."""

    mark = staticmethod(time.perf_counter_ns)

    @staticmethod
    def ns(mark: int) -> int:
        return mark


class CudaClock:
    """Be the clock of a rank's current CUDA stream.

    The host only queues an NCCL operation: when it starts and ends, events on the stream tell.

    Args:
        cuda: ``torch.cuda``, or what stands for it in a test.
    """

    def __init__(self, cuda: Any = torch.cuda) -> None:
        self._cuda = cuda
        cuda.synchronize()
        self._base = self.mark()
        self._base.synchronize()
        self._base_ns = time.perf_counter_ns()

    def mark(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def ns(self, mark: Any) -> int:
        mark.synchronize()
        return self._base_ns + int(self._base.elapsed_time(mark) * 1e6)
