"""Where the tiles of a collective stand: geometry and words only, nothing is drawn here.

rank 0  [ before ]   [ during ] )   [ after ]   sent  received
rank 1  [ before ]   [ during ] ) ← [ after ]   arcs between rows: who sends to whom

The unit is one pixel of a figure 1,072 pixels wide: a notebook shows it in 850 to 1,250; x grows to the right and y
downwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from lablib.sim import Agreement, Holding, Measured, Move, Placement, Tile, Undefined

WIDTH = 1040.0
HEAD = 78.0  # height of the panels' titles
FOOT = 46.0  # height of the lines that explain the signs

_LABELS = 82.0
_BYTES = 124.0
_ARCS = 56.0
_GAP = 12.0
_WIDEST_TILE = 150.0
_BETWEEN = 3.0
_CHAR = 8.2  # width of a digit at the size of the text
_LINE = 18.0  # height of a line of text
_RIBBON = 10.0
_ROOM = WIDTH - _LABELS - _BYTES - _ARCS - 2 * _GAP  # what is left for tiles
_UNREAD = "do not read"

Panel = Literal["before", "during", "after"]
_NARROWEST: dict[Panel, float] = {"before": 100.0, "during": 230.0, "after": 240.0}  # what their titles need


@dataclass(frozen=True)
class Spot:
    """Place one slot of one rank.

    Args:
        panel, rank, slot: which slot it is.
        x, y, width, height: its box; x and y are the left upper corner.
        content: what the slot holds.
        measured: what it really holds, once that is known.
        arrived: whether the step shown brought it.
        outside: whether its rank takes no part.
    """

    panel: Panel
    rank: int
    slot: int
    x: float
    y: float
    width: float
    height: float
    content: Tile | Undefined | None
    measured: Measured | None = None
    arrived: bool = False
    outside: bool = False

    @property
    def combined(self) -> bool:
        """Return whether more than one rank contributed."""
        return isinstance(self.content, Tile) and len(self.content.ranks) > 1 and bool(self.content.values)

    @property
    def ribbon(self) -> float:
        """Return the height of the ribbon that names the contributors; 0 where there is one only."""
        return _RIBBON if self.combined else 0.0

    @cached_property
    def text(self) -> str:
        """Return what fits into the tile, lines parted by ``<br>``."""
        return "<br>".join(self._lines())

    def _lines(self) -> list[str]:
        columns = int(0.93 * self.width / _CHAR)
        lines = int((self.height - self.ribbon) / _LINE)
        if self.measured is None:
            if self.content is None:
                return []
            if isinstance(self.content, Undefined):
                return [_UNREAD if len(_UNREAD) <= columns else "?"]
            return wrapped(self.content.values, columns, lines)
        if self.measured.verdict == "different" and isinstance(self.content, Tile):
            found, wanted = (wrapped(tuple(values), columns, 1) or ["none"] for values in self._unequal())
            return [f"<b>{found[0]}</b>", f"<s>{wanted[0]}</s>"]
        return [f"<b>{line}</b>" for line in wrapped(self.measured.values, columns, lines)]

    def _unequal(self) -> tuple[list[int | float], list[int | float]]:
        """Return the values measured and predicted, without those that agree."""
        assert self.measured is not None and isinstance(self.content, Tile), "only what was predicted can differ"
        found, wanted = self.measured.values, self.content.values
        if len(found) != len(wanted):
            return [*found], [*wanted]
        pairs = [(one, other) for one, other in zip(found, wanted, strict=True) if one != other]
        return [one for one, _ in pairs], [other for _, other in pairs]

    @property
    def hover(self) -> str:
        """Return everything about the slot, in words."""
        about = [f"<b>rank {self.rank}</b>, {self.panel}"]
        if isinstance(self.content, Tile):
            who = ", ".join(map(str, sorted(self.content.ranks)))
            about.append(f"piece {self.content.piece}, from rank{'s' if self.combined else ''} {who}")
            about.append(f"values {_listed(self.content.values)} ({self.content.dtype})")
            if not self.content.values:
                about[-1] = "no elements are left for this piece"
        else:
            about.append(self.content.why if isinstance(self.content, Undefined) else "nothing here yet")
        if self.measured is not None:
            about.append(f"measured {_listed(self.measured.values)}: {self.measured.verdict}")
        return "<br>".join(about)


@dataclass(frozen=True)
class Arc:
    """Draw one message: out of the right edge of the panel and back into it."""

    move: Move
    x: float
    bulge: float
    y_from: float
    y_to: float


@dataclass(frozen=True)
class Grid:
    """Hold the whole picture; `columns` are the left edges of what stands beside the tiles."""

    spots: tuple[Spot, ...]
    arcs: tuple[Arc, ...]
    left: dict[Panel, float]
    sent_x: float
    received_x: float
    rows: tuple[float, ...]  # upper edges
    tile_height: float
    height: float


def grid_of(placement: Placement, *, step: int, measured: Agreement | None) -> Grid:
    """Lay out a placement at one of its steps."""
    n = placement.call.world_size
    tile_height = 56.0 if n <= 4 else 48.0
    pitch = tile_height + 8
    rows = tuple(HEAD + rank * pitch for rank in range(n))
    panels: dict[Panel, tuple[Holding, ...]] = {
        "before": placement.before,
        "during": placement.holdings(step),
        "after": placement.after,
    }
    columns = {name: _columns(placement, name) for name in panels}
    tile = _tile_width(columns)
    wide = {name: max(count * tile, _NARROWEST[name]) for name, count in columns.items()}
    spare = max(0.0, _ROOM - sum(wide.values())) / 3
    left: dict[Panel, float] = {"before": _LABELS}
    left["during"] = left["before"] + wide["before"] + _GAP + spare
    left["after"] = left["during"] + wide["during"] + _ARCS + _GAP + spare
    edge = left["during"] + tile * columns["during"]
    moves = placement.steps[step - 1].moves if step else ()
    landed = {(move.target, move.slot) for move in moves if move.nbytes}
    spots = [
        Spot(
            panel,
            holding.rank,
            slot,
            x=left[panel] + slot * tile,
            y=rows[holding.rank],
            width=tile - _BETWEEN,
            height=tile_height,
            content=content,
            measured=measured.ranks[holding.rank][slot] if measured and panel == "after" else None,
            arrived=panel == "during" and (holding.rank, slot) in landed,
            outside=holding.rank not in placement.call.group,
        )
        for panel, holdings in panels.items()
        for holding in holdings
        for slot, content in enumerate(holding.slots)
    ]
    return Grid(
        tuple(spots),
        tuple(_arc(move, edge, rows, tile_height) for move in moves),
        left,
        sent_x=WIDTH - 62,
        received_x=WIDTH - 4,
        rows=rows,
        tile_height=tile_height,
        height=HEAD + n * pitch + FOOT,
    )


def _tile_width(columns: dict[Panel, int]) -> float:
    """Return the width at which all panels fit, also those that their title keeps wide."""
    room, crowd = _ROOM, dict(columns)
    while crowd:
        tile = min(_WIDEST_TILE, room / sum(crowd.values()))
        narrow = [name for name, count in crowd.items() if count * tile < _NARROWEST[name]]
        if not narrow:
            return tile
        room -= sum(_NARROWEST[name] for name in narrow)
        for name in narrow:
            del crowd[name]
    return min(_WIDEST_TILE, *(_NARROWEST[name] / count for name, count in columns.items()))


def _columns(placement: Placement, panel: Panel) -> int:
    """Return how many slots wide a panel is, at every step the same."""
    stages = {
        "before": [placement.before],
        "during": [placement.start, *(step.holdings for step in placement.steps)],
        "after": [placement.after],
    }
    return max(1, *(len(holding.slots) for holdings in stages[panel] for holding in holdings))


def _arc(move: Move, edge: float, rows: tuple[float, ...], tile_height: float) -> Arc:
    far = abs(move.source - move.target) / max(1, len(rows) - 1)
    middle = tile_height / 2
    down = 1 if move.target > move.source else -1
    # a rank may send down and be sent to from below: what leaves and what arrives keep to lanes of their own
    y_from = rows[move.source] + middle + down * 0.1 * tile_height
    y_to = rows[move.target] + middle - down * 0.3 * tile_height
    return Arc(move, edge + 2, 22 + (_ARCS - 16) * far, y_from, y_to)


def wrapped(values: tuple[int | float, ...], columns: int, lines: int) -> list[str]:
    """Return numbers on so many lines of so many characters; ``…`` where some are left out."""
    rows: list[str] = []
    for value in values:
        word = short(value, columns)
        if rows and _columns_of(f"{rows[-1]} {word}") <= columns:
            rows[-1] += f" {word}"
        else:
            rows.append(word)
    if len(rows) <= max(1, lines):
        return rows
    *kept, last = rows[: max(1, lines)]
    while last and _columns_of(f"{last}…") > columns:
        last = last.rpartition(" ")[0]
    return [*kept, last if last.endswith("…") else f"{last}…"]


def _columns_of(text: str) -> int:
    return len(text) + text.count("…")  # … is as wide as two digits


def short(value: float, columns: int = 6) -> str:
    """Return a number in so many characters: rounded where it must be, ``…`` where even that is too long."""
    exact = str(int(value)) if abs(value) < 1e15 and value == int(value) else f"{value:.4g}"
    tries = [exact, *(f"{value:{how}}" for how in (".3g", ".2g", ".1e", ".0e"))]
    brief = (text.replace("e+0", "e").replace("e+", "e").replace("e-0", "e-") for text in tries)
    return next((text for text in brief if len(text) <= columns), "…")


def _listed(values: tuple[int | float, ...]) -> str:
    shown = ", ".join(f"{value:.6g}" for value in values[:12])
    return f"[{shown}, … {len(values)} in all]" if len(values) > 12 else f"[{shown}]"
