"""Counting processes in tests."""

from __future__ import annotations

import time

import psutil

SERVERS = ("lablib.engine.server", "multiprocessing.resource_tracker", "lablib-keeper")


def ranks_of(pid: int) -> list[psutil.Process]:
    """Return every living descendant of a process, apart from its fork server, resource tracker and keepers."""
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


def wait_until_gone(pids: list[int], seconds: float) -> list[str]:
    """Return those of the processes that are still alive after waiting this long at most, with their command lines."""
    deadline = time.monotonic() + seconds
    while True:
        alive = [words for pid in pids if (words := _alive(pid))]
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(0.05)


def _alive(pid: int) -> str:
    try:
        process = psutil.Process(pid)
        ended = process.status() == psutil.STATUS_ZOMBIE
        return "" if ended else f"{pid}: {' '.join(process.cmdline())[:120]}"
    except psutil.NoSuchProcess:
        return ""
