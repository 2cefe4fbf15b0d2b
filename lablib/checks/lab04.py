"""Judge the exercises of lab 04, gradient averaging. What ranks measured is given, so it is what is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from lablib.checks import lab04_on_ranks as on_ranks
from lablib.checks.answers import WrongKind, items, number, text, whole_number
from lablib.checks.lab04_rows import (
    BATCH_NORM,
    BUG_LINES,
    CLIP,
    COPIES,
    FORGOT,
    GRADIENTS,
    LINEAR,
    MORE_RANKS,
    NOT_LINEAR,
    RATES,
    SHARES,
    TWO_ACCURACIES,
    talking,
    wrong_weights,
)
from lablib.checks.tables import judge_letter, judge_rows, judge_truths
from lablib.checks.verdict import PASSED, Verdict, check, compare, failed
from lablib.errors import RunError, RunTimeout

_CLOSE = 1e-6
_ROUNDING = 1e-9  # two ways that differ by less end at the same weights, in float64
_SECONDS = 10.0  # longer than any right answer takes
_NEAR = 0.05  # of the way
_TWO_DIGITS = 0.00501


class Runner(Protocol):
    """Run a function on the ranks of an exercise, as `lablib.Cluster(2).run` does."""

    def __call__(self, fn: Callable[..., Any], *args: Any, timeout: float) -> Any: ...


@check(wants="a dict with a gradient of two numbers for each")
def two_gradients(answer: Any, ddp: Sequence[float], one_process: Sequence[float]) -> Verdict:
    """Judge the gradient of seven samples on two ranks under DDP, and that of one process."""
    rows = {name: (_rounded(right), *GRADIENTS[name]) for name, right in (("DDP", ddp), ("one process", one_process))}
    return judge_rows(answer, rows, lambda given: _rounded(items(given, 2)))


@check(wants="a function of n, total and ranks that returns a number")
def weight(answer: Callable[..., Any]) -> Verdict:
    """Judge the number by which a rank multiplies its mean loss."""
    if not callable(answer):
        raise WrongKind("got no function")
    cases = ((4, 7, 2), (3, 7, 2), (5, 12, 4), (6, 18, 3))
    given = [number(answer(*case)) for case in cases]
    wrong = [abs(one - ranks * n / total) > _CLOSE for one, (n, total, ranks) in zip(given, cases, strict=True)]
    if not any(wrong):
        return PASSED
    formulas = zip(*(wrong_weights(*case) for case in cases), strict=True)  # only one that fits every case
    near = [
        formula[0][1]
        for formula in formulas
        if all(abs(one - value) <= _CLOSE for one, (value, _) in zip(given, formula, strict=True))
    ]
    reason = near[0] if near else "the weights of all ranks add up to the number of ranks"
    n, total, ranks = cases[wrong.index(True)]
    return failed(f"{n} of {total} samples on one of {ranks} ranks: got {given[wrong.index(True)]:g}; {reason}")


@check(wants="a number")
def multiple(answer: Any, ranks: int) -> Verdict:
    """Judge which multiple of the one-process gradient DDP gives, where losses are sums."""
    mistakes: dict[object, str] = {
        1.0: "each rank's sum lacks nothing; but DDP divides the sum of the gradients by the number of ranks",
        float(ranks): "DDP adds the gradients up, and divides by the number of ranks",
        1 / 7: "nobody divides by the number of samples here: the losses are sums",
        4 / 7: "sums need no weights: all samples count the same in them",
    }
    return compare(number(answer), 1 / ranks, mistakes, "only DDP divides here, and it knows only ranks")


@check(wants="a function of this rank's sum of losses that returns a loss")
def of_the_sum(answer: Callable[..., Any], run: Runner) -> Verdict:
    """Judge a loss whose DDP gradient is that of the sum over all samples."""
    return _on_ranks(answer, run, on_ranks.try_of_the_sum)


@check(wants="a function of losses and of what is a word, that returns a loss")
def word_loss(answer: Callable[..., Any], run: Runner) -> Verdict:
    """Judge a loss whose DDP gradient is that of the mean over all words, on four ranks."""
    return _on_ranks(answer, run, on_ranks.try_word_loss)


@check(wants="a dict with a list of phases for each model")
def talk(answer: Any, calls: Mapping[str, Mapping[str, Sequence[str]]]) -> Verdict:
    """Judge in which phases of three DDP steps ranks talk.

    Args:
        answer: names of phases for each model.
        calls: the collectives of each phase for each model.
    """
    if not isinstance(answer, Mapping):
        raise WrongKind("got no dict")
    for model, found in calls.items():
        if model not in answer:
            return failed(f"{model} is missing")
        try:
            given = {text(phase) for phase in items(answer[model])}
        except WrongKind as error:
            return failed(f"{model}: {error.told}")
        if unknown := given - set(found):
            return failed(f"{model}: {min(unknown)} is none of {', '.join(found)}")
        for phase, names in found.items():
            if bool(names) != (phase in given):
                return failed(f"{model}, {phase}: {talking(phase, buffers='BatchNorm' in model, talks=bool(names))}")
    return PASSED


@check(wants="a dict with True or False for each")
def copies(answer: Any, measured: Mapping[str, bool]) -> Verdict:
    """Judge what is the same on two ranks before and after DDP is built, and after backward."""
    return judge_truths(answer, measured, COPIES)


@check(wants="the number of a line")
def bug_line(answer: Any) -> Verdict:
    """Judge which line of the published script keeps DDP from averaging."""
    return compare(whole_number(answer), 8, BUG_LINES, "the script has lines 1 to 11")


@check(wants="two whole numbers")
def rows(answer: Any, measured: Sequence[int]) -> Verdict:
    """Judge how many rows of outputs two ranks get that bring `measured` rows."""
    first, second = measured
    total = first + second
    return compare(
        tuple(whole_number(item) for item in items(answer, 2)),
        (first, second),
        {
            (total, total): "DDP gathers no outputs: only gradients travel",
            (total, 0): "that would be DataParallel, one process that gathers: in DDP each rank keeps its own",
            (second, first): "outputs do not change places: a rank's own inputs, a rank's own outputs",
        },
        "one row comes out for each that goes in",
    )


@check(wants="a function of model, ddp_model, optimizer, features and labels")
def train_step(answer: Callable[..., Any], run: Runner) -> Verdict:
    """Judge one training step, taken three times on two ranks, beside one process with both ranks' data."""
    return _on_ranks(answer, run, on_ranks.try_train_step)


@check(wants="a list of names of optimizers")
def commute(answer: Any, gaps: Mapping[str, float]) -> Verdict:
    """Judge for which optimizers averaging parameters ends where averaging gradients does.

    Args:
        answer: names.
        gaps: how far apart the two ways ended for each optimizer, in float64.
    """
    given = {text(name) for name in items(answer)}
    if unknown := given - set(gaps):
        return failed(f"{min(unknown)} is none of {', '.join(gaps)}")
    for name, gap in gaps.items():
        if gap > _ROUNDING and name in given:
            return failed(f"{name} ends elsewhere: {NOT_LINEAR.get(name, 'its step is not linear in the gradient')}")
        if gap <= _ROUNDING and name not in given:
            return failed(f"{name} is missing: {LINEAR.get(name, 'its step is linear in the gradient')}")
    return PASSED


@check(wants="a dict with a number for each order")
def clip(answer: Any, measured: Mapping[str, float]) -> Verdict:
    """Judge the gradient of 8 and -2, clipped to 1 before or after DDP's mean."""
    rows = {name: (_rounded([measured[name]]), *CLIP[name]) for name in CLIP}
    return judge_rows(answer, rows, lambda given: _rounded([given]))


@check(wants='one of the letters "a", "b", "c"')
def forgot(answer: Any) -> Verdict:
    """Judge what comes of giving all data to every rank."""
    return judge_letter(answer, "a", FORGOT)


@check(wants="a dict with True or False for each")
def batch_norm(answer: Any, measured: Mapping[str, bool]) -> Verdict:
    """Judge what BatchNorm leaves the same on two ranks, and in one process."""
    return judge_truths(answer, measured, BATCH_NORM)


@check(wants="a dict with a number for each")
def more_ranks(answer: Any) -> Verdict:
    """Judge global batch, steps and a sample's part, for 64 samples in batches of 4 on four ranks."""
    return judge_rows(answer, MORE_RANKS, number)


@check(wants="a learning rate, a number")
def learning_rate(answer: Any, of_one: float, off: Callable[[float], float]) -> Verdict:
    """Judge a learning rate for four ranks.

    Args:
        answer: the learning rate.
        of_one: the one of a single rank.
        off: how far from the single rank's end an epoch with a learning rate ends, in parts of its way.
    """
    given = number(answer)
    if not 0 < given < float("inf"):
        return failed("a learning rate is a number above 0")
    missed = off(given)
    if missed <= _NEAR:
        return PASSED
    near = next((why for ratio, why in RATES.items() if abs(given / of_one - ratio) < _CLOSE), "")
    return failed(f"{100 * missed:.0f} % of the way off; {near or 'how many steps must one of the new ones replace?'}")


@check(wants="a dict with a number for each")
def two_accuracies(answer: Any) -> Verdict:
    """Judge the mean of accuracies 1/4 and 3/3, and the accuracy over all samples."""

    def read(given: Any) -> float:
        value = number(given)
        return next((share for share in SHARES if abs(value - share) < _TWO_DIGITS), value)

    return judge_rows(answer, TWO_ACCURACIES, read)


@check(wants="a function of correct and count that returns a number")
def accuracy(answer: Callable[..., Any], run: Runner) -> Verdict:
    """Judge an accuracy over all samples of two ranks."""
    return _on_ranks(answer, run, on_ranks.try_accuracy)


def _rounded(values: Sequence[Any]) -> tuple[float, ...]:
    return tuple(round(number(value), 3) + 0.0 for value in values)  # + 0.0: no minus before a zero


def _on_ranks(answer: Callable[..., object], run: Runner, trial: Callable[..., Any]) -> Verdict:
    """Run a trial, which gives a problem in words on each rank that has one."""
    if not callable(answer):
        raise WrongKind("got no function")
    try:
        problems = run(trial, answer, timeout=_SECONDS).values
    except RunTimeout:
        return failed("some ranks wait for ever: every rank must make the same calls, in the same order")
    except RunError as error:
        return failed(f"it went wrong: {error.summary}")
    return failed(next(filter(None, problems))) if any(problems) else PASSED
