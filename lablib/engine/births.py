"""How a rank's process begins and ends, seen from its parent.

    start_method   who makes the process                                     whose child it is
    forkserver     the fork server, torch already imported (milliseconds)    the server's
    spawn          a new interpreter that imports torch (seconds)            this process's

Both give a `Birth`: a process id, an exit code when it is over, and a way to kill it together with its own children.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, NoReturn, Protocol

from lablib.engine import guard, tracker
from lablib.engine.wire import Seat
from lablib.errors import UsageError

PARENT_VARIABLE = "LABLIB_FORK_SERVER_OF"  # tells the server's first import that it is in the server, and whose
START_METHODS = ("forkserver", "spawn")
SERVER_DIED = 1 << 16  # in place of an exit code
_SIGNED = struct.Struct("q")  # what multiprocessing's server writes: the process id, later the exit code

_ROOT = str(Path(__file__).parents[2])

_server: Any = forkserver.ForkServer()  # this kernel's fork server, apart from the one that learners' own code may use
_server.set_forkserver_preload(["lablib.engine.server"])
_warm_server: int | None = None  # process id of the server that has made a rank


class Birth(Protocol):
    """A rank's process as its parent knows it."""

    pid: int | None
    exitcode: int | None

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when there is news, or -1 where only polling tells."""

    def poll(self) -> None:
        """Bring ``pid`` and ``exitcode`` up to date; never blocks."""

    def kill(self) -> None:
        """Kill the process and the children it has; harmless when it is gone."""

    def close(self) -> None:
        """Forget the process."""


def default_start_method() -> str:
    """Return ``forkserver`` where forking is safe, ``spawn`` elsewhere."""
    return "forkserver" if sys.platform == "linux" else "spawn"


def check_start_method(start_method: str | None) -> str:
    """Return the start method to use.

    Raises:
        UsageError: it is unknown, or this host does not have it.
    """
    if sys.platform == "win32":
        raise UsageError(
            "ranks need POSIX processes and signals; on Windows run JupyterLab inside WSL2 (see the README)"
        )
    if start_method is None:
        return default_start_method()
    if start_method not in START_METHODS:
        raise UsageError(
            f"start_method={start_method!r} is not one of 'forkserver' and 'spawn'; leave it out for this host's best"
        )
    return start_method


def warm_up() -> None:
    """Start this kernel's fork server, which imports torch by itself; returns at once."""
    if default_start_method() == "forkserver":
        _ensure_server()


def server_pid() -> int | None:
    """Return the process id of the fork server, or None before the first start."""
    pid: int | None = _server._forkserver_pid
    return pid


class ServerDied(Exception):
    """The fork server died before any rank had begun: nothing is lost, and a new server can do it."""


def check_room(ranks: int) -> None:
    """Raise UsageError where this process may not open as many files as so many ranks need."""
    needed = 8 * ranks + 24
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    listing = Path("/dev/fd")
    used = len(list(listing.iterdir())) if listing.exists() else 0
    if allowed - used < needed:
        raise UsageError(
            f"{ranks} ranks need {needed} more open files, and this process has {used} of {allowed} that it may have; "
            "use fewer ranks, or raise the limit (ulimit -n 4096) where you start Jupyter"
        )


def bear(start_method: str, seat: Seat) -> Birth:
    """Begin the process of a rank; the seat's descriptors stay open here and are the caller's to close."""
    return _Forked(seat) if start_method == "forkserver" else _Spawned(seat)


def server_is_alive() -> bool:
    """Return whether the fork server runs; looks without reaping it, which multiprocessing does itself."""
    pid = server_pid()
    if pid is None:
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False


def is_warm() -> bool:
    """Return whether the fork server has made a rank already, so that the next ones come fast."""
    return _server._forkserver_pid is not None and _server._forkserver_pid == _warm_server


class RankProcess:
    """The object that multiprocessing's fork server unpickles in the new process and runs."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat

    def _bootstrap(self, parent_sentinel: int) -> NoReturn:
        os.close(parent_sentinel)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the server's own alarm
        inherited: Any = forkserver._forkserver
        os.close(inherited._forkserver_alive_fd)  # kept, it would keep the server alive after the kernel's death
        inherited._forkserver_alive_fd = None
        control, output, stacks, logbook, cards, *listener = inherited.get_inherited_fds()
        seat = replace(
            self.seat,
            control=control,
            output=output,
            stacks=stacks,
            logbook=logbook,
            cards=cards,
            listener=listener[0] if listener else None,
        )
        from lablib.engine import worker

        own = socket.socket(fileno=control)
        guard.protect(seat, own)
        worker.live(seat, own)


class _Forked:
    def __init__(self, seat: Seat) -> None:
        self.pid: int | None = None
        self.exitcode: int | None = None
        self._news = bytearray()
        _ensure_server()
        try:
            status, data = _server.connect_to_new_process(_descriptors(seat))
        except ConnectionError:  # the server has just died, and is not yet seen to be dead
            _server._stop()
            _ensure_server()
            status, data = _server.connect_to_new_process(_descriptors(seat))
        self._status: int | None = status
        os.set_blocking(status, False)
        with open(data, "wb") as pipe:
            # preparation data stays empty: the main module is never imported again, scripts need no guard
            pickle.dump({"sys_path": list(sys.path)}, pipe)
            pickle.dump(RankProcess(replace(seat, parent=_server._forkserver_pid)), pipe)

    def fileno(self) -> int:
        return -1 if self._status is None else self._status

    def poll(self) -> None:
        if self._status is None:
            return
        try:
            news = os.read(self._status, 2 * _SIGNED.size)
        except BlockingIOError:
            return
        self._news += news
        if self.pid is None and len(self._news) >= _SIGNED.size:
            self.pid = _SIGNED.unpack_from(self._news)[0]
            _note_warm()
        if len(self._news) >= 2 * _SIGNED.size:
            self.exitcode = _SIGNED.unpack_from(self._news, _SIGNED.size)[0]
        elif not news:
            self.exitcode = SERVER_DIED  # and took the rank along
        if self.exitcode is not None:
            self._close_status()

    def kill(self) -> None:
        self.poll()
        if self.pid is not None:
            _kill_with_children(self.pid, itself=self.exitcode is None)

    def close(self) -> None:
        self._close_status()

    def _close_status(self) -> None:
        if self._status is not None:
            os.close(self._status)
            self._status = None


class _Spawned:
    def __init__(self, seat: Seat) -> None:
        seat = replace(seat, bound_to_parent=threading.current_thread() is threading.main_thread())
        first_lines = f"import sys; sys.path.insert(0, {_ROOT!r}); from lablib.engine import spawned; spawned.live()"
        with _stop_button_held():
            self._process = subprocess.Popen(
                [sys.executable, "-c", first_lines],
                stdin=subprocess.PIPE,
                pass_fds=_descriptors(seat),
                env={**os.environ, **_idle_threads_sleep()},
            )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as pipe:
            pickle.dump(seat, pipe)
        self.pid: int | None = self._process.pid
        self.exitcode: int | None = None

    def fileno(self) -> int:
        return -1

    def poll(self) -> None:
        self.exitcode = self._process.poll()

    def kill(self) -> None:
        self.poll()
        _kill_with_children(self._process.pid, itself=self.exitcode is None)

    def close(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)


def wait_for_news(births: list[Birth], timeout_s: float) -> None:
    """Wait until one of these processes has news, or the time is over."""
    with selectors.DefaultSelector() as selector:
        for birth in births:
            if birth.fileno() >= 0:
                selector.register(birth.fileno(), selectors.EVENT_READ)
        selector.select(timeout_s if selector.get_map() else min(timeout_s, 0.02))
    for birth in births:
        birth.poll()


def _descriptors(seat: Seat) -> list[int]:
    always = [seat.control, seat.output, seat.stacks, seat.logbook, seat.cards]
    return always if seat.listener is None else [*always, seat.listener]


def _kill_with_children(pid: int, *, itself: bool) -> None:
    # a rank leads a process group of its own; before it got there, only the process itself can be named
    family = [pid, *descendants(pid)] if itself else []
    for one in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Return the children of a process and theirs, as far as /proc tells; some may have left its process group."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found


def _note_warm() -> None:
    global _warm_server
    _warm_server = _server._forkserver_pid


@contextlib.contextmanager
def _stop_button_held() -> Iterator[None]:
    """Let a process begin deaf to the stop button, until it says itself how it takes it."""
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def _idle_threads_sleep() -> dict[str, str]:
    """Return what torch must find when it is imported: threads that spin while they wait take cores from ranks."""
    return {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}


def _ensure_server() -> None:
    path = os.environ.get("PYTHONPATH")
    wanted = {
        PARENT_VARIABLE: str(os.getpid()),
        "PYTHONPATH": f"{_ROOT}{os.pathsep}{path}" if path else _ROOT,
        **_idle_threads_sleep(),
    }
    before = {name: os.environ.get(name) for name in wanted}
    tracker.ensure_running()  # first, since it lets the stop button through again when it starts
    with _stop_button_held():
        os.environ.update(wanted)
        try:
            _server.ensure_running()
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
