"""Judge the exercises of lab 05, DistributedSampler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from lablib.checks import lab05_functions as functions
from lablib.checks import lab05_on_ranks as on_ranks
from lablib.checks import lab05_rows as rows
from lablib.checks.answers import WrongKind, items, number, text, whole_number, whole_numbers
from lablib.checks.tables import judge_letter
from lablib.checks.verdict import PASSED, Verdict, check, compare, failed
from lablib.errors import RunError, RunTimeout

_SECONDS = 5.0  # longer than any right answer takes


class Runner(Protocol):
    """Run a function on four ranks, as `lablib.Cluster(4).run` does."""

    def __call__(self, fn: Callable[..., Any], *args: Any, timeout: float) -> Any: ...


@check(wants="a dict with two whole numbers and a list of letters")
def first_look(answer: Any) -> Verdict:
    """Judge who loads what of eight letters on four ranks, with and without a sampler."""
    letters = "letters of rank 0"

    def read(name: str, given: Any) -> object:
        return tuple(text(one).upper() for one in items(given)) if name == letters else whole_number(given)

    return _dict(answer, rows.FIRST_LOOK, read)


@check(wants="four lists of indices, rank 0's first")
def ten(answer: Any) -> Verdict:
    """Judge which of ten samples each of four ranks gets."""
    given = tuple(whole_numbers(one) for one in items(answer, 4))
    if given in rows.TEN_MISTAKES or given == rows.TEN:
        return compare(given, rows.TEN, rows.TEN_MISTAKES, "")
    if {len(one) for one in given} != {3}:
        return failed("every rank gets equally many: 10 is filled up to 12, 3 for each")
    return failed("samples are dealt in turn: 0 to rank 0, 1 to rank 1, …, and after 9 it begins again with 0")


@check(wants="a list of indices")
def lost(answer: Any) -> Verdict:
    """Judge which of ten samples no rank sees where the sampler drops the tail."""
    return compare(tuple(sorted(whole_numbers(answer))), *rows.LOST)


@check(wants="a dict with two whole numbers and a letter")
def few(answer: Any) -> Verdict:
    """Judge what happens with fewer samples than ranks."""
    return _dict(
        answer,
        rows.FEW,
        lambda name, given: text(given).lower() if name == "torch says" else whole_number(given),
    )


@check(wants="a dict with a whole number for each question")
def epochs(answer: Any) -> Verdict:
    """Judge how many orders three epochs have, with and without set_epoch."""
    return _dict(answer, rows.EPOCHS, lambda _, given: whole_number(given))


@check(wants="a share, from 0 to 1")
def never_seen(answer: Any, measured: float) -> Verdict:
    """Judge the share of samples that no rank sees where four ranks shuffle with seeds of their own.

    Args:
        answer: the guess.
        measured: the share that was lost on real ranks.
    """
    share = number(answer)
    if share > 1:
        raise WrongKind(f"got {share:g}, which is no share")
    if abs(share - measured) <= 0.04:
        return PASSED
    known = {
        0.0: "the ranks no longer share one list: what rank 0 leaves to rank 1, rank 1 may leave to rank 0",
        0.25: "that is the share that one rank sees",
        0.75: "that is what one rank does not see; all four must miss a sample",
        1 - measured: "that is the share that is seen",
    }
    for wrong, reason in known.items():
        if abs(share - wrong) <= 0.01:
            return failed(reason)
    return failed("one rank misses a sample with what probability? And all four?")


@check(wants="a dict with a whole number for each question")
def lengths(answer: Any) -> Verdict:
    """Judge samples, batches and steps of 50,000 samples on 8 ranks with batch_size=32."""
    return _dict(answer, rows.LENGTHS, lambda _, given: whole_number(given))


@check(wants='one of the letters "a", "b", "c"')
def shuffled_twice(answer: Any) -> Verdict:
    """Judge what a loader does that is given a sampler and shuffle=True."""
    return judge_letter(answer, "b", rows.SHUFFLE)


@check(wants='one of the letters "a", "b", "c"')
def own_data(answer: Any) -> Verdict:
    """Judge what is split where each rank draws its data without a seed."""
    return judge_letter(answer, "b", rows.OWN_DATA)


@check(wants='one of the letters "a", "b", "c"')
def workers(answer: Any) -> Verdict:
    """Judge what num_workers changes of what a rank loads."""
    return judge_letter(answer, "a", rows.WORKERS)


@check(wants="a dict with two numbers from 0 to 1")
def counted(answer: Any) -> Verdict:
    """Judge the accuracy that four ranks count on ten samples, of which the model gets 0 and 1 wrong."""
    return _dict(answer, rows.COUNTED, lambda _, given: round(number(given), 3))


@check(wants="a function of a number of samples that returns that many samples")
def same_data(answer: Callable[..., object], run: Runner) -> Verdict:
    """Judge a data set that must be the same on four ranks."""
    return _on_ranks(answer, run, on_ranks.try_data, functions.judge_data)


@check(wants="a function of is_right and a number of samples that returns the accuracy")
def exact_accuracy(answer: Callable[..., object], run: Runner) -> Verdict:
    """Judge an accuracy that four ranks find together, each sample counted once."""
    return _on_ranks(answer, run, on_ranks.try_exact, functions.judge_exact)


@check(wants="a function of a sampler, an epoch, steps and a batch size that returns a list of indices")
def resume(answer: Callable[..., Any]) -> Verdict:
    """Judge what a rank still loads after some steps of an epoch."""
    if not callable(answer):
        raise WrongKind("got no function")
    return functions.judge_resume(answer)


def _dict(answer: Any, wanted: Mapping[str, rows.Row], read: Callable[[str, Any], object]) -> Verdict:
    if not isinstance(answer, Mapping):
        raise WrongKind("got no dict")
    for name, row in wanted.items():
        if name not in answer:
            return failed(f"{name}: missing")
        try:
            given = read(name, answer[name])
        except WrongKind as error:
            return failed(f"{name}: {error.told}")
        if not (verdict := compare(given, *row)):
            return failed(f"{name}: {verdict.reason}")
    return PASSED


def _on_ranks(
    answer: Callable[..., object], run: Runner, trial: Callable[..., Any], judge: Callable[[Any], Verdict]
) -> Verdict:
    if not callable(answer):
        raise WrongKind("got no function")
    try:
        found = run(trial, answer, timeout=_SECONDS).values
    except RunTimeout:
        return failed("some ranks wait for ever: every rank must make the same calls, also one without samples")
    except RunError as error:
        return failed(f"it went wrong: {error.summary}")
    return judge(found)
