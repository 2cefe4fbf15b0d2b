"""The output of a run while it goes on: one place in the cell, redrawn, and rank order at the end.

A saved notebook is the same each time, since the last thing drawn is each rank's whole text in rank order, however the
ranks' lines arrived.
"""

from __future__ import annotations

import time
from typing import Any

from IPython.display import display

from lablib.engine.listener import PATIENCE_S
from lablib.engine.result import Run
from lablib.notebook import show

_REDRAW_S = 0.1
_LIVE_LINES = 12  # a rank
_LIVE_CHARS = 20_000


class CellListener:
    """Draw one run's output in the cell that called it."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._drawn: dict[str, str] = {}
        self._drawn_at = 0.0

    def started(self, world_size: int, about: str, start: str) -> None:
        """Get ready."""
        self._texts = [""] * world_size
        self._states = ["starting"] * world_size
        self._start = start
        self._stale = False

    def output(self, rank: int, text: str) -> None:
        """Keep the end of what the rank printed."""
        self._texts[rank] = (self._texts[rank] + text)[-_LIVE_CHARS:]
        self._stale = True

    def state(self, rank: int, state: str) -> None:
        """Remember how far the rank is."""
        self._states[rank] = state

    def tick(self, seconds: float) -> None:
        """Draw what is new, ten times a second at the most."""
        starting = seconds > PATIENCE_S and set(self._states) == {"starting"}
        if (self._stale or starting) and time.monotonic() - self._drawn_at > _REDRAW_S:
            rows = [show.lines_of(text, rank, last=_LIVE_LINES) for rank, text in enumerate(self._texts)]
            self._draw(rows, note=self._start if starting else "running, ■ stops it")

    def done(self, run: Run) -> None:
        """Draw every rank's text in rank order."""
        rows = [show.lines_of(text, rank) for rank, text in enumerate(run.output)]
        if self._handle is not None or any(rows):
            self._draw(rows)

    def _draw(self, rows: list[list[str]], *, note: str = "") -> None:
        self._stale = False
        self._drawn_at = time.monotonic()
        text = show.output_text(rows)
        bundle = {
            "text/plain": f"{text}\n{note}".strip("\n") if note else text,
            "text/html": show.output_html(rows, note=note),
        }
        if bundle == self._drawn:
            return
        self._drawn = bundle
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)
