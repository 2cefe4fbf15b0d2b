"""Lab 06's checks: the solution passes, and each known mistake gets its own reason."""

from __future__ import annotations

import pytest
from stranger import Stranger

from lablib.checks import NOT_ATTEMPTED, PASSED, lab06

ROWS = {"nn.DataParallel": [8], "ThreadedDataParallel": [4, 4], "DDP, rank 0": [8]}
LINES = {
    "parameters are sent anew": 3,
    "outputs come to one device": 6,
    "one device computes the loss of the whole batch": 11,
    "gradients come back and are added up": 14,
    "one device updates the parameters": 15,
}
BYTES = {
    "DataParallel, parameters": 3.0,
    "DataParallel, gradients": 3.0,
    "DDP, parameters": 0.0,
    "DDP, gradients": 1.0,
}
LOOPS = {"Python loop, two threads": 2, "matrix products, two threads": 1, "Python loop, two processes": 1}
HELD = {
    "rows of outputs, replica 0": 32,
    "rows of outputs, a rank of DDP": 8,
    "optimizer state, replica 0": 2,
    "optimizer state, another replica": 0,
    "optimizer state, a rank of DDP": 2,
}
UNEVEN = {"DataParallel": True, "DDP": False}


def in_and_out(n, size):
    return 2 * (n - 1) * size, 4 * (n - 1) / n * size


@pytest.mark.parametrize(
    "verdict",
    [
        lab06.rows_seen(ROWS, ROWS),
        lab06.lines(LINES),
        lab06.multiples(BYTES, BYTES),
        lab06.busiest(in_and_out),
        lab06.loops(LOOPS),
        lab06.held(HELD, HELD),
        lab06.uneven(UNEVEN, UNEVEN),
    ],
)
def test_right_answers_pass(verdict):
    assert verdict == PASSED


@pytest.mark.parametrize(
    "verdict",
    [
        lab06.rows_seen(..., ROWS),
        lab06.lines({**LINES, "one device updates the parameters": ...}),
        lab06.multiples(..., BYTES),
        lab06.busiest(...),
        lab06.loops(...),
        lab06.held(..., HELD),
        lab06.uneven(..., UNEVEN),
    ],
)
def test_open_answers_are_not_attempted(verdict):
    assert verdict == NOT_ATTEMPTED


def rows(name, given):
    return lab06.rows_seen({**ROWS, name: given}, ROWS)


def line(name, given):
    return lab06.lines({**LINES, name: given})


def moved(name, given):
    return lab06.multiples({**BYTES, name: given}, BYTES)


def slower(name, given):
    return lab06.loops({**LOOPS, name: given})


def holds(name, given):
    return lab06.held({**HELD, name: given}, HELD)


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (rows("nn.DataParallel", [4, 4]), "passes the batch through"),
        (rows("ThreadedDataParallel", [8]), "cuts the batch into parts"),
        (rows("ThreadedDataParallel", [8, 8]), "a part of the batch, not all"),
        (rows("DDP, rank 0", [4, 4]), "DDP does not cut batches"),
        (rows("DDP, rank 0", [4]), "whoever loads the data"),
        (rows("DDP, rank 0", []), "for each call"),
        (line("parameters are sent anew", 15), "on replica 0 only"),
        (line("parameters are sent anew", 2), "that is the batch"),
        (line("parameters are sent anew", 10), "look inside forward"),
        (line("outputs come to one device", 11), "the line that joins them"),
        (line("outputs come to one device", 5), "nothing crosses"),
        (line("one device computes the loss of the whole batch", 14), "the loss is there already"),
        (line("one device computes the loss of the whole batch", 6), "the loss comes behind it"),
        (line("gradients come back and are added up", 15), "the optimizer uses them"),
        (line("gradients come back and are added up", 9), "clears gradients"),
        (line("one device updates the parameters", 14), "backward makes gradients"),
        (line("one device updates the parameters", 3), "the others never change theirs"),
        (line("one device updates the parameters", 99), "lines 1 to 15"),
        (moved("DataParallel, parameters", 0), "each forward begins with new copies"),
        (moved("DataParallel, parameters", 4), "replica 0 has them already"),
        (moved("DataParallel, gradients", 1), "from each of the three"),
        (moved("DDP, parameters", 1), "only when DDP is built"),
        (moved("DDP, parameters", 3), "that is DataParallel"),
        (moved("DDP, gradients", 3), "a rank brings its gradients once"),
        (moved("DDP, gradients", 0.25), "all of its gradients"),
        (lab06.busiest(lambda n, size: ((n - 1) * size, 0)), "count both"),
        (lab06.busiest(lambda n, size: (2 * n * size, 0)), "has the parameters already"),
        (lab06.busiest(lambda n, size: (2 * (n - 1) * size, 2 * (n - 1) / n * size)), "as much comes in"),
        (lab06.busiest(lambda n, size: (2 * (n - 1) * size, 2 * (n - 1) * size)), "a ring shares it out"),
        (lab06.busiest(lambda n, size: (2 * (n - 1) * size, 7)), "in and out"),
        (lab06.busiest(lambda n, size: 7), "two numbers"),
        (slower("Python loop, two threads", 1), "take turns"),
        (slower("Python loop, two threads", 0.5), "nothing is faster"),
        (slower("matrix products, two threads", 2), "lets go of the GIL"),
        (slower("Python loop, two processes", 2), "a GIL of its own"),
        (holds("rows of outputs, replica 0", 8), "gathered there"),
        (holds("rows of outputs, a rank of DDP", 32), "DDP gathers nothing"),
        (holds("optimizer state, replica 0", 1), "two numbers for each"),
        (holds("optimizer state, another replica", 2), "copies for one step"),
        (holds("optimizer state, a rank of DDP", 0), "an optimizer of its own"),
        (holds("optimizer state, a rank of DDP", 0.5), "shares nothing out"),
        (lab06.uneven({**UNEVEN, "DataParallel": False}, UNEVEN), "joined before the loss"),
        (lab06.uneven({**UNEVEN, "DDP": True}, UNEVEN), "plain mean"),
        (lab06.uneven({"DDP": False}, UNEVEN), "DataParallel is missing"),
    ],
)
def test_a_known_mistake_is_named(verdict, reason):
    assert verdict.status == "failed"
    assert reason in verdict.reason


JUNK = [None, True, "", "x", b"x", 7, float("nan"), [], [[]], {}, {"DDP": Stranger()}, Stranger(), print, int]


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_junk_fails_with_a_reason(junk):
    answers = [lab06.rows_seen(junk, ROWS), lab06.lines(junk), lab06.multiples(junk, BYTES), lab06.busiest(junk)]
    answers += [lab06.loops(junk), lab06.held(junk, HELD), lab06.uneven(junk, UNEVEN)]
    answers += [rows("DDP, rank 0", junk), line("one device updates the parameters", junk)]
    answers += [moved("DDP, gradients", junk), holds("optimizer state, replica 0", junk)]
    if junk != 7:
        answers += [slower("Python loop, two threads", junk)]
    assert all(verdict.status == "failed" and verdict.reason for verdict in answers)
