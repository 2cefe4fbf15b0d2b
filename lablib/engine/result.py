"""What one call on the ranks gives back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lablib.trace.spans import Trace


@dataclass(frozen=True)
class Run:
    """Hold everything that one call on N ranks brought back.

    Args:
        values: what the function returned, one value a rank; a rank that brought none has a false `NoValue`.
        output: what each rank printed, one text a rank, native code included.
        backend: ``gloo`` or ``nccl``; None where no group was made.
        device: ``cpu`` or ``cuda``.
        reason: why this backend and device, in words.
        seconds: wall-clock time of the whole call.
        pids: process id of each rank.
        trace: what was recorded on the ranks, with ``record=True``; None without.
    """

    values: list[Any]
    output: list[str]
    backend: str | None
    device: str
    reason: str
    seconds: float
    pids: list[int] = field(repr=False)
    trace: Trace | None = field(default=None, repr=False)

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return len(self.values)

    def __getitem__(self, rank: int) -> Any:
        return self.values[rank]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __repr__(self) -> str:
        made = self.backend or "no group"
        return f"Run({self.world_size} ranks, {made} on {self.device}, {self.seconds:.2f} s)"
