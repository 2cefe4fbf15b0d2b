"""Gather what `python -m lablib doctor` judges; each function looks at one thing and changes nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from lablib.engine import backend, cores
from lablib.engine.forking import PARENT_VARIABLE

SHARED_MEMORY = Path("/dev/shm")
SERVER_MARK = "lablib.engine.server"


@dataclass(frozen=True)
class Cores:
    """How many cores this process may be scheduled on, the cgroup quota in cores, and the smaller."""

    affinity: int
    quota: float | None
    usable: int


@dataclass(frozen=True)
class Memory:
    """Bytes that new processes can have now, and the cgroup's limit where there is one."""

    available_nbytes: int
    limit_nbytes: int | None


@dataclass(frozen=True)
class Torch:
    """What torch was built with and which GPUs it could use; `error` says why it cannot be imported."""

    cuda: str | None = None
    backends: tuple[str, ...] = ()
    gpus: int = 0
    error: str | None = None


@dataclass(frozen=True)
class Loopback:
    """The interface with 127.0.0.1, whether it is up, and why two sockets could not meet there."""

    name: str | None
    up: bool
    error: str | None


@dataclass(frozen=True)
class SharedMemory:
    """Free bytes in /dev/shm; `error` says why nothing can be written there; None where systems have none."""

    free_nbytes: int
    error: str | None


@dataclass(frozen=True)
class Package:
    """An installed version (None: missing) beside the range that pyproject.toml asks for."""

    name: str
    version: str | None
    wanted: str
    fits: bool


@dataclass(frozen=True)
class Launch:
    """How long two real ranks took, and what went wrong."""

    seconds: float
    error: str | None


@dataclass(frozen=True)
class Facts:
    """Everything the doctor knows about this machine."""

    python: str
    cores: Cores
    memory: Memory
    torch: Torch
    loopback: Loopback
    shared_memory: SharedMemory | None
    packages: tuple[Package, ...]
    orphans: tuple[int, ...]
    launch: Launch


def gather() -> Facts:
    """Return the facts of this machine; starting two ranks takes most of the time."""
    return Facts(
        python=platform.python_version(),
        cores=Cores(cores.affinity_cores(), cores.cgroup_cores(), cores.usable_cores()),
        memory=memory(),
        torch=torch_build(),
        loopback=loopback(),
        shared_memory=shared_memory(),
        packages=packages(),
        orphans=orphans(psutil.process_iter()),
        launch=launch(),
    )


def memory(root: Path = cores.CGROUP_ROOT, *, membership: Path = cores.OWN_CGROUPS) -> Memory:
    """Return the memory that is free for this process: the machine's, or less where a cgroup limits it."""
    available = psutil.virtual_memory().available
    limit = None
    for folder in cores.cgroup_folders("memory", root, membership=membership):
        for most, used in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            allowed = _number(folder / most)
            # cgroup v1 writes "no limit" as a number near 2**63.
            if allowed is not None and allowed < 2**60:
                limit = allowed if limit is None else min(limit, allowed)
                available = min(available, max(0, allowed - (_number(folder / used) or 0)))
    return Memory(available, limit)


def torch_build() -> Torch:
    """Return what the installed torch can do."""
    try:
        import torch
        import torch.distributed as dist
    except (ImportError, OSError) as error:
        return Torch(error=f"{type(error).__name__}: {error}")
    if not dist.is_available():
        return Torch(cuda=torch.version.cuda, gpus=backend.count_gpus())
    has = {
        "gloo": dist.is_gloo_available(),
        "nccl": dist.is_nccl_available(),
        "mpi": dist.is_mpi_available(),
    }
    built_in = tuple(name for name, there in has.items() if there)
    return Torch(cuda=torch.version.cuda, backends=built_in, gpus=backend.count_gpus())


def loopback() -> Loopback:
    """Return the interface with 127.0.0.1, and whether two sockets can meet there."""
    holders = [
        name
        for name, addresses in psutil.net_if_addrs().items()
        if any(address.address == "127.0.0.1" for address in addresses)
    ]
    name = holders[0] if holders else None
    states = psutil.net_if_stats()
    return Loopback(name, name in states and states[name].isup, _meeting_error())


def _meeting_error() -> str | None:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError as error:
        return str(error)
    return None


def shared_memory(folder: Path = SHARED_MEMORY) -> SharedMemory | None:
    """Return the state of the shared memory folder; None on systems without one."""
    if sys.platform != "linux":
        return None
    probe = folder / f"lablib-doctor-{os.getpid()}"
    try:
        with probe.open("xb") as file:
            file.write(b"\0")
        probe.unlink()
        free = os.statvfs(folder)
    except OSError as error:
        return SharedMemory(0, error.strerror or str(error))
    return SharedMemory(free.f_bavail * free.f_frsize, None)


def packages(distribution: str = "lablib") -> tuple[Package, ...]:
    """Return the packages that the labs need, with what is installed; empty when lablib itself is not."""
    from packaging.requirements import Requirement

    try:
        wanted = importlib.metadata.requires(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return ()
    return tuple(
        _package(requirement)
        for requirement in map(Requirement, wanted)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    )


def _package(requirement: Any) -> Package:
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return Package(requirement.name, None, str(requirement.specifier), fits=False)
    fits = requirement.specifier.contains(version, prereleases=True)
    return Package(requirement.name, version, str(requirement.specifier), fits=fits)


def orphans(processes: Iterable[psutil.Process]) -> tuple[int, ...]:
    """Return the ids of our fork servers and ranks whose notebook is gone, among `processes`.

    A fork server was told its kernel's process id when it started, and its ranks show the same command line.
    Where the topmost of them has another parent now, that kernel has ended.
    """
    parents: dict[int, int] = {}
    kernels: dict[int, int] = {}
    for process in processes:
        try:
            if SERVER_MARK in " ".join(process.cmdline()):
                told = process.environ().get(PARENT_VARIABLE, "")
                if told.isdecimal():
                    kernels[process.pid] = int(told)
                    parents[process.pid] = process.ppid()
        except psutil.Error:
            continue  # it ended meanwhile, or belongs to another user
    return tuple(sorted(pid for pid in parents if not _has_kernel(pid, parents, kernels)))


def _has_kernel(pid: int, parents: dict[int, int], kernels: dict[int, int]) -> bool:
    while parents[pid] in parents:
        pid = parents[pid]
    return parents[pid] == kernels[pid]


def launch() -> Launch:
    """Run two real ranks that add their numbers, and return how long that took."""
    start = time.monotonic()
    error = None
    try:
        from lablib.engine.launch import run

        values = run(_sum_of_ranks, world_size=2, backend="gloo").values
        if values != [1.0, 1.0]:
            error = f"the ranks returned {values} where each should return 1.0"
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"
    return Launch(time.monotonic() - start, error)


def _sum_of_ranks() -> float:
    import torch
    import torch.distributed as dist

    total = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(total)
    return total.item()


def _number(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
