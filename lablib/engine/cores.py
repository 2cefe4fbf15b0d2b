"""Count the cores that this process may really use: CPU affinity and cgroup quota, not the machine's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def usable_cores() -> int:
    """Return how many cores this process may keep busy: the smaller of affinity and quota, at least 1."""
    quota = cgroup_cores()
    return affinity_cores() if quota is None else max(1, min(affinity_cores(), int(quota)))


def affinity_cores() -> int:
    """Return how many cores this process may be scheduled on, or the machine's where affinity is unknown."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cgroup_cores(root: Path = CGROUP_ROOT, *, membership: Path = OWN_CGROUPS) -> float | None:
    """Return the tightest CPU quota over this process's cgroup and its ancestors, in cores; None without one.

    `root` is where cgroups are mounted (v1, v2 or both at once), `membership` the file that names our own.
    """
    quotas = [_quota(folder) for folder in cgroup_folders("cpu", root, membership=membership)]
    return min((quota for quota in quotas if quota is not None), default=None)


def cgroup_folders(controller: str, root: Path = CGROUP_ROOT, *, membership: Path = OWN_CGROUPS) -> Iterator[Path]:
    """Yield the cgroup folders that limit this process for `controller`, each followed by its ancestors."""
    for line in _lines(membership):
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0" and not controllers:
            mounts = (root, root / "unified")
        elif controller in controllers.split(","):
            mounts = (root / controllers, root / controller)
        else:
            continue
        mount = next((mount for mount in reversed(mounts) if mount.is_dir()), None)
        if mount is not None:
            yield from _upwards(mount, path)


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    # A container may be told the host's path while only its own cgroup is mounted: the mount is then ours.
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        folder = mount.joinpath(*parts[:depth])
        if folder.is_dir():
            yield folder


def _quota(folder: Path) -> float | None:
    v2 = next(_lines(folder / "cpu.max"), "max").split()
    if v2[0] != "max":
        return int(v2[0]) / int(v2[1])
    quota_us = int(next(_lines(folder / "cpu.cfs_quota_us"), "-1"))
    period_us = int(next(_lines(folder / "cpu.cfs_period_us"), "0"))
    return quota_us / period_us if quota_us > 0 and period_us > 0 else None


def _lines(file: Path) -> Iterator[str]:
    try:
        yield from file.read_text().splitlines()
    except OSError:
        return
