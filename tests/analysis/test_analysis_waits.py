"""Who waits for whom."""

import pytest
from made_traces import US, ddp_rank, span, trace

from lablib.analysis import waits
from lablib.errors import UsageError

ALL = {"group": "0", "ranks": (0, 1, 2)}


def test_everyone_waits_for_the_last():
    [first, second] = waits(trace(*ddp_rank(0), *ddp_rank(1, late=5)))
    assert (first.name, first.bucket, first.iteration, first.nbytes) == ("all_reduce", 0, 1, 40)
    assert (first.last_rank, first.last_ns, first.missing) == (1, 26 * US, ())
    assert [first.waited_ns(rank) for rank in range(3)] == [5 * US, 0, 0]
    assert (second.sequence, second.waited_ns(0)) == (2, 5 * US)


def test_a_root_that_is_done_before_others_call_waits_no_longer():
    [met] = waits(
        trace(
            span(0, "broadcast", "collective", 0, 3, sequence=1, peer=0, **ALL),
            span(1, "broadcast", "collective", 10, 13, sequence=1, peer=0, **ALL),
            span(2, "broadcast", "collective", 5, 9, sequence=1, peer=0, **ALL),
        )
    )
    assert [(call.rank, call.waited_ns // US) for call in met.calls] == [(0, 3), (2, 4), (1, 0)]


def test_groups_sequences_and_operations_keep_apart():
    calls = [
        span(0, "all_reduce", "collective", 0, 1, sequence=1, group="a", ranks=(0, 1)),
        span(1, "all_reduce", "collective", 2, 3, sequence=1, group="b", ranks=(0, 1)),
        span(1, "broadcast", "collective", 4, 5, sequence=1, group="a", ranks=(0, 1)),
        span(1, "all_reduce", "collective", 6, 7, sequence=2, group="a", ranks=(0, 1)),
    ]
    met = waits(trace(*calls))
    assert [(one.name, one.group, one.sequence, one.missing) for one in met] == [
        ("all_reduce", "a", 1, (1,)),
        ("all_reduce", "b", 1, (0,)),
        ("broadcast", "a", 1, (0,)),
        ("all_reduce", "a", 2, (0,)),
    ]


def test_a_message_has_a_sender_and_a_receiver():
    there, back = waits(
        trace(
            span(0, "send", "collective", 0, 12, sequence=1, peer=1),
            span(1, "recv", "collective", 10, 12, sequence=1, peer=0),
            span(1, "send", "collective", 13, 30, sequence=1, peer=0),
        )
    )
    assert (there.name, there.ranks, there.last_rank, there.waited_ns(0)) == ("send and recv", (0, 1), 1, 10 * US)
    assert (back.ranks, back.last_rank, back.missing) == ((0, 1), 1, (0,))


def test_calls_without_numbers_are_counted():
    spans = [span(rank, "all_reduce", "collective", 10 * i + rank, 10 * i + 5) for i in range(3) for rank in (0, 1)]
    assert [(met.sequence, met.last_rank, len(met.calls)) for met in waits(trace(*spans))] == [
        (1, 1, 2),
        (2, 1, 2),
        (3, 1, 2),
    ]


def test_a_trace_without_collectives_says_so():
    with pytest.raises(UsageError, match="no collectives"):
        waits(trace(span(0, "forward", "forward", 0, 1)))
