"""The stop button during a run: noted at once, acted on where nothing can be lost.

Python would raise KeyboardInterrupt between any two instructions of the launcher, half-way through starting or ending
ranks. Here a press is a flag, which the parent's loop turns into KeyboardInterrupt at the top of its next round.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

_PATIENCE_S = 1.5  # a press that finds an older one still not acted on breaks in


class StopButton:
    """Take presses for the length of a ``with`` block; the one place that raises is `check`, and the block's end."""

    def __init__(self) -> None:
        self._pressed_at: float | None = None
        self._raises = False
        self._before: Any = None

    def take(self) -> bool:
        """Return whether stop was pressed, and forget it."""
        pressed = self._pressed_at is not None
        self._pressed_at = None
        return pressed

    def check(self) -> None:
        """Raise KeyboardInterrupt where stop was pressed."""
        if self.take():
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Let a press break in at once, in a block that has nothing to lose."""
        self.check()
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def __enter__(self) -> StopButton:
        # Python delivers signals to its main thread only: a run in another thread is never interrupted
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if error is None:
            self.check()

    def _press(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._raises or (self._pressed_at is not None and now - self._pressed_at > _PATIENCE_S):
            raise KeyboardInterrupt
        self._pressed_at = self._pressed_at or now
