"""What was in a rank's memory at a moment, by category."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass


class Category(str, enum.Enum):
    """What memory is used for."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer state"
    ACTIVATIONS = "activations"
    """What forward keeps until backward needs it, and the inputs."""
    TEMPORARY = "temporary"
    """What is made and dropped within a backward or an optimizer's step, such as gradients of activations."""
    BUFFERS = "buffers"
    """A module's, such as the running mean of a BatchNorm."""
    COMMUNICATION = "communication"
    """What is handed to a collective and is nothing of the above, such as DDP's buckets."""
    OTHER = "other"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class MemorySample:
    """What was in a rank's memory from a moment on, until the next sample.

    Args:
        rank: the global rank.
        time_ns: on the clock of the trace's spans.
        nbytes: bytes of each category, in the order of `Category`.
        phase: ``forward``, ``backward`` or ``optimizer``; empty outside.
        module: name of the innermost module in whose forward or backward it was; empty outside.
        iteration: as in a span.
        allocated: bytes that the CUDA allocator has given out; None on a CPU.
        reserved: bytes that the CUDA allocator has taken from the device; None on a CPU.
    """

    rank: int
    time_ns: int
    nbytes: tuple[int, ...]
    phase: str = ""
    module: str = ""
    iteration: int | None = None
    allocated: int | None = None
    reserved: int | None = None

    @classmethod
    def of(cls, rank: int, time_ns: int, nbytes: Mapping[Category, int], **facts: object) -> MemorySample:
        """Return a sample; a category that is not named holds nothing."""
        return cls(rank, time_ns, tuple(nbytes.get(one, 0) for one in Category), **facts)  # type: ignore[arg-type]

    def __getitem__(self, category: Category | str) -> int:
        """Return the bytes of one category."""
        return self.nbytes[list(Category).index(Category(category))]

    @property
    def total(self) -> int:
        """Return the bytes of all categories."""
        return sum(self.nbytes)
