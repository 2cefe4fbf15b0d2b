"""Every error that lablib raises on purpose.

LabError
├── UsageError (also a ValueError)   the call was wrong: nothing was started, nothing is lost
├── RunError                         the ranks started and something went wrong there
│   ├── RankFailed                   a rank raised an exception
│   ├── RankLost                     a rank died without a word: killed, crashed, os._exit
│   └── RunTimeout                   time is up and some rank is not done
└── TraceError (also a ValueError)   a trace file cannot be read
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["LabError", "RankFailed", "RankLost", "RunError", "RunTimeout", "TraceError", "UsageError"]


class LabError(Exception):
    """Be the root of every error that lablib raises on purpose."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows in place of the frames of the launcher."""
        return [f"{type(self).__name__}: {self}"]


class UsageError(LabError, ValueError):
    """Say that a call cannot work, and what to write in its place."""


class RunError(LabError):
    """Say what went wrong on the ranks, first cause first.

    Args:
        summary: one line that is the same each time the same thing goes wrong: no process id, no time, no address.
        details: what else helps: the learner's own lines, what the other ranks were doing.
        rank: the rank of the first cause, or None where no single rank is to blame.
        run: a `Run` with every value and output that arrived.
        tracebacks: rank to full traceback text, or to the stack of a rank that was still busy.
    """

    def __init__(
        self,
        summary: str,
        *,
        details: str = "",
        rank: int | None = None,
        run: Any = None,
        tracebacks: Mapping[int, str] | None = None,
    ) -> None:
        super().__init__(f"{summary}\n{details}".rstrip())
        self.summary = summary
        self.details = details
        self.rank = rank
        self.run = run
        self.tracebacks = dict(tracebacks or {})


class RankFailed(RunError):
    """A rank raised an exception; it is this error's ``__cause__`` where it could travel."""


class RankLost(RunError):
    """A rank died without reporting: killed by a signal, crashed in native code, or left by ``os._exit``."""


class RunTimeout(RunError):
    """Time was up before every rank had returned."""


class TraceError(LabError, ValueError):
    """A trace file is damaged, empty, truncated or foreign."""
