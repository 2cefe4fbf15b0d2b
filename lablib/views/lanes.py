"""Where the spans of a trace stand: geometry only, nothing is drawn here.

rank 0  phases         [forward][backward            ]
        compute        [layer0][layer1][layer1][layer0]     a group for each kind of span, and each stream
        communication              [bucket 0   ]
                                       [bucket 1    ]       what overlaps in a group goes on lanes below
rank 1  …

x is in milliseconds since the first span; y is in pixels and grows downwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lablib.trace import Kind, Span

TRACKS: dict[Kind, str] = {
    Kind.REGION: "regions",
    Kind.FORWARD: "phases",
    Kind.BACKWARD: "phases",
    Kind.OPTIMIZER: "phases",
    Kind.COMPUTE: "compute",
    Kind.GRADIENT: "gradients",
    Kind.BUCKET: "buckets",
    Kind.COLLECTIVE: "communication",
}

_ORDER = list(dict.fromkeys(TRACKS.values()))
_MOST_LANES = 8  # of what overlaps in a group; more are drawn on each other
_ROOM_PX = 1000.0  # what all lanes share; beyond it they get the least that can be seen
_LANE_PX = (5.0, 28.0)
_FLAT_PX = (2.0, 24.0)
_RANK_GAP_PX = 10.0
_RANKS_GAPS_PX = 200.0  # of all ranks together
_LABEL_PX = 19.0


@dataclass(frozen=True)
class Group:
    """Place the spans of one kind on one rank and stream."""

    rank: int
    track: str
    stream: str
    top: float
    height: float


@dataclass(frozen=True, eq=False)
class Lanes:
    """Hold the picture: an entry for each span in `start`, `end`, `group` and `y`, the middle of its lane."""

    spans: tuple[Span, ...]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    group: NDArray[np.int64]
    y: NDArray[np.float64]
    groups: tuple[Group, ...]
    pitch: float
    height: float

    def ticks(self) -> tuple[list[float], list[str]]:
        """Return what stands at the left: every group's name, or only ranks, or some of them, as there is room."""
        names = [(group, group.track + (f", {group.stream}" if group.stream else "")) for group in self.groups]
        if all(group.height >= _LABEL_PX for group in self.groups):
            firsts = {group.rank: group for group in reversed(self.groups)}
            return (
                [group.top + group.height / 2 for group in self.groups],
                [f"<b>rank {one.rank}</b>  {name}" if firsts[one.rank] is one else name for one, name in names],
            )
        middles = self._rank_middles()
        apart = min(np.diff(list(middles.values())), default=_LABEL_PX)
        some = list(middles.items())[:: max(1, int(np.ceil(_LABEL_PX / apart)))]
        return [middle for _, middle in some], [f"<b>rank {rank}</b>" for rank, _ in some]

    def _rank_middles(self) -> dict[int, float]:
        edges: dict[int, list[float]] = defaultdict(list)
        for group in self.groups:
            edges[group.rank] += [group.top, group.top + group.height]
        return {rank: (min(some) + max(some)) / 2 for rank, some in edges.items()}


def lanes_of(spans: Sequence[Span], *, zero_ns: int, flat: bool) -> Lanes:
    """Lay out spans.

    Args:
        spans: in order of their start.
        zero_ns: the moment at which x is 0.
        flat: give each group one lane only, all of one height, and as much between ranks.
    """
    members: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    for number, span in enumerate(spans):
        stream = span.lane if span.kind in (Kind.COMPUTE, Kind.COLLECTIVE) else ""
        members[span.rank, _ORDER.index(TRACKS[span.kind]), stream].append(number)
    lane = np.zeros(len(spans), np.int64)
    counts = {}
    for key, numbers in sorted(members.items(), key=lambda one: (*one[0][:2], len(one[0][2]), one[0][2])):
        counts[key] = 1 if flat else _stack([spans[number] for number in numbers], lane, numbers)
    pitch, gap = _sizes(sum(counts.values()), len({rank for rank, _, _ in counts}), flat=flat)
    groups: list[Group] = []
    group, y, top = np.zeros(len(spans), np.int64), np.zeros(len(spans)), 0.0
    for (rank, track, stream), count in counts.items():
        if not groups or groups[-1].rank != rank:
            top += gap
        numbers = members[rank, track, stream]
        group[numbers] = len(groups)
        y[numbers] = top + pitch * (lane[numbers] + 0.5)
        groups.append(Group(rank, _ORDER[track], stream, top, pitch * count))
        top += pitch * count
    times = np.array([(span.start_ns - zero_ns, span.end_ns - zero_ns) for span in spans], np.float64).reshape(-1, 2)
    return Lanes(
        tuple(spans),
        times[:, 0] / 1e6,
        np.maximum(times[:, 0], times[:, 1]) / 1e6,
        group,
        y,
        tuple(groups),
        pitch,
        top + gap,
    )


def _sizes(lanes: int, ranks: int, *, flat: bool) -> tuple[float, float]:
    """Return the height of a lane, and what parts two ranks."""
    if flat:  # equal heights: plotly draws cells of one size many times as fast
        pitch = min(_FLAT_PX[1], max(_FLAT_PX[0], _ROOM_PX / max(1, lanes + ranks)))
        return pitch, pitch
    gap = min(_RANK_GAP_PX, max(2.0, _RANKS_GAPS_PX / max(1, ranks)))
    return min(_LANE_PX[1], max(_LANE_PX[0], (_ROOM_PX - gap * ranks) / max(1, lanes))), gap


def _stack(spans: Sequence[Span], lane: NDArray[np.int64], numbers: Sequence[int]) -> int:
    """Give each span the highest lane that is free, and return how many are used."""
    free_ns: list[int] = []
    for number, span in zip(numbers, spans, strict=True):
        place = next((place for place, free in enumerate(free_ns) if free <= span.start_ns), len(free_ns))
        if place == len(free_ns):
            if place == _MOST_LANES:
                place -= 1
            else:
                free_ns.append(0)
        free_ns[place] = max(free_ns[place], span.end_ns)
        lane[number] = place
    return len(free_ns)
