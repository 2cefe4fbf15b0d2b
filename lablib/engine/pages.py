"""Make forking cheap: few, large memory pages in the fork server.

A fork copies the page table. With torch imported that is some 50,000 entries of 4 KiB pages; the same memory in pages
of 2 MiB is a few hundred. The system does it on request (madvise(2): MADV_COLLAPSE, Linux 6.1), or things stay as they
are.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator

_LARGE_PAGE = 2 * 1024**2
MADV_COLLAPSE = 25
_MADV_HUGEPAGE = 14


def collapse() -> None:
    """Prepare this process for being forked many times; call it after the last import."""
    if sys.platform != "linux":
        return
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for start, end in _private_memory():
        first = -(-start // _LARGE_PAGE) * _LARGE_PAGE
        length = end // _LARGE_PAGE * _LARGE_PAGE - first
        if length > 0:  # an answer of -1, from an older system or for want of memory, changes nothing
            advise(first, length, _MADV_HUGEPAGE)
            advise(first, length, MADV_COLLAPSE)


def _private_memory() -> Iterator[tuple[int, int]]:
    with open("/proc/self/maps") as maps:
        for line in maps.read().splitlines():
            span, permissions, _, _, inode, *name = line.split()
            if permissions == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
                start, _, end = span.partition("-")
                yield int(start, 16), int(end, 16)
