"""Ranks forked from this process's own fork server, which imports torch once: a rank then takes milliseconds."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import struct
import sys
from dataclasses import replace
from multiprocessing import forkserver
from typing import Any, NoReturn

from lablib.engine import endings, guard, tracker
from lablib.engine.newborn import ROOT, descriptors, idle_threads_sleep, stop_button_held
from lablib.engine.wire import Seat

SERVER_DIED = 1 << 16  # in place of an exit code
PARENT_VARIABLE = "LABLIB_FORK_SERVER_OF"  # tells the server's first import that it is in the server, and whose
TRAINING_AFTER_VARIABLE = "LABLIB_TRAINING_AFTER_S"  # tells it how long to be idle before it gets ready for training
_TRAINING_AFTER_S = 5.0
_SIGNED = struct.Struct("q")  # what multiprocessing's server writes: the process id, later the exit code

_server: Any = forkserver.ForkServer()  # this kernel's fork server, apart from the one that learners' own code may use
_server.set_forkserver_preload(["lablib.engine.server"])
_warm_server: int | None = None  # process id of the server that has made a rank


class ServerDied(Exception):
    """The fork server died before any rank had begun: nothing is lost, and a new server can do it."""


def ensure_server(*, training: bool = True) -> None:
    """Start the server where it does not run yet; it imports torch by itself, and this returns at once.

    Args:
        training: before the first rank it also imports what DDP and optimizers need; otherwise when it has been idle.
    """
    path = os.environ.get("PYTHONPATH")
    wanted = {
        PARENT_VARIABLE: str(os.getpid()),
        TRAINING_AFTER_VARIABLE: "" if training else str(_TRAINING_AFTER_S),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{path}" if path else ROOT,
        **idle_threads_sleep(),
    }
    before = {name: os.environ.get(name) for name in wanted}
    tracker.ensure_running()  # first, since it lets the stop button through again when it starts
    with stop_button_held():
        os.environ.update(wanted)
        try:
            _server.ensure_running()
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def server_pid() -> int | None:
    """Return the process id of the fork server, or None before the first start."""
    pid: int | None = _server._forkserver_pid
    return pid


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


class Forked:
    """A rank forked from the server."""

    def __init__(self, seat: Seat) -> None:
        self.pid: int | None = None
        self.exitcode: int | None = None
        self._news = bytearray()
        ensure_server()
        try:
            status, data = _server.connect_to_new_process(descriptors(seat))
        except ConnectionError:  # the server has just died, and is not yet seen to be dead
            _server._stop()
            ensure_server()
            status, data = _server.connect_to_new_process(descriptors(seat))
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
            endings.kill_with_children(self.pid, itself=self.exitcode is None)

    def close(self) -> None:
        self._close_status()

    def _close_status(self) -> None:
        if self._status is not None:
            os.close(self._status)
            self._status = None


def _note_warm() -> None:
    global _warm_server
    _warm_server = _server._forkserver_pid
