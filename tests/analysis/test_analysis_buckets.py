"""The life of a bucket."""

import pytest
from made_traces import US, ddp_rank, span, trace

from lablib.analysis import buckets
from lablib.errors import UsageError


def test_a_bucket_fills_waits_and_travels():
    table = buckets(trace(*ddp_rank(0), *ddp_rank(1, late=5), truth="emulated", backend="gloo"))
    assert [(row.rank, row.iteration, row.bucket) for row in table.rows] == [(0, 1, 0), (0, 1, 1), (1, 1, 0), (1, 1, 1)]
    row = table.rows[2]
    assert row.ready == (("1.bias", 19 * US), ("1.weight", 25 * US))
    assert row.parameters == ("1.weight", "1.bias")
    assert (row.first_ready_ns, row.full_ns, row.sent_ns, row.done_ns) == (19 * US, 25 * US, 26 * US, 45 * US)
    assert (row.filling_ns, row.waiting_ns, row.travelling_ns, row.nbytes) == (6 * US, 1 * US, 19 * US, 40)
    assert [one.rank for one in table.backward] == [0, 1]
    assert (table.truth, table.world_size, table.backend, table.device) == ("emulated", 2, "gloo", "cpu")


def test_one_iteration():
    recorded = trace(*ddp_rank(0, iteration=0), *ddp_rank(0, iteration=1))
    assert buckets(recorded).iterations == [0, 1]
    table = buckets(recorded, iteration=0)
    assert table == buckets(recorded).only(iteration=0)
    assert {row.iteration for row in table.rows} == {one.iteration for one in table.backward} == {0}
    with pytest.raises(UsageError, match=r"no bucket filled in iteration 3; some did in \[0, 1\]"):
        buckets(recorded, iteration=3)


def test_a_bucket_that_never_left():
    spans = [one for one in ddp_rank(0) if not (one.kind == "collective" and one.bucket == 1)]
    assert [(row.sent_ns, row.waiting_ns, row.travelling_ns) for row in buckets(trace(*spans)).rows] == [
        (21 * US, US, 24 * US),
        (None, None, None),
    ]


def test_a_hook_may_reduce_a_bucket_in_two_calls_and_a_bucket_may_fill_twice():
    def bucket(at):
        return span(0, "bucket 0", "bucket", at, at + 5, bucket=0, iteration=0)

    def gather(at):
        return span(0, "all_gather", "collective", at, at + 2, bucket=0, iteration=0)

    rows = buckets(trace(bucket(0), gather(6), gather(9), bucket(20), gather(26))).rows
    assert [(row.sent_ns // US, row.done_ns // US) for row in rows] == [(6, 11), (26, 28)]


def test_a_trace_without_buckets_says_so():
    with pytest.raises(UsageError, match="no buckets: run a step of DistributedDataParallel with record=True"):
        buckets(trace(span(0, "all_reduce", "collective", 0, 1)))
