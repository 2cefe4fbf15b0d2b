"""Training steps under DistributedDataParallel, simulated: who computes when, which bucket leaves when, who waits.

    each rank   late │ forward ── backward: gradients ─► bucket k is full ─┐            wait for all ─► optimizer
                                                buckets 0 … k−1 have left ─┴► all_reduce calls ─┐         ▲
    the network                     the last rank has called ─ the card is free ─► transfer ────┴─────────┘

What DDP sends besides its buckets is in it, too: two broadcasts where it rebuilds them, and the map of used parameters.
Source: torch/csrc/distributed/c10d/reducer.cpp.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lablib.errors import UsageError
from lablib.links import Link
from lablib.sim.buckets import MIB, Bucket, BucketSettings, assign, predict_buckets
from lablib.sim.plan import Plan
from lablib.trace.spans import Kind, Span, Trace

_COALESCED_NBYTES = 250 * MIB  # torch/nn/parallel/distributed.py, broadcast_bucket_size
_GROUP = "0"  # what torch calls the default group


def simulate(
    plan: Plan | Sequence[Plan],
    *,
    world_size: int | None = None,
    link: Link | None = None,
    iterations: Iterable[int] = range(3),
    constructor: bool = False,
    **settings: Any,
) -> Trace:
    """Return the trace of training steps, back to back.

    Every operation begins to move when the last rank has called it, and one network card carries them one by one.

    Args:
        plan: what each rank computes, or one plan a rank; all must have the same parameters.
        world_size: number of ranks; None means 2, or one a plan.
        link: the network; None means that transfers take no time.
        iterations: which ones, since the buckets of 0, 1 and 2 differ.
        constructor: let DDP's constructor come first: it compares the parameters and broadcasts rank 0's.
        settings: arguments of `BucketSettings`, such as ``bucket_cap_mb=5``.

    Raises:
        UsageError: the plans do not fit each other or the world size.
    """
    plans = _one_a_rank(plan, world_size)
    job = _Job(plans, link or Link(), BucketSettings(**settings))
    if constructor:
        job.construct()
    for iteration in iterations:
        buckets = predict_buckets(
            plans[0].parameters, iteration=iteration, ready_order=plans[0].ready_order, **settings
        )
        job.step(iteration, buckets)
    return Trace.of_spans(job.spans, world_size=len(plans), truth="simulated")


def _one_a_rank(plan: Plan | Sequence[Plan], world_size: int | None) -> Sequence[Plan]:
    if isinstance(plan, Plan):
        if world_size is not None and world_size < 1:
            raise UsageError(f"world_size={world_size!r} is not a number of ranks from 1 on")
        return [plan] * (2 if world_size is None else world_size)
    if not plan or world_size not in (None, len(plan)):
        raise UsageError(f"{len(plan)} plans for world_size={world_size!r}: give one plan a rank")
    for rank, other in enumerate(plan):
        if other.parameters != plan[0].parameters:
            raise UsageError(
                f"the plan of rank {rank} has other parameters than that of rank 0: DDP refuses such a model"
            )
    return plan


class _Job:
    """All ranks and the network: each rank's clock, when the card is free, and the spans so far."""

    def __init__(self, plans: Sequence[Plan], link: Link, settings: BucketSettings) -> None:
        self.spans: list[Span] = []
        self._plans = plans
        self._link = link
        self._settings = settings
        self._ranks = tuple(range(len(plans)))
        self._parameters = plans[0].parameters
        self._clock = [0] * len(plans)
        self._free = 0
        self._calls = 0

    def construct(self) -> None:
        """Let DDP compare the parameters' number, sizes and strides, and broadcast rank 0's values."""
        self._wait("all_gather", 8)
        self._wait("broadcast", 16 * len(self._parameters))
        for together in assign(self._parameters, [_COALESCED_NBYTES]):
            self._wait("broadcast", sum(one.nbytes for one in together))

    def step(self, iteration: int, buckets: Sequence[Bucket]) -> None:
        """Let all ranks go forward and backward and step."""
        starts = [clock + _ns(plan.late_ms) for clock, plan in zip(self._clock, self._plans, strict=True)]
        self._clock = starts
        if iteration == self._settings.rebuilt_in:
            self._wait("broadcast", 4 * len(self._parameters) + 4, iteration)
            self._wait("broadcast", 4 * len(buckets), iteration)
        turns = [self._forward(rank, self._clock[rank], iteration) for rank in self._ranks]
        ready, ends = zip(*(self._backward(rank, turns[rank], iteration) for rank in self._ranks), strict=True)
        done = self._reduce(iteration, buckets, ready, ends)
        overs = [max(end, done) for end in ends]
        self._clock = [over + _ns(plan.optimizer_ms) for over, plan in zip(overs, self._plans, strict=True)]
        for rank, start, turn, over, stepped in zip(self._ranks, starts, turns, overs, self._clock, strict=True):
            self._add(rank, "forward", Kind.FORWARD, start, turn, 0, iteration)
            self._add(rank, "backward", Kind.BACKWARD, turn, over, 0, iteration)
            self._add(rank, "optimizer", Kind.OPTIMIZER, over, stepped, 0, iteration)

    def _forward(self, rank: int, now: int, iteration: int) -> int:
        """Return when the rank's forward ends."""
        for layer in self._plans[rank].layers:
            end = now + _ns(layer.forward_ms)
            self._add(rank, f"{layer.name} forward", Kind.COMPUTE, now, end, 0, iteration)
            now = end
        return now

    def _backward(self, rank: int, now: int, iteration: int) -> tuple[dict[str, int], int]:
        """Return when each of the rank's gradients is ready, and when it has computed the last."""
        ready: dict[str, int] = {}
        for layer in reversed(self._plans[rank].layers):
            end = now + _ns(layer.backward_ms)
            self._add(rank, f"{layer.name} backward", Kind.COMPUTE, now, end, 0, iteration)
            for parameter in reversed(layer.parameters):
                ready[parameter.name] = end
                self._add(rank, parameter.name, Kind.GRADIENT, end, end, parameter.nbytes, iteration)
            now = end
        return ready, now

    def _reduce(
        self, iteration: int, buckets: Sequence[Bucket], ready: Sequence[dict[str, int]], ends: Sequence[int]
    ) -> int:
        """Return when the last all_reduce of the backward is done."""
        static = self._settings.static_graph
        used_map = "all_reduce", 4 * len(self._parameters)
        sent: Sequence[int] = [0] * len(ends)
        done = 0
        if static and iteration == 0:  # DDP learns how often each gradient arrives, and sends all of them at the end
            sent = ends
            done = self._transfer(*used_map, sent, iteration)
        for bucket in buckets:
            times = [[of_rank[name] for name in bucket.parameters] for of_rank in ready]
            full = [max(of_rank) for of_rank in times]
            sent = [max(now, before) for now, before in zip(full, sent, strict=True)]
            facts = bucket.nbytes, iteration, bucket.index, bucket.parameters
            for rank in self._ranks:
                self._add(rank, f"bucket {bucket.index}", Kind.BUCKET, min(times[rank]), full[rank], *facts)
            done = self._transfer("all_reduce", bucket.nbytes, sent, iteration, bucket.index)
        if self._settings.find_unused_parameters and not static:
            done = self._transfer(*used_map, sent, iteration)
        return done

    def _wait(self, op: str, nbytes: int, iteration: int | None = None) -> None:
        """Let all ranks call an operation and wait until it is done."""
        self._clock = [self._transfer(op, nbytes, self._clock, iteration)] * len(self._clock)

    def _transfer(
        self, op: str, nbytes: int, sent: Sequence[int], iteration: int | None, bucket: int | None = None
    ) -> int:
        """Return when an operation is done that each rank calls at its own time."""
        peer = 0 if op == "broadcast" else None
        done = self._free = max(self._free, *sent) + self._link.length_ns(op, nbytes, self._ranks, peer=peer)
        self._calls += 1
        facts = nbytes, iteration, bucket, (), _GROUP, self._ranks, self._calls, peer
        for rank, called in enumerate(sent):
            self._add(rank, op, Kind.COLLECTIVE, called, done, *facts)
        return done

    def _add(self, *facts: Any) -> None:
        self.spans.append(Span(*facts))


def _ns(ms: float) -> int:
    return round(ms * 1e6)
