"""Turn samples into medians, ratios and verdicts."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

OURS = "lablib"
SPAWN = "torch.multiprocessing.spawn"
ACCELERATE = "accelerate"
IPYPARALLEL = "ipyparallel"
TORCH = "torch"


@dataclass(frozen=True)
class Key:
    """Name what was measured: `measure` by `contender`, with `ranks` ranks (0: not about ranks)."""

    measure: str
    contender: str
    ranks: int


@dataclass(frozen=True)
class Series:
    """Hold every sample of one measured quantity, in `unit` ("s" or "MiB")."""

    measure: str
    contender: str
    ranks: int
    unit: str
    samples: tuple[float, ...]

    @property
    def key(self) -> Key:
        return Key(self.measure, self.contender, self.ranks)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)


def pool(series: Iterable[Series]) -> list[Series]:
    """Join the series of the same quantity from several rounds, in order of first appearance."""
    pooled: dict[Key, Series] = {}
    for one in series:
        if not one.samples:
            raise ValueError(f"{one.contender}: no sample of {one.measure} with {one.ranks} ranks")
        before = pooled.get(one.key)
        if before is not None and before.unit != one.unit:
            raise ValueError(f"{one.contender}: {one.measure} in {before.unit} and in {one.unit}")
        samples = (before.samples if before else ()) + tuple(one.samples)
        pooled[one.key] = replace(one, samples=samples)
    return list(pooled.values())


@dataclass(frozen=True)
class Target:
    """Promise a ratio of two medians.

    `faster`: theirs / ours must be at least `limit`. `fraction`: ours / theirs must be at most `limit`.
    """

    ours: Key
    theirs: Key
    kind: Literal["faster", "fraction"]
    limit: float

    @property
    def text(self) -> str:
        ranks = f", {self.ours.ranks} ranks" if self.ours.ranks else ""
        wanted = f"≥ {self.limit:g} × faster than" if self.kind == "faster" else f"≤ {self.limit:g} of"
        return f"{self.ours.measure}{ranks}: {wanted} {self.theirs.contender}"


@dataclass(frozen=True)
class Verdict:
    """Say what became of a target; `ratio` and `passed` are None when a side was not measured."""

    target: Target
    ratio: float | None
    passed: bool | None


TARGETS: tuple[Target, ...] = (
    Target(Key("fresh", OURS, 4), Key("fresh", SPAWN, 4), "faster", 80),
    Target(Key("fresh", OURS, 8), Key("fresh", SPAWN, 8), "faster", 80),
    Target(Key("fresh", OURS, 4), Key("fresh", ACCELERATE, 4), "faster", 2),
    Target(Key("fresh", OURS, 8), Key("fresh", ACCELERATE, 8), "faster", 1),
    Target(Key("warm", OURS, 4), Key("warm", IPYPARALLEL, 4), "faster", 4),
    Target(Key("memory", OURS, 4), Key("memory", SPAWN, 4), "fraction", 0.5),
    Target(Key("memory", OURS, 8), Key("memory", SPAWN, 8), "fraction", 0.5),
    Target(Key("import", OURS, 0), Key("import", TORCH, 0), "fraction", 0.2),
)


def judge(series: Sequence[Series], *, targets: Sequence[Target] = TARGETS) -> list[Verdict]:
    """Compare the medians with the targets, one verdict per target."""
    medians = {one.key: one.median for one in series}
    verdicts = []
    for target in targets:
        ours, theirs = medians.get(target.ours), medians.get(target.theirs)
        if ours is None or theirs is None:
            verdicts.append(Verdict(target, None, None))
        elif target.kind == "faster":
            ratio = theirs / ours
            verdicts.append(Verdict(target, ratio, ratio >= target.limit))
        else:
            ratio = ours / theirs
            verdicts.append(Verdict(target, ratio, ratio <= target.limit))
    return verdicts
