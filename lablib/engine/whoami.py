"""Who this process is: a rank, or not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lablib.errors import UsageError

if TYPE_CHECKING:
    import torch

rank: int | None = None  # set once, by the worker, in a process that is a rank


def refuse_inside_a_rank(verb: str) -> None:
    """Raise UsageError where a rank tries to start ranks of its own."""
    if rank is not None:
        raise UsageError(
            f"{verb} was called on rank {rank}, inside a function that already runs on ranks; "
            f"call {verb} from the notebook, and plain torch.distributed functions from the rank"
        )


def device() -> torch.device:
    """Return the device of this rank, here and under torchrun.

    A rank of `run` has the device that the run chose. Under torchrun it is the GPU with this rank's LOCAL_RANK, and the
    CPU where there is none. Outside any rank it is the CPU: the notebook's own process makes no CUDA context.
    """
    import torch

    chosen = os.environ.get("LABLIB_DEVICE")
    if chosen:
        return torch.device(chosen)
    local_rank = os.environ.get("LOCAL_RANK")
    if local_rank is not None and int(local_rank) < torch.cuda.device_count():
        return torch.device("cuda", int(local_rank))
    return torch.device("cpu")
