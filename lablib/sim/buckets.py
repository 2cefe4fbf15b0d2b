"""Which gradients DistributedDataParallel reduces together, and in which order, before any process runs.

Sources: torch/nn/parallel/distributed.py (``_BucketCapacityConfig``) and torch/csrc/distributed/c10d/reducer.cpp
(``compute_bucket_assignment_by_size``, ``Reducer::rebuild_buckets``).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lablib.errors import UsageError

MIB = 1 << 20
DEFAULT_CAP_MB = 25


@dataclass(frozen=True)
class Parameter:
    """Describe a parameter that gets a gradient.

    Args:
        name: as ``named_parameters()`` gives it, without ``module.``; a tied parameter has its first name only.
        nbytes: size of its gradient.
        dtype, device: gradients that differ in one of them never share a bucket.
        sparse: whether its gradient is sparse, as ``Embedding(sparse=True)`` makes it: it is alone in its bucket.
    """

    name: str
    nbytes: int
    dtype: str = "float32"
    device: str = "cpu"
    sparse: bool = False


@dataclass(frozen=True)
class Bucket:
    """Hold the gradients that one all-reduce carries.

    Args:
        index: buckets are reduced in the order of their index.
        parameters: names, in the order in which they lie in the bucket.
        nbytes: size of its buffer; of the equivalent dense gradient where it is sparse.
    """

    index: int
    parameters: tuple[str, ...]
    nbytes: int


@dataclass(frozen=True)
class BucketSettings:
    """Hold the arguments of DistributedDataParallel that decide about buckets, by the same names.

    Args:
        bucket_cap_mb: MiB at which a bucket closes; None means 25, after a smaller first bucket.
        bucket_cap_mb_list: MiB at which the first, second, … bucket closes, the last entry for all that follow; takes
            the place of the other caps, and of the one bucket of the first iteration.
        find_unused_parameters: buckets are then never rebuilt, unless the graph is static.
        static_graph: buckets are then rebuilt one iteration later.
        gradient_as_bucket_view: changes no bucket; the gradients then live in the buckets.
        first_bucket_mb: MiB at which the first bucket closes where no cap is given: not an argument of DDP but
            ``torch.distributed._DEFAULT_FIRST_BUCKET_BYTES``.

    Raises:
        UsageError: a cap is negative or not a number.
    """

    bucket_cap_mb: float | None = None
    bucket_cap_mb_list: Sequence[float] | None = None
    find_unused_parameters: bool = False
    static_graph: bool = False
    gradient_as_bucket_view: bool = False
    first_bucket_mb: float = 1.0

    def __post_init__(self) -> None:
        for cap in (self.bucket_cap_mb or 0, self.first_bucket_mb, *(self.bucket_cap_mb_list or ())):
            if not 0 <= cap < sys.maxsize / MIB:
                raise UsageError(f"a bucket cap of {cap!r} is not a number of MiB from 0 on")

    @property
    def rebuilt_in(self) -> int | None:
        """Return the iteration whose forward rebuilds the buckets; None where they stay."""
        if self.static_graph:
            return 2
        return None if self.find_unused_parameters else 1

    def limits(self, *, rebuilt: bool) -> list[int]:
        """Return the bytes at which the first, second, … bucket closes; the last entry is for all that follow."""
        first = self.first_bucket_mb
        if self.bucket_cap_mb_list:
            caps = list(self.bucket_cap_mb_list)
        elif not rebuilt and self.rebuilt_in is not None:
            return [sys.maxsize]
        elif self.bucket_cap_mb is not None:
            caps = [self.bucket_cap_mb]
        else:
            caps = [first, DEFAULT_CAP_MB] if rebuilt or first < DEFAULT_CAP_MB else [DEFAULT_CAP_MB]
        return [int(cap * MIB) for cap in caps]


def predict_buckets(
    parameters: Iterable[Parameter], *, iteration: int, ready_order: Iterable[str] | None = None, **settings: Any
) -> tuple[Bucket, ...]:
    """Return the buckets that DDP reduces in an iteration, in the order of their index.

    Args:
        parameters: those that get gradients, in ``named_parameters()`` order: leave out frozen ones.
        iteration: counted from 0, each with a forward and a backward that synchronises.
        ready_order: names in the order in which rank 0's gradients became ready in the iteration before the rebuild;
            None means last registered, first ready, as in a chain of layers. With ``static_graph`` it may lack
            parameters, which were not used.
        settings: arguments of `BucketSettings`, such as ``bucket_cap_mb=5``.

    Where the last buckets of several dtypes stay below their cap, the rebuild lists that of the dtype met last first:
    the order of torch's Linux builds, which C++ leaves open.

    Raises:
        UsageError: two parameters have one name, or the order is not one of these parameters.
    """
    chosen = BucketSettings(**settings)
    listed = list(parameters)
    by_name = {parameter.name: parameter for parameter in listed}
    if len(by_name) < len(listed) or not listed:
        raise UsageError("buckets need parameters with different names; list a tied parameter once")
    if iteration < 0:
        raise UsageError(f"iteration={iteration!r}: count iterations from 0")
    if chosen.rebuilt_in is None or iteration < chosen.rebuilt_in:
        position = {parameter.name: place for place, parameter in enumerate(listed)}
        groups = assign(listed, chosen.limits(rebuilt=False))
        groups.sort(key=lambda group: min(position[parameter.name] for parameter in group), reverse=True)
    else:
        groups = assign(_in_order(by_name, ready_order, chosen), chosen.limits(rebuilt=True))
    return tuple(
        Bucket(index, tuple(one.name for one in group), sum(one.nbytes for one in group))
        for index, group in enumerate(groups)
    )


def _in_order(
    by_name: dict[str, Parameter], ready_order: Iterable[str] | None, settings: BucketSettings
) -> list[Parameter]:
    if ready_order is None:
        return list(by_name.values())[::-1]
    names = list(ready_order)
    unknown = [name for name in names if name not in by_name]
    if unknown or len(set(names)) < len(names):
        raise UsageError(f"ready_order names each parameter once; it has {unknown or 'one of them twice'}")
    unused = [name for name in by_name if name not in set(names)]
    if unused and not settings.static_graph:
        raise UsageError(f"{unused[0]} never becomes ready; DDP then needs find_unused_parameters=True")
    return [by_name[name] for name in names + unused]


def assign(parameters: Iterable[Parameter], limits: Sequence[int]) -> list[list[Parameter]]:
    """Fill one bucket per dtype and device at a time; one closes once it has reached its limit, so it may exceed it."""
    closed: list[list[Parameter]] = []
    filling: dict[tuple[str, str], list[Parameter]] = {}
    size: Counter[tuple[str, str]] = Counter()
    filled: Counter[tuple[str, str]] = Counter()
    for parameter in parameters:
        if parameter.sparse:
            closed.append([parameter])
            continue
        key = parameter.dtype, parameter.device
        filling.setdefault(key, []).append(parameter)
        size[key] += parameter.nbytes
        if size[key] >= limits[min(filled[key], len(limits) - 1)]:
            closed.append(filling[key])
            filling[key] = []
            size[key] = 0
            filled[key] += 1
    return closed + [bucket for bucket in reversed(filling.values()) if bucket]
