"""Judge the two functions that lab 08 has repaired: one fills buckets, one says how much is hidden."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from lablib.checks.answers import items, number, text
from lablib.checks.verdict import PASSED, Verdict, failed
from lablib.sim.buckets import MIB, Parameter, predict_buckets

Sized = Sequence[tuple[str, float]]  # names and sizes, in the order in which they are filled


def filled(parameters: Sized, cap: float) -> list[list[str]]:
    """Return the buckets that DDP would fill with parameters that become ready in this order, sizes in MiB."""
    listed = [Parameter(name, round(size * MIB)) for name, size in parameters]
    order = [name for name, _ in parameters]
    buckets = predict_buckets(listed, iteration=1, ready_order=order, bucket_cap_mb=cap)
    return [list(bucket.parameters) for bucket in buckets]


def closed_before_cap(parameters: Sized, cap: float) -> list[list[str]]:
    """Return buckets that never exceed the cap where they need not, as many think DDP fills them."""
    buckets: list[list[str]] = []
    size = 0.0
    for name, more in parameters:
        if not buckets or size + more > cap:
            buckets.append([])
            size = 0.0
        buckets[-1].append(name)
        size += more
    return buckets


def judge_fill(fill: Callable[..., Any]) -> Verdict:
    """Judge a function that fills buckets, on orders with and without a rest, and with a parameter above the cap."""
    for parameters, cap in _TO_FILL:
        given = [[text(name) for name in items(bucket)] for bucket in items(fill(list(parameters), cap))]
        if given != filled(parameters, cap):
            sizes = [size for _, size in parameters]
            return failed(f"sizes {sizes}, cap {cap}: {_problem(given, parameters, cap)}")
    return PASSED


def _named(*sizes: float) -> Sized:
    return [(chr(ord("a") + place), size) for place, size in enumerate(sizes)]


_TO_FILL: tuple[tuple[Sized, float], ...] = (
    (_named(4, 4, 4, 4, 4), 10),  # the third exceeds the cap, two are left
    (_named(4, 4, 4, 4), 8),  # reached exactly, nothing is left
    (_named(1, 30, 1, 1), 10),  # one is larger than the cap
    (_named(30, 1), 10),
    (_named(3), 10),
)


def _problem(given: list[list[str]], parameters: Sized, cap: float) -> str:
    order = [name for name, _ in parameters]
    placed = [name for bucket in given for name in bucket]
    lost = [name for name in order if name not in placed]
    right, before = filled(parameters, cap), closed_before_cap(parameters, cap)
    if lost and given and given in (right[:-1], before[:-1]):
        return f"{', '.join(lost)} in no bucket: the last one that was filled is never appended, and never averaged"
    if lost and not given:
        return "no bucket at all: the last one that was filled is never appended"
    if lost:
        return f"{', '.join(lost)} in no bucket"
    if len(placed) > len(order):
        return "a parameter is in two buckets"
    if [] in given:
        return "there is an empty bucket: it would be an all_reduce of nothing"
    if placed != order:
        return "the order is another one: buckets are filled in the order that you are given"
    if given == before:
        return f"{given}: a bucket closes *before* the cap is exceeded; DDP closes it once the cap is *reached*"
    if given == _closed_above(parameters, cap):
        return f"{given}: a bucket that has reached the cap exactly is closed too"
    sizes = dict(parameters)
    if any(sum(sizes[name] for name in bucket) < cap for bucket, _ in pairwise(given)):
        return f"{given}: a bucket is closed before it has reached the cap"
    return f"{given}: a bucket takes more after it has reached the cap"


def _closed_above(parameters: Sized, cap: float) -> list[list[str]]:
    return filled(parameters, cap + 1 / MIB)


def judge_coefficient(coefficient: Callable[..., Any]) -> Verdict:
    """Judge a function of three times, on steps that hide nothing, half, and all that can be hidden."""
    given = [number(coefficient(*times)) for times in _TIMES]
    if _same(given, _hidden_share):
        return PASSED
    wrong = next(place for place, times in enumerate(_TIMES) if abs(given[place] - _hidden_share(*times)) > 1e-9)
    compute, communication, total = _TIMES[wrong]
    told = next((reason for formula, reason in _FORMULAS if _same(given, formula)), "") or (
        f"{compute} + {communication} - {total} is hidden, and all that can be hidden is the shorter of the two"
    )
    step = f"compute {compute}, communication {communication}, total {total}"
    return failed(f"{step}: got {given[wrong]:g}; {told}")


_TIMES = ((100, 100, 100), (100, 50, 150), (100, 40, 120), (100, 10, 100), (10, 100, 100), (50, 100, 125))


def _hidden_share(compute: float, communication: float, total: float) -> float:
    return (compute + communication - total) / min(compute, communication)


def _same(given: Sequence[float], formula: Callable[[float, float, float], float]) -> bool:
    return all(abs(one - formula(*times)) < 1e-9 for one, times in zip(given, _TIMES, strict=True))


_FORMULAS: tuple[tuple[Callable[[float, float, float], float], str], ...] = (
    (lambda c, m, t: 1 - t / (c + m), "that is the published formula: hidden ÷ (compute + communication), at most 0.5"),
    (lambda c, m, t: c + m - t, "that is the time that is hidden; divide it"),
    (lambda c, m, t: (c + m - t) / m, "hidden ÷ communication: where compute is the shorter one, it cannot reach 1"),
    (lambda c, m, t: (c + m - t) / c, "hidden ÷ compute: where communication is the shorter one, it cannot reach 1"),
    (lambda c, m, t: (c + m - t) / max(c, m), "divided by the *longer*; at most the shorter one can be hidden"),
    (lambda c, m, t: (c + m - t) / t, "hidden ÷ total: even with all hidden, that is 1 only where both are equal"),
    (lambda c, m, t: 1 - (c + m - t) / min(c, m), "that is the part that is *not* hidden"),
    (lambda c, m, t: (c + m) / t, "that is how many times faster overlap makes the step"),
    (lambda c, m, t: max(c, m) / t, "that is 1 for a perfect step, but not 0 where nothing is hidden"),
)
