"""Forward and backward on one rank, operation by operation: what is made, and when it is free again.

Forward is gone through as Python and autograd do: what is made stays until nobody reads it and backward does not need
it. Backward goes from the last operation to the first: each makes the gradients of what it has read, then lets go of
what was kept for it.

Sources: torch/csrc/autograd/engine.cpp (``evaluate_function``), torch/utils/checkpoint.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lablib.sim.sharding import Parameter
from lablib.sim.tape import LOSS, Activations, Op
from lablib.trace.memory import Category, MemorySample

TICK_NS = 1_000_000  # each change takes a millisecond: only the order means something


class Held:
    """Count what a rank holds, by name, and take a sample of every change.

    Args:
        rank: the global rank.
        iteration: of the samples.
    """

    def __init__(self, rank: int, iteration: int) -> None:
        self.rank, self.iteration = rank, iteration
        self.phase = self.module = ""
        self.now_ns = 0
        self.samples: list[MemorySample] = []
        self._nbytes: Counter[Category] = Counter()
        self._kept: dict[str, tuple[Category, int]] = {}
        self._owners: Counter[str] = Counter()
        self._last: object = None

    def make(self, name: str, category: Category, nbytes: int) -> None:
        """Begin to hold so many bytes, for one owner."""
        assert name not in self._kept, name
        self._kept[name] = category, nbytes
        self._owners[name] = 1
        self._nbytes[category] += nbytes

    def keep(self, name: str) -> None:
        """Give what is held one more owner."""
        assert name in self._kept, name
        self._owners[name] += 1

    def drop(self, name: str) -> None:
        """Take one owner away; with the last one the memory is free."""
        self._owners[name] -= 1
        if not self._owners[name]:
            category, nbytes = self._kept.pop(name)
            self._nbytes[category] -= nbytes

    def turn(self, name: str, category: Category) -> None:
        """Use what is held for something else."""
        before, nbytes = self._kept[name]
        self._kept[name] = category, nbytes
        self._nbytes[before] -= nbytes
        self._nbytes[category] += nbytes

    def nbytes(self, name: str) -> int:
        """Return the bytes of what is held."""
        return self._kept[name][1]

    def __contains__(self, name: str) -> bool:
        return name in self._kept

    def drop_all(self, prefix: str) -> None:
        """Let go of everything whose name begins like this."""
        for name in [one for one in self._kept if one.startswith(prefix)]:
            while name in self._kept:
                self.drop(name)

    def sample(self) -> None:
        """Write down what is held, where it is something new."""
        now = (dict(self._nbytes), self.phase, self.module)
        if now != self._last:
            self._last = now
            facts = {"phase": self.phase, "module": self.module, "iteration": self.iteration}
            self.samples.append(MemorySample.of(self.rank, self.now_ns, self._nbytes, **facts))
            self.now_ns += TICK_NS


class Walk:
    """Go through forward and backward of one rank; ways to share the work say what else happens, and when.

    Args:
        held: what the rank holds.
        activations: what forward does.
        parameters: of the model.
        stage: how the work is shared.
        shards: into how many shards it cuts what it shards.
        element: bytes of a number of the model.
    """

    def __init__(
        self,
        held: Held,
        activations: Activations,
        parameters: Sequence[Parameter],
        *,
        stage: str,
        shards: int,
        element: int,
    ) -> None:
        self.held, self.tape, self.parameters = held, activations, parameters
        self.stage, self.shards, self.element = stage, shards, element
        self.gradients = {one.name: element * one.numel for one in parameters if one.trainable}
        self._size = activations.nbytes_of
        self.needs = self._that_need_gradients()
        self._first = {op.segment: op for op in reversed(activations.ops)}  # of each segment
        self._pending: dict[str, str] = {}
        self._made = 0
        self._done: set[str] = set()

    def begin(self) -> None:
        """Be called before forward."""

    def enter(self, op: Op) -> None:
        """Be called before an operation of forward."""

    def leave(self, op: Op) -> None:
        """Be called after an operation of forward."""

    def turn_back(self) -> None:
        """Be called where backward begins."""

    def enter_back(self, op: Op) -> None:
        """Be called before the backward of an operation, and before anything is computed again for it."""

    def leave_back(self, op: Op) -> None:
        """Be called after the backward of an operation."""

    def ready(self, gradient: str) -> None:
        """Be called with the name of what holds a parameter's gradient; here the parameter keeps it."""
        self.held.turn(gradient, Category.GRADIENTS)

    def end(self) -> None:
        """Be called where backward ends."""

    def reduce(self) -> None:
        """Be called between backward and the optimizer's step."""

    def forward(self) -> None:
        """Make all activations, and the error."""
        for name in ("input", "targets"):
            self.held.make(name, Category.ACTIVATIONS, self._size[name])
        self.held.sample()
        self._run(self.tape.ops, again=False)

    def backward(self) -> None:
        """Make all gradients, from the last operation to the first; the error itself stays, with input and targets."""
        self.held.phase = "backward"
        self._pending[LOSS] = "1.0"  # the error's gradient to itself, which Python holds until backward is over
        self.held.make("1.0", Category.TEMPORARY, self.element)
        self.held.keep("1.0")
        self.turn_back()
        again: set[str] = set()
        for op in reversed(self.tape.ops):
            self.enter_back(op)
            if op.segment and op.segment not in again:
                again.add(op.segment)
                self._compute_again(op.segment)
            self._back(op)
            self.leave_back(op)
            if op.segment and op is self._first[op.segment]:
                for name in self.tape.segment_inputs(op.segment):
                    self.held.drop(name)
        self.held.module = ""
        for name in self.gradients.keys() - self._done:
            self._parameter(name)
            self.ready(f"gradient of {name}")
        self.end()
        self.held.drop("1.0")
        self.held.sample()

    def _that_need_gradients(self) -> set[str]:
        needs: set[str] = set()
        for op in self.tape.ops:
            if needs & set(op.reads) or any(name in self.gradients for name in op.parameters):
                needs |= set(op.writes)
        return needs

    def _compute_again(self, segment: str) -> None:
        """Run a segment up to the last operation that autograd keeps something of; keep it this time."""
        ops = [op for op in self.tape.ops if op.segment == segment]
        end = max(place for place, op in enumerate(ops) if op.saves)
        self._run(ops[: end + 1], again=True)

    def _run(self, ops: Sequence[Op], *, again: bool) -> None:
        storage = self.tape.storage
        final = {storage(name): place for place, op in enumerate(ops) for name in (*op.reads, *op.holds, *op.writes)}
        if again:  # autocast keeps its copies of parameters while it is on
            final |= {name: len(ops) - 1 for op in ops if not op.reads for name in op.writes}
        made: set[str] = set()
        for place, op in enumerate(ops):
            self.held.module = "" if op.module == LOSS else op.module
            if not again:
                self.held.phase = "" if op.module == LOSS else "forward"
                self.enter(op)
                if op.segment and op is self._first[op.segment]:
                    for name in self.tape.segment_inputs(op.segment):
                        self.held.keep(name)
            # The last one is not even computed again where what it has made is not kept.
            idle = again and op is ops[-1] and not set(op.saves) & set(op.writes)
            for name in () if op.views or idle else op.writes:
                self.held.make(name, Category.ACTIVATIONS, self._size[name])
                made.add(name)
            if again or not op.segment:
                self._save(op)
            self.held.sample()
            for name in [one for one in made - {LOSS} if final[one] == place]:
                made.remove(name)
                self.held.drop(name)
            if not again:
                self.leave(op)
            self.held.sample()

    def _save(self, op: Op) -> None:
        for name in op.saves:
            self.held.keep(self.tape.storage(name))
        if op.stats_nbytes:
            self.held.make(f"{op.module} stats", Category.ACTIVATIONS, op.stats_nbytes)

    def _back(self, op: Op) -> None:
        held, given = self.held, [self._pending.pop(name) for name in op.writes if name in self._pending]
        if not given:
            return
        held.module = "" if op.module == LOSS else op.module
        new: dict[str, str] = {}
        for name in dict.fromkeys(name for name in op.reads if name in self.needs):
            if op.passes and held.nbytes(given[0]) == self._size[name]:
                held.keep(given[0])
                new[name] = given[0]
            else:
                new[name] = self._new(name)
        trained = [name for name in op.parameters if name in self.gradients]
        for name in trained:
            self._parameter(name)
        held.sample()
        for one in given:
            held.drop(one)
        for name in op.saves:
            held.drop(self.tape.storage(name))
        if op.stats_nbytes:
            held.drop(f"{op.module} stats")
        for name, gradient in new.items():
            self._pending[name] = self._sum(name, gradient)
        for name in trained:
            self.ready(f"gradient of {name}")
        held.sample()

    def _sum(self, name: str, gradient: str) -> str:
        """Return what holds the gradient so far and this one together."""
        if name not in self._pending:
            return gradient
        total = self._new(name)
        self.held.sample()
        self.held.drop(self._pending.pop(name))
        self.held.drop(gradient)
        return total

    def _new(self, name: str) -> str:
        self._made += 1
        self.held.make(f"gradient {self._made}", Category.TEMPORARY, self._size[name])
        return f"gradient {self._made}"

    def _parameter(self, name: str) -> None:
        self._done.add(name)
        self.held.make(f"gradient of {name}", Category.TEMPORARY, self.gradients[name])
