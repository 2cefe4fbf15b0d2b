"""A rank's notes on the collectives it began, in memory that its parent can read at any time.

    rank ── note() ──► shared memory ◄── entries() ── parent

The notes are readable while the rank holds the GIL in native code, and after it was killed: they are what a hang report
is made of. The last 64 calls are kept.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass

_HEADER = struct.Struct("<Q")
_ENTRY = struct.Struct("<Q24s24sqiqii120s")
_ENTRIES = 64
NBYTES = _HEADER.size + _ENTRIES * _ENTRY.size
NO_PEER = -1


@dataclass(frozen=True)
class Entry:
    """One collective or point-to-point call as a rank began it.

    Args:
        number: which call of this job it was on this rank, from 1.
        op: the name of the operation, such as ``all_reduce``.
        group: the name of the process group.
        members: bit r is set where rank r is in the group; ranks from 63 on are left out.
        sequence: which call on this group it was, from 1; each point-to-point direction counts on its own.
        nbytes: payload of the call on this rank.
        peer: the root, source or destination; NO_PEER where there is none.
        line, file: where the learner's code made the call; line 0 where it came from no Python code.
    """

    number: int
    op: str
    group: str
    members: int
    sequence: int
    nbytes: int
    peer: int
    line: int
    file: str

    @property
    def ranks(self) -> list[int]:
        """Return the global ranks in the group."""
        return [rank for rank in range(63) if self.members >> rank & 1]


class Logbook:
    """Write or read the logbook behind a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, NBYTES)
        self._count = 0

    def clear(self) -> None:
        """Start a new job's notes."""
        self._count = 0
        _HEADER.pack_into(self._memory, 0, 0)

    def note(
        self,
        *,
        op: str,
        group: str,
        members: int,
        sequence: int,
        nbytes: int,
        peer: int,
        line: int,
        file: str,
    ) -> None:
        """Write that a call begins."""
        self._count += 1
        slot = (self._count - 1) % _ENTRIES
        _ENTRY.pack_into(
            self._memory,
            _HEADER.size + slot * _ENTRY.size,
            self._count,
            op.encode()[:24],
            group.encode()[:24],
            nbytes,
            peer,
            members,
            sequence,
            line,
            file.encode()[-120:],
        )
        _HEADER.pack_into(self._memory, 0, self._count)

    def entries(self) -> list[Entry]:
        """Return the last calls, oldest first."""
        (count,) = _HEADER.unpack_from(self._memory, 0)
        found = []
        for number in range(max(1, count - _ENTRIES + 1), count + 1):
            slot = (number - 1) % _ENTRIES
            raw = _ENTRY.unpack_from(self._memory, _HEADER.size + slot * _ENTRY.size)
            if raw[0] == number:  # otherwise the rank is writing it just now
                found.append(_entry(raw))
        return found

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()


def _entry(raw: tuple[int, bytes, bytes, int, int, int, int, int, bytes]) -> Entry:
    number, op, group, nbytes, peer, members, sequence, line, file = raw
    text = [part.rstrip(b"\0").decode(errors="replace") for part in (op, group, file)]
    return Entry(number, text[0], text[1], members, sequence, nbytes, peer, line, text[2])
