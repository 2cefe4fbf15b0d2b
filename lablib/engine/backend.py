"""Which backend and device the ranks get, and why."""

from __future__ import annotations

import os
from dataclasses import dataclass

from lablib.errors import UsageError

_BACKENDS = ("nccl", "gloo")
_DEVICES = ("cuda", "cpu")
_GPU_DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


@dataclass(frozen=True)
class Choice:
    """What the ranks use: backend, kind of device, and the reason in words."""

    backend: str
    device: str
    reason: str

    def device_of(self, local_rank: int, *, gpus: int) -> str:
        """Return the device of one rank, such as ``cuda:1``; ranks share GPUs in turn when there are fewer."""
        return f"cuda:{local_rank % gpus}" if self.device == "cuda" else "cpu"


def count_gpus() -> int:
    """Return how many GPUs the ranks could use, without making a CUDA context in this process."""
    if not any(os.path.exists(path) for path in _GPU_DRIVER_FILES):
        return 0
    import torch

    # With this setting torch asks the driver's management library and initialises nothing (torch/cuda/__init__.py).
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    return torch.cuda.device_count()


def choose(world_size: int, *, gpus: int, backend: str | None = None, device: str | None = None) -> Choice:
    """Choose backend and device for ``world_size`` ranks on a host with ``gpus`` GPUs.

    NCCL with one GPU a rank where that is possible, gloo on the CPU otherwise. What is asked for is obeyed or refused,
    and never replaced.

    Raises:
        UsageError: the backend or device is unknown, or this host cannot give it.
    """
    if backend is not None and backend not in _BACKENDS:
        raise UsageError(
            f"backend={backend!r} is not one of 'nccl' (GPUs) and 'gloo' (CPU); leave it out to let lablib choose"
        )
    kind = None if device is None else str(device)
    if kind is not None and kind not in _DEVICES:
        raise UsageError(
            f"device={kind!r} is not one of 'cuda' and 'cpu'; lablib gives each rank its own GPU, "
            "which lablib.device() names inside the rank"
        )
    if backend == "nccl" and kind == "cpu":
        raise UsageError("backend='nccl' moves tensors between GPUs; with device='cpu' use backend='gloo'")
    if backend == "nccl" or (kind == "cuda" and backend is None):
        asked = "backend='nccl'" if backend == "nccl" else "device='cuda'"
        if gpus == 0:
            raise UsageError(f"{asked} needs a GPU for each rank and this host has none; use backend='gloo'")
        if world_size > gpus:
            raise UsageError(
                f"{asked} needs a GPU for each rank: {world_size} ranks, {_gpus(gpus)}; "
                f"use world_size={gpus} or backend='gloo'"
            )
        return Choice("nccl", "cuda", f"{asked} was asked for; {_gpus(gpus)} for {world_size} ranks")
    if backend == "gloo" and kind == "cuda":
        if gpus == 0:
            raise UsageError("device='cuda' needs a GPU and this host has none; use device='cpu'")
        shared = "one each" if world_size <= gpus else f"{world_size} ranks share {_gpus(gpus)} in turn"
        return Choice("gloo", "cuda", f"gloo on GPUs was asked for; {shared}")
    if backend == "gloo" or kind == "cpu":
        asked = "backend='gloo'" if backend == "gloo" else "device='cpu'"
        return Choice("gloo", "cpu", f"{asked} was asked for")
    if world_size <= gpus:
        return Choice("nccl", "cuda", f"{_gpus(gpus)}, one for each of {world_size} ranks")
    if gpus == 0:
        return Choice("gloo", "cpu", "this host has no GPU")
    return Choice("gloo", "cpu", f"{_gpus(gpus)} are not enough for {world_size} ranks, and NCCL wants one for each")


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
