"""What is in a rank's memory while a job runs: torch's memory tracker, by our categories, over time.

    every operator ─► torch's MemTracker: storages, and when they die ─► a sample for each change
                         ▲ what they are for
    modules, DDP, optimizers, collectives

The tracker sees every operator that this thread runs, C++'s own too: DDP's buckets where DDP is built in the job. It
does not see what was made before the job and is used by no module or optimizer in it, nor what other threads make.
Import this module only where memory is asked for.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.utils._pytree import tree_iter

from lablib import torch_private
from lablib.trace.memory import Category, MemorySample

_torch: Any = torch_private.memory_tracker()
_Ref: Any = _torch._MemRefType
_COMMUNICATION = "communication"  # a category that torch's tracker does not have
_CATEGORIES: dict[Any, Category] = {
    _Ref.PARAM: Category.PARAMETERS,
    _Ref.GRAD: Category.GRADIENTS,
    _Ref.OPT: Category.OPTIMIZER,
    _Ref.ACT: Category.ACTIVATIONS,
    _Ref.TEMP: Category.TEMPORARY,
    _Ref.BUFFER: Category.BUFFERS,
    _COMMUNICATION: Category.COMMUNICATION,
    _Ref.OTH: Category.OTHER,
}
_MAKES_BUCKETS = torch_private.ddp_bucket_makers()


class _Tracker(_torch.MemTracker):  # type: ignore[misc]
    """Count bytes by category and tell of every change.

    Args:
        changed: is called after every change, and where a module or a step begins and ends.
    """

    _ac_mod: Any

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__()
        self._changed = changed
        self._ref_class = tuple(_CATEGORIES)
        self._steps = 0
        self._removables: list[Any] = []

    def nbytes(self, device: torch.device) -> tuple[int, ...]:
        """Return what a device holds now, in the order of `Category`."""
        held = self._curr_mem_snap.get(device, {})
        return tuple(held.get(kind, 0) for kind in _ORDER)

    @property
    def phase(self) -> str:
        """Return which part of a training step this is."""
        if self._steps:
            return "optimizer"
        if self._mod_tracker.is_bw:
            return "backward"
        return "forward" if len(self._mod_tracker.parents) > 1 else ""

    @property
    def module(self) -> str:
        """Return the name of the innermost module, as its model gives it; of the outermost one, its class."""
        innermost = max(self._mod_tracker.parents - {"Global"}, key=lambda name: name.count("."), default="")
        root, *path = [part for part in innermost.split(".") if part != "_fsdp_wrapped_module"]
        return ".".join(path[1:] if path[:1] == ["module"] else path) or root

    def __enter__(self) -> _Tracker:
        self._removables = [
            modules.register_module_parameter_registration_hook(self._registered(_Ref.PARAM)),
            modules.register_module_buffer_registration_hook(self._registered(_Ref.BUFFER)),
        ]
        super().__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        for removable in self._removables:
            removable.remove()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if getattr(func, "namespace", "") in ("c10d", "_c10d_functional"):
            self._mark_handed_over((args, result))
        return result

    def _mark_handed_over(self, tensors: Any) -> None:
        """Say of what a collective was given, and is nothing better, that it is there for communication."""
        gradients = {
            parameter.grad.untyped_storage()._cdata
            for parameter in self._param_to_grad_hook_handles
            if parameter.grad is not None
        }
        for tensor in tree_iter(tensors):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                known, _ = self._WINFO.get(storage, (None, None))
                if storage._cdata in gradients:  # such as a bucket whose views the gradients are
                    self._update_and_maybe_create_winfos(tensor, _Ref.GRAD)
                elif known is None or known.reftype in (_Ref.ACT, _Ref.TEMP):
                    self._update_and_maybe_create_winfos(tensor, _COMMUNICATION)

    def _registered(self, kind: Any) -> Callable[..., None]:
        def registered(module: nn.Module, name: str, tensor: torch.Tensor | None) -> None:
            if tensor is not None:
                self._update_and_maybe_create_winfos(tensor, kind)

        return registered

    def _track(self, kind: Any, tensor: torch.Tensor) -> None:
        if self._steps:  # which temporaries stay is known after the step
            kind = _Ref.OPT if _under(sys._getframe(1), _makes_state) else _Ref.TEMP
        elif _under(sys._getframe(1), _MAKES_BUCKETS.__contains__):
            kind = _COMMUNICATION
        super()._track(kind, tensor)

    def _update_snap(self, *args: Any, **kwargs: Any) -> None:
        super()._update_snap(*args, **kwargs)
        self._changed()

    def _update_peak_stats(self, peak_state: Any) -> None:
        """Do nothing: the samples hold every peak, and copies of each state are slow."""

    def _pre_fw_hook(self, module: nn.Module, inputs: Any) -> None:
        if self._mod_tracker.is_bw:
            if self._ac_mod is None:  # a checkpoint computes its forward again
                self._ac_mod = _torch.weakref.ref(module)
                self._in_ac = True
        elif len(self._mod_tracker.parents) == 2:  # "Global" and an outermost module
            self._track_module_params_and_buffers(module)
        self._changed()

    def _post_fw_hook(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        if self._ac_mod is not None and self._ac_mod() is module:
            self._ac_mod = None
            self._in_ac = False
        self._changed()

    def _pre_bw_hook(self, module: nn.Module | None, args: Any) -> None:
        self._changed()

    _post_bw_hook = _pre_bw_hook

    def _register_global_optimizer_hook(self) -> None:
        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            self._steps += 1  # ZeroRedundancyOptimizer steps another one inside
            for parameter in (one for group in optimizer.param_groups for one in group["params"]):
                self._update_and_maybe_create_winfos(parameter, _Ref.PARAM)
                if parameter.grad is not None:
                    self._update_and_maybe_create_winfos(parameter.grad, _Ref.GRAD)
            self._changed()

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            self._track_optimizer_states(_Ref.OPT, optimizer)
            self._changed()
            self._steps = max(0, self._steps - 1)

        self._optimizer_hook_handles = (
            optimizers.register_optimizer_step_pre_hook(before),
            optimizers.register_optimizer_step_post_hook(after),
        )


_ORDER = sorted(_CATEGORIES, key=lambda kind: list(Category).index(_CATEGORIES[kind]))


class MemoryWatch:
    """Take a sample of this rank's memory at every change of bytes, module or phase; between `start` and `stop`.

    Args:
        rank: the global rank.
        device: the rank's device, such as ``cpu`` or ``cuda:0``.
        iteration: says which iteration it is.
    """

    def __init__(self, rank: int, device: str, *, iteration: Callable[[], int | None]) -> None:
        self._rank = rank
        self._device = torch.device(device)
        self._iteration = iteration
        self._samples: list[MemorySample] = []
        self._last: tuple[Any, ...] = ()
        self._tracker = _Tracker(self._sample)

    def start(self) -> None:
        """Begin; the first sample is taken at once."""
        self._tracker.__enter__()
        self._sample()

    def stop(self) -> tuple[MemorySample, ...]:
        """End, leave torch as it was, and return the samples."""
        self._tracker.__exit__(None, None, None)
        return tuple(self._samples)

    def _sample(self) -> None:
        tracker = self._tracker
        held = tracker.nbytes(self._device)
        allocated = reserved = None
        if self._device.type == "cuda":
            allocated, reserved = torch.cuda.memory_allocated(self._device), torch.cuda.memory_reserved(self._device)
        facts = (held, tracker.phase, tracker.module, self._iteration(), allocated, reserved)
        if facts != self._last:
            self._last = facts
            self._samples.append(MemorySample(self._rank, time.perf_counter_ns(), *facts))


def _makes_state(code: CodeType) -> bool:
    return code.co_name == "_init_group"  # so it is called in torch's optimizers


def _under(frame: FrameType | None, wanted: Callable[[CodeType], bool]) -> bool:
    while frame is not None:
        if wanted(frame.f_code):
            return True
        frame = frame.f_back
    return False
