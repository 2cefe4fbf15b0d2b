"""The work that an operation returns: noticed when it ends, and on a slow link made to end later.

                      ┌─ its future is done ───┐
    operator ─► work ─┤                        ├─► ended()
                      └─ its wait() returned ──┘   gloo's send and recv have no future

A slow link puts a `Late` work in the place of a collective's own. A send is handed to the backend only when its bytes
would have arrived, so that the receiver waits for real.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from lablib import torch_private
from lablib.engine.card import Card


class Waits:
    """Notice when the works that have no future are waited for; only between `start` and `stop`."""

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
                if id(work) in ended:
                    ended.pop(id(work))[1]()

        dist.Work.wait = wait  # type: ignore[method-assign, assignment]

    def stop(self) -> None:
        """Leave torch as it was."""
        dist.Work.wait = self._original  # type: ignore[method-assign]
        self._ended.clear()

    def tell(self, work: Any, ended: Callable[[], None]) -> None:
        """Call ``ended`` when this work's wait returns."""
        self._ended[id(work)] = (work, ended)  # holding the work keeps its id its own


class Late(dist.Work):
    """Be a collective's work that ends when the emulated network is through with it."""

    def __init__(self) -> None:
        super().__init__()
        self._future: torch.futures.Future[Any] = torch.futures.Future()

    def follow(self, work: Any, card: Card, key: str, length_ns: int, ended: Callable[[], None]) -> None:
        """End once the work has ended everywhere and the card has moved its bytes."""

        def really_done(future: Any) -> None:
            def arrive() -> None:
                ended()
                try:
                    self._future.set_result(future.value())
                except Exception as error:
                    self._future.set_exception(error)

            card.transfer(key, length_ns, arrive)

        work.get_future().add_done_callback(really_done)

    def wait(self, timeout: Any = None) -> bool:
        self._future.wait()
        return True

    def get_future(self) -> Any:
        return self._future

    def is_completed(self) -> bool:
        return self._future.done()


class LateSend(dist.Work):
    """Be the work of a send that the backend is given only when its bytes would have arrived."""

    def __init__(
        self, send: Callable[[], Any], card: Card, key: str, length_ns: int, ended: Callable[[], None]
    ) -> None:
        super().__init__()
        self._ended = ended
        self._given = threading.Event()
        self._work: Any = None
        self._error: BaseException | None = None

        def give() -> None:
            try:
                self._work = torch_private.work_in(send())
            except BaseException as error:
                self._error = error
            self._given.set()

        card.transfer(key, length_ns, give)

    def wait(self, timeout: Any = None) -> bool:
        self._given.wait()
        try:
            if self._error is not None:
                raise self._error
            return bool(self._work.wait())
        finally:
            self._ended()
