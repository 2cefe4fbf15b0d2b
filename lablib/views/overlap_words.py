"""What the picture of overlap says in words."""

from __future__ import annotations

from collections.abc import Sequence

from lablib.analysis import Overlap


def number(row: Overlap) -> str:
    """Return what stands behind a row: its coefficient and what it comes from."""
    if row.coefficient is None:
        return "nothing to hide" if not row.communication_ns else "nothing to hide it behind"
    shorter = min(row.compute_ns, row.communication_ns)
    return f"<b>{row.coefficient:.2f}</b>  {row.hidden_ns / 1e6:.1f} of {shorter / 1e6:.1f} ms"


def hover(row: Overlap) -> str:
    """Return everything about a row."""
    which = "" if row.iteration is None else f", iteration {row.iteration}"
    parts = ("compute", "communication", "hidden", "exposed")
    return "<br>".join(
        [
            f"<b>rank {row.rank}</b>{which}",
            *(f"{part} {getattr(row, f'{part}_ns') / 1e6:.2f} ms" for part in parts),
            f"both in {row.busy_ns / 1e6:.2f} ms; at best {row.best_ns / 1e6:.2f}, at worst {row.worst_ns / 1e6:.2f}",
        ]
    )


def summary(rows: Sequence[Overlap], predicted: Sequence[Overlap]) -> str:
    """Return the facts shown, in one line."""
    parts = []
    for iteration in dict.fromkeys(row.iteration for row in rows):
        found = [row.coefficient for row in rows if row.iteration == iteration and row.coefficient is not None]
        hoped = [row.coefficient for row in predicted if row.iteration == iteration and row.coefficient is not None]
        which = "whole trace" if iteration is None else f"iteration {iteration}"
        parts.append(f"{which}: coefficient {_range(found)}" + (f", predicted {_range(hoped)}" if hoped else ""))
    ranks = len({row.rank for row in rows})
    return f"{ranks} rank{'s' if ranks != 1 else ''}; {'; '.join(parts)}"


def _range(values: Sequence[float]) -> str:
    if not values:
        return "none"
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"
