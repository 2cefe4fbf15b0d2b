"""What lab 05's checks run on the ranks: a learner's function, with what it asked for noted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# samples, and those of them that the model gets wrong
CASES: tuple[tuple[int, tuple[int, ...]], ...] = ((10, (0, 1)), (3, (2,)), (8, (5,)), (13, (0, 3, 12)))
SAMPLES = 6


@dataclass(frozen=True)
class Evaluated:
    """Hold what one rank found, and which samples it evaluated for it."""

    result: float
    asked: tuple[int, ...]


@dataclass(frozen=True)
class Data:
    """Hold the data set that a rank made, what a second call made, and what is wrong with it."""

    rows: tuple[tuple[float, ...], ...] = ()
    rows_again: tuple[tuple[float, ...], ...] = ()
    trouble: str = ""


def try_exact(exact_accuracy: Callable[[Callable[[Any], Any], int], Any]) -> list[Evaluated]:
    """Be one rank that evaluates its part of the samples, for each case."""
    import torch

    found = []
    for samples, wrong in CASES:
        asked: list[int] = []

        def is_right(indices: Any, samples: int = samples, wrong: Any = wrong, asked: list[int] = asked) -> Any:
            given = [int(index) for index in indices]
            if outside := [index for index in given if not 0 <= index < samples]:
                raise IndexError(f"there is no sample {outside[0]} among {samples}")
            asked += given
            return torch.tensor([index not in wrong for index in given], dtype=torch.bool)

        found.append(Evaluated(float(exact_accuracy(is_right, samples)), tuple(asked)))
    return found


def try_data(make_data: Callable[[int], Any]) -> Data:
    """Be one rank that makes its data set, twice."""
    made = [make_data(SAMPLES) for _ in range(2)]
    for data in made:
        if not hasattr(data, "__len__"):
            return Data(trouble=f"made no data set: it has a {type(data).__name__}")
        if len(data) != SAMPLES:
            return Data(trouble=f"made {len(data)} samples, and {SAMPLES} were asked for")
    first, second = (tuple(_numbers(sample) for sample in data) for data in made)
    return Data(first, second)


def _numbers(sample: Any) -> tuple[float, ...]:
    import torch

    return tuple(torch.as_tensor(sample, dtype=torch.float64).flatten().tolist())
