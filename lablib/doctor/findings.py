"""Judge the facts of a machine in plain words: would the labs run here?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from lablib.doctor.facts import Cores, Facts, Launch, Loopback, Memory, Package, SharedMemory, Torch
from lablib.engine import backend

Status = Literal["ok", "warn", "fail"]

GIB = 2**30
MIB = 2**20
LITTLE_MEMORY = 1.5 * GIB  # eight ranks after a DDP step, their fork server, JupyterLab and its kernel
TOO_LITTLE_MEMORY = 0.7 * GIB  # the same with two ranks
LITTLE_SHARED_MEMORY = 128 * MIB  # containers get 64 MiB unless asked; DataLoader workers send batches through it
NEED_TO_RUN = {"cloudpickle", "ipykernel", "ipywidgets", "jupyterlab", "lablib", "numpy", "plotly", "torch"}


@dataclass(frozen=True)
class Finding:
    """One line of the doctor: fail means that the labs would not run."""

    status: Status
    topic: str
    text: str

    def __str__(self) -> str:
        return f"{self.status:4}  {self.topic:14}  {self.text}"


def findings(facts: Facts) -> tuple[Finding, ...]:
    """Return what there is to say about `facts`, topic by topic."""
    return (
        _cores(facts.cores),
        _memory(facts.memory),
        *_torch(facts.torch),
        _loopback(facts.loopback),
        *_shared_memory(facts.shared_memory),
        *_packages(facts.python, facts.packages),
        _orphans(facts.orphans),
        _launch(facts.launch),
    )


def _cores(cores: Cores) -> Finding:
    limits = [f"this process may run on {cores.affinity}"]
    if cores.quota is not None:
        limits.append(f"a quota allows {cores.quota:g}")
    text = f"{cores.usable} usable ({', '.join(limits)})"
    if cores.usable == 1:
        return Finding("warn", "cores", f"{text}: the ranks take turns; every lab runs, but slowly")
    if cores.usable < 4:
        text += "; with fewer than 4, timed experiments are emulated unless you choose otherwise"
    return Finding("ok", "cores", text)


def _memory(memory: Memory) -> Finding:
    text = f"{memory.available_nbytes / GIB:.1f} GiB free"
    if memory.limit_nbytes is not None:
        text += f" of the {memory.limit_nbytes / GIB:.1f} GiB this container may have"
    if memory.available_nbytes < TOO_LITTLE_MEMORY:
        return Finding("fail", "memory", f"{text}: two ranks need {TOO_LITTLE_MEMORY / GIB:.1f} GiB; close programs")
    if memory.available_nbytes < LITTLE_MEMORY:
        return Finding("warn", "memory", f"{text}: enough for 2 ranks; 8 want {LITTLE_MEMORY / GIB:.1f} GiB")
    return Finding("ok", "memory", text)


def _torch(torch: Torch) -> Iterator[Finding]:
    if torch.error is not None:
        yield Finding("fail", "torch", f"cannot be imported ({torch.error}); install again: make clean, then make lab")
        return
    yield Finding("ok", "GPUs", _gpus(torch.gpus))
    if torch.gpus and "nccl" not in torch.backends:
        yield Finding("warn", "backends", "this torch has no NCCL: your GPUs stay unused; install a CUDA build")
    if "gloo" not in torch.backends:
        yield Finding("fail", "backends", "this torch has no gloo, which the labs need; install another build")
        return
    missing = [name for name in ("nccl", "mpi") if name not in torch.backends]
    text = f"built in: {', '.join(torch.backends)}"
    if missing:
        text += f"; not built in, and not needed here: {', '.join(missing)}"
    if torch.gpus == 0 or "nccl" in torch.backends:
        yield Finding("ok", "backends", text)


def _gpus(gpus: int) -> str:
    if gpus == 0:
        return "none: ranks run on the CPU with gloo, which is enough for every lab"
    on_gpus = [n for n in (2, 4, 8) if backend.choose(n, gpus=gpus).device == "cuda"]
    on_cpu = [n for n in (2, 4, 8) if n not in on_gpus]
    parts = [
        f"{' or '.join(map(str, ranks))} ranks run {where}"
        for ranks, where in ((on_gpus, "on GPUs with NCCL"), (on_cpu, "on the CPU with gloo"))
        if ranks
    ]
    return f"{gpus} found, one for each rank: {', '.join(parts)}"


def _loopback(loopback: Loopback) -> Finding:
    if loopback.error is not None or loopback.name is None:
        reason = loopback.error or "no interface has 127.0.0.1"
        return Finding("fail", "loopback", f"two processes cannot meet on this machine ({reason})")
    if not loopback.up:
        return Finding(
            "warn",
            "loopback",
            f"{loopback.name} says it is down, yet 127.0.0.1 answers; try: ip link set lo up",
        )
    return Finding("ok", "loopback", f"{loopback.name} is up and 127.0.0.1 answers")


def _shared_memory(memory: SharedMemory | None) -> Iterator[Finding]:
    if memory is None:
        return
    text = f"{memory.free_nbytes / MIB:,.0f} MiB free"
    if memory.error is not None:
        text = f"not writable ({memory.error}); processes share locks and tensors there"
        yield Finding("fail", "/dev/shm", text)
    elif memory.free_nbytes < LITTLE_SHARED_MEMORY:
        text = f"{text}: little for DataLoader workers; start the container with --shm-size=1g"
        yield Finding("warn", "/dev/shm", text)
    else:
        yield Finding("ok", "/dev/shm", text)


def _packages(python: str, packages: tuple[Package, ...]) -> Iterator[Finding]:
    if not packages:
        yield Finding("fail", "packages", "lablib is not installed here; run: pip install -e .")
        return
    for package in packages:
        if package.version is None:
            status: Status = "fail" if package.name in NEED_TO_RUN else "warn"
            yield Finding(
                status,
                "packages",
                f"{package.name} is missing; run: pip install '{package.name}{package.wanted}'",
            )
        elif not package.fits:
            yield Finding(
                "warn",
                "packages",
                f"{package.name} {package.version} is outside {package.wanted}, what the labs are made for",
            )
    good = ", ".join(f"{package.name} {package.version}" for package in packages if package.fits)
    yield Finding("ok", "packages", f"Python {python}, {good}")


def _orphans(pids: tuple[int, ...]) -> Finding:
    if not pids:
        return Finding("ok", "left behind", "no rank without its notebook")
    ids = " ".join(map(str, pids))
    return Finding("warn", "left behind", f"{len(pids)} processes whose notebook is gone; end them: kill -9 {ids}")


def _launch(launch: Launch) -> Finding:
    if launch.error is not None:
        return Finding("fail", "two ranks", f"did not run: {launch.error}")
    return Finding("ok", "two ranks", f"met and added their numbers, {launch.seconds:.1f} s from a cold start")
