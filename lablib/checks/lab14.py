"""Judge the exercises of lab 14, ZeRO by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from lablib.checks import lab14_on_ranks as on_ranks
from lablib.checks.answers import WrongKind, items, number, whole_number
from lablib.checks.lab14_rows import BUDGET, DIVIDED, FIRST_SENT, NAMES, PER_PARAMETER, SENT
from lablib.checks.tables import Mistakes, Row, judge_rows, judge_truths
from lablib.checks.verdict import NOT_ATTEMPTED, PASSED, Verdict, check, failed, is_open
from lablib.errors import RunError, RunTimeout
from lablib.sim.memory import Parameter, states
from lablib.trace import Category

_SECONDS = 20.0  # longer than any right answer takes
_HELD = Category.PARAMETERS, Category.GRADIENTS, Category.OPTIMIZER


class Runner(Protocol):
    """Run a function on several ranks, as `lablib.Cluster(4).run` does."""

    def __call__(self, fn: Callable[..., Any], *args: Any, timeout: float) -> Any: ...


@check(wants="a dict with a number of bytes for each")
def per_parameter(answer: Any) -> Verdict:
    """Judge the bytes of parameters, gradients and Adam's state for one parameter, alone and under DDP."""
    return judge_rows(answer, PER_PARAMETER, number)


@check(wants="a function of the number of parameters and of ranks that returns two whole numbers")
def cut(answer: Callable[..., Any]) -> Verdict:
    """Judge the length of a slice, and how many zeros stand at the end of the vector."""
    if not callable(answer):
        raise WrongKind("got no function")
    for numel, n in ((10, 4), (101_525, 4), (8, 4), (7, 2), (3, 4)):
        part, zeros = (number(one) for one in items(answer(numel, n), 2))
        right = -(-numel // n), -numel % n
        if (part, zeros) == right:
            continue
        where = f"{numel} parameters, {n} ranks"
        if part != right[0]:
            known = {
                numel / n: "no rank can have a part of a number: round up",
                float(numel // n): f"{numel % n} would be left over, and belong to nobody: round up",
                numel // n + 1.0: "where it falls into equal slices, none is longer",
            }
            return failed(f"{where}: a slice of {part:g}; {known.get(part, 'the shortest slices that hold all')}")
        why = "that many are left over; how many are missing in the last slice?" if zeros == numel % n else ""
        return failed(f"{where}: {zeros:g} zeros; {why or 'all slices together, less the parameters'}")
    return PASSED


@check(wants="a dict with a number for each, in multiples of P (n - 1) / n")
def first_sent(answer: Any, measured: Mapping[str, float]) -> Verdict:
    """Judge what a rank sends in a step with DDP, and where only the optimizer's state is in slices."""
    return judge_rows(answer, _rows(FIRST_SENT, measured), number)


@check(wants="a dict with a number for each, in multiples of P (n - 1) / n")
def sent(answer: Any, measured: Mapping[str, float]) -> Verdict:
    """Judge what a rank sends in a step of each stage."""
    return judge_rows(answer, _rows(SENT, measured), number)


@check(wants="a class with the methods reduce and step")
def first_try(answer: Any, run: Runner) -> Verdict:
    """Judge a stage 1 that may average all gradients on all ranks, beside Adam of one process at every step."""
    return _on_ranks(answer, run, "all_reduce")


@check(wants="a class with the methods reduce and step")
def stage_1(answer: Any, run: Runner) -> Verdict:
    """Judge a stage 1 that sends no more than DDP, beside Adam of one process at every step."""
    return _on_ranks(answer, run, "1")


@check(wants="a class with the methods reduce and step")
def stage_2(answer: Any, run: Runner) -> Verdict:
    """Judge a stage 2: nothing of the gradients stays but the slice."""
    return _on_ranks(answer, run, "2")


@check(wants="a class with the methods forward, reduce and step")
def stage_3(answer: Any, run: Runner) -> Verdict:
    """Judge a stage 3: nothing of the parameters stays between the steps but the slice."""
    return _on_ranks(answer, run, "3")


@check(wants="a function of stage, number of parameters and number of ranks that returns three numbers of bytes")
def held(answer: Callable[..., Any]) -> Verdict:
    """Judge the bytes of parameters, gradients and optimizer state on a rank after a step, with Adam in 32 bits."""
    if not callable(answer):
        raise WrongKind("got no function")
    for stage in (1, 2, 3):
        for numel, n in ((1_000, 4), (101_525, 4), (101_525, 2), (7, 4)):
            found = states([Parameter("all", (numel,))], stage=f"zero{stage}", world_size=n)
            given = [number(one) for one in items(answer(stage, numel, n), 3)]
            for category, one in zip(_HELD, given, strict=True):
                if one != found[category]:
                    why = _why(category, one, stage=stage, numel=numel, n=n)
                    return failed(f"stage {stage}, {numel} parameters, {n} ranks: {one:g} bytes of {category}; {why}")
    return PASSED


def _why(category: Category, given: float, *, stage: int, numel: int, n: int) -> str:
    part = -(-numel // n)
    unpadded = numel / n, numel // n
    padding = "the slices are equally long, and the last ends with zeros"
    if category is Category.OPTIMIZER:
        known: list[tuple[list[float], str]] = [
            ([8.0 * part], "Adam counts its steps: 4 bytes more"),
            ([4.0 * part, 4.0 * part + 4], "Adam keeps two numbers for each parameter"),
            ([8.0 * numel, 8.0 * numel + 4, 8.0 * n * part + 4, 8.0 * n * part], "every stage cuts the state"),
            ([12.0 * part, 12.0 * part + 4], "the parameters are 32-bit already: Adam keeps no copy of them"),
            ([8 * one + more for one in unpadded for more in (0, 4)], f"{padding}; those have a state, too"),
        ]
        return _first(known, given, "two numbers for each in the slice, and 4 bytes for the count of steps")
    cut_from = {Category.PARAMETERS: 3, Category.GRADIENTS: 2}[category]
    if stage < cut_from:
        known = [
            ([4.0 * numel], "the vector ends with zeros, and they take memory as well"),
            ([4.0 * part, *(4 * one for one in unpadded)], f"stage {stage} does not cut the {category}"),
        ]
    else:
        known = [
            ([4.0 * numel, 4.0 * n * part], f"that is all of them: stage {stage} keeps a slice"),
            ([4 * one for one in unpadded], padding),
        ]
    return _first(known, given, "4 bytes for each number that stays")


def _first(known: list[tuple[list[float], str]], given: float, otherwise: str) -> str:
    return next((why for wrong, why in known if given in wrong), otherwise)


@check(wants="a dict with a number for each, 1 where nothing is divided")
def divided(answer: Any, measured: Mapping[str, float]) -> Verdict:
    """Judge what four ranks of stage 3 divide of activations and multiplications, beside DDP and one process."""
    return judge_rows(answer, _rows(DIVIDED, measured), number)


@check(wants="a dict with a whole number for each rank")
def updates(answer: Any, sizes: Mapping[str, int], measured: Mapping[str, int]) -> Verdict:
    """Judge how many numbers each rank updates under torch's ZeroRedundancyOptimizer.

    Args:
        answer: numbers of "rank 0", "rank 1" and so on.
        sizes: numbers in each parameter.
        measured: what was seen.
    """
    total = sum(sizes.values())
    if not isinstance(answer, Mapping):
        raise WrongKind("got no dict")
    for rank, right in measured.items():
        if rank not in answer:
            return failed(f"{rank} is missing")
        given = whole_number(answer[rank])
        if given == right:
            continue
        known: list[tuple[list[float], str]] = [
            ([total], "that is all of them: each rank updates a part"),
            (
                [total // len(measured), -(-total // len(measured))],
                "it cuts no parameter in two: the largest one alone is more than its share",
            ),
            ([one for name, one in measured.items() if name != rank], "that is another rank's: rank 0 is first"),
            ([2 * right], "that is the state: two numbers for each parameter"),
        ]
        return failed(f"{rank}: {_first(known, given, 'largest parameter first, each to the rank with the least')}")
    return PASSED


@check(wants="a dict with True or False for each")
def names(answer: Any, measured: Mapping[str, bool]) -> Verdict:
    """Judge which names are in torch's own sources."""
    return judge_truths(answer, measured, NAMES)


@check(wants="a dict with a number for each")
def budget(answer: Any) -> Verdict:
    """Judge which stage, and how many ranks, a model with 28.8 GiB of parameters needs."""
    return judge_rows(answer, BUDGET, _near)


def _rows(table: Mapping[str, tuple[Mistakes, str]], measured: Mapping[str, float]) -> dict[str, Row]:
    return {name: (measured[name], *row) for name, row in table.items()}


def _near(answer: Any) -> float:
    return round(number(answer), 1)


def _on_ranks(answer: Any, run: Runner, stage: str) -> Verdict:
    """Run a trial, which gives a problem in words on each rank that has one."""
    if not isinstance(answer, type):
        raise WrongKind("got no class")
    if is_open(list(vars(answer).values())):
        return NOT_ATTEMPTED
    if any(is_open(list(vars(one).values())) for one in answer.__mro__[1:] if one.__module__ == answer.__module__):
        return failed("the stage before comes first: this class builds on it")
    if missing := [name for name in ("forward", "reduce", "step") if not callable(getattr(answer, name, None))]:
        return failed(f"the method {missing[0]} is missing")
    try:
        problems = run(on_ranks.try_stage, answer, stage, timeout=_SECONDS).values
    except RunTimeout:
        return failed("some ranks wait for ever: every rank must make the same calls, in the same order")
    except RunError as error:
        return failed(f"it went wrong: {error.summary}")
    return failed(next(filter(None, problems))) if any(problems) else PASSED
