"""Every private torch name that lablib uses, each behind a function that says so when a torch release lacks it.

Without one of them a figure or a hang report is poorer; labs go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


class NotInThisTorch(RuntimeError):
    """A private name is gone from this torch release."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is not in torch {torch.__version__}")


def intercept_operator(library: Any, name: str, make: Callable[..., Callable[..., Any]]) -> None:
    """Put a Python function in front of every kernel of a ``c10d::`` operator.

    The function stands at the BackendSelect key, which every call passes whatever its device. It must end by calling
    the ``go_on`` it was made with, which releases the GIL: a backend's thread may hold a lock and wait for the GIL,
    while the caller holds the GIL and waits for the lock.

    Args:
        library: a ``torch.library.Library("c10d", "IMPL")``; `release` ends it and the interception.
        name: the operator, such as ``allreduce_``.
        make: is called with ``go_on(keyset, *args, **kwargs)`` and returns the function, of the same signature.

    Raises:
        NotInThisTorch: a private name or the operator is missing.
    """
    try:
        after = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
        redispatch = getattr(torch.ops.c10d, name).default._handle.redispatch_boxed
    except AttributeError as error:
        raise NotInThisTorch(f"the dispatcher's redispatch for c10d::{name}") from error

    def go_on(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        return redispatch(keyset & after, *args, **kwargs)

    library.impl(name, make(go_on), "BackendSelect", with_keyset=True)


def release(library: Any) -> None:
    """End a library's interceptions."""
    library._destroy()


def unbox_group(boxed: Any) -> dist.ProcessGroup:
    """Return the process group in an operator's argument."""
    return dist.ProcessGroup.unbox(boxed)


def groups_made() -> int:
    """Return how many process groups this process has made so far."""
    return dist.distributed_c10d._world.group_count
