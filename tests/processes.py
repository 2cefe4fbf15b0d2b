"""Counting processes in tests."""

from __future__ import annotations

import time

import psutil

SERVERS = ("lablib.engine.server", "multiprocessing.resource_tracker")


def ranks_of(pid: int) -> list[psutil.Process]:
    """Return every living descendant of a process, apart from its fork server and resource tracker."""
    try:
        family = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [process for process in family if _counts(process)]


def _counts(process: psutil.Process) -> bool:
    try:
        # forked ranks share the server's command line: the server is the one that the tested process started itself
        is_server = any(name in " ".join(process.cmdline()) for name in SERVERS)
        own_server = is_server and not any(
            name in " ".join(psutil.Process(process.ppid()).cmdline()) for name in SERVERS
        )
        return process.status() != psutil.STATUS_ZOMBIE and not own_server
    except psutil.NoSuchProcess:
        return False


def wait_until_gone(pids: list[int], seconds: float) -> list[int]:
    """Return those of the processes that are still alive after waiting this long at most."""
    deadline = time.monotonic() + seconds
    while True:
        alive = [pid for pid in pids if _alive(pid)]
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
