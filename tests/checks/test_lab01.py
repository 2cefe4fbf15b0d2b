"""Lab 01's checks: the solution passes, each known mistake gets its own reason, and nothing raises."""

import time

import numpy as np
import pytest
import torch
import torch.distributed as dist
from stranger import Stranger

from lablib import Cluster, RunTimeout
from lablib.checks import NOT_ATTEMPTED, PASSED, lab01
from lablib.checks.lab01_rows import FOUR_PARTS, ONE_NUMBER
from lablib.sim import Collective, results

pytestmark = pytest.mark.slow

EVERYONE = ["all_reduce", "all_gather", "barrier"]
TAKES = {"AVG": ["float32", "bfloat16"], "BAND": ["int32", "uint8"]}
FASTER = {0.1: 1.1, 1: 2.0, 10: 1.1}
ONE = {name: list(right) for name, (right, *_) in ONE_NUMBER.items()}
PARTS = {name: list(right) for name, (right, *_) in FOUR_PARTS.items()}


def one_number(name, row):
    return lab01.one_number({**ONE, name: row})


def four_parts(name, row):
    return lab01.four_parts({**PARTS, name: row})


@pytest.mark.parametrize(
    "verdict",
    [
        lab01.one_number(ONE),
        one_number("broadcast", np.full(4, 3)),
        lab01.four_parts(PARTS),
        four_parts("scatter", torch.arange(10, 14)),
        lab01.leftovers(" D "),
        lab01.log_order("b"),
        lab01.need_everyone(set(EVERYONE)),
        lab01.need_everyone(["dist.barrier()", "all_gather", "all_reduce"]),
        lab01.stalls_from(4),
        lab01.read_early((1.0, 3.0)),
        lab01.dtypes(TAKES),
        lab01.dtypes({"AVG": [torch.bfloat16, torch.float32], "BAND": {"uint8", "int32"}}),
        lab01.in_groups([3, 3, 4, 4]),
        lab01.speedups(FASTER),
    ],
)
def test_right_answers_pass(verdict):
    assert verdict == PASSED


def test_the_right_rows_are_what_the_simulator_predicts():
    digits = [[10.0 * rank + part for part in range(4)] for rank in range(4)]
    units = [[10.0 * rank] for rank in range(4)]
    own = [[rank + 1.0] for rank in range(4)]

    def held(op, inputs, **options):
        return [
            array.tolist() if hasattr(array, "tolist") else None
            for array in results(Collective(op, 4, **options), inputs)
        ]

    def one_each(*args, **options):
        return [number for [number] in held(*args, **options)]

    assert one_each("scatter", digits, root=1) == PARTS["scatter"]
    assert one_each("reduce_scatter", digits) == PARTS["reduce_scatter"]
    assert held("gather", units, root=3)[3] == PARTS["gather"]
    assert held("all_gather", units)[0] == PARTS["all_gather"]
    assert held("all_to_all", digits)[1] == PARTS["all_to_all"]
    assert one_each("broadcast", own, root=2) == ONE["broadcast"]
    for op in ("SUM", "MAX", "AVG"):
        assert one_each("all_reduce", own, reduce_op=op) == ONE[f"all_reduce {op}"]


@pytest.mark.parametrize(
    "verdict",
    [
        one_number("broadcast", ...),
        four_parts("gather", [..., 10, 20, 30]),
        lab01.leftovers(...),
        lab01.log_order(...),
        lab01.need_everyone(...),
        lab01.stalls_from(...),
        lab01.read_early(...),
        lab01.dtypes({"AVG": ..., "BAND": []}),
        lab01.in_groups(...),
        lab01.speedups({0.1: ...}),
        lab01.two_steps(..., None),
    ],
)
def test_open_answers_are_not_attempted(verdict):
    assert verdict == NOT_ATTEMPTED


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (one_number("broadcast", [2, 2, 2, 2]), "broadcast: src is a rank"),
        (one_number("broadcast", [1, 2, 3, 4]), "overwrites it"),
        (one_number("all_reduce SUM", [10, 2, 3, 4]), "would be reduce"),
        (one_number("all_reduce SUM", [6, 6, 6, 6]), "rank r brings r + 1"),
        (one_number("all_reduce MAX", [3, 3, 3, 3]), "highest rank"),
        (one_number("all_reduce AVG", [10, 10, 10, 10]), "AVG divides"),
        (one_number("all_reduce AVG", [1, 1]), "all_reduce AVG: got 2 numbers"),
        (lab01.one_number({}), "broadcast is missing"),
        (four_parts("scatter", [0, 1, 2, 3]), "src=1"),
        (four_parts("scatter", [11, 10, 12, 13]), "does not serve itself first"),
        (four_parts("scatter", [10, 10, 10, 10]), "would be broadcast"),
        (four_parts("gather", [30, 0, 10, 20]), "dst does not stand first"),
        (four_parts("gather", [0, 10, 20]), "gather: the list has an item of every rank"),
        (four_parts("all_gather", [60] * 4), "combines nothing"),
        (four_parts("reduce_scatter", [0, 11, 22, 33]), "combines first"),
        (four_parts("reduce_scatter", [6, 46, 86, 126]), "across ranks"),
        (four_parts("reduce_scatter", [60, 60, 60, 60]), "another part"),
        (four_parts("all_to_all", [10, 11, 12, 13]), "what rank 1 brings"),
        (four_parts("all_to_all", [0, 10, 20, 30]), "parts count from 0"),
        (four_parts("all_to_all", [31, 21, 11, 1]), "item i is from rank i"),
        (four_parts("all_to_all", [5, 5, 5, 5]), "rows become columns"),
        (lab01.leftovers("a"), "does not leave the inputs untouched on other ranks"),
        (lab01.leftovers("b"), "only dst has the result"),
        (lab01.leftovers("c"), "nobody clears"),
        (lab01.leftovers("all"), "wanted: one of the letters"),
        (lab01.log_order("a"), "a barrier flushes no prints"),
        (lab01.log_order("c"), "order of the *calls*"),
        (lab01.need_everyone([*EVERYONE, "broadcast"]), "broadcast: a rank that has its number"),
        (lab01.need_everyone([*EVERYONE, "gather"]), "only dst needs everyone"),
        (lab01.need_everyone(["barrier"]), "all_reduce is missing"),
        (lab01.need_everyone(["send"]), "send is none of these calls"),
        (lab01.stalls_from(4096), "below 4096 bytes"),
        (lab01.stalls_from(1), "more bytes"),
        (lab01.stalls_from(0), "smallest message"),
        (lab01.read_early([3, 3]), "async does not mean finished"),
        (lab01.read_early([1, 1]), "after wait() the sum"),
        (lab01.read_early([0, 3]), "nobody cleared"),
        (lab01.dtypes({**TAKES, "AVG": ["int32", "uint8", "float32", "bfloat16"]}), "does not exist for every dtype"),
        (lab01.dtypes({**TAKES, "AVG": ["float32"]}), "every floating dtype"),
        (lab01.dtypes({**TAKES, "BAND": ["float32"]}), "bits of integers"),
        (lab01.dtypes({**TAKES, "BAND": ["int4"]}), "int4 is none of the four"),
        (lab01.dtypes({"AVG": TAKES["AVG"]}), "BAND is missing"),
        (lab01.in_groups([3, 3, 3, 3]), "rank of the whole job"),
        (lab01.in_groups([10, 10, 4, 4]), "two members only"),
        (lab01.in_groups([1, 2, 4, 4]), "add up in their group"),
        (lab01.speedups({**FASTER, 10: 11}), "10: both in a row take 11"),
        (lab01.speedups({**FASTER, 0.1: 2}), "0.1: two only where"),
        (lab01.speedups({**FASTER, 1: 1}), "the shorter of the two can be hidden"),
        (lab01.speedups({1: 2}), "0.1 is missing"),
    ],
)
def test_a_known_mistake_is_named(verdict, reason):
    assert verdict.status == "failed"
    assert reason in verdict.reason


PREDICTED = (
    "one_number",
    "four_parts",
    "leftovers",
    "log_order",
    "need_everyone",
    "stalls_from",
    "read_early",
    "dtypes",
    "in_groups",
    "speedups",
)
WRITTEN = ("two_steps", "exchange", "waited_mean", "logged_mean", "in_turn", "ring_sum")
JUNK = [None, True, "", "x", b"x", 3, float("nan"), [], [[]], {}, {"AVG": Stranger(), 0.1: "x"}, Stranger(), print, int]


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_junk_fails_with_a_reason(junk):
    def no_ranks(*args, **options):
        raise RunTimeout("time is up")

    answers = [getattr(lab01, name)(junk) for name in PREDICTED]
    answers += [getattr(lab01, name)(junk, no_ranks) for name in WRITTEN]
    answers += [one_number("all_reduce SUM", junk), four_parts("gather", junk), lab01.speedups({**FASTER, 1: junk})]
    assert all(verdict.status == "failed" and verdict.reason for verdict in answers)


# The functions, judged on four real ranks, which stay warm between the tests.


@pytest.fixture(scope="module")
def cluster():
    with Cluster(4, backend="gloo") as cluster:
        yield cluster


@pytest.fixture
def ranks(cluster):
    """Run on the warm ranks with little patience."""

    def quickly(fn, *args, timeout):
        return cluster.run(fn, *args, timeout=min(timeout, 1.2))

    return quickly


def in_two(t):
    part = torch.empty(len(t) // 4)
    dist.reduce_scatter(part, list(t.chunk(4)))
    parts = [torch.empty_like(part) for _ in range(4)]
    dist.all_gather(parts, part)
    return torch.cat(parts)


def in_one(t):
    dist.all_reduce(t)
    return t


def first_step(t):
    part = torch.empty(len(t) // 4)
    dist.reduce_scatter(part, list(t.chunk(4)))
    return part


def everything(t):
    tensors = [torch.empty_like(t) for _ in range(4)]
    dist.all_gather(tensors, t)
    return tensors


def end_to_end(t):
    return torch.cat(everything(t))


def by_everyone(t):
    return sum(everything(t))


def stacked(t):
    return torch.stack(list(in_two(t).chunk(4)))


def one_tensor_four_times(t):
    part = first_step(t)
    parts = [torch.empty_like(part)] * 4
    dist.all_gather(parts, part)
    return torch.cat(parts)


def backwards(t):
    return torch.cat(list(in_two(t).chunk(4))[::-1])


def unchanged(t, *rest):
    return t


def send_then_recv(mine, partner):
    theirs = torch.zeros_like(mine)
    dist.send(mine, partner)
    dist.recv(theirs, partner)
    return theirs


def recv_then_send(mine, partner):
    theirs = torch.zeros_like(mine)
    dist.recv(theirs, partner)
    dist.send(mine, partner)
    return theirs


def isend_then_recv(mine, partner):
    theirs = torch.zeros_like(mine)
    handle = dist.isend(mine, partner)
    dist.recv(theirs, partner)
    handle.wait()
    return theirs


def isend_waited(mine, partner):
    theirs = torch.zeros_like(mine)
    dist.isend(mine, partner).wait()
    dist.recv(theirs, partner)
    return theirs


def isend_thrown_away(mine, partner):
    theirs = torch.zeros_like(mine)
    if dist.get_rank() > partner:
        dist.isend(mine, partner).wait()
    dist.recv(theirs, partner)
    return theirs


def lower_sends_first(mine, partner):
    theirs = torch.zeros_like(mine)
    if dist.get_rank() < partner:
        dist.send(mine, partner)
        dist.recv(theirs, partner)
    else:
        dist.recv(theirs, partner)
        dist.send(mine, partner)
    return theirs


def both_in_the_background(mine, partner):
    theirs = torch.zeros_like(mine)
    for handle in (dist.irecv(theirs, partner), dist.isend(mine, partner)):
        handle.wait()
    return theirs


def batched(mine, partner):
    theirs = torch.zeros_like(mine)
    operations = [dist.P2POp(dist.isend, mine, partner), dist.P2POp(dist.irecv, theirs, partner)]
    for handle in dist.batch_isend_irecv(operations):
        handle.wait()
    return theirs


def read_too_early(mine, partner):
    theirs = torch.zeros_like(mine)
    handles = dist.irecv(theirs, partner), dist.isend(mine, partner)
    value = theirs.clone()
    for handle in handles:
        handle.wait()
    return value


def by_all_gather(mine, partner):
    return everything(mine)[partner]


def waits_then_reads(t, meanwhile):
    handle = dist.all_reduce(t, async_op=True)
    result = meanwhile()
    handle.wait()
    return t / 4, result


def reads_then_waits(t, meanwhile):
    handle = dist.all_reduce(t, async_op=True)
    mean = t / 4
    result = meanwhile()
    handle.wait()
    return mean, result


def never_waits(t, meanwhile):
    dist.all_reduce(t, async_op=True)
    return t / 4, meanwhile()


def blocks(t, meanwhile):
    dist.all_reduce(t)
    return t / 4, meanwhile()


def waits_first(t, meanwhile):
    dist.all_reduce(t, async_op=True).wait()
    return t / 4, meanwhile()


def works_first(t, meanwhile):
    result = meanwhile()
    dist.all_reduce(t, async_op=True).wait()
    return t / 4, result


def sums_only(t, meanwhile):
    handle = dist.all_reduce(t, async_op=True)
    result = meanwhile()
    handle.wait()
    return t, result


def mean_only(t, meanwhile):
    return waits_then_reads(t, meanwhile)[0]


def of_a_copy(loss):
    total = loss.detach().clone()
    dist.all_reduce(total)
    return total / 4


def averaged(loss):
    total = torch.tensor(loss.item())
    dist.all_reduce(total, op=dist.ReduceOp.AVG)
    return total.item()


def of_the_loss(loss):
    with torch.no_grad():
        dist.all_reduce(loss)
    return loss.item() / 4


def of_its_memory(loss):
    total = loss.detach()
    dist.all_reduce(total)
    return total / 4


def not_divided(loss):
    return of_a_copy(loss) * 4


def not_reduced(loss):
    return loss.detach().clone()


def of_its_own(loss):
    dist.all_reduce(loss.detach().clone())
    return loss.item() / 4


def by_token(say):
    rank, token = dist.get_rank(), torch.zeros(1)
    if rank > 0:
        dist.recv(token, rank - 1)
    say()
    if rank < 3:
        dist.send(token, rank + 1)


def at_once(say):
    say()


def by_the_clock(say):
    time.sleep(0.25 * dist.get_rank())
    say()


def tells_then_says(say):
    rank, token = dist.get_rank(), torch.zeros(1)
    if rank > 0:
        dist.recv(token, rank - 1)
    if rank < 3:
        dist.send(token, rank + 1)
    say()


def all_wait(say):
    dist.recv(torch.zeros(1), (dist.get_rank() - 1) % 4)
    say()


def all_tell(say):
    rank, token = dist.get_rank(), torch.zeros(1)
    if rank > 0:
        dist.recv(token, rank - 1)
    say()
    dist.send(token, (rank + 1) % 4)


def by_barrier(say):
    for turn in range(4):
        if dist.get_rank() == turn:
            say()
        dist.barrier()


def only_rank_0(say):
    if dist.get_rank() == 0:
        say()


def round_the_ring(t, rounds=3, direction=1, passes_on="incoming", waits=True):
    rank, total, out = dist.get_rank(), t.clone(), t.clone()
    for _ in range(rounds):
        incoming = torch.zeros_like(t)
        sends = dist.P2POp(dist.isend, out, (rank + direction) % 4)
        receives = dist.P2POp(dist.irecv, incoming, (rank - direction) % 4)
        handles = dist.batch_isend_irecv([sends, receives])
        for handle in handles if waits else ():
            handle.wait()
        total = total + incoming
        out = {"incoming": incoming, "total": total, "own": t}[passes_on]
    return total


def the_other_way(t):
    return round_the_ring(t, direction=-1)


def four_rounds(t):
    return round_the_ring(t, rounds=4)


def two_rounds(t):
    return round_the_ring(t, rounds=2)


def passes_the_total(t):
    return round_the_ring(t, passes_on="total")


def passes_its_own(t):
    return round_the_ring(t, passes_on="own")


def never_waits_in_the_ring(t):
    return round_the_ring(t, waits=False)


def adds_before_it_waits(t):
    rank, total = dist.get_rank(), t.clone()
    incoming = torch.full_like(t, 7.0)
    operations = [dist.P2POp(dist.isend, t, (rank + 1) % 4), dist.P2POp(dist.irecv, incoming, (rank - 1) % 4)]
    handles = dist.batch_isend_irecv(operations)
    total += incoming
    for handle in handles:
        handle.wait()
    return total


def sends_only(t):
    peer = (dist.get_rank() + 1) % 4
    for handle in dist.batch_isend_irecv([dist.P2POp(dist.isend, t, peer)]):
        handle.wait()
    return t


def across(t):
    return round_the_ring(t, rounds=1, direction=2)


def stumbles(*args):
    raise KeyError("t")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "answer"),
    [
        ("two_steps", in_two),
        ("exchange", isend_then_recv),
        ("exchange", lower_sends_first),
        ("exchange", both_in_the_background),
        ("exchange", batched),
        ("waited_mean", waits_then_reads),
        ("logged_mean", of_a_copy),
        ("logged_mean", averaged),
        ("in_turn", by_token),
        ("ring_sum", round_the_ring),
        ("ring_sum", the_other_way),
    ],
)
def test_a_right_function_passes(ranks, check, answer):
    assert getattr(lab01, check)(answer, ranks) == PASSED


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "answer", "reason"),
    [
        ("two_steps", in_one, "all_reduce is not needed here"),
        ("two_steps", first_step, "this rank's part"),
        ("two_steps", end_to_end, "nothing was added"),
        ("two_steps", by_everyone, "the long way"),
        ("two_steps", backwards, "in another order"),
        ("two_steps", stacked, "have the shape (4, 2); (8,) came in"),
        ("two_steps", one_tensor_four_times, "one and the same tensor"),
        ("two_steps", everything, "got a list: return one tensor"),
        ("two_steps", unchanged, "what the rank brought"),
        ("two_steps", stumbles, "raised KeyError"),
        ("exchange", send_then_recv, "both partners wait in send"),
        ("exchange", recv_then_send, "a rank waits in recv: nobody has sent"),
        ("exchange", isend_thrown_away, "a rank waits in recv: nobody has sent"),
        ("exchange", isend_waited, "receive before you wait"),
        ("exchange", read_too_early, "read before wait()"),
        ("exchange", by_all_gather, "all_gather is not needed here"),
        ("exchange", unchanged, "what the rank brought"),
        ("waited_mean", reads_then_waits, "read before wait()"),
        ("waited_mean", never_waits, "async does not mean finished"),
        ("waited_mean", blocks, "nothing can overlap"),
        ("waited_mean", waits_first, "the wait stands before the other work"),
        ("waited_mean", works_first, "the other work came first"),
        ("waited_mean", sums_only, "the mean is asked"),
        ("waited_mean", mean_only, "return two things"),
        ("logged_mean", of_the_loss, "the loss itself was overwritten"),
        ("logged_mean", of_its_memory, "detach() shares the memory"),
        ("logged_mean", not_divided, "the mean is asked"),
        ("logged_mean", not_reduced, "this rank's own loss"),
        ("logged_mean", of_its_own, "a quarter of this rank's own loss"),
        ("in_turn", at_once, "nobody waited"),
        ("in_turn", by_the_clock, "right by the clock only"),
        ("in_turn", tells_then_says, "told the next one before it had spoken"),
        ("in_turn", all_wait, "rank 0 has nobody to wait for"),
        ("in_turn", all_tell, "the last rank has nobody to tell"),
        ("in_turn", by_barrier, "barrier is not needed here"),
        ("in_turn", only_rank_0, "only rank 0 spoke"),
        ("ring_sum", four_rounds, "added twice"),
        ("ring_sum", two_rounds, "2 rounds: a number needs 3 steps"),
        ("ring_sum", passes_the_total, "counted twice"),
        ("ring_sum", passes_its_own, "its own number each round"),
        ("ring_sum", never_waits_in_the_ring, "read before wait()"),
        ("ring_sum", adds_before_it_waits, "read before wait()"),
        ("ring_sum", sends_only, "needs the receive of its neighbour"),
        ("ring_sum", across, "not its neighbour"),
        ("ring_sum", in_one, "all_reduce is not needed here"),
        ("ring_sum", unchanged, "batch_isend_irecv was not used"),
    ],
)
def test_a_wrong_function_is_told_why(ranks, check, answer, reason):
    verdict = getattr(lab01, check)(answer, ranks)
    assert verdict.status == "failed"
    assert reason in verdict.reason


# What the lab shows with less patience, or on two ranks only.


def comes_late(name, folder):
    rank, one, four = dist.get_rank(), torch.ones(1), [torch.ones(1) for _ in range(4)]
    back = []
    if rank == 3:
        end = time.monotonic() + (10.0 if name in ("broadcast", "scatter", "gather") else 0.3)
        while time.monotonic() < end and not back:
            time.sleep(0.01)
            back = list(folder.iterdir())
    calls = {
        "broadcast": lambda: dist.broadcast(one, 0),
        "scatter": lambda: dist.scatter(one, four if rank == 0 else None, 0),
        "gather": lambda: dist.gather(one, four if rank == 0 else None, 0),
        "all_reduce": lambda: dist.all_reduce(one),
        "all_gather": lambda: dist.all_gather(four, one),
        "reduce_scatter": lambda: dist.reduce_scatter(one, four),
        "all_to_all": lambda: dist.all_to_all(four, [one] * 4),
        "barrier": dist.barrier,
    }
    calls[name]()
    (folder / str(rank)).touch()
    return bool(back)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["broadcast", "scatter", "gather"])
def test_some_rank_leaves_before_the_late_one_has_come(cluster, tmp_path, name):
    assert cluster.run(comes_late, name, tmp_path)[3]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"])
def test_nobody_leaves_where_everyone_needs_everyone(cluster, tmp_path, name):
    assert not cluster.run(comes_late, name, tmp_path)[3]
