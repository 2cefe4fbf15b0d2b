"""Read the memory of a contender's processes while its ranks wait (Linux only)."""

import time
from pathlib import Path

import psutil

from bench.figures import Series

READY_LIMIT_S = 120.0


def pss_mib(pid: int) -> float:
    """Return a process's proportional set size in MiB: shared pages count in equal parts."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"no Pss line for process {pid}")


def measure_waiting_ranks(folder: Path, *, contender: str, ranks: int) -> list[Series]:
    """Wait until every rank has taken its step, read the memory, and let the ranks go.

    Every process that the caller started counts (ranks, fork server, resource tracker); the caller does not.

    Args:
        folder: where the ranks write their pid, see `jobs.step_and_wait`.
        contender: whose ranks these are.
        ranks: how many of them.
    """
    try:
        pids = _rank_pids(folder, ranks=ranks)
        started = {child.pid for child in psutil.Process().children(recursive=True)}
        if not pids <= started:
            raise SystemExit(f"ranks {sorted(pids - started)} are not among the caller's descendants")
        rank_mib = [pss_mib(pid) for pid in sorted(pids)]
        other_mib = [pss_mib(pid) for pid in sorted(started - pids)]
    finally:
        (folder / "go").touch()
    a_rank = (sum(rank_mib) + sum(other_mib)) / ranks
    return [
        Series("memory", contender, ranks, "MiB", (a_rank,)),
        Series("memory, a rank alone", contender, ranks, "MiB", tuple(rank_mib)),
        Series("memory, helper processes", contender, ranks, "MiB", (sum(other_mib),)),
    ]


def _rank_pids(folder: Path, *, ranks: int) -> set[int]:
    deadline = time.monotonic() + READY_LIMIT_S
    while len(files := list(folder.glob("*.pid"))) < ranks:
        if time.monotonic() > deadline:
            raise SystemExit(f"only {len(files)} of {ranks} ranks took their step in {READY_LIMIT_S:.0f} s")
        time.sleep(0.05)
    return {int(file.read_text()) for file in files}
