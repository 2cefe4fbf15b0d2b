"""How much memory tensors hold, views and copies told apart, without keeping any of it alive."""

from __future__ import annotations

import torch
from torch.multiprocessing.reductions import StorageWeakRef


class Storages:
    """Remember the storages of tensors by weak references, and know which of them are still there.

    What C++ code keeps counts like what Python keeps: DDP's reducer and its buckets, say.
    """

    def __init__(self) -> None:
        self._nbytes: dict[StorageWeakRef, int] = {}

    def note(self, tensor: torch.Tensor) -> None:
        """Remember a tensor's storage; views of one storage count once."""
        storage = tensor.untyped_storage()
        self._nbytes[StorageWeakRef(storage)] = storage.nbytes()  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        """Return how many are still there."""
        return len(self._there())

    @property
    def nbytes(self) -> int:
        """Return the bytes of those that are still there."""
        return sum(self._there())

    def _there(self) -> list[int]:
        return [nbytes for one, nbytes in self._nbytes.items() if not one.expired()]  # type: ignore[no-untyped-call]
