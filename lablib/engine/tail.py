"""A rank's output, kept within bounds: the beginning and the end of it."""

from __future__ import annotations

import codecs
import os

_KEPT_CHARS = 256 * 1024  # at each end
_CHUNK = 1 << 16


class Tail:
    """Collect the text that comes out of a pipe.

    Args:
        descriptor: the pipe's read end; the tail closes it.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.forget()
        self.closed = False

    def fileno(self) -> int:
        return self._descriptor

    def forget(self) -> None:
        """Drop what was collected."""
        self._head, self._end, self._dropped = "", "", 0

    def read(self) -> str:
        """Return the text that arrived since the last call; never blocks."""
        parts: list[str] = []
        while not self.closed and sum(len(part) for part in parts) < 16 * _CHUNK:
            try:
                chunk = os.read(self._descriptor, _CHUNK)
            except BlockingIOError:
                break
            if not chunk:
                self.closed = True
            parts.append(self._decoder.decode(chunk, final=not chunk))
        text = "".join(parts)
        self._keep(text)
        return text

    def _keep(self, text: str) -> None:
        room = _KEPT_CHARS - len(self._head)
        self._head += text[:room]
        self._end += text[room:]
        surplus = len(self._end) - _KEPT_CHARS
        if surplus > 0:
            self._end = self._end[surplus:]
            self._dropped += surplus

    @property
    def text(self) -> str:
        """Return everything that was kept, with a line where something was left out."""
        gap = f"\n… {self._dropped:,} characters left out …\n" if self._dropped else ""
        return self._head + gap + self._end

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._descriptor)
