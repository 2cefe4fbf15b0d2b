"""What was in memory: at the peak, and at the end of each part of a step."""

from __future__ import annotations

from lablib.errors import UsageError
from lablib.trace import Category, MemorySample, Trace


def peak(trace: Trace, *, rank: int, iteration: int | None = None) -> MemorySample:
    """Return the first sample with the most bytes on a rank.

    Args:
        trace: with samples of memory.
        rank: the global rank.
        iteration: look at this one only; None looks at all of the run.

    Raises:
        UsageError: there is no such sample.
    """
    return max(_samples(trace, rank=rank, iteration=iteration), key=lambda sample: sample.total)


def at_end(trace: Trace, *, rank: int, phase: str | None = None, iteration: int | None = None) -> dict[Category, int]:
    """Return the bytes of each category in the last sample of a part of a step.

    Args:
        trace: with samples of memory.
        rank: the global rank.
        phase: ``forward``, ``backward`` or ``optimizer``; None takes the last sample of all.
        iteration: the last one where left out.

    Raises:
        UsageError: there is no such sample.
    """
    if iteration is None:
        iteration = max((one.iteration for one in trace.memory if one.iteration is not None), default=None)
    last = _samples(trace, rank=rank, phase=phase, iteration=iteration)[-1]
    return dict(zip(Category, last.nbytes, strict=True))


def highest(trace: Trace, category: Category | str, *, rank: int, iteration: int | None = None) -> int:
    """Return the most bytes that a category had on a rank, such as the activations at the end of forward.

    Raises:
        UsageError: there is no such sample.
    """
    return max(sample[category] for sample in _samples(trace, rank=rank, iteration=iteration))


def _samples(trace: Trace, *, rank: int, phase: str | None = None, iteration: int | None = None) -> list[MemorySample]:
    found = [
        sample
        for sample in trace.memory
        if sample.rank == rank
        and (phase is None or sample.phase == phase)
        and (iteration is None or sample.iteration == iteration)
    ]
    if not found:
        asked = {"rank": rank, "phase": phase, "iteration": iteration}
        named = ", ".join(f"{name}={value!r}" for name, value in asked.items() if value is not None)
        hint = "" if trace.memory else "; record it with run(…, memory=True)"
        raise UsageError(f"the trace has no memory of {named}{hint}")
    return found
