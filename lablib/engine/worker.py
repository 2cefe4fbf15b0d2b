"""The life of a rank.

    guard → stacks on demand → redirect output → Hello
    → for each Job: surroundings → group → Started → call → Done or Failed → wait for the next → leave

A rank reports before it tears anything down, and it leaves with ``os._exit``: nothing that a job left behind can hold
it.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import multiprocessing
import os
import random
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NoReturn, TextIO

import numpy
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import TCPStore  # type: ignore[attr-defined]

from lablib import torch_private
from lablib.engine import cargo, probes, values, whoami, wire
from lablib.engine.logbook import Logbook
from lablib.engine.recording import Recording
from lablib.errors import UsageError

_OPENED_BY_A_FIRST_JOB = (
    "numpy.random",
    "torch.distributed.rendezvous",
    "torch.nn.parallel.distributed",
    "torch.optim",
)
_OPENED_BY_TRAINING = ("torch._dynamo",)  # by the constructors of DDP and optimizers: 800 modules, 68 MiB


_own_streams: dict[str, TextIO] = {}


def preload(*, training: bool) -> None:
    """Do once, in the fork server, what every rank would do: imports and probes. It may be called again."""
    for name in _OPENED_BY_A_FIRST_JOB + (_OPENED_BY_TRAINING if training else ()):
        importlib.import_module(name)
    probes.install()


def live(seat: wire.Seat, control: socket.socket) -> NoReturn:
    """Be a rank, guarded already, until the parent hangs up."""
    faulthandler.enable(file=seat.stacks)
    faulthandler.register(signal.SIGUSR1, file=seat.stacks, all_threads=True, chain=False)
    _redirect_output(seat.output)
    whoami.rank = seat.rank
    book = Logbook(seat.logbook)
    main_thread = threading.main_thread().ident or 0
    _say(control, wire.Hello(os.getpid(), main_thread))
    group = _Group(seat)
    pid = os.getpid()
    while (job := wire.read(control)) is not None:
        report = _perform(job, seat, group, book, control)
        if os.getpid() != pid:  # the function forked, and this is its child coming back
            os._exit(0)
        _say(control, report)
    os._exit(0)


def _say(control: socket.socket, message: Any) -> None:
    try:
        control.sendall(wire.encode(message))
    except ConnectionError:  # the parent hung up
        os._exit(1)


def _redirect_output(output: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        _own_streams[name] = stream
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115


def _flush_output() -> None:
    for stream in {sys.stdout, sys.stderr, *_own_streams.values()}:
        with contextlib.suppress(Exception):  # what a job put in place of a stream may do anything
            stream.flush()
    ctypes.CDLL(None).fflush(None)  # what native code printed waits in the C library's own buffer


def _perform(
    job: wire.Job, seat: wire.Seat, group: _Group, book: Logbook, control: socket.socket
) -> wire.Done | wire.Failed:
    refused = False
    recorded = wire.Recorded()
    try:
        _arrange(job.surroundings, seat)
        before = _threads_and_children()
        fresh = group.make(job.surroundings)
        recording = _recording(job, seat)
        probes.attach(book, None if recording is None else recording.carry)
        fn, args = cargo.unpack(job.parcel)
        _say(control, wire.Ready(waits=fresh))
        if fresh and wire.read(control) is None:
            os._exit(0)
        try:
            if recording is not None:
                recording.start()
            value = fn(*args)
        finally:
            if recording is not None:
                recorded = recording.stop()
        refused = True
        payload = values.pack(value)
        del value, fn, args
        clean = group.untouched() and probes.messages_are_over() and _threads_and_children() == before
        report: wire.Done | wire.Failed = wire.Done(payload, clean, recorded)
    except BaseException as error:  # SystemExit and KeyboardInterrupt end the function, not the report
        report = _failure(error, refused=refused and isinstance(error, UsageError), recorded=recorded)
    probes.detach()
    _flush_output()
    return report


def _recording(job: wire.Job, seat: wire.Seat) -> Recording | None:
    if not job.record and job.link is None:
        return None
    return Recording(
        seat.rank,
        record=job.record,
        memory=job.memory,
        link=job.link,
        cards=seat.cards,
        device=job.surroundings.device,
    )


def _arrange(surroundings: wire.Surroundings, seat: wire.Seat) -> None:
    for name in os.environ.keys() - surroundings.environment.keys():
        del os.environ[name]
    os.environ.update(surroundings.environment.items() - os.environ.items())
    for name, stream in _own_streams.items():
        setattr(sys, name, stream)
    sys.path[:] = surroundings.import_path
    os.chdir(surroundings.folder)
    sys.path_importer_cache.clear()  # a module that the learner has just written is found
    torch.set_num_threads(surroundings.threads)
    # ranks forked from one server share its random state; torchrun's ranks differ, so these must
    torch.default_generator.seed()
    if surroundings.device.startswith("cuda"):
        torch.cuda.set_device(surroundings.device)
        torch.cuda.seed()
    random.seed()
    numpy.random.seed(random.getrandbits(32))


class _Group:
    """The store and the default process group of this rank, made once and kept between jobs."""

    def __init__(self, seat: wire.Seat) -> None:
        self._seat = seat
        self._store: Store | None = None
        self._made: tuple[Any, int] | None = None

    def make(self, surroundings: wire.Surroundings) -> bool:
        """Make what the job needs and is not there; return whether other ranks may still be at it."""
        seat = self._seat
        if seat.rank == 0 and surroundings.store and self._store is None:
            self._store = self._connect(is_master=True, master_listen_fd=seat.listener)
        if surroundings.backend is None or self._made is not None:
            return False
        self._store = self._store or self._connect(is_master=False)
        device = torch.device(surroundings.device)
        dist.init_process_group(
            surroundings.backend,
            store=PrefixStore("lablib", self._store),
            rank=seat.rank,
            world_size=seat.world_size,
            device_id=device if surroundings.backend == "nccl" else None,
        )
        self._made = self._state()
        return True

    def untouched(self) -> bool:
        """Return whether the groups are those that `make` left."""
        return self._state() == (self._made or (None, 0))

    def _state(self) -> tuple[Any, int]:
        return (dist.group.WORLD, torch_private.groups_made()) if dist.is_initialized() else (None, 0)

    def _connect(self, **role: Any) -> Store:
        seat = self._seat
        return TCPStore(
            "127.0.0.1",
            seat.port,
            seat.world_size,
            wait_for_workers=False,
            timeout=timedelta(seconds=60),
            **role,
        )


def _threads_and_children() -> tuple[set[int | None], set[int | None]]:
    threads = {thread.ident for thread in threading.enumerate()}
    return threads, {child.pid for child in multiprocessing.active_children()}


def _failure(error: BaseException, *, refused: bool, recorded: wire.Recorded) -> wire.Failed:
    at_ns = time.monotonic_ns()
    summary = traceback.TracebackException.from_exception(error)
    frames = tuple(
        wire.Frame(frame.filename, frame.lineno or 0, frame.name, frame.line or "")
        for frame in summary.stack
        if frame.filename != __file__
    )
    return wire.Failed(
        kind=type(error).__qualname__,
        message=_text(error),
        frames=frames,
        traceback="".join(summary.format()),
        exception=values.pack_exception(error),
        at_ns=at_ns,
        refused=refused,
        background=tuple(_background(error)),
        recorded=recorded,
    )


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as worse:  # a __str__ that raises must not cost the report
        return f"<its __str__ raised {type(worse).__name__}>"


def _background(error: BaseException) -> Iterator[str]:
    """Yield an exception's notes, its members and what it came from, a line each."""
    yield from (str(note) for note in getattr(error, "__notes__", ()))
    for member in getattr(error, "exceptions", ()):
        yield f"with {type(member).__qualname__}: {_text(member)}"
    seen = {id(error)}
    while (cause := error.__cause__ or (None if error.__suppress_context__ else error.__context__)) is not None:
        if id(cause) in seen:
            return
        seen.add(id(cause))
        yield f"caused by {type(cause).__qualname__}: {_text(cause)}"
        error = cause
