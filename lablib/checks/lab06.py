"""Judge the exercises of lab 06, DataParallel against DDP. What was measured is given, and is what is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lablib.checks.answers import WrongKind, items, number, whole_number, whole_numbers
from lablib.checks.lab06_rows import BYTES, HELD, LINES, LISTING, LOOPS, UNEVEN
from lablib.checks.tables import judge_rows, judge_truths
from lablib.checks.verdict import PASSED, Verdict, check, failed

_CLOSE = 1e-6


@check(wants="a dict with a list of whole numbers for each wrapper")
def rows_seen(answer: Any, measured: Mapping[str, Sequence[int]]) -> Verdict:
    """Judge how many rows each call of forward sees, where the wrapper is given all rows of a batch.

    Args:
        answer: rows of each call, for each wrapper.
        measured: what was seen by "nn.DataParallel", "ThreadedDataParallel" and "DDP, rank 0".
    """
    [whole] = measured["DDP, rank 0"]
    parts = tuple(measured["ThreadedDataParallel"])
    mistakes: dict[str, dict[object, str]] = {
        "nn.DataParallel": {
            parts: "that is on GPUs: on a CPU it has no device_ids, passes the batch through and calls the model once",
        },
        "ThreadedDataParallel": {
            (whole,): "it cuts the batch into parts, one for each replica",
            (whole,) * len(parts): "each replica gets a part of the batch, not all of it",
        },
        "DDP, rank 0": {
            parts: "DDP does not cut batches: this rank computes all that you give it, once",
            (whole // len(parts),): "DDP does not cut batches: whoever loads the data does",
        },
    }
    rows = {
        name: (tuple(measured[name]), known, "a number of rows for each call of the model's forward")
        for name, known in mistakes.items()
    }
    return judge_rows(answer, rows, lambda given: tuple(sorted(whole_numbers(given), reverse=True)))


@check(wants="a dict with the number of a line for each")
def lines(answer: Any) -> Verdict:
    """Judge where in the listing of DataParallel's step things cross between devices, or only one of them works."""
    rows = {
        name: (right, mistakes, f"the listing has lines 1 to {LISTING}") for name, (right, mistakes) in LINES.items()
    }
    return judge_rows(answer, rows, whole_number)


@check(wants="a dict with a number for each, in multiples of the model")
def multiples(answer: Any, measured: Mapping[str, float]) -> Verdict:
    """Judge how much of the model four replicas, or four ranks, move in one step, in multiples of its size."""
    return judge_rows(answer, {name: (measured[name], *BYTES[name]) for name in BYTES}, number)


@check(wants="a function of the number of devices and the model's size that returns two numbers")
def busiest(answer: Callable[..., Any]) -> Verdict:
    """Judge the bytes of parameters and gradients in and out of replica 0, and of one rank under DDP with a ring."""
    if not callable(answer):
        raise WrongKind("got no function")
    for n, size in ((2, 1000), (4, 1000), (8, 640), (1, 1000)):
        given = tuple(number(item) for item in items(answer(n, size), 2))
        right = (2 * (n - 1) * size, 4 * (n - 1) / n * size)
        known: tuple[dict[float, str], ...] = (
            {
                (n - 1) * size: "the parameters go out, and gradients of the same size come in: count both",
                2 * n * size: "replica 0 has the parameters already: it sends to the n - 1 others",
                2.0 * size: "to each of the n - 1 others, and from each",
            },
            {
                2 * (n - 1) / n * size: "that is what a rank sends; as much comes in",
                2
                * (n - 1)
                * size: "that would be one rank that collects from all and answers all: a ring shares it out",
                2.0 * size: "an all_reduce in a ring passes 2 (n - 1) / n of the tensor on, and as much comes in",
                (n - 1) / n * size: "a ring goes round twice: sums first, then results; and count what comes in",
            },
        )
        for name, one, wanted, mistakes in zip(("DataParallel", "DDP"), given, right, known, strict=True):
            if abs(one - wanted) > _CLOSE:
                near = [why for wrong, why in mistakes.items() if abs(one - wrong) <= _CLOSE]
                reason = near[0] if near else "count parameters and gradients only, in and out"
                return failed(f"{name}, {n} devices, {size} bytes: got {one:g}; {reason}")
    return PASSED


@check(wants="a dict with a number for each")
def loops(answer: Any) -> Verdict:
    """Judge how many times as long as half of the batch alone two halves take at once, on two free cores."""
    return judge_rows(answer, LOOPS, number)


@check(wants="a dict with a number for each")
def held(answer: Any, measured: Mapping[str, float]) -> Verdict:
    """Judge what replica 0, another replica and a rank of DDP hold: rows of outputs, optimizer state in models."""
    return judge_rows(answer, {name: (measured[name], *HELD[name]) for name in HELD}, number)


@check(wants="a dict with True or False for each")
def uneven(answer: Any, measured: Mapping[str, bool]) -> Verdict:
    """Judge whose gradient of seven rows in parts of four and three is that of one process."""
    return judge_truths(answer, measured, UNEVEN)
