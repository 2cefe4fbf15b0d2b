"""Traces of DDP steps, made up: layers one after another, buckets that travel one after another."""

from lablib.trace import Kind, Span, Trace

MIB = 1 << 20
MS = 1_000_000


def ddp_trace(
    ranks=2,
    *,
    layers=8,
    layers_a_bucket=2,
    layer_ms=20,
    mib=1.0,
    ms_a_mib=15,
    iterations=2,
    late_ms=0,
    jitter=None,
    truth="emulated",
    timed_layers=True,
):
    """Return a trace of `iterations` equal steps; the last rank starts each backward `late_ms` late.

    `jitter(rank, bucket)` in milliseconds is added to the arrival of a bucket.
    """
    spans, start = [], 0
    for iteration in range(iterations):
        done = 0
        facts = {"iteration": iteration}
        clock = {}
        for rank in range(ranks):
            now = start
            for layer in range(layers):
                if timed_layers:
                    at, end = _ns(now), _ns(now + layer_ms / 2)
                    spans.append(Span(rank, f"layer{layer} forward", Kind.COMPUTE, at, end, **facts))
                now += layer_ms / 2
            clock[rank] = now + (late_ms if rank == ranks - 1 else 0)
            spans.append(Span(rank, "forward", Kind.FORWARD, _ns(start), _ns(clock[rank]), **facts))
        begun = dict(clock)
        buckets = [range(first, first - layers_a_bucket, -1) for first in range(layers - 1, -1, -layers_a_bucket)]
        for number, some in enumerate(buckets):
            members = [layer for layer in some if layer >= 0]
            names = tuple(f"layer{layer}.{part}" for layer in members for part in ("weight", "bias"))
            nbytes = int(len(members) * mib * MIB)
            first, full = {}, {}
            for rank in range(ranks):
                for layer in members:
                    at = clock[rank]
                    clock[rank] += layer_ms
                    if timed_layers:
                        name = f"layer{layer} backward"
                        spans.append(Span(rank, name, Kind.COMPUTE, _ns(at), _ns(clock[rank]), **facts))
                    for part, share in (("bias", 0.9), ("weight", 1.0)):
                        ready = at + share * layer_ms
                        first.setdefault(rank, ready)
                        full[rank] = ready
                        spans.append(
                            Span(
                                rank,
                                f"layer{layer}.{part}",
                                Kind.GRADIENT,
                                _ns(ready),
                                _ns(ready),
                                nbytes=nbytes // len(names),
                                **facts,
                            )
                        )
            sent = {rank: max(full[rank], done - 0.5 * number) for rank in range(ranks)}
            done = max(done, *full.values()) + len(members) * mib * ms_a_mib
            for rank in range(ranks):
                end = done + (jitter(rank, number) if jitter else 0)
                spans += [
                    Span(
                        rank,
                        f"bucket {number}",
                        Kind.BUCKET,
                        _ns(first[rank]),
                        _ns(full[rank]),
                        nbytes=nbytes,
                        bucket=number,
                        parameters=names,
                        **facts,
                    ),
                    Span(
                        rank,
                        "all_reduce",
                        Kind.COLLECTIVE,
                        _ns(sent[rank] + 0.2),
                        _ns(end),
                        nbytes=nbytes,
                        bucket=number,
                        group="default",
                        ranks=tuple(range(ranks)),
                        sequence=len(buckets) * iteration + number + 1,
                        file="cell [3]",
                        line=12,
                        **facts,
                    ),
                ]
        end = max(done, *clock.values()) + 3
        for rank in range(ranks):
            spans.append(Span(rank, "backward", Kind.BACKWARD, _ns(begun[rank]), _ns(end), **facts))
            spans.append(Span(rank, "optimizer", Kind.OPTIMIZER, _ns(end + 1), _ns(end + 6), **facts))
        start = end + 10
    backend = None if truth == "simulated" else "gloo"
    return Trace.of_spans(spans, world_size=ranks, truth=truth, backend=backend)


def random_trace(ranks=64, spans=1000, seed=0):
    """Return many short spans of compute and communication on each rank."""
    import numpy as np

    numbers = np.random.default_rng(seed)
    made = []
    for rank in range(ranks):
        at = 0
        for i in range(spans):
            length = int(numbers.exponential(1.0) * MS) + 1000
            kind = Kind.COLLECTIVE if i % 4 == 3 else Kind.COMPUTE
            layer = f"layer{i % 12} {'backward' if i % 24 > 11 else 'forward'}"
            name = "all_reduce" if kind is Kind.COLLECTIVE else layer
            made.append(Span(rank, name, kind, at, at + length, iteration=i // 100))
            at += length if i % 4 != 3 else length // 4
    return Trace.of_spans(made, world_size=ranks, truth="simulated")


def _ns(ms):
    return round(ms * MS)
