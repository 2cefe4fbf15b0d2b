"""Judge the exercises of lab 13, memory anatomy. What was measured is given, and is what is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lablib.checks.answers import WrongKind, number, text, whole_number
from lablib.checks.lab13_rows import EACH, FREED, PHASES, RECIPE, SHRINKS
from lablib.checks.tables import judge_rows, judge_truths
from lablib.checks.verdict import PASSED, Verdict, check, compare, failed

_AS_GOOD = 1.01
_WIDTH, _LAYERS, _BYTES = 128, 8, 4  # of the lab's model, in float32


@check(wants="a dict with a number of bytes for each")
def each(answer: Any, measured: Mapping[str, float]) -> Verdict:
    """Judge the bytes a parameter that stay after a step.

    Args:
        answer: the guesses.
        measured: bytes of everything that stayed, by the number of parameters; rounded to whole ones.
    """
    return judge_rows(answer, {name: (round(measured[name]), *EACH[name]) for name in EACH}, number)


@check(wants="a dict with a number of bytes for each")
def recipe(answer: Any) -> Verdict:
    """Judge the bytes a parameter of bfloat16 training with a float32 master copy."""
    return judge_rows(answer, RECIPE, number)


@check(wants="a number of billions")
def billions(answer: Any) -> Verdict:
    """Judge how many billions of parameters of 16 bytes 80 GB hold."""
    return compare(
        number(answer),
        5.0,
        {
            40.0: "2 bytes a parameter are the parameters alone: gradients and the optimizer's 12 stay as well",
            20.0: "4 bytes a parameter are not all that stays: add up your recipe",
            6.7: "12 bytes are the optimizer's; parameters and gradients are there, too",
            5e9: "in billions",
        },
        "divide what the GPU has by the sum of your recipe",
    )


@check(wants='"forward", "backward" or "optimizer" for each batch')
def where(answer: Any, measured: Mapping[str, str]) -> Verdict:
    """Judge in which part of a step the peak is."""
    rows = {
        name: (right, PHASES[name], 'write "forward", "backward" or "optimizer"') for name, right in measured.items()
    }
    return judge_rows(answer, rows, lambda given: text(given).lower())


@check(wants="a number of bytes")
def heavy(answer: Any, measured: int) -> Verdict:
    """Judge the bytes behind a loss of 512 samples with 128 outputs; ``measured`` has them."""
    return compare(
        number(answer),
        float(measured),
        {
            4.0: "its number has 4; but it was made from as many squares as there are outputs, in the same memory",
            0.0: "it is a tensor: it has memory of its own",
            8.0: "a float32 has 4 bytes; and there is more behind it",
            measured / 4: "that is how many squares there are; each has 4 bytes",
            measured / 512: "that is one sample's squares",
        },
        "as many squares as there are outputs in the batch, 4 bytes each",
    )


@check(wants="a function of the batch that returns a number of bytes")
def kept(answer: Callable[..., Any], right: Callable[[int], int]) -> Verdict:
    """Judge the bytes of activations that eight layers keep.

    Args:
        answer: the learner's function.
        right: the closed form.
    """
    if not callable(answer):
        raise WrongKind("got no function")
    for batch in (1, 32, 512):
        given, wanted = number(answer(batch)), right(batch)
        row = batch * _WIDTH * _BYTES
        known: dict[float, str] = {
            row: "that is one layer's input",
            _LAYERS * batch * _WIDTH: "a float32 has 4 bytes",
            2 * _LAYERS * row: "a ReLU's output and the next layer's input are one tensor: count it once",
            (2 * _LAYERS - 1) * row: "a ReLU's output and the next layer's input are one tensor: count it once",
            (_LAYERS + 1) * row: "the last layer's output is no layer's input",
            (_LAYERS - 1) * row: "the first layer keeps its input, too: its weight's gradient needs it",
            _LAYERS * _WIDTH * _WIDTH * _BYTES: "those are the weights; they do not depend on the batch",
        }
        if given != wanted:
            return failed(f"batch of {batch}: got {given:g}; {known.get(given, 'count the inputs of all layers')}")
    return PASSED


@check(wants="a whole number: a batch")
def crossing(answer: Any, parameters: int) -> Verdict:
    """Judge the first batch whose activations are more than 16 bytes for each of so many parameters."""
    row = _LAYERS * _WIDTH * _BYTES
    right = 16 * parameters // row + 1
    return compare(
        whole_number(answer),
        right,
        {
            4 * parameters // row + 1: "that is more than the parameters; gradients and optimizer state stay as well",
            8 * parameters // row + 1: "that is parameters and gradients, or the optimizer state: all of it stays",
            12 * parameters // row + 1: "something of 4 bytes is missing: parameters 4, gradients 4, Adam 8",
            20 * parameters // row + 1: "there is no DDP here, so no buckets",
            right - 1: "at that batch they are not more yet",
        },
        "divide what stays by what one sample keeps, and take the next whole number",
    )


@check(wants="a whole number of segments")
def best(answer: Any, peaks: Mapping[int, int]) -> Verdict:
    """Judge which number of segments has the lowest peak; ``peaks`` has the measured bytes."""
    given = whole_number(answer)
    if given not in peaks:
        return failed(f"{given} was not tried: choose of {', '.join(map(str, peaks))}")
    lowest = min(peaks.values())
    if peaks[given] <= _AS_GOOD * lowest:
        return PASSED
    why = {
        0: "that is without checkpointing",
        1: "one segment keeps one input, but in backward all its activations are there at once",
        8: "a segment for each layer keeps every layer's input: nothing is saved",
    }
    more = f"{(peaks[given] - lowest) / 2**20:.2f} MiB above the lowest peak"
    return failed(f"{more}; {why.get(given, 'near the best: the kept inputs and the largest segment add up')}")


@check(wants="one of the batches")
def smallest(answer: Any, measured: Mapping[int, Sequence[int]]) -> Verdict:
    """Judge from which batch on autocast saves; ``measured`` has the bytes without and with it."""
    given = whole_number(answer)
    if given not in measured:
        return failed(f"{given} was not tried: choose of {', '.join(map(str, measured))}")
    saving = [batch for batch, (without, under) in measured.items() if under < without]
    if given == min(saving):
        return PASSED
    if given in saving:
        return failed("it saves there, but already at a smaller batch")
    return failed("there it costs more: besides the activations there are copies of the weights in bfloat16")


@check(wants="a dict with True or False for each")
def shrinks(answer: Any, measured: Mapping[str, bool]) -> Verdict:
    """Judge what accumulation makes smaller."""
    return judge_truths(answer, measured, SHRINKS)


@check(wants="a dict with a number of bytes for each")
def freed(answer: Any, measured: Mapping[str, float]) -> Verdict:
    """Judge the bytes a parameter that zero_grad frees."""
    return judge_rows(answer, {name: (round(measured[name]), *FREED[name]) for name in FREED}, number)


@check(wants="a function of the bytes that are there, which returns a batch")
def fits(answer: Callable[..., Any], peak: Callable[[int], int], budget: int) -> Verdict:
    """Judge a batch by running it: it must fit, and one that is a tenth larger must not.

    Args:
        answer: the learner's function of the budget.
        peak: trains with a batch and returns the measured peak in bytes.
        budget: bytes.
    """
    if not callable(answer):
        raise WrongKind("got no function")
    batch = whole_number(answer(budget))
    if batch < 1:
        return failed(f"got a batch of {batch}: look at the order of your terms")
    if batch > 100_000:
        return failed(f"got a batch of {batch:,}: each sample keeps 8 × 128 × 4 bytes, and the budget is in bytes")
    top = peak(batch)
    if top > budget:
        over = f"out of memory: a batch of {batch} needs {top / 2**20:.1f} MiB of {budget / 2**20:.0f}"
        return failed(f"{over}; {_forgotten(top - budget, batch)}")
    larger = batch + max(1, batch // 10)
    if peak(larger) <= budget:
        spare = f"a batch of {batch} fits with {(budget - top) / 2**20:.1f} MiB to spare: {larger} fits as well"
        return failed(f"{spare}; where backward begins, the gradients are not there yet")
    return PASSED


def _forgotten(over: int, batch: int) -> str:
    """Say what was probably left out, by how much it is too much."""
    if over < 4 * batch * _WIDTH * _BYTES:
        return "something of a few tensors of one layer is missing: what backward makes while it runs"
    return "what stays, or what all layers keep, is not all counted"
