"""The work that an operation returns: noticed when it ends, and on a slow link made to end later.

                      ┌─ its future is done ───┐
    operator ─► work ─┤                        ├─► ended()
                      └─ its wait() returned ──┘   where the caller waits at once, and gloo's send and recv

A slow link puts a `Late` work in the place of a collective's own. A send is handed to the backend only when its bytes
would have arrived, so that the receiver waits for real.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from lablib import torch_private

_Work = TypeVar("_Work", "Late", "LateSend")


class Waits:
    """Notice when works are waited for; only between `start` and `stop`."""

    def __init__(self) -> None:
        self._ended: dict[int, tuple[Any, Callable[[], None]]] = {}
        self._original = dist.Work.wait

    def start(self) -> None:
        """Stand in front of ``Work.wait``."""
        original, ended = self._original, self._ended

        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(work, *args, **kwargs)
            finally:
                told = ended.pop(id(work), None)
                if told:
                    told[1]()

        dist.Work.wait = wait  # type: ignore[method-assign, assignment]

    def stop(self) -> None:
        """Leave torch as it was."""
        dist.Work.wait = self._original  # type: ignore[method-assign]
        self._ended.clear()

    def tell(self, work: Any, ended: Callable[[], None]) -> None:
        """Call ``ended`` when this work's wait returns."""
        self._ended[id(work)] = (work, ended)  # holding the work keeps its id its own


class InOrder:
    """Let the works of a group go on to the network in the order of their calls.

    gloo has several threads and ends small works before big ones that were called earlier; a network card does not.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: defaultdict[str, deque[list[Callable[[], None]]]] = defaultdict(deque)

    def enter(self, group: str) -> Callable[[Callable[[], None]], None]:
        """Take the next place of a group; what is returned must be told, once, what to do when its turn comes."""
        place: list[Callable[[], None]] = []
        with self._lock:
            self._queues[group].append(place)

        def ready(go_on: Callable[[], None]) -> None:
            with self._lock:
                place.append(go_on)
                queue = self._queues[group]
                while queue and queue[0]:
                    queue.popleft()[0]()

        return ready


class Alive:
    """Hold the works that are made here: torch keeps the C++ half of one alone, whose wait would never end.

    One that was waited for is let go when so many later ones have come, the others when the job ends.
    """

    _LATER = 256

    def __init__(self) -> None:
        self._held: deque[Any] = deque()

    def hold(self, work: _Work) -> _Work:
        """Hold one more, and return it."""
        self._held.append(work)
        while len(self._held) > self._LATER and self._held[0].waited:
            self._held.popleft()
        return work


class Late(dist.Work):
    """Be a collective's work that ends when the emulated network is through with it."""

    def __init__(self) -> None:
        super().__init__()
        self.waited = False
        self._future: torch.futures.Future[Any] = torch.futures.Future()

    def follow(
        self,
        work: Any,
        turn: Callable[[Callable[[], None]], None],
        transfer: Callable[..., None],
        ended: Callable[[], None],
    ) -> None:
        """End once the work has ended everywhere and the card has moved its bytes.

        Args:
            work: the backend's own.
            turn: calls what it is given when the works called earlier are on their way.
            transfer: moves the bytes, and then calls what it is given.
            ended: is told.
        """

        def really_done(future: Any) -> None:
            def arrive() -> None:
                ended()
                try:
                    self._future.set_result(future.value())
                except Exception as error:
                    self._future.set_exception(error)

            turn(partial(transfer, arrive))

        work.get_future().add_done_callback(really_done)

    def wait(self, timeout: Any = None) -> bool:
        self._future.wait()
        self.waited = True
        return True

    def get_future(self) -> Any:
        return self._future

    def is_completed(self) -> bool:
        return self._future.done()


class LateSend(dist.Work):
    """Be the work of a send that the backend is given only when its bytes would have arrived."""

    def __init__(
        self, send: Callable[[], Any], transfer: Callable[[Callable[[], None]], None], ended: Callable[[], None]
    ) -> None:
        super().__init__()
        self._ended = ended
        self._given = threading.Event()
        self.waited = False
        self._work: Any = None
        self._error: BaseException | None = None

        def give() -> None:
            try:
                self._work = torch_private.work_in(send())
            except BaseException as error:
                self._error = error
            self._given.set()

        transfer(give)

    def is_completed(self) -> bool:
        return self.waited

    def wait(self, timeout: Any = None) -> bool:
        self._given.wait()
        try:
            if self._error is not None:
                raise self._error
            return bool(self._work.wait())
        finally:
            self.waited = True
            self._ended()
