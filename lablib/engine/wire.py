"""What parent and ranks say to each other, and the framing that carries it.

    parent ── Job, Go ─────────────────────► rank
    parent ◄── Hello, Ready, Done | Failed ── rank

One socket pair a rank, eight bytes of length and then a pickle. The parent's end never blocks: a rank that is frozen in
the middle of a message costs a timeout and nothing more. Either end closing means goodbye.
"""

from __future__ import annotations

import pickle
import socket
import struct
from dataclasses import dataclass
from typing import Any

from lablib.engine.cargo import Parcel
from lablib.links import Link
from lablib.trace.memory import MemorySample
from lablib.trace.spans import Span

_LENGTH = struct.Struct("<Q")
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Seat:
    """Where a rank sits, fixed for the life of its process.

    Args:
        rank, world_size: its place in the job; every rank is on this host, so the local rank is the same.
        control, output, stacks, logbook, cards: file descriptors that the rank inherits.
        listener: the rendezvous socket, on rank 0 only.
        port: the rendezvous port on 127.0.0.1.
        parent: process id of the parent: the fork server, or the kernel itself for a spawned rank.
        bound_to_parent: the rank may ask the system to kill it when the *thread* that made it ends.
    """

    rank: int
    world_size: int
    control: int
    output: int
    stacks: int
    logbook: int
    cards: int
    listener: int | None
    port: int
    parent: int
    bound_to_parent: bool


@dataclass(frozen=True)
class Surroundings:
    """What a function finds around it in a rank: environment, folder, import path, threads, group."""

    environment: dict[str, str]
    folder: str
    import_path: list[str]
    threads: int
    backend: str | None  # None: make no group
    device: str
    store: bool  # rank 0 serves the rendezvous store


@dataclass(frozen=True)
class Job:
    """One call for a rank, and what else is asked for: see `lablib.engine.options.Extras`."""

    parcel: Parcel
    surroundings: Surroundings
    record: bool = False
    memory: bool = False
    link: Link | None = None


@dataclass(frozen=True)
class Hello:
    """The rank is up; its job is sent only now, so that a rank whose parent gave up never starts one."""

    pid: int
    main_thread: int


@dataclass(frozen=True)
class Ready:
    """The group is made; ``waits``: the function begins at Go, otherwise now."""

    waits: bool


@dataclass(frozen=True)
class Go:
    """Every rank's group is made: begin. A function that ends its rank at once must not break another's set-up."""


@dataclass(frozen=True)
class Recorded:
    """What a rank recorded, and whether any length in it was made up."""

    spans: tuple[Span, ...] = ()
    memory: tuple[MemorySample, ...] = ()
    emulated: bool = False


@dataclass(frozen=True)
class Done:
    """The function returned; ``reusable`` is false where it left a thread, a child or a changed group behind."""

    payload: bytes
    reusable: bool
    recorded: Recorded = Recorded()


@dataclass(frozen=True)
class Frame:
    """One line of a traceback or stack."""

    file: str
    line: int
    function: str
    text: str = ""


@dataclass(frozen=True)
class Failed:
    """The function, or the set-up before it, raised.

    Args:
        kind: name of the exception's class.
        message: its text.
        frames: its traceback, outermost first.
        traceback: its traceback as Python prints it.
        exception: the pickled exception, or None where it cannot travel.
        at_ns: when it was caught, on the host's monotonic clock.
        refused: the *value* was refused, not the function.
        background: its notes and what it was caused by, a line each.
        recorded: what was recorded until then.
    """

    kind: str
    message: str
    frames: tuple[Frame, ...]
    traceback: str
    exception: bytes | None
    at_ns: int
    refused: bool = False
    background: tuple[str, ...] = ()
    recorded: Recorded = Recorded()


class Channel:
    """The parent's end of a rank's control socket; no call on it blocks."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._outbox = bytearray()
        self._inbox = bytearray()
        self.closed = False

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def wants_to_send(self) -> bool:
        """Return whether a message is still on its way out."""
        return bool(self._outbox) and not self.closed

    def send(self, message: Any) -> None:
        """Queue a message and send what the socket takes now."""
        self._outbox += encode(message)
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes now."""
        try:
            while self._outbox:
                sent = self._sock.send(memoryview(self._outbox)[:_CHUNK])
                del self._outbox[:sent]
        except BlockingIOError:
            return
        except OSError:  # the rank is gone; its exit status tells why
            self.closed = True

    def receive(self) -> list[Any]:
        """Return the messages that are complete by now; sets ``closed`` where the rank hung up."""
        try:
            while True:
                chunk = self._sock.recv(_CHUNK)
                if not chunk:
                    self.closed = True
                    break
                self._inbox += chunk
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        messages = []
        while len(self._inbox) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._inbox)[0]
            if len(self._inbox) < end:
                break
            messages.append(pickle.loads(memoryview(self._inbox)[_LENGTH.size : end]))
            del self._inbox[:end]
        return messages

    def close(self) -> None:
        """Hang up."""
        self.closed = True
        self._sock.close()


def encode(message: Any) -> bytes:
    """Return a message as it goes over the wire."""
    body = pickle.dumps(message, protocol=5)
    return _LENGTH.pack(len(body)) + body


def read(sock: socket.socket) -> Any | None:
    """Wait for one message at the rank's end; None where the parent hung up."""
    head = _read_exactly(sock, _LENGTH.size)
    body = None if head is None else _read_exactly(sock, _LENGTH.unpack(head)[0])
    return None if body is None else pickle.loads(body)


def _read_exactly(sock: socket.socket, count: int) -> bytearray | None:
    data = bytearray(count)
    view = memoryview(data)
    while view.nbytes:
        try:
            received = sock.recv_into(view)
        except ConnectionError:
            received = 0
        if not received:
            return None
        view = view[received:]
    return data
