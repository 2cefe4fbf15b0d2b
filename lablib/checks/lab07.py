"""Judge the exercises of lab 07, a DistributedDataParallel of one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from lablib.checks import lab07_on_ranks as on_ranks
from lablib.checks.answers import WrongKind, items, number, text, whole_number
from lablib.checks.lab07_wire import Disagreement
from lablib.checks.tables import judge_rows, judge_truths
from lablib.checks.verdict import NOT_ATTEMPTED, PASSED, Verdict, check, compare, failed, is_open
from lablib.errors import RunError, RunTimeout
from lablib.links import Link
from lablib.sim.ddp import simulate
from lablib.sim.plan import Plan
from lablib.trace import Kind

_SECONDS = 20.0  # longer than any right answer takes
_NEAR = 0.03


class Runner(Protocol):
    """Run a function on two ranks, as `lablib.Cluster(2).run` does."""

    def __call__(self, fn: Callable[..., Any], *args: Any, timeout: float) -> Any: ...


@check(wants="a class that takes a model")
def same_start(answer: Any, run: Runner) -> Verdict:
    """Judge a wrapper that gives rank 0's parameters once, and its buffers in every forward."""
    return _on_ranks(answer, run, on_ranks.try_same_start, finishes=False)


@check(wants="a class that takes a model and has a method finish")
def synchronous(answer: Any, run: Runner) -> Verdict:
    """Judge a wrapper that averages gradients after backward, beside one process at every step."""
    return _on_ranks(answer, run, on_ranks.try_synchronous)


@check(wants="a class that takes a model and has a method finish")
def overlapped(answer: Any, run: Runner) -> Verdict:
    """Judge a wrapper that sends each gradient during backward, beside one process at every step."""
    return _on_ranks(answer, run, on_ranks.try_overlapped)


@check(wants="a class that takes a model and cap_mb and has a method finish")
def bucketed(answer: Any, run: Runner) -> Verdict:
    """Judge a wrapper that sends buckets in strict order, beside one process at every step."""
    return _on_ranks(answer, run, on_ranks.try_bucketed)


@check(wants="a list of names of layers, the one whose hook fires first comes first")
def order(answer: Any, used: Sequence[str], fired: Sequence[str]) -> Verdict:
    """Judge the order in which hooks on gradients fire.

    Args:
        answer: names.
        used: the layers in forward's order, a shared one as often as it is used.
        fired: what was measured.
    """
    given, right = tuple(text(name) for name in items(answer)), tuple(fired)
    once = tuple(dict.fromkeys(used))
    if unknown := [name for name in given if name not in once]:
        return failed(f"{unknown[0]} is none of the layers")
    mistakes: dict[object, str] = {
        once: "hooks do not fire in forward's order: backward begins at the loss, with the layer used last",
        tuple(used): "hooks do not fire in forward's order, and a weight that is used twice has one hook",
        tuple(used)[
            ::-1
        ]: "a weight that is used twice has one gradient: its hook fires once, when both uses are in it",
        tuple(dict.fromkeys(reversed(used))): "the tied weight is not ready after its last use: the sum over both uses"
        " is, and that of the first use comes late in backward",
    }
    return compare(given, right, mistakes, "backward goes from the loss to the input")


@check(wants="a dict with a number for each of the three moments")
def seen(answer: Any, measured: Mapping[str, float]) -> Verdict:
    """Judge what rank 0 sees of a gradient whose mean over two ranks is taken after backward."""
    own, mean = measured["in the hook"], measured["after finish"]
    known = {
        "in the hook": {
            mean: "the hook fires when *this rank's* gradient is ready: nothing has travelled yet",
            2 * mean: "the hook fires when *this rank's* gradient is ready: nothing has travelled yet",
        },
        "after backward": {
            mean: "backward knows nothing of other ranks: finish averages",
            2 * mean: "backward knows nothing of other ranks: finish averages",
        },
        "after finish": {
            own: "finish puts the mean over the ranks in its place",
            2 * mean: "that is the sum: the mean is wanted",
        },
    }
    rows = {
        name: (measured[name], mistakes, "rank r brings the gradient r + 1, here r is 0")
        for name, mistakes in known.items()
    }
    return judge_rows(answer, rows, number)


@check(wants="a dict with a whole number for each")
def travels(answer: Any, measured: Mapping[str, int]) -> Verdict:
    """Judge how often parameters, buffers and gradients travel in `measured["gradients"]` steps."""
    steps = measured["gradients"]
    every = "DDP does not synchronise parameters every step: equal starts and equal gradients keep them equal"
    return judge_rows(
        answer,
        {
            "parameters": (
                measured["parameters"],
                {
                    steps: every,
                    steps + 1: every,
                    0: "nobody but rank 0 would have its weights: once, when the wrapper is built",
                },
                "once at the start is enough",
            ),
            "buffers": (
                measured["buffers"],
                {
                    steps: "that is in each forward; at the start they travel, too",
                    1: "no gradient keeps buffers equal: each forward has changed them on every rank",
                    0: "no gradient keeps buffers equal: somebody must",
                },
                "at the start, and in every forward",
            ),
            "gradients": (
                steps,
                {
                    2 * steps: "once each step: the mean of all comes back in the same call",
                    1: "each step has gradients of its own",
                },
                "each step has gradients of its own",
            ),
        },
        whole_number,
    )


@check(wants="a dict with a number of milliseconds for each version")
def versions(answer: Any, plan: Plan, link: Link) -> Verdict:
    """Judge how long backward and finish take with each version, where layers have equal times.

    Args:
        answer: milliseconds of "Synchronous", "Overlapped" and "Bucketed".
        plan: what each rank computes; a bucket holds one layer.
        link: between two ranks.
    """
    right = expected_ms(plan, link)
    compute = sum(layer.backward_ms for layer in plan.layers)
    alone = right["Synchronous"] - compute
    one_bucket = compute + link.length_ns("all_reduce", sum(one.nbytes for one in plan.parameters), (0, 1)) / 1e6
    shorter = {compute: "that is computing alone: what the last gradient needs on the link comes behind it"}
    known: dict[str, dict[float, str]] = {
        "Synchronous": {
            **shorter,
            alone: "that is the link alone: computing comes before it",
            right["Overlapped"]: "nothing leaves before backward is over: add both up",
            right["Bucketed"]: "one call a parameter, and each pays the latency; nothing is hidden",
        },
        "Overlapped": {
            **shorter,
            right[
                "Synchronous"
            ]: "the first call leaves when the last layer is done, and the link is busy from then on",
            alone: "that is the link alone: it cannot begin before the first gradient is there",
            right["Bucketed"]: "that would be one call a layer: here each parameter is a call, and pays the latency",
        },
        "Bucketed": {
            **shorter,
            right["Overlapped"]: "weight and bias share a call now: the latency is paid half as often",
            one_bucket: "that is one bucket for everything: here each layer is a bucket",
            right["Synchronous"]: "buckets leave during backward",
        },
    }
    if not isinstance(answer, Mapping):
        raise WrongKind("got no dict")
    for name, wanted in right.items():
        if name not in answer:
            return failed(f"{name} is missing")
        given = number(answer[name])
        if abs(given - wanted) <= _NEAR * wanted:
            continue
        near = [why for wrong, why in known[name].items() if abs(given - wrong) <= _NEAR * wrong]
        return failed(
            f"{name}: {near[0] if near else 'add up layer by layer when it computes and when the link is free'}"
        )
    return PASSED


def expected_ms(plan: Plan, link: Link) -> dict[str, float]:
    """Return how long backward and finish take with each of the three versions, by simulation."""
    compute = sum(layer.backward_ms for layer in plan.layers)
    calls = sum(link.length_ns("all_reduce", one.nbytes, (0, 1)) for one in plan.parameters) / 1e6
    layer = sum(one.nbytes for one in plan.layers[0].parameters) / (1 << 20)

    def simulated(cap: float) -> float:
        trace = simulate(plan, link=link, iterations=[2], bucket_cap_mb=cap)
        return trace.only(Kind.BACKWARD, rank=0).spans[0].length_ns / 1e6

    return {"Synchronous": compute + calls, "Overlapped": simulated(1e-9), "Bucketed": simulated(layer)}


@check(wants="a dict with True or False for each")
def same_data(answer: Any, measured: Mapping[str, bool]) -> Verdict:
    """Judge what is the same on two ranks that each make their data from random numbers."""
    why = {
        "weights": "the wrapper gave rank 0's to all",
        "indices": "the sampler gives each rank its own part",
        "data set, unseeded": "each process draws its own random numbers; no wrapper sees the data",
        "data set, seeded": "the same seed gives the same numbers in every process",
    }
    return judge_truths(answer, measured, why)


def _on_ranks(answer: Any, run: Runner, trial: Callable[..., Any], *, finishes: bool = True) -> Verdict:
    """Run a trial, which gives a problem in words on each rank that has one."""
    if not isinstance(answer, type):
        raise WrongKind("got no class")
    if is_open(list(vars(answer).values())):
        return NOT_ATTEMPTED
    if any(is_open(list(vars(one).values())) for one in answer.__mro__[1:] if one.__module__ == answer.__module__):
        return failed("step 1 comes first: this class builds on it")
    if finishes and not callable(getattr(answer, "finish", None)):
        return failed("the loop calls finish() after backward: it is missing")
    try:
        problems = run(trial, answer, timeout=_SECONDS).values
    except RunTimeout:
        return failed("some ranks wait for ever: every rank must make the same calls, in the same order")
    except RunError as error:
        if isinstance(error.__cause__, Disagreement):
            return failed(f"{error.__cause__}: every rank must make the same calls, in the same order")
        return failed(f"it went wrong: {error.summary}")
    return failed(next(filter(None, problems))) if any(problems) else PASSED
