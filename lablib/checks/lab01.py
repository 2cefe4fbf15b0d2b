"""Judge the exercises of lab 01, the collective zoo."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from lablib.checks import lab01_on_ranks as on_ranks
from lablib.checks.answers import WrongKind, items, number, text, whole_number
from lablib.checks.lab01_rows import FOUR_PARTS, ONE_NUMBER, Row
from lablib.checks.tables import judge_letter
from lablib.checks.verdict import PASSED, Verdict, check, compare, failed
from lablib.errors import RunError, RunTimeout

_FOUR = 4  # ranks in every exercise of this lab
_SECONDS = 4.0  # longer than any right answer takes


class Runner(Protocol):
    """Run a function on four ranks, as `lablib.Cluster(4).run` does."""

    def __call__(self, fn: Callable[..., Any], *args: Any, timeout: float) -> Any: ...


@check(wants="a dict with a list of four numbers for each call")
def one_number(answer: Any) -> Verdict:
    """Judge what the ranks hold after broadcast and all_reduce, where rank r brings r + 1."""
    return _rows(answer, ONE_NUMBER)


@check(wants="a dict with a list of four numbers for each call")
def four_parts(answer: Any) -> Verdict:
    """Judge what scatter, gather, all_gather, reduce_scatter and all_to_all give, where rank r brings 10 r + i."""
    return _rows(answer, FOUR_PARTS)


def _rows(answer: Any, wanted: Mapping[str, Row]) -> Verdict:
    if not isinstance(answer, Mapping):
        raise WrongKind("got no dict")
    for name, (right, mistakes, otherwise) in wanted.items():
        if name not in answer:
            return failed(f"{name} is missing")
        try:
            given = tuple(number(item) for item in items(answer[name]))
        except WrongKind as error:
            return failed(f"{name}: {error}, and four numbers are wanted")
        if len(given) == _FOUR - 1 and name in ("gather", "all_gather"):
            return failed(f"{name}: the list has an item of every rank, of the one that gets it too")
        if len(given) != _FOUR:
            return failed(f"{name}: got {len(given)} numbers, and four are wanted")
        if not (verdict := compare(given, right, mistakes, otherwise)):
            return failed(f"{name}: {verdict.reason}")
    return PASSED


@check(wants='one of the letters "a", "b", "c", "d"')
def leftovers(answer: Any) -> Verdict:
    """Judge what the other ranks' tensors hold after reduce."""
    return judge_letter(
        answer,
        "d",
        {
            "a": "reduce does not leave the inputs untouched on other ranks: they carried partial results",
            "b": "that would be all_reduce: only dst has the result",
            "c": "nobody clears a tensor",
        },
    )


@check(wants='one of the letters "a", "b", "c"')
def log_order(answer: Any) -> Verdict:
    """Judge which line comes first in a log that two ranks write, with a barrier between."""
    return judge_letter(
        answer,
        "b",
        {
            "a": "a barrier flushes no prints: rank 0's line sits in its own buffer until that is flushed",
            "c": "the barrier keeps the order of the *calls*: rank 1 prints after it, and flushes at once",
        },
    )


@check(wants="a list of names of calls")
def need_everyone(answer: Any) -> Verdict:
    """Judge which calls no rank can leave before the last rank has come."""
    named = {text(item).removeprefix("dist.").removesuffix("()") for item in items(answer)}
    if unknown := named - {*_NEED_EVERYONE, *_LEAVE_EARLY}:
        return failed(f"{min(unknown)} is none of these calls")
    for name, reason in _LEAVE_EARLY.items():
        if name in named:
            return failed(f"{name}: {reason}")
    if missing := [name for name in _NEED_EVERYONE if name not in named]:
        return failed(f"{missing[0]} is missing: {_NEED_EVERYONE[missing[0]]}")
    return PASSED


_NEED_EVERYONE = {
    "all_reduce": "every rank needs every rank's number",
    "all_gather": "every rank needs every rank's number",
    "barrier": "waiting for everyone is all it does",
}
_LEAVE_EARLY = {
    "broadcast": "a rank that has its number, and passed it on, is done; it needs nobody else",
    "scatter": "a rank that has its part is done",
    "gather": "a rank that has given its number is done: only dst needs everyone",
}


@check(wants="a number of bytes")
def stalls_from(answer: Any) -> Verdict:
    """Judge the smallest message at which two ranks that both send first stand still."""
    size = whole_number(answer)
    if size > _FOUR:
        return failed(
            f"gloo keeps no small messages on the side: they stand still below {size} bytes already, since send"
            " returns only when the other rank receives"
        )
    return compare(size, 4, {1: "one float32 has more bytes"}, "the smallest message here is one float32")


@check(wants="two numbers: what is read before wait(), and after it")
def read_early(answer: Any) -> Verdict:
    """Judge what rank 0 reads of its 1 around wait(), when 1 and 2 are added and rank 1 comes later."""
    return compare(
        tuple(number(item) for item in items(answer, 2)),
        (1.0, 3.0),
        {
            (3.0, 3.0): "async does not mean finished: the call came back at once, and rank 1 has not even started",
            (1.0, 1.0): "after wait() the sum is there, in the same tensor",
            (0.0, 3.0): "nobody cleared the tensor: it still has what rank 0 brought",
            (2.0, 3.0): "rank 0 brings 1",
        },
        "before wait() it is rank 0's own number, after it the sum",
    )


@check(wants="a dict with a list of names of dtypes for AVG and for BAND")
def dtypes(answer: Any) -> Verdict:
    """Judge which of int32, uint8, float32 and bfloat16 gloo takes for AVG and for BAND."""
    if not isinstance(answer, Mapping):
        raise WrongKind("got no dict")
    for op, (right, reason) in _DTYPES.items():
        if op not in answer:
            return failed(f"{op} is missing")
        given = {text(str(item)).removeprefix("torch.") for item in items(answer[op])}
        if unknown := given - {"int32", "uint8", "float32", "bfloat16"}:
            return failed(f"{op}: {min(unknown)} is none of the four")
        if given != right:
            all_four = " An operation that exists does not exist for every dtype." if len(given) == _FOUR else ""
            return failed(f"{op}: {reason}.{all_four}")
    return PASSED


_DTYPES = {
    "AVG": ({"float32", "bfloat16"}, "a mean is no integer, and every floating dtype can hold one"),
    "BAND": ({"int32", "uint8"}, "bitwise operations work on the bits of integers"),
}


@check(wants="a list of four numbers, one for each rank")
def in_groups(answer: Any) -> Verdict:
    """Judge rank r's r + 1 after a broadcast from rank 3 in the group [2, 3], and a sum in the group [0, 1]."""
    return compare(
        tuple(number(item) for item in items(answer, _FOUR)),
        (3.0, 3.0, 4.0, 4.0),
        {
            (3.0, 3.0, 3.0, 3.0): "src is a rank of the whole job: rank 3, and it brings 4",
            (4.0, 4.0, 4.0, 4.0): "a call in a group does not touch the others",
            (10.0, 10.0, 4.0, 4.0): "the sum is among the two members only",
            (1.0, 2.0, 4.0, 4.0): "the ranks 0 and 1 add up in their group",
            (3.0, 3.0, 3.0, 4.0): "the ranks 2 and 3 broadcast in their group",
        },
        "each half does its own call, among its own two ranks",
    )


@check(wants="a dict: link / work -> how many times faster")
def speedups(answer: Any) -> Verdict:
    """Judge the best speed-up by overlap for a link that takes 0.1, 1 and 10 times as long as the work."""
    if not isinstance(answer, Mapping):
        raise WrongKind("got no dict")
    for ratio, right in ((0.1, 1.1), (1, 2.0), (10, 1.1)):
        if ratio not in answer:
            return failed(f"{ratio} is missing")
        given = number(answer[ratio])
        if abs(given - right) > 0.005:
            mistakes = {
                11.0: "both in a row take 11, and overlapped the longer of the two stays: 10",
                10.0: "only the shorter of the two can be hidden, behind the longer one",
                2.0: "two only where both take the same time",
                1.0: "the shorter of the two can be hidden",
                0.1: "that is the ratio; overlap never makes it slower",
            }
            reason = mistakes.get(round(given, 3), "time in a row is the sum, time overlapped is the longer one")
            return failed(f"{ratio}: {reason}")
    return PASSED


@check(wants="a function of a tensor that returns the sum over all ranks")
def two_steps(answer: Callable[..., object], run: Runner) -> Verdict:
    """Judge an all_reduce made of reduce_scatter and all_gather, on four ranks."""
    return _on_ranks(answer, run, on_ranks.try_two_steps, {})


@check(wants="a function of a tensor and a partner that returns the partner's tensor")
def exchange(answer: Callable[..., object], run: Runner) -> Verdict:
    """Judge an exchange between two pairs of ranks."""
    waits = {
        "recv": "a rank waits in recv: nobody has sent, or the handle of isend was thrown away before it was done",
        "send": "both partners wait in send, and nobody receives",
        "": "a rank waits on a handle, and the other end is not there: receive before you wait, and wait for both",
    }
    return _on_ranks(answer, run, on_ranks.try_exchange, waits)


@check(wants="a function of a tensor and of other work, that returns the mean and what the work gave")
def waited_mean(answer: Callable[..., object], run: Runner) -> Verdict:
    """Judge a mean by an asynchronous all_reduce with work in between."""
    return _on_ranks(answer, run, on_ranks.try_waited_mean, {})


@check(wants="a function of a loss that returns the mean over all ranks")
def logged_mean(answer: Callable[..., object], run: Runner) -> Verdict:
    """Judge a mean for logging, which must leave the loss alone."""
    return _on_ranks(answer, run, on_ranks.try_logged_mean, {})


@check(wants="a function of `say` that calls it when it is this rank's turn")
def in_turn(answer: Callable[..., object], run: Runner) -> Verdict:
    """Judge printing in rank order, kept by messages only."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.touch()
        waits = {
            "recv": "a rank waits for a message that nobody sends; rank 0 has nobody to wait for",
            "send": "a rank sends what nobody receives; the last rank has nobody to tell",
        }
        verdict = _on_ranks(answer, run, on_ranks.try_in_turn, waits, str(log))
        lines = [line.split() for line in log.read_text().splitlines()]
    if not verdict:
        return verdict
    said = tuple(int(rank) for rank, _ in lines)
    if said == (0, 1, 2, 3) and any(heard == "unheard" for _, heard in lines[1:]):
        return failed("right by the clock only: a rank spoke before it had heard from another, and ranks may be slow")
    return compare(
        said,
        (0, 1, 2, 3),
        {
            (3, 2, 1, 0): "nobody waited: a rank speaks after it heard from the one before it",
            (): "nobody said anything",
            (0,): "only rank 0 spoke",
        },
        f"spoken in the order {list(said)}: hear from the rank before, then say, then tell the next",
    )


@check(wants="a function of a tensor that returns the sum over all ranks")
def ring_sum(answer: Callable[..., object], run: Runner) -> Verdict:
    """Judge a sum made by passing tensors round a ring."""
    waits = {"": "a rank waits for ever: every send needs the receive of its neighbour, in the same round"}
    return _on_ranks(answer, run, on_ranks.try_ring_sum, waits)


def _on_ranks(
    answer: Callable[..., object], run: Runner, trial: Callable[..., Any], waits: Mapping[str, str], *args: Any
) -> Verdict:
    """Run a trial, which gives a problem in words on each rank that has one."""
    if not callable(answer):
        raise WrongKind("got no function")
    try:
        problems = run(trial, answer, *args, timeout=_SECONDS).values
    except RunTimeout as error:
        told = [reason for call, reason in waits.items() if f" in {call} " in error.summary]
        return failed(told[0] if told else waits.get("", "some ranks wait for ever"))
    except RunError as error:
        problem = error.__cause__
        return failed(str(problem) if isinstance(problem, on_ranks.NotThisWay) else f"it went wrong: {error.summary}")
    return failed(next(filter(None, problems))) if any(problems) else PASSED
