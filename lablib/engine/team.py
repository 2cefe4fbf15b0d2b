"""The ranks of one job or cluster, as their parent holds them.

             control (socket pair)    Job ──►  ◄── Hello, Ready, Done, Failed
    parent ◄─ output  (pipe)          ◄── file descriptors 1 and 2 ──      rank
             stacks  (pipe)           ◄── faulthandler, on SIGUSR1 ──
             logbook (shared memory)  ◄── collectives as they begin ──
             cards   (shared memory)      between ranks: the emulated network
             news    (birth)          ◄── process id, exit code ── fork server

Nobody but the parent kills a rank, except that a rank goes when its parent does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from typing import Any

from lablib.engine import births, card, forking, logbook, shared, wire
from lablib.engine.logbook import Logbook
from lablib.engine.tail import Tail


class Member:
    """One rank as its parent holds it."""

    def __init__(self, rank: int, world_size: int, listener: socket.socket, cards: int, start_method: str) -> None:
        self.rank = rank
        mine, theirs = socket.socketpair()
        output_read, output_write = os.pipe()
        stacks_read, stacks_write = os.pipe()
        book = shared.create(logbook.NBYTES)
        self.channel = wire.Channel(mine)
        self.output = Tail(output_read)
        self.stacks = Tail(stacks_read)
        self.logbook = Logbook(book)
        self.hello: wire.Hello | None = None
        seat = wire.Seat(
            rank=rank,
            world_size=world_size,
            control=theirs.fileno(),
            output=output_write,
            stacks=stacks_write,
            logbook=book,
            cards=cards,
            listener=listener.fileno() if rank == 0 else None,
            port=listener.getsockname()[1],
            parent=os.getpid(),
            bound_to_parent=True,
        )
        try:
            self.birth = births.bear(start_method, seat)
        except BaseException:
            self.channel.close()
            self._close_own()
            raise
        finally:
            theirs.close()
            for descriptor in (output_write, stacks_write, book):
                os.close(descriptor)

    @property
    def alive(self) -> bool:
        """Return whether the process may still be there."""
        return self.birth.exitcode is None

    def messages(self) -> list[Any]:
        """Return what the rank said since the last call, apart from its Hello, which is kept; never blocks."""
        said = self.channel.receive()
        for message in said:
            if isinstance(message, wire.Hello):
                self.hello = message
        return [message for message in said if not isinstance(message, wire.Hello)]

    def how_it_ended(self) -> str:
        """Return the exit code in words."""
        code = self.birth.exitcode
        if code is None:
            return "hung up"
        if code == forking.SERVER_DIED:
            return "was lost with the fork server (run `python -m lablib doctor`)"
        if code >= 0:
            return f"exited with code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"

    def ask_for_stacks(self) -> None:
        """Make the rank write the stacks of its threads; works while it holds the GIL in native code."""
        if self.hello is not None and self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.hello.pid, signal.SIGUSR1)

    def close(self) -> None:
        """Kill the process and let go of everything that was shared with it."""
        self.birth.kill()
        self.channel.close()
        self._close_own()

    def _close_own(self) -> None:
        self.output.close()
        self.stacks.close()
        self.logbook.close()


class Team:
    """All ranks of a job or cluster, on one host.

    Args:
        world_size: number of ranks.
        start_method: ``forkserver`` or ``spawn``.
    """

    def __init__(self, world_size: int, start_method: str) -> None:
        self.members: list[Member] = []
        self.closed = False
        self._forked = start_method == "forkserver"
        births.check_room(world_size)
        self._cards = shared.create(card.NBYTES)
        listener = socket.socket()
        try:
            listener.bind(("127.0.0.1", 0))
            listener.listen(4 * world_size)
            listener.set_inheritable(False)
            self.port: int = listener.getsockname()[1]
            for rank in range(world_size):
                self.members.append(Member(rank, world_size, listener, self._cards, start_method))
        except BaseException:
            self.close()
            raise
        finally:
            listener.close()

    def free_cards(self) -> None:
        """Make the emulated network free, before a job that uses it."""
        card.clear(self._cards)

    @property
    def intact(self) -> bool:
        """Return whether every rank is there and waits for a job."""
        for member in self.members:
            member.birth.poll()
            member.messages()  # an idle rank has nothing to say: what this finds is a hang-up
        if self._forked and not forking.server_is_alive():
            return False
        return not self.closed and all(member.alive and not member.channel.closed for member in self.members)

    def close(self, *, wait_s: float = 1.0) -> None:
        """Kill every rank with its children; wait at most ``wait_s`` seconds until they are gone."""
        if self.closed:
            return
        self.closed = True
        os.close(self._cards)
        for member in self.members:
            member.close()
        deadline = time.monotonic() + wait_s
        while waiting := [member.birth for member in self.members if member.alive]:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            births.wait_for_news(waiting, left)
        for member in self.members:
            member.birth.close()
