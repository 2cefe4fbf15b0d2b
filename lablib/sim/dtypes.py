"""Arithmetic of tensors' number types, as ranks do it: integers wrap, floats round after each step.

NumPy has no bfloat16: its values are held in float32, rounded to the eight bits that bfloat16 keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lablib.errors import UsageError

Array = NDArray[Any]

_GIVE_NUMBERS = "give numbers, in a NumPy array or a list without gaps"


@dataclass(frozen=True)
class DType:
    """Know one number type of tensors.

    Args:
        name: as torch spells it, without ``torch.``.
        nbytes: bytes of one element.
        carrier: the NumPy type that holds its values.
        epsilon: distance from 1 to the next value; 0 for integers.
    """

    name: str
    nbytes: int
    carrier: type[np.generic]
    epsilon: float = 0.0

    @property
    def is_float(self) -> bool:
        """Tell floats from integers."""
        return self.epsilon > 0

    def cast(self, values: Any) -> Array:
        """Return the values as this type holds them; raises UsageError where it cannot, or they are no numbers."""
        try:
            found = np.asarray(values)
        except (RuntimeError, TypeError, ValueError) as error:
            raise UsageError(f"{error}; {_GIVE_NUMBERS}") from None
        if found.dtype.kind not in "biuf":
            raise UsageError(f"values of type {found.dtype} are no real numbers; {_GIVE_NUMBERS}")
        if not self.is_float and found.dtype.kind == "f" and not np.isfinite(found).all():
            raise UsageError(f"{self.name} has no nan and no infinity; take them out, or choose a floating dtype")
        with np.errstate(all="ignore"):
            array = found.astype(self.carrier)
        return _to_bfloat16(array) if self.name == "bfloat16" else array


DTYPES = {
    one.name: one
    for one in (
        DType("float32", 4, np.float32, 2.0**-23),
        DType("float64", 8, np.float64, 2.0**-52),
        DType("float16", 2, np.float16, 2.0**-10),
        DType("bfloat16", 2, np.float32, 2.0**-7),
        DType("int64", 8, np.int64),
        DType("int32", 4, np.int32),
        DType("int8", 1, np.int8),
        DType("uint8", 1, np.uint8),
    )
}

_COMBINE: dict[str, Any] = {
    "SUM": np.add,
    "AVG": np.add,  # the division comes once, at the end
    "PRODUCT": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}
REDUCE_OPS = tuple(_COMBINE)


def dtype_named(name: str) -> DType:
    """Return the number type called `name`; raises UsageError for one that does not exist."""
    if name not in DTYPES:
        raise UsageError(f"dtype={name!r} is not known here; choose {', '.join(DTYPES)}")
    return DTYPES[name]


def dtype_of(values: Any) -> str:
    """Return the type that torch gives these values: Python floats are float32 there, and not float64."""
    found = np.asarray(values).dtype
    if not hasattr(values, "dtype"):
        return {"f": "float32", "i": "int64"}.get(found.kind, found.name)
    return found.name


def check_reduce_op(reduce_op: str, dtype: str) -> None:
    """Raise UsageError where gloo refuses this reduction of this type."""
    if reduce_op not in REDUCE_OPS:
        raise UsageError(f"reduce_op={reduce_op!r} does not exist; choose {', '.join(REDUCE_OPS)}")
    is_float = dtype_named(dtype).is_float
    if reduce_op == "AVG" and not is_float:
        raise UsageError(f"AVG of {dtype} is refused: a mean is no integer; use SUM and divide, or a floating dtype")
    if reduce_op in ("BAND", "BOR", "BXOR") and is_float:
        raise UsageError(f"{reduce_op} of {dtype} is refused: it works on the bits of integers; use int32 or uint8")


def combine(reduce_op: str, one: Array, other: Array, dtype: str) -> Array:
    """Return two ranks' contributions combined, rounded or wrapped as `dtype` does."""
    with np.errstate(all="ignore"):
        return dtype_named(dtype).cast(_COMBINE[reduce_op](one, other))


def finish(reduce_op: str, total: Array, count: int, dtype: str) -> Array:
    """Return the result of a reduction from the combination of all `count` contributions."""
    return dtype_named(dtype).cast(total / count) if reduce_op == "AVG" else total


def _to_bfloat16(array: Array) -> Array:
    """Round float32 to the nearest bfloat16, ties to even; infinities stay."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(array), array, rounded.view(np.float32)).astype(np.float32).reshape(array.shape)
