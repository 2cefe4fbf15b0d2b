"""DataParallel by hand: one process, one thread for each replica, everything sent anew in every step.

    batch ──► parts ────────────► thread 0: replica 0 ─┐
    parameters ──► a copy each ─► thread 1: replica 1 ─┴► outputs ──► one tensor, one loss
                       ▲                                                     │
                       └──────────── gradients, added up ◄──────────────── backward

What `torch.nn.DataParallel` does on GPUs (torch/nn/parallel/data_parallel.py); on a CPU it only calls the module.
"""

from __future__ import annotations

import copy
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch import nn
from torch.func import functional_call


class ThreadedDataParallel(nn.Module):
    """Run a module on parts of the batch in threads; what crosses from one device to another is counted.

    Args:
        module: takes and returns one tensor with the batch first.
        replicas: how many; replica 0 stands for the device that holds the module.
    """

    def __init__(self, module: nn.Module, *, replicas: int = 2) -> None:
        super().__init__()
        self.module = module
        self.moved_nbytes: Counter[str] = Counter()
        # a replica is a module of its own: functional_call puts the parameters in, and threads must not share that
        self._shells = [copy.deepcopy(module).requires_grad_(False) for _ in range(replicas)]

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the outputs of the whole batch, in its order."""
        parts = batch.chunk(len(self._shells))
        jobs = [(number, part, self._replicate(number)) for number, part in enumerate(parts)]
        with ThreadPoolExecutor(len(jobs)) as threads:
            outputs = list(threads.map(self._apply_replica, jobs))
        return torch.cat(outputs)

    def _replicate(self, number: int) -> dict[str, torch.Tensor]:
        state = dict(self.module.named_parameters(remove_duplicate=False))
        return {name: self._sent(tensor, number, "parameters", "gradients") for name, tensor in state.items()}

    def _apply_replica(self, job: tuple[int, torch.Tensor, dict[str, torch.Tensor]]) -> torch.Tensor:
        number, part, state = job
        part = self._sent(part, number, "inputs", "gradients of inputs")
        output = functional_call(self._shells[number], state, (part,), tie_weights=False)
        return self._sent(output, number, "outputs", "gradients of outputs")

    def _sent(self, tensor: torch.Tensor, number: int, what: str, back: str) -> torch.Tensor:
        """Return a copy on another device, whose gradient comes back and is added up; replica 0 needs none."""
        if number == 0:
            return tensor
        self.moved_nbytes[what] += tensor.nbytes
        moved = tensor.clone()
        if moved.requires_grad:
            moved.register_hook(partial(self._came_back, back))  # type: ignore[no-untyped-call]
        return moved

    def _came_back(self, what: str, gradient: torch.Tensor) -> None:
        self.moved_nbytes[what] += gradient.nbytes
