"""What the picture of tiles says in words: roles, outcome, signs, and the summary for those who do not see it."""

from __future__ import annotations

from lablib.sim import Agreement, Placement, Tile, Undefined
from lablib.views.tile_grid import Grid

_LEGEND_CHARS = 105


def role(placement: Placement, rank: int) -> str:
    """Return what a rank is in a call, such as ``is src`` or ``sends``; nothing where all are alike."""
    call = placement.call
    if rank not in call.group:
        return "outside"
    if call.op in ("send_recv", "isend_irecv"):
        return {call.source: "sends", call.target: "receives"}.get(rank, "")
    return f"is {call.kind.root}" if call.kind.root and rank == call.source else ""


def news(placement: Placement, step: int) -> tuple[str, str]:
    """Return the two lines that tell what a step brings."""
    if not step:
        return "before the first message", ""
    moves = placement.steps[step - 1].moves
    nbytes = sum(move.nbytes for move in moves)
    amount = f"{len(moves)} message{'s' * (len(moves) != 1)}, {nbytes:,} B" if moves else ""
    return placement.steps[step - 1].label, amount


def verdict(measured: Agreement | None) -> tuple[str, str, str]:
    """Return the style and the two lines that tell how the measurement came out."""
    if measured is None:
        return "small", "predicted", ""
    wrong, near, right = measured.count("different"), measured.count("rounding"), measured.count("equal")
    if wrong:
        return "wrong", "<b>MEASURED:</b>", f"<b>{wrong} of {wrong + near + right} tiles differ</b>"
    if near:
        return "near", "measured: as predicted, but", f"rounded otherwise in {near} of {near + right}"
    return "right", "measured:", f"{'all ' if right > 1 else ''}{right} tile{'s' * (right != 1)} as predicted"


def legend(grid: Grid, measured: Agreement | None) -> list[str]:
    """Return the lines that explain the signs in the picture."""
    parts = ["A tile has the colour of the rank its values come from"]
    if any(spot.combined for spot in grid.spots):
        parts.append("a ribbon names the ranks that were combined")
    if any(spot.arrived for spot in grid.spots):
        parts.append("thick edge: just arrived")
    parts += sorted({f"hatched: {spot.content.why}" for spot in grid.spots if isinstance(spot.content, Undefined)})
    if measured is not None:
        parts.append("bold: measured")
        if measured.count("different"):
            parts.append("struck out: predicted")
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) < _LEGEND_CHARS:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    return lines


def summary(placement: Placement, step: int, measured: Agreement | None) -> str:
    """Return the facts of the picture in one line."""
    call = placement.call
    name = f"{call.op} {call.reduce_op}" if call.kind.reduces else call.op
    facts = [f"{name} of {call.dtype} among ranks {list(call.group)}, step {step} of {len(placement.steps)}"]
    ends: dict[str, list[int]] = {}
    for holding in placement.after:
        ends.setdefault(_contents(holding.slots), []).append(holding.rank)
    facts += [
        f"{'all ranks' if len(ranks) == call.world_size else f'ranks {ranks}'} end with {text}"
        for text, ranks in ends.items()
    ]
    facts.append(f"bytes sent {list(placement.sent)}, received {list(placement.received)}")
    if measured is not None:
        wrong, near, right = measured.count("different"), measured.count("rounding"), measured.count("equal")
        facts.append(f"measured: {right} tiles equal, {near} equal but for rounding, {wrong} different")
    return "; ".join(facts)


def _contents(slots: tuple[Tile | Undefined | None, ...]) -> str:
    values = [value for slot in slots if isinstance(slot, Tile) for value in slot.values]
    if any(isinstance(slot, Undefined) for slot in slots):
        return "what nobody may read"
    shown = ", ".join(f"{value:.6g}" for value in values[:16])
    return f"[{shown}{', …' if len(values) > 16 else ''}]"
