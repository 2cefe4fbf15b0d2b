"""Every private torch name that lablib uses, each behind a function that says so when a torch release lacks it.

Without one of them a figure or a hang report is poorer; labs go on.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode


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


def operator_arguments(name: str) -> list[str]:
    """Return the names of a ``c10d::`` operator's arguments, in their order.

    Raises:
        NotInThisTorch: the operator is missing.
    """
    try:
        return [argument.name for argument in getattr(torch.ops.c10d, name).default._schema.arguments]
    except AttributeError as error:
        raise NotInThisTorch(f"the schema of c10d::{name}") from error


def release(library: Any) -> None:
    """End a library's interceptions."""
    library._destroy()


def unbox_group(boxed: Any) -> dist.ProcessGroup:
    """Return the process group in an operator's argument."""
    return dist.ProcessGroup.unbox(boxed)


def work_in(result: Any) -> dist.Work | None:
    """Return the work in what an operator returned, or None where there is none."""
    last = result[-1] if isinstance(result, (tuple, list)) and result else result
    return dist.Work.unbox(last) if isinstance(last, torch.ScriptObject) else None


def with_work(result: Any, work: dist.Work) -> Any:
    """Return what an operator returned with another work in it."""
    return (*result[:-1], work.boxed()) if isinstance(result, (tuple, list)) else work.boxed()


def when_done(work: dist.Work, then: Callable[[], None]) -> bool:
    """Call ``then`` when the work's future is done; return False where it has none (gloo's send and recv)."""
    try:
        future = work.get_future()
    except RuntimeError:
        return False
    future.add_done_callback(lambda _: then())
    return True


def memory_tracker() -> Any:
    """Return torch's module of ``MemTracker``, which counts bytes by category.

    Raises:
        NotInThisTorch: it is missing, or has not the methods that are overridden here.
    """
    try:
        from torch.distributed._tools import mem_tracker
    except ImportError as error:
        raise NotInThisTorch("torch.distributed._tools.mem_tracker") from error
    for name in ("_track", "_update_snap", "_update_and_maybe_create_winfos", "_register_global_optimizer_hook"):
        if not hasattr(mem_tracker.MemTracker, name):
            raise NotInThisTorch(f"MemTracker.{name}")
    return mem_tracker


def groups_made() -> int:
    """Return how many process groups this process has made so far."""
    return dist.distributed_c10d._world.group_count


def ddp_buckets(ddp: Any) -> list[tuple[int, tuple[str, ...], int]]:
    """Return the buckets that DDP's reducer has now, as (index, parameter names, bytes of its buffer).

    Call it after forward, which is where the reducer rebuilds them, and never while it reduces, where it holds a lock.

    Args:
        ddp: the DistributedDataParallel module; the names are those that its inner module gives.

    Raises:
        NotInThisTorch: the private name is missing.
        RuntimeError: a sparse gradient's bucket has no buffer before its first reduction.
    """
    names = {id(parameter): name for name, parameter in ddp.module.named_parameters()}
    try:
        read = ddp.reducer._get_zeros_like_grad_buckets
    except AttributeError as error:
        raise NotInThisTorch("Reducer._get_zeros_like_grad_buckets") from error
    with _Shapes():  # type: ignore[no-untyped-call]
        buckets = read()
    return [
        (
            bucket.index(),
            tuple(names[id(parameter)] for parameter in bucket.parameters()),
            bucket.buffer().numel() * bucket.buffer().element_size(),
        )
        for bucket in buckets
    ]


def ddp_bucket_makers() -> set[CodeType]:
    """Return the code in which DDP makes its buckets, and makes them again in the second iteration.

    Raises:
        NotInThisTorch: a private name is missing.
    """
    ddp = torch.nn.parallel.DistributedDataParallel
    try:
        return {ddp.__init__.__code__, ddp._pre_forward.__code__}
    except AttributeError as error:
        raise NotInThisTorch("DistributedDataParallel._pre_forward") from error


def ddp_has_rebuilt(ddp: Any) -> bool:
    """Return whether DDP's reducer has rebuilt its buckets in the order in which gradients became ready."""
    return bool(getattr(ddp, "_has_rebuilt_buckets", False))


def ddp_has_hook(ddp: Any) -> bool:
    """Return whether a communication hook stands in the place of DDP's all_reduce."""
    return bool(getattr(ddp, "_comm_hooks", ()))


class _Shapes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Let torch make tensors without memory: the reducer would fill as many bytes with zeros as it has in buckets."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **{**(kwargs or {}), "device": "meta"})
