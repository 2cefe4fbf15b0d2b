"""What happens around every call of an operator while a job is recorded or its network is slow.

probes ─► carry() ─► the operator ─► work ─► works: when it ends ─► recorder
             └─ landmarks: which DDP bucket is this?
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from lablib import torch_private
from lablib.engine.card import Card
from lablib.engine.clock import Clock, CudaClock, HostClock
from lablib.engine.landmarks import Landmarks
from lablib.engine.wire import Recorded
from lablib.engine.works import Alive, InOrder, Late, LateSend, Waits
from lablib.links import Link
from lablib.trace import recorder as recorders
from lablib.trace.recorder import Recorder
from lablib.trace.spans import Kind

_PATIENCE_S = 0.2  # for works that nobody waited for


class Recording:
    """Record one job on this rank, slow its network, or both.

    Args:
        rank: the global rank.
        record: keep spans.
        memory: keep samples of memory; spans are kept then, too.
        link: the network that the job shall see; None for the real one.
        cards: descriptor of the memory that the emulated cards share.
        device: the rank's device, such as ``cpu`` or ``cuda:0``.
    """

    def __init__(self, rank: int, *, record: bool, memory: bool, link: Link | None, cards: int, device: str) -> None:
        self._rank = rank
        self._recorder = Recorder(rank) if record else None
        self._card = None if link is None else Card(cards, rank, link)
        self._landmarks = Landmarks(self._recorder) if self._recorder else None
        self._watch = _watch(rank, device, self._recorder) if memory and self._recorder else None
        self._clock: Clock = CudaClock() if record and device.startswith("cuda") else HostClock()
        self._lane = device if device.startswith("cuda") else ""
        self._waits = Waits()
        self._in_order = InOrder()
        self._open: dict[int, Callable[[], None]] = {}
        self._marks: list[tuple[str, Any, Any, dict[str, Any]]] = []
        self._alive = Alive()
        self._numbers = itertools.count()

    def start(self) -> None:
        """Begin, as the last thing before the function."""
        self._waits.start()
        if self._recorder and self._landmarks:
            recorders.current = self._recorder
            self._recorder.emulated = self._card is not None
            self._landmarks.start()
        if self._watch:
            self._watch.start()

    def stop(self) -> Recorded:
        """End, leave torch as it was, and return what was recorded."""
        samples = self._watch.stop() if self._watch else ()
        deadline = time.monotonic() + _PATIENCE_S
        while self._open and time.monotonic() < deadline:
            time.sleep(0.0005)
        recorders.current = None
        self._waits.stop()
        if self._landmarks:
            self._landmarks.stop()
        if self._card:
            self._card.close()
        for ended in list(self._open.values()):
            ended()
        if self._recorder is None:
            return Recorded()
        for name, start, end, facts in self._marks:
            self._recorder.add(name, Kind.COLLECTIVE, self._clock.ns(start), self._clock.ns(end), **facts)
        return Recorded(self._recorder.spans(), samples, self._recorder.emulated)

    def carry(self, op: str, facts: dict[str, Any], go_on: Callable[[], Any], waited: bool) -> Any:
        """Carry a call of an operator out.

        Args:
            op: its public name.
            facts: arguments of its span.
            go_on: the rest of the way to the backend.
            waited: the caller waits at once, so that the call ends when its wait returns. The backend's thread, which
                knows the end of the others, would have to fight for the GIL with the caller.
        """
        ended = self._begun(op, facts)
        length_ns = self._length_ns(op, facts)
        try:
            if op == "send" and length_ns and self._card:
                transfer = partial(self._card.transfer, self._key(op, facts), length_ns)
                return self._alive.hold(LateSend(go_on, transfer, ended)).boxed()
            result = go_on()
            work = torch_private.work_in(result)
        except BaseException:
            ended()
            raise
        if work is None:
            ended()
            return result
        if length_ns and self._card and op != "recv":
            late, turn = self._alive.hold(Late()), self._in_order.enter(facts["group"])
            late.follow(work, turn, partial(self._card.transfer, self._key(op, facts), length_ns), ended)
            return torch_private.with_work(result, late)
        if waited or not torch_private.when_done(work, ended):
            self._waits.tell(work, ended)
        return result

    def _begun(self, op: str, facts: dict[str, Any]) -> Callable[[], None]:
        """Note that a call begins; return what must be called when it has ended."""
        recorder, landmarks = self._recorder, self._landmarks
        if recorder is None or landmarks is None:
            return lambda: None
        facts["iteration"] = recorder.iteration
        facts["bucket"] = landmarks.bucket_sent(op, facts)
        facts["lane"] = self._lane
        number = next(self._numbers)
        start = self._clock.mark()

        def ended() -> None:
            end = self._clock.mark()
            if self._open.pop(number, None) is not None:  # by whichever thread comes first
                self._marks.append((op, start, end, facts))

        self._open[number] = ended
        return ended

    def _key(self, op: str, facts: dict[str, Any]) -> str:
        """Return a name for the transfer that the other ranks of this node call the same."""
        sender = f"{self._rank} to {facts['peer']}" if op == "send" else ""
        return f"{facts['group']} {sender} {facts['sequence']}"

    def _length_ns(self, op: str, facts: dict[str, Any]) -> int:
        if self._card is None:
            return 0
        peer = facts["peer"]
        ranks = facts["ranks"]
        if op in ("send", "recv"):
            ranks = (self._rank, self._rank if peer is None else peer)
        return self._card.link.length_ns(op, facts["nbytes"], ranks, peer=peer)


def _watch(rank: int, device: str, recorder: Recorder) -> Any:
    from lablib.engine.memory import MemoryWatch  # opens torch's tracker, which few jobs need

    return MemoryWatch(rank, device, iteration=lambda: recorder.iteration)
