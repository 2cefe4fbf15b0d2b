"""DistributedDataParallel by hand, in three steps that each keep what was right before.

    Synchronous   broadcast once; after backward one all_reduce a parameter, each waited for
    Overlapped    the same all_reduces, each begun as soon as its gradient is ready
    Bucketed      few big all_reduces in the place of many small ones

A step is the same with each:

    loss(model(batch)).backward()
    model.finish()
    optimizer.step()
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

MIB = 1 << 20


class Synchronous(nn.Module):
    """Keep a model's replicas equal: the same start, the same buffers, and the mean of all gradients.

    Args:
        module: the model; rank 0's parameters and buffers win.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:  # frozen ones, too; a tied one comes once
            dist.broadcast(tensor.detach(), src=0)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model, with rank 0's buffers."""
        if self.training:
            for buffer in self.module.buffers():
                dist.broadcast(buffer, src=0)
        return self.module(*args, **kwargs)

    @property
    def trained(self) -> list[nn.Parameter]:
        """Return the parameters that get gradients, each once."""
        return [parameter for parameter in self.module.parameters() if parameter.requires_grad]

    def finish(self) -> None:
        """Replace every gradient by the mean over the ranks; call it between backward and the optimizer's step."""
        for parameter in self.trained:
            if parameter.grad is None:  # unused here, and perhaps not elsewhere: all ranks must make the same calls
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


class Overlapped(Synchronous):
    """Begin each all_reduce when its gradient is ready, while backward goes on.

    Every parameter must get a gradient in every backward, as DistributedDataParallel also demands by default.

    Args:
        module: the model.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self._works: list[tuple[Any, nn.Parameter]] = []
        for parameter in self.trained:
            parameter.register_post_accumulate_grad_hook(self._ready)  # type: ignore[no-untyped-call]

    def _ready(self, parameter: nn.Parameter) -> None:
        self._works.append((dist.all_reduce(parameter.grad, async_op=True), parameter))

    def finish(self) -> None:
        """Wait for the all_reduces, and divide."""
        for work, parameter in self._works:
            work.wait()
            assert parameter.grad is not None, "its gradient was ready"
            parameter.grad /= dist.get_world_size()
        self._works.clear()


class Bucketed(Synchronous):
    """Send gradients in buckets, last parameter first, each when it is full and the buckets before it have left.

    Args:
        module: the model.
        cap_mb: MiB at which a bucket closes; a parameter is never split.
    """

    def __init__(self, module: nn.Module, *, cap_mb: float = 25.0) -> None:
        super().__init__(module)
        self.buckets: list[list[nn.Parameter]] = fill(self.trained[::-1], cap_mb=cap_mb)
        self._bucket_of = {parameter: index for index, some in enumerate(self.buckets) for parameter in some}
        self._missing = [len(bucket) for bucket in self.buckets]
        self._sent: list[tuple[Any, torch.Tensor]] = []
        for parameter in self.trained:
            parameter.register_post_accumulate_grad_hook(self._ready)  # type: ignore[no-untyped-call]

    def _ready(self, parameter: nn.Parameter) -> None:
        self._missing[self._bucket_of[parameter]] -= 1
        while len(self._sent) < len(self.buckets) and self._missing[len(self._sent)] == 0:
            flat = torch.cat([one.grad.flatten() for one in self.buckets[len(self._sent)] if one.grad is not None])
            self._sent.append((dist.all_reduce(flat, async_op=True), flat))

    def finish(self) -> None:
        """Wait for the buckets, and give each parameter its part of the mean."""
        for (work, flat), bucket in zip(self._sent, self.buckets, strict=True):
            work.wait()
            parts = torch.split(flat / dist.get_world_size(), [one.numel() for one in bucket])
            for parameter, part in zip(bucket, parts, strict=True):
                parameter.grad = part.view_as(parameter)
        self._sent.clear()
        self._missing = [len(bucket) for bucket in self.buckets]


def fill(parameters: Iterable[nn.Parameter], *, cap_mb: float) -> list[list[nn.Parameter]]:
    """Return buckets of parameters, in the order given; one closes once it has reached the cap.

    Args:
        parameters: those that get gradients.
        cap_mb: MiB; a parameter is never split, and a bucket has one dtype.
    """
    buckets: list[list[nn.Parameter]] = []
    room = 0.0
    for parameter in parameters:
        if room <= 0 or buckets[-1][0].dtype != parameter.dtype:
            buckets.append([])
            room = cap_mb * MIB
        buckets[-1].append(parameter)
        room -= parameter.nbytes
    return buckets
