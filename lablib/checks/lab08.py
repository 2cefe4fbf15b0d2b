"""Judge the exercises of lab 08, inside the reducer.

What a run of DistributedDataParallel did is read from its trace: a torch that does otherwise makes other answers right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lablib.checks import lab08_functions as functions
from lablib.checks.answers import WrongKind, items, number, text, whole_number, whole_numbers
from lablib.checks.lab08_rows import FLIPPED, HOOKS, MEMORY, SETTINGS, SLOWER, Row
from lablib.checks.tables import judge_letter, judge_rows
from lablib.checks.verdict import PASSED, Verdict, check, compare, failed
from lablib.sim.plan import Plan
from lablib.trace import Kind, Span, Trace

MIB = 1 << 20


@check(wants="a dict with a whole number for each question")
def first_look(answer: Any, trace: Trace) -> Verdict:
    """Judge what is guessed about the buckets of twelve equal layers before the first run."""
    first, later = _buckets(trace, 0), _buckets(trace, trace.iterations[-1])
    layers = {int(name.split(".")[0]) for bucket in first for name in bucket.parameters}
    leaving = int(later[0].parameters[0].split(".")[0])
    total, largest = sum(bucket.nbytes for bucket in first), max(bucket.nbytes for bucket in later)
    rows: dict[str, Row] = {
        "layer that leaves first": (
            leaving,
            {min(layers): "the first layer is the last to get its gradient: backward begins at the loss"},
            f"the layers are numbered {min(layers)} to {max(layers)}",
        ),
        "buckets in iteration 0": (
            len(first),
            {
                len(later): "that is from iteration 1 on; before, DDP does not know in which order gradients come",
                -(-total // (25 * MIB)): f"{total / MIB:.0f} MiB by caps of 25: but iteration 0 has no caps",
                len(layers): "that would be one for each layer",
                2 * len(layers): "that would be one for each parameter",
                0: "without a bucket nothing is averaged",
            },
            "look at the first row of the run",
        ),
        "buckets in iteration 2": (
            len(later),
            {
                len(first): "that is iteration 0: from iteration 1 on DDP knows the order and makes buckets anew",
                -(-total // (25 * MIB)): f"{total / MIB:.0f} MiB by caps of 25: but the first bucket is smaller",
                len(layers): "that would be one for each layer",
                2 * len(layers): "that would be one for each parameter",
            },
            "look at the last row of the run",
        ),
        "MiB in its largest bucket": (
            round(largest / MIB),
            {
                25: "the cap says when a bucket closes, not how large it may be, and a parameter is never split",
                24: "a bucket does not close before it would exceed the cap, but once it has reached it",
                round(total / MIB): "that is the whole model, as in iteration 0",
            },
            "add layers up until the cap is reached",
        ),
    }
    return judge_rows(answer, rows, whole_number)


@check(wants="a list of lists of layers, the bucket that leaves first comes first")
def assignment(answer: Any, trace: Trace, layers: Sequence[tuple[str, float]]) -> Verdict:
    """Judge which layers share a bucket once DDP has rebuilt them.

    Args:
        answer: names of layers, bucket by bucket.
        trace: the run.
        layers: name and size of each layer in MiB, in the order in which the model has them.
    """
    given = tuple(tuple(text(layer) for layer in items(bucket)) for bucket in items(answer))
    right = tuple(
        tuple(name.split(".")[0] for name in bucket.parameters) for bucket in _buckets(trace, trace.iterations[-1])
    )
    ready = [layer for bucket in right for layer in bucket]
    sizes = dict(layers)
    if unknown := [layer for bucket in given for layer in bucket if layer not in sizes]:
        return failed(f"{unknown[0]} is none of the layers")
    named = [layer for bucket in given for layer in bucket]
    if missing := [layer for layer in ready if layer not in named]:
        return failed(f"{missing[0]} is in no bucket: every gradient must travel")
    if len(named) > len(ready):
        return failed("a layer is in two buckets: a parameter is never split")
    registered = [name for name, _ in layers]

    def filled(order: Sequence[str], rule: Callable[..., list[list[str]]] = functions.filled) -> object:
        return tuple(map(tuple, rule([(name, sizes[name]) for name in order], 1)))

    by_registration = "that is the order in which the model *has* its layers; buckets take the order of *use*, backward"
    mistakes = {
        filled(registered[::-1]): by_registration,
        filled(registered): by_registration,
        filled(ready[::-1]): "that is the order of forward: the layer used last is ready first",
        filled(ready, functions.closed_before_cap): "a bucket closes once it has *reached* the cap, not before",
        (tuple(ready),): "that is iteration 0: one bucket for everything",
        right[::-1]: "right layers, wrong order: the bucket that is full first leaves first",
    }
    if given not in mistakes and tuple(map(frozenset, given)) == tuple(map(frozenset, right)):
        return PASSED  # inside a bucket the order changes nothing
    if [layer for bucket in given for layer in bucket] == ready and given != right:
        mistakes.setdefault(given, "right order; now add sizes up: a bucket closes once it has reached the cap")
    return compare(given, right, mistakes, "take the layers in the order in which they become ready")


@check(wants="a dict with a number for each of the three moments")
def hooks(answer: Any, measured: Mapping[str, float]) -> Verdict:
    """Judge what rank 0 sees of gradients 1 and 2, accumulated twice, then averaged over two ranks."""
    return judge_rows(answer, {name: (measured[name], *HOOKS[name]) for name in HOOKS}, number)


@check(wants='one of the letters "a", "b", "c"')
def flipped(answer: Any) -> Verdict:
    """Judge when a rank's buckets leave that uses its layers in the opposite order of rank 0's."""
    return judge_letter(answer, "b", FLIPPED)


@check(wants='one of the letters "a", "b", "c", "d"')
def slower_rank(answer: Any) -> Verdict:
    """Judge what DDP changes when rank 1 needs twice the time."""
    return judge_letter(answer, "d", SLOWER)


@check(wants="a dict with a list of whole MiB for each setting, the bucket that leaves first comes first")
def settings(answer: Any, traces: Mapping[str, Trace]) -> Verdict:
    """Judge the sizes of buckets in the last iteration of each run, in whole MiB."""
    otherwise = "add up layers of 1 MiB until the cap is reached; what is left is the last bucket to be filled"
    rows = {
        name: (
            tuple(round(bucket.nbytes / MIB) for bucket in _buckets(traces[name], traces[name].iterations[-1])),
            mistakes,
            otherwise,
        )
        for name, mistakes in SETTINGS.items()
    }
    return judge_rows(answer, rows, whole_numbers)


@check(wants="a whole number, an iteration")
def static_graph(answer: Any, trace: Trace) -> Verdict:
    """Judge the first iteration that has more than one bucket."""
    right = next(iteration for iteration in trace.iterations if len(_buckets(trace, iteration)) > 1)
    return compare(
        whole_number(answer),
        right,
        {
            0: "iteration 0 has one bucket with everything, as without this setting",
            right - 1: "that is so without static_graph; with it, the order is learnt one iteration later",
            right + 1: "sooner: the order is learnt one iteration later, not two",
        },
        "count iterations from 0, and look at the run",
    )


@check(wants="a dict with a number of milliseconds for each iteration")
def backward_ms(answer: Any, trace: Trace) -> Verdict:
    """Judge how long backward takes with one bucket for everything, and with one for each layer.

    Args:
        answer: milliseconds of "iteration 0" and "iteration 2".
        trace: the simulation, in which computing and the link are busy for equally long.
    """
    first, later = (
        trace.only(Kind.BACKWARD, rank=0, iteration=iteration).spans[0].length_ns / 1e6 for iteration in (0, 2)
    )
    computing = first / 2  # and the link as long
    nothing_left = "computing alone takes that long, and the last bucket is full only when computing is over"
    return judge_rows(
        answer,
        {
            "iteration 0": (
                round(first),
                {
                    round(later): "overlap does not work from step one: the only bucket is full when computing is over",
                    round(computing): nothing_left,
                },
                f"all layers compute, {computing:.0f} ms; then the only bucket travels",
            ),
            "iteration 2": (
                round(later),
                {
                    round(computing): nothing_left,
                    round(first): "that is with one bucket: now one leaves after each layer, while the next computes",
                },
                "add up what computes, and the journey that nothing is left to hide",
            ),
        },
        lambda given: round(number(given)),
    )


@check(wants="a number of MiB")
def best_cap(answer: Any, plan: Plan, length_ms: Callable[[float], float]) -> Verdict:
    """Judge the cap with the shortest backward.

    Args:
        answer: a bucket_cap_mb.
        plan: the layers, all of one size.
        length_ms: tells how long backward takes with a cap.
    """
    cap = number(answer)
    if not 0 < cap < float("inf"):
        return failed("a cap is a number of MiB above 0")
    each = sum(one.nbytes for one in plan.layers[0].parameters) / MIB
    lengths = {each * count: length_ms(each * count) for count in range(1, len(plan.layers) + 1)}
    best = min(lengths, key=lambda some: lengths[some])
    mine = length_ms(cap)
    if mine <= 1.01 * lengths[best]:
        return PASSED
    slower = f"{mine:.0f} ms, and {lengths[best]:.0f} is possible"
    if cap <= each:
        return failed(f"{slower}: smaller buckets are not always better, each call pays the latency")
    if cap > each * (len(plan.layers) - 1):
        return failed(f"{slower}: that is one bucket for everything, and it has nothing to hide behind")
    if cap < best:
        return failed(f"{slower}: too many calls; larger buckets pay the latency less often")
    return failed(f"{slower}: the last bucket to leave is large, or the first leaves late; smaller ones start sooner")


@check(wants="a function of parameters and a cap that returns a list of lists of names")
def fill(answer: Callable[..., Any]) -> Verdict:
    """Judge a repaired bucket-filling function; `predict_buckets` knows what is right."""
    if not callable(answer):
        raise WrongKind("got no function")
    return functions.judge_fill(answer)


@check(wants="a function of compute, communication and total time that returns a number")
def coefficient(answer: Callable[..., Any]) -> Verdict:
    """Judge an overlap coefficient: 0 where nothing is hidden, 1 where all is that can be."""
    if not callable(answer):
        raise WrongKind("got no function")
    return functions.judge_coefficient(answer)


@check(wants="a dict with two numbers for each kind, before and after zero_grad")
def memory(answer: Any, measured: Mapping[str, Sequence[float]]) -> Verdict:
    """Judge the memory of gradients and buckets together, in multiples of the gradients, around zero_grad."""
    rows: dict[str, Row] = {name: (tuple(measured[name]), *MEMORY[name]) for name in MEMORY}
    return judge_rows(answer, rows, lambda given: tuple(number(item) for item in items(given, 2)))


def _buckets(trace: Trace, iteration: int) -> list[Span]:
    """Return rank 0's buckets of an iteration in the order of their index."""
    return sorted(trace.only(Kind.BUCKET, rank=0, iteration=iteration), key=lambda span: span.bucket or 0)
