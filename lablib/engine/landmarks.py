"""Where a training step is: forward, backward, optimizer, gradients that become ready, and DDP's buckets.

    module hooks ──► FORWARD, iteration        hooks on parameters ──► GRADIENT ─┐
    torch.autograd.backward ──► BACKWARD       DDP's bucket list ────────────────┴─► BUCKET, when its all_reduce leaves
    optimizer hooks ──► OPTIMIZER

All hooks are torch's public ones, and all are taken away again. Communication hooks stay free.
"""

from __future__ import annotations

import re
import time
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as optimizers

from lablib import torch_private
from lablib.trace.recorder import Recorder
from lablib.trace.spans import Kind

_WRAPPERS = re.compile(r"^module\.|_fsdp_wrapped_module\.|_orig_mod\.|_checkpoint_wrapped_module\.")


class Landmarks:
    """Tell a recorder where the training step is; between `start` and `stop`."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._removables: list[Any] = []
        self._depth = 0
        self._begun_ns = 0
        self._in_backward = False
        self._went_backward = True
        self._stepping: list[tuple[int, int]] = []
        self._known: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._hooked: set[int] = set()
        self._ready_ns: dict[str, int] = {}
        self._reducers: weakref.WeakKeyDictionary[nn.Module, _Reducer] = weakref.WeakKeyDictionary()

    def start(self) -> None:
        """Put the hooks in."""
        self._removables += [
            modules.register_module_forward_pre_hook(self._before_forward),
            modules.register_module_forward_hook(self._after_forward, always_call=True),
            optimizers.register_optimizer_step_pre_hook(self._before_step),
            optimizers.register_optimizer_step_post_hook(self._after_step),
        ]
        self._original = torch.autograd.backward
        torch.autograd.backward = self._recorded_backward(self._original)

    def stop(self) -> None:
        """Take every hook away."""
        torch.autograd.backward = self._original
        for removable in self._removables:
            removable.remove()
        self._removables.clear()

    def bucket_sent(self, op: str, facts: dict[str, Any]) -> int | None:
        """Return the index of the DDP bucket that this call reduces, and record how it filled; None for other calls."""
        if op != "all_reduce" or not self._in_backward:
            return None
        for reducer in self._reducers.values():
            index = reducer.sends(facts["group"], facts["nbytes"])
            if index is not None:
                self._record_bucket(reducer, index)
                return index
        return None

    def _record_bucket(self, reducer: _Reducer, index: int) -> None:
        _, names, nbytes = reducer.buckets[index]
        now = time.perf_counter_ns()
        ready = [self._ready_ns[name] for name in names if name in self._ready_ns] or [now]
        self._recorder.add(
            f"bucket {index}",
            Kind.BUCKET,
            min(ready),
            max(ready),
            nbytes=nbytes,
            bucket=index,
            parameters=names,
        )

    def _before_forward(self, module: nn.Module, args: Any) -> None:
        self._depth += 1
        if self._depth > 1 or self._in_backward:
            return
        if torch.is_grad_enabled() and self._went_backward and _is_model(module):
            self._recorder.iteration = 0 if self._recorder.iteration is None else self._recorder.iteration + 1
            self._went_backward = False
            self._ready_ns.clear()
        if module not in self._known:
            self._known.add(module)
            self._watch_gradients(module)
        self._begun_ns = time.perf_counter_ns()

    def _after_forward(self, module: nn.Module, args: Any, output: Any) -> None:
        self._depth -= 1
        if isinstance(module, DistributedDataParallel) and torch.is_grad_enabled():
            self._reducers.setdefault(module, _Reducer(module)).prepare(module)
        if self._depth == 0 and not self._in_backward and _is_model(module):
            self._recorder.add("forward", Kind.FORWARD, self._begun_ns, time.perf_counter_ns())

    def _recorded_backward(self, original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def backward(*args: Any, **kwargs: Any) -> None:
            if self._in_backward:  # a checkpointed block goes backward inside
                return original(*args, **kwargs)
            self._in_backward = True
            start_ns = time.perf_counter_ns()
            try:
                return original(*args, **kwargs)
            finally:
                self._in_backward = False
                self._went_backward = True
                self._recorder.add("backward", Kind.BACKWARD, start_ns, time.perf_counter_ns())

        return backward

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._stepping.append((id(optimizer), time.perf_counter_ns()))

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        while self._stepping:  # an inner step that raised left its begin behind
            owner, start_ns = self._stepping.pop()
            if owner == id(optimizer):
                break
        if not self._stepping:  # ZeroRedundancyOptimizer steps another one inside
            self._recorder.add("optimizer", Kind.OPTIMIZER, start_ns, time.perf_counter_ns())

    def _watch_gradients(self, module: nn.Module) -> None:
        for name, parameter in module.named_parameters():
            if id(parameter) in self._hooked or not parameter.requires_grad or not parameter.is_leaf:
                continue
            self._hooked.add(id(parameter))
            hook = self._ready(_unwrapped(name))
            self._removables.append(parameter.register_post_accumulate_grad_hook(hook))  # type: ignore[no-untyped-call]

    def _ready(self, name: str) -> Callable[[torch.Tensor], None]:
        def ready(parameter: torch.Tensor) -> None:
            now = self._ready_ns[name] = time.perf_counter_ns()
            gradient = parameter.grad  # a sparse one has no nbytes
            nbytes = 0 if gradient is None else gradient.numel() * gradient.element_size()
            self._recorder.add(name, Kind.GRADIENT, now, now, nbytes=nbytes)

        return ready


class _Reducer:
    """What is known of one DDP module: its buckets, and which leaves next."""

    def __init__(self, ddp: Any) -> None:
        self.buckets: list[tuple[int, tuple[str, ...], int]] = []
        self._group = ddp.process_group.group_name
        self._rebuilt: bool | None = None
        self._hooked = False
        self._next = 0

    def prepare(self, ddp: Any) -> None:
        """Get ready for a backward, after forward, where the reducer rebuilds its buckets."""
        rebuilt = torch_private.ddp_has_rebuilt(ddp)
        if rebuilt != self._rebuilt:
            self._rebuilt = rebuilt
            try:
                self.buckets = torch_private.ddp_buckets(ddp)
            except (RuntimeError, torch_private.NotInThisTorch):
                self.buckets = []
        self._hooked = torch_private.ddp_has_hook(ddp)
        self._next = 0

    def sends(self, group: str, nbytes: int) -> int | None:
        """Return the index of the bucket that an all_reduce carries, or None."""
        if group != self._group or self._next >= len(self.buckets):
            return None
        index, _, size = self.buckets[self._next]
        if nbytes != size and not self._hooked:  # a communication hook may send fewer bytes
            return None
        self._next += 1
        return index


def _unwrapped(name: str) -> str:
    """Return a parameter's name as the model gives it, without what wrappers put in."""
    return _WRAPPERS.sub("", name)


def _is_model(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None
