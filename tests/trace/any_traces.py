"""Traces of every shape that a file must keep, for property-based tests."""

from hypothesis import strategies as st

from lablib.trace import Category, Kind, MemorySample, Span, Trace

TIMES = st.integers(-(2**62), 2**62)
COUNTS = st.integers(0, 2**62)
TEXTS = st.text(max_size=12)


@st.composite
def spans(draw, world_size):
    start, end = sorted((draw(TIMES), draw(TIMES)))
    rank = st.integers(0, world_size - 1)
    return Span(
        draw(rank),
        draw(TEXTS),
        draw(st.sampled_from(Kind)),
        start,
        end,
        nbytes=draw(COUNTS),
        iteration=draw(st.none() | COUNTS),
        bucket=draw(st.none() | COUNTS),
        parameters=tuple(draw(st.lists(TEXTS, max_size=3))),
        group=draw(TEXTS),
        ranks=tuple(draw(st.lists(rank, max_size=3))),
        sequence=draw(COUNTS),
        peer=draw(st.none() | rank),
        file=draw(TEXTS),
        line=draw(COUNTS),
        lane=draw(TEXTS),
    )


@st.composite
def samples(draw, world_size):
    return MemorySample(
        draw(st.integers(0, world_size - 1)),
        draw(TIMES),
        tuple(draw(COUNTS) for _ in Category),
        phase=draw(TEXTS),
        module=draw(TEXTS),
        iteration=draw(st.none() | COUNTS),
        allocated=draw(st.none() | COUNTS),
        reserved=draw(st.none() | COUNTS),
    )


@st.composite
def traces(draw, max_size=8):
    """Return a trace; its spans and samples need not be in order."""
    world_size = draw(st.integers(1, 9))
    return Trace(
        tuple(draw(st.lists(spans(world_size), max_size=max_size))),
        world_size,
        draw(st.sampled_from(["real", "emulated", "simulated"])),
        draw(st.none() | TEXTS),
        draw(TEXTS),
        draw(TIMES),
        tuple(draw(st.lists(samples(world_size), max_size=max_size // 2))),
    )


@st.composite
def damaged(draw, data):
    """Return bytes cut, garbled, doubled, left out or put in at one place."""
    start = draw(st.integers(0, len(data)))
    end = draw(st.integers(start, min(len(data), start + draw(st.sampled_from([1, 2, 8, 200])))))
    other = draw(st.sampled_from([b"", data[start:end] * 2]) | st.binary(max_size=4) | st.sampled_from([b"0", b"\n"]))
    return draw(st.sampled_from([data[:start] + other + data[end:], data[:start], data[start:]]))
