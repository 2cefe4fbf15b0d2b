"""How a tensor crosses between processes: its own elements only, never the whole storage it is a view of."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def is_tensor(obj: object) -> bool:
    """Return whether ``obj`` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(obj, getattr(torch, "Tensor", ()))


def reduce(tensor: Any, *, detach: bool) -> Any:
    """Return pickle's recipe for a tensor: its elements on the CPU, in row-major order.

    Args:
        tensor: any strided tensor or parameter. Other layouts and subclasses travel in torch's own way.
        detach: leave ``requires_grad`` behind, as for a value that comes back from a rank; parameters keep theirs.
    """
    import torch

    if isinstance(tensor, torch.nn.Parameter) and type(tensor) is torch.nn.Parameter:
        return torch.nn.Parameter, (tensor.detach(), tensor.requires_grad)
    plain = tensor.detach()
    if plain.device.type != "meta":
        plain = plain.cpu()
    if type(plain) is not torch.Tensor or plain.layout is not torch.strided or plain.is_quantized or plain.is_meta:
        return plain.__reduce_ex__(4)
    elements = plain.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    keeps_grad = tensor.requires_grad and not detach and tensor.is_leaf
    return _rebuild, (elements, plain.dtype, tuple(plain.shape), keeps_grad)


def _rebuild(elements: bytes, dtype: torch.dtype, shape: tuple[int, ...], requires_grad: bool) -> torch.Tensor:
    import torch

    if not elements:
        return torch.empty(shape, dtype=dtype, requires_grad=requires_grad)
    # frombuffer shares the memory it is given, so it gets a writable copy of its own
    tensor = torch.frombuffer(bytearray(elements), dtype=dtype).reshape(shape)
    return tensor.requires_grad_(requires_grad)
