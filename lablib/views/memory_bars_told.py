"""One row of the picture of what stays in memory, and what is said of it in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lablib.trace import Category
from lablib.views.memory_words import against, amount, differences, listed, ranks

_FEW = 4  # rows whose categories are all listed in the summary


@dataclass(frozen=True)
class MemoryBars:
    """Hold what each rank has in memory after a step under one way to share the work.

    Args:
        label: what it is called, such as ``ZeRO 1 by hand``.
        states: predicted bytes by category, by rank, as `sim.memory.states` gives them.
        measured: the same as measured, by rank; empty where nothing was.
        payload: bytes that a rank sends in a step by operation, as `sim.memory.payload` gives them.
        peaks: the most bytes that each rank has during the step; empty where nobody knows.
    """

    label: str
    states: Sequence[Mapping[Category, int]]
    measured: Sequence[Mapping[Category, int]] = ()
    payload: Mapping[str, int] = field(default_factory=dict)
    peaks: Sequence[int] = ()

    @property
    def drawn(self) -> Sequence[Mapping[Category, int]]:
        """Return what the bars show: measured where it is known."""
        return self.measured or self.states

    @property
    def totals(self) -> list[int]:
        """Return all bytes of each rank."""
        return [sum(nbytes.values()) for nbytes in self.drawn]


def label(row: MemoryBars) -> str:
    """Return what stands behind a row's bars: what the fullest rank holds, its peak, and whether that was predicted."""
    words = f"<b>{amount(max(row.totals))}</b>"
    if row.peaks:
        words += f", peak {amount(max(row.peaks))}"
    if row.measured:
        words += ", as predicted" if exact(row) else ", not as predicted"
    return words


def exact(row: MemoryBars) -> bool:
    """Return whether what was measured is what was predicted, to the byte."""
    pairs = zip(row.measured, row.states, strict=True)
    return all(one.get(each, 0) == other.get(each, 0) for one, other in pairs for each in Category)


def sent(row: MemoryBars) -> str:
    """Return what a rank sends in a step."""
    return amount(sum(row.payload.values())) if row.payload else ""


def hover(row: MemoryBars, rank: int, category: Category) -> str:
    """Return everything about one category of one bar."""
    held = row.drawn[rank]
    size, total = held[category], sum(held.values())
    lines = [
        f"<b>{category}: {amount(size)}</b> ({size:,} B), {100 * size / total:.0f} % of {amount(total)}",
        f"{row.label}, rank {rank}, after a step, {'measured' if row.measured else 'predicted'}",
    ]
    if row.measured:
        lines.append(f"beside the prediction: {differences(held, row.states[rank])}")
    if row.peaks:
        lines.append(f"peak during the step: {amount(row.peaks[rank])}")
    lines += [f"sends in a step by {name}: {amount(nbytes)}" for name, nbytes in row.payload.items()]
    return "<br>".join(lines)


def summary(rows: Sequence[MemoryBars], *, chosen: str | None, limit: int | None) -> str:
    """Return what the fullest rank holds in each row, what it sends, and how that stands to limit and prediction.

    Of many rows, those that were not chosen are told in short, after the one that was.
    """
    long = [row for row in rows if len(rows) <= _FEW or row.label == chosen]
    parts = [*map(_told, long), *(f"{row.label} {_sizes(row)}" for row in rows if row not in long)]
    if limit is not None:
        most = {row.label: max(*row.totals, *row.peaks, 0) for row in rows}
        over = [name for name, nbytes in most.items() if nbytes > limit]
        if len(rows) == 1:
            parts.append(against(next(iter(most.values())), limit))
        else:
            parts.append(f"over the limit of {amount(limit)}: {' / '.join(over) or 'none'}")
    return "; ".join(parts)


def _sizes(row: MemoryBars) -> str:
    """Return what stays and the peak: ``5.02 MiB (peak 5.61 MiB)``."""
    return amount(max(row.totals)) + (f" (peak {amount(max(row.peaks))})" if row.peaks else "")


def _told(row: MemoryBars) -> str:
    fullest = max(range(len(row.drawn)), key=row.totals.__getitem__)
    words = f"{row.label}: {_sizes(row)}: {listed(row.drawn[fullest])}"
    if row.payload:
        words += f"; sends {sent(row)} a step"
    if row.measured:
        words += f"; measured, {_apart(row)}"
    return words


def _apart(row: MemoryBars) -> str:
    """Return where measured and predicted differ, rank by rank where ranks do."""
    found: dict[str, list[int]] = {}
    for rank, (one, other) in enumerate(zip(row.measured, row.states, strict=True)):
        found.setdefault(differences(one, other), []).append(rank)
    if len(found) == 1:
        return f"{next(iter(found))} beside the prediction" if not exact(row) else "as predicted to the byte"
    return ", ".join(f"{ranks(some)}: {words}" for words, some in found.items())
