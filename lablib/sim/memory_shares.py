"""What each way to share the work makes and frees during forward and backward, besides what one process does.

Sources: torch/csrc/distributed/c10d/reducer.cpp, torch/distributed/fsdp/_runtime_utils.py and _flat_param.py,
torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py and _fsdp_collectives.py; `lablib.parallel.zero`.
"""

from __future__ import annotations

from typing import Any

from lablib.sim.memory import unit_shard
from lablib.sim.memory_walk import Walk
from lablib.sim.sharding import chunk, units
from lablib.sim.tape import LOSS, Op
from lablib.trace.memory import Category


class BucketViews(Walk):
    """Copy each gradient into its bucket, where it lives on."""

    def begin(self) -> None:
        self.held.make("bucket views", Category.GRADIENTS, sum(self.gradients.values()))

    def ready(self, gradient: str) -> None:
        self.held.drop(gradient)


class Zero1(Walk):
    """Join all gradients in one vector."""

    @property
    def shard(self) -> int:
        """Return the bytes of a slice of the vector of all trained parameters."""
        return self.element * chunk(sum(self.gradients.values()) // self.element, self.shards)

    def reduce(self) -> None:
        self.held.make("gradient vector", Category.COMMUNICATION, self.shard * self.shards)
        self.held.sample()
        self.held.drop_all("gradient of ")
        self.held.turn("gradient vector", Category.GRADIENTS)
        self.held.sample()


class Zero2(Zero1):
    """Keep one slice of that vector."""

    def reduce(self) -> None:
        self.held.make("gradient slice", Category.COMMUNICATION, self.shard)
        self.held.make("vector", Category.COMMUNICATION, self.shard * self.shards)
        self.held.sample()
        self.held.drop("vector")
        self.held.drop_all("gradient of ")
        self.held.turn("gradient slice", Category.GRADIENTS)
        self.held.sample()


class Zero3(Zero2):
    """Have all parameters during forward, and during backward."""

    def enter(self, op: Op) -> None:
        if op.module == LOSS:
            self.held.drop_all("gathered")
        elif "gathered" not in self.held:
            self.held.make("gathered", Category.PARAMETERS, self.shard * self.shards)
            self.held.sample()

    def enter_back(self, op: Op) -> None:
        if op.module != LOSS:
            self.enter(op)

    def reduce(self) -> None:
        super().reduce()
        self.held.drop("gathered")
        self.held.sample()


class Fsdp1(Walk):
    """Gather a unit's flat parameter for its forward, and again for its backward, one unit ahead of need.

    On a CPU, gloo's reduce-scatter works on a copy.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.units = units(self.parameters)
        self.shard = {
            name: self.element * unit_shard(self.stage, unit, self.shards) for name, unit in self.units.items()
        }
        self.first: dict[int, str] = {}
        self.last: dict[int, str] = {}
        by_unit: dict[str, list[Op]] = {}
        for op in self.tape.forward:
            by_unit.setdefault(self._unit_of(op.module), []).append(op)
        self.order = [name for name in by_unit if name]
        for name in self.order:
            self.first[id(by_unit[name][0])] = name
            self.last[id(by_unit[name][-1])] = name

    def enter(self, op: Op) -> None:
        if op is self.tape.ops[0] and "" in self.units:
            self.gather("")
        if id(op) in self.first:
            self.gather(self.first[id(op)])

    def leave(self, op: Op) -> None:
        if id(op) in self.last and self.stage != "fsdp1_shard_grad_op":
            self.free(self.last[id(op)])

    def turn_back(self) -> None:
        if "" in self.units and self.order:
            self.fetch(self.order[-1])

    def enter_back(self, op: Op) -> None:
        if id(op) in self.last:
            name = self.last[id(op)]
            self.gather(name)
            place = self.order.index(name)
            if place:
                self.fetch(self.order[place - 1])

    def leave_back(self, op: Op) -> None:
        if id(op) in self.first:
            self.scatter(self.first[id(op)])

    def ready(self, gradient: str) -> None:
        """Leave it as it is: what is made and dropped within backward."""

    def end(self) -> None:
        if "" in self.units:
            self.scatter("")

    def fetch(self, name: str) -> None:
        """Begin to gather a unit ahead of need."""
        self.gather(name)

    def gather(self, name: str) -> None:
        """Have all of a unit's parameters."""
        if self.shards > 1 and f"all of {name}" not in self.held:
            self.held.make(f"all of {name}", Category.PARAMETERS, self.shards * self.shard[name])
            self.held.sample()

    def free(self, name: str) -> None:
        """Keep the shard only."""
        if f"all of {name}" in self.held:
            self.held.drop(f"all of {name}")

    def scatter(self, name: str) -> None:
        """Join a unit's gradients, and keep the sum of a shard of them."""
        held, numel, flat = self.held, sum(one.numel for one in self.units[name]), f"gradient of all of {name}"
        held.make(flat, Category.TEMPORARY, self.element * numel)
        held.sample()
        self.drop_gradients(name)
        if self.shards == 1:
            held.turn(flat, Category.GRADIENTS)
            return
        self.free(name)
        self.take_shard(name, copies=2 if numel % self.shards else 1)
        held.drop(flat)
        held.sample()

    def take_shard(self, name: str, *, copies: int) -> None:
        """Reduce and scatter: the shard stays, copies of all of the gradients do not."""
        self.held.make(f"gradient shard of {name}", Category.GRADIENTS, self.shard[name])
        self.held.make("copies", Category.COMMUNICATION, copies * self.shards * self.shard[name])
        self.held.sample()
        self.held.drop("copies")
        self.held.sample()

    def drop_gradients(self, name: str) -> None:
        """Let go of the gradients of a unit's parameters."""
        for one in self.units[name]:
            if f"gradient of {one.name}" in self.held:
                self.held.drop(f"gradient of {one.name}")

    def _unit_of(self, module: str) -> str:
        return max((name for name in self.units if f"{module}.".startswith(f"{name}.")), key=len, default="")


class Fsdp2(Fsdp1):
    """Gather a unit into a buffer, from which its parameters are copied; scatter its gradients from a buffer, too.

    In forward a buffer stays until the next unit has its parameters, in backward until they are copied. That of the
    gradients stays until the next one is needed. A rank alone copies its parameters without a buffer.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._buffer = ""
        self._turned = False

    def enter(self, op: Op) -> None:
        super().enter(op)
        if op.module == LOSS:
            self._drop_buffer()

    def turn_back(self) -> None:
        self._turned = True
        super().turn_back()

    def leave_back(self, op: Op) -> None:
        if set(op.reads) & self.needs:
            super().leave_back(op)

    def end(self) -> None:
        for name in ["", *self.order]:
            if f"all of {name}" in self.held:
                self.scatter(name)
        self.held.drop_all("scattered ")

    def fetch(self, name: str) -> None:
        if self.shards > 1 and f"buffer of {name}" not in self.held:
            self.held.make(f"buffer of {name}", Category.COMMUNICATION, self.shards * self.shard[name])
            self.held.sample()

    def gather(self, name: str) -> None:
        if f"all of {name}" in self.held:
            return
        self.fetch(name)
        self.held.make(f"all of {name}", Category.PARAMETERS, self.shards * self.shard[name])
        self.held.sample()
        self._drop_buffer()
        self._buffer = f"buffer of {name}" if self.shards > 1 else ""
        if self._turned:
            self._drop_buffer()

    def scatter(self, name: str) -> None:
        self.free(name)
        self.held.drop_all("scattered ")
        self.held.make(f"scattered {name}", Category.COMMUNICATION, self.shards * self.shard[name])
        self.held.sample()
        self.drop_gradients(name)
        self.take_shard(name, copies=1 if self.shards > 1 else 0)

    def _drop_buffer(self) -> None:
        if self._buffer:
            self.held.drop(self._buffer)
        self._buffer = ""


WALKS: dict[str, type[Walk]] = {
    "ddp_bucket_view": BucketViews,
    "zero1": Zero1,
    "zero2": Zero2,
    "zero3": Zero3,
    "fsdp1_full_shard": Fsdp1,
    "fsdp1_shard_grad_op": Fsdp1,
    "fsdp1_no_shard": Fsdp1,
    "fsdp1_hybrid_shard": Fsdp1,
    "fsdp2": Fsdp2,
}
