"""Small traces by hand, in microseconds."""

from lablib.trace import Kind, Span, Trace

US = 1000


def span(rank, name, kind, start, end=None, **facts):
    """Return a span; times in microseconds, an instant without an end."""
    return Span(rank, name, Kind(kind), start * US, (start if end is None else end) * US, **facts)


def trace(*spans, world_size=2, **facts):
    return Trace.of_spans(spans, world_size=world_size, **facts)


def ddp_rank(rank, *, late=0, iteration=1):
    """Return what DDP with two buckets does on a CPU rank: forward 0-10, backward from 10 on, the rank `late`."""
    facts = {"iteration": iteration}
    group = {"group": "0", "ranks": (0, 1)}

    def at(time):
        return time + late

    return [
        span(rank, "forward", "forward", at(0), at(10), **facts),
        span(rank, "backward", "backward", at(10), 60, **facts),
        span(rank, "1.bias", "gradient", at(14), nbytes=4, **facts),
        span(rank, "1.weight", "gradient", at(20), nbytes=36, **facts),
        span(rank, "0.weight", "gradient", at(30), nbytes=60, **facts),
        span(
            rank,
            "bucket 0",
            "bucket",
            at(14),
            at(20),
            bucket=0,
            nbytes=40,
            parameters=("1.weight", "1.bias"),
            **facts,
        ),
        span(rank, "bucket 1", "bucket", at(30), bucket=1, nbytes=60, parameters=("0.weight",), **facts),
        span(rank, "all_reduce", "collective", at(21), 45, bucket=0, sequence=1, nbytes=40, **group, **facts),
        span(rank, "all_reduce", "collective", at(31), 58, bucket=1, sequence=2, nbytes=60, **group, **facts),
        span(rank, "optimizer", "optimizer", 60, 65, **facts),
    ]
