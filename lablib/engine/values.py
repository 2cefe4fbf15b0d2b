"""How a rank's return value comes back: tensors detached, on the CPU, cloned to their own size."""

from __future__ import annotations

import inspect
import io
import sys
from typing import Any

import cloudpickle

from lablib.engine import homes, tensors
from lablib.engine.kinds import kind_of
from lablib.errors import UsageError

_SHARDED = {
    "torch.distributed.tensor": ("DTensor", "return .full_tensor() or .to_local()"),
    "torch.nn.parallel.distributed": ("DistributedDataParallel", "return .module or .state_dict()"),
    "torch.distributed.fsdp": ("FullyShardedDataParallel", "return a state_dict()"),
    "torch.distributed.fsdp._fully_shard": ("FSDPModule", "return a state_dict() of full tensors"),
}


class NoValue:
    """Stand where a rank's value is missing; false in a condition.

    Args:
        reason: why there is none, such as ``rank 1 was killed by SIGKILL``.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<no value: {self.reason}>"


def pack(value: object) -> bytes:
    """Pickle what a rank returned.

    Raises:
        UsageError: the value, or a part of it, cannot leave the rank; the part is named with what to return instead.
    """
    buffer = io.BytesIO()
    try:
        _ValuePickler(buffer).dump(value)
    except Exception as error:
        where, part = _first_that_fails(value)
        raise UsageError(
            f"the function returned {kind_of(part)}{where}, which cannot leave the rank; {_cure(part, error)}"
        ) from error
    return buffer.getvalue()


def pack_exception(error: BaseException) -> bytes | None:
    """Pickle an exception, or return None where it, or something it holds, cannot travel."""
    buffer = io.BytesIO()
    try:
        _ValuePickler(buffer).dump(error)
    except Exception:  # its text travels all the same
        return None
    return buffer.getvalue()


def unpack(payload: bytes) -> Any:
    """Return the value in a payload."""
    return cloudpickle.loads(payload)


class _ValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        home = homes.way_back(obj)
        if home is not None:
            return home
        advice = _sharded_advice(obj)
        if advice:
            raise TypeError(advice)
        if tensors.is_tensor(obj):
            return tensors.reduce(obj, detach=True)
        return super().reducer_override(obj)


def _sharded_advice(obj: object) -> str | None:
    for module, (name, advice) in _SHARDED.items():
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(obj, kind):
            return advice
    return None


def _first_that_fails(value: Any, where: str = "") -> tuple[str, Any]:
    parts: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        parts = [(f"[{key!r}]", part) for key, part in value.items()]
    elif isinstance(value, list | tuple):
        parts = [(f"[{index}]", part) for index, part in enumerate(value)]
    for step, part in parts:
        try:
            _ValuePickler(io.BytesIO()).dump(part)
        except Exception:
            return _first_that_fails(part, where + step)
    return (f" at {where}" if where else ""), value


def _cure(part: object, error: Exception) -> str:
    advice = _sharded_advice(part)
    if advice:
        return advice
    if inspect.isgenerator(part):
        return "return a list of what it yields"
    first, *_ = str(error).strip().splitlines() or [""]
    return f"return plain values or tensors ({type(error).__name__}: {first})"
