"""The emulated network card of a node, shared by the ranks on it: one transfer after the other.

    rank 0 ─┐                               ┌─► its thread sleeps until the end, then completes the work
    rank 1 ─┴─ transfer() ─► shared memory ─┴─► …

The first rank of a node that asks for a transfer books time on the card; the others find the booking and keep to it.
"""

from __future__ import annotations

import fcntl
import heapq
import itertools
import mmap
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lablib.links import Link

_HEAD = struct.Struct("<qQ")  # when the card is free, and how many bookings it had
_BOOKING = struct.Struct("<Qq")
_BOOKINGS = 64
_NODE_NBYTES = _HEAD.size + _BOOKINGS * _BOOKING.size
_MAX_NODES = 64
NBYTES = _MAX_NODES * _NODE_NBYTES


def clear(descriptor: int) -> None:
    """Make every node's card free, before a job begins."""
    with mmap.mmap(descriptor, NBYTES) as memory:
        memory[:] = bytes(NBYTES)


class Card:
    """The network card that a rank shares with the other ranks of its node.

    Args:
        descriptor: memory of NBYTES that all ranks of the job share.
        rank: the global rank.
        link: the network.
    """

    def __init__(self, descriptor: int, rank: int, link: Link) -> None:
        self.link = link
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, NBYTES)
        self._at = link.node(rank) * _NODE_NBYTES
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._complete, daemon=True, name="lablib-card")
        self._thread.start()

    def transfer(self, key: str, length_ns: int, then: Callable[[], None]) -> None:
        """Hold the card for so long, as soon as it is free, and then call ``then`` on the card's thread.

        Args:
            key: the transfer's name, the same on all ranks that take part and different from all others of the job.
            length_ns: how long it takes, in nanoseconds.
            then: must not block.
        """
        end_ns = self._book(key, length_ns)
        with self._changed:
            heapq.heappush(self._due, (end_ns, next(self._order), then))
            self._changed.notify()

    def close(self) -> None:
        """End the thread; transfers on their way complete at once."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        self._memory.close()

    def _book(self, key: str, length_ns: int) -> int:
        mark = zlib.crc32(key.encode()) << 32 | zlib.adler32(key.encode())
        with self._locked():
            free_ns, count = _HEAD.unpack_from(self._memory, self._at)
            for number in range(max(0, count - _BOOKINGS), count):
                booked, end_ns = _BOOKING.unpack_from(self._memory, self._slot(number))
                if booked == mark:
                    return int(end_ns)
            end_ns = max(time.perf_counter_ns(), free_ns) + length_ns
            _BOOKING.pack_into(self._memory, self._slot(count), mark, end_ns)
            _HEAD.pack_into(self._memory, self._at, end_ns, count + 1)
            return int(end_ns)

    def _slot(self, number: int) -> int:
        return self._at + _HEAD.size + number % _BOOKINGS * _BOOKING.size

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._changed:  # the system's lock parts processes, not threads
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX, _NODE_NBYTES, self._at)
            try:
                yield
            finally:
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN, _NODE_NBYTES, self._at)

    def _complete(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (wait_ns := self._wait_ns()) > 0:
                    self._changed.wait(None if wait_ns == _FOREVER else wait_ns / 1e9)
                if not self._due:
                    return
                then = heapq.heappop(self._due)[2]
            then()

    def _wait_ns(self) -> int:
        return self._due[0][0] - time.perf_counter_ns() if self._due else _FOREVER


_FOREVER = 1 << 62
