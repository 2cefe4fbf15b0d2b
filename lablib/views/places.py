"""How the tiles of the picture of hosts are laid out: geometry only, nothing is drawn here.

The unit is one tile; x grows to the right and y downwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest

TILES_A_LINE = 8
HEAD = 0.42  # height of a host's first line, its name
GAP = 0.16


@dataclass(frozen=True)
class RankPlace:
    """Say where one rank lives.

    Args:
        rank, local_rank: its numbers in the job and on its host.
        host: the name of its host.
        pid: its process id; None where there is no process.
        device: what it computes on, such as ``cpu`` or ``cuda:1``.
        env: the variables to show when the reader points at it.
        groups: the groups it is in, by name.
        launcher: who started the processes of this host, in words.
    """

    rank: int
    local_rank: int
    host: str
    pid: int | None = None
    device: str = "cpu"
    env: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    launcher: str = ""


@dataclass(frozen=True)
class Tile:
    """Place one rank in the picture."""

    place: RankPlace
    x: float  # left edge
    y: float  # upper edge; y grows downwards


@dataclass(frozen=True)
class Row:
    """Place one host in the picture."""

    host: str
    launcher: str
    tiles: tuple[Tile, ...]
    y: float
    height: float


def rows_of(by_rank: list[RankPlace], *, across: int = TILES_A_LINE) -> Iterator[Row]:
    """Yield a row for each host, in the order of their lowest rank, with so many tiles across."""
    top = 0.0
    for host in dict.fromkeys(place.host for place in by_rank):
        mine = sorted((place for place in by_rank if place.host == host), key=lambda place: place.local_rank)
        lines = -(-len(mine) // across)
        first = top + HEAD + GAP
        tiles = tuple(Tile(place, float(i % across), first + i // across * (1 + GAP)) for i, place in enumerate(mine))
        height = HEAD + GAP + lines * (1 + GAP)
        launchers = " and ".join(dict.fromkeys(place.launcher for place in mine if place.launcher))
        yield Row(host, launchers, tiles, top, height)
        top += height + GAP


def members_of(by_rank: list[RankPlace]) -> dict[str, list[int]]:
    """Return each group's ranks: the groups that ranks name first come first, all rows before all columns."""
    levels = zip_longest(*(place.groups for place in by_rank))
    names = dict.fromkeys(name for level in levels for name in level if name)
    return {name: [place.rank for place in by_rank if name in place.groups] for name in names}


def depths_of(members: Mapping[str, list[int]]) -> dict[str, int]:
    """Give groups that share a rank different depths, so that their outlines do not lie on each other."""
    depths: dict[str, int] = {}
    for name, ranks in members.items():
        taken = {depth for other, depth in depths.items() if set(ranks) & set(members[other])}
        depths[name] = next(depth for depth in range(len(members)) if depth not in taken)
    return depths


def box_of(tiles: list[Tile]) -> tuple[float, float, float, float]:
    """Return left, right, upper and lower edge of the box around some tiles."""
    return (
        min(tile.x for tile in tiles),
        max(tile.x for tile in tiles) + 1,
        min(tile.y for tile in tiles),
        max(tile.y for tile in tiles) + 1,
    )


def only(inside: list[Tile], tiles: list[Tile]) -> bool:
    """Tell whether the box around some of the tiles holds no other tile."""
    left, right, upper, lower = box_of(inside)
    return len(inside) == sum(left <= tile.x < right and upper <= tile.y < lower for tile in tiles)
