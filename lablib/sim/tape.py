"""The operations of a forward pass in order: what each makes, what it keeps for backward, what backward makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

LOSS = "loss"


@dataclass(frozen=True)
class Op:
    """Describe one operation by the names of tensors.

    Args:
        module: the innermost module that calls it.
        reads: what it is computed from; in backward each of them that needs a gradient gets one.
        writes: what it makes.
        saves: what autograd keeps of these until backward.
        stats_nbytes: what else it makes for backward alone, such as the mean and deviation of a norm.
        parameters: those whose gradients its backward makes.
        holds: what Python variables keep until it is done, besides what it reads.
        views: whether what it writes lies in the memory of what it reads.
        passes: whether its backward hands the gradient on instead of making another.
        segment: the checkpointed part of the model that it belongs to, which backward computes again; empty for none.
    """

    module: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    saves: tuple[str, ...] = ()
    stats_nbytes: int = 0
    parameters: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    views: bool = False
    passes: bool = False
    segment: str = ""


@dataclass(frozen=True)
class Activations(Sequence[tuple[str, int]]):
    """Hold a forward pass; as a sequence it is the bytes that each module keeps for backward, in order of the modules.

    What two modules keep is counted once, for the first of them. A checkpointed segment keeps what it is called with.

    Args:
        ops: in order.
        nbytes_of: bytes of each tensor.
        source: name of the tensor that view is of, for those that are views.
        element: bytes of a number of the model.
    """

    ops: tuple[Op, ...]
    nbytes_of: dict[str, int]
    source: dict[str, str] = field(default_factory=dict)
    element: int = 4

    def storage(self, name: str) -> str:
        """Return the tensor in whose memory this one lies."""
        return self.storage(self.source[name]) if name in self.source else name

    def segment_inputs(self, segment: str) -> tuple[str, ...]:
        """Return the storages that a checkpointed segment is called with."""
        ops = [op for op in self.ops if op.segment == segment]
        made = {name for op in ops for name in op.writes}
        found = (self.storage(name) for op in ops for name in op.reads if name not in made)
        return tuple(dict.fromkeys(found))

    @cached_property
    def forward(self) -> tuple[Op, ...]:
        """Return the operations of the model, without the loss."""
        return tuple(op for op in self.ops if op.module != LOSS)

    @property
    def nbytes(self) -> int:
        """Return what all of them keep."""
        return sum(nbytes for _, nbytes in self)

    @cached_property
    def pairs(self) -> tuple[tuple[str, int], ...]:
        """Return name and bytes of each module, or of each checkpointed segment."""
        kept: dict[str, int] = {}
        seen: set[str] = set()
        for (segment, module), ops in groupby(self.forward, key=lambda op: (op.segment, op.segment or op.module)):
            together = list(ops)
            names = self.segment_inputs(segment) if segment else [name for op in together for name in op.saves]
            new = {self.storage(name) for name in names} - seen
            seen |= new
            stats = 0 if segment else sum(op.stats_nbytes for op in together)
            kept[module] = kept.get(module, 0) + stats + sum(self.nbytes_of[name] for name in new)
        return tuple(kept.items())

    def __len__(self) -> int:
        return len(self.pairs)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self.pairs)

    def __getitem__(self, index: int) -> tuple[str, int]:  # type: ignore[override]
        return self.pairs[index]


class Tape:
    """Write down operations one by one; each call returns the name of what it makes.

    Args:
        element: bytes of a number of the model.
        autocast: whether linear layers and attention work with copies of 2 bytes a number.
    """

    def __init__(self, *, element: int, autocast: bool) -> None:
        self.element, self.autocast = element, autocast
        self.compute = 2 if autocast else element
        self.ops: list[Op] = []
        self.nbytes_of: dict[str, int] = {}
        self.source: dict[str, str] = {}
        self.bytes_each: dict[str, int] = {}
        self.trained: set[str] = set()
        self.casts: list[str] = []
        self.segment = ""

    def tensor(self, name: str, numel: int, each: int | None = None) -> str:
        """Add a tensor of so many numbers."""
        self.bytes_each[name] = each or self.element
        self.nbytes_of[name] = numel * self.bytes_each[name]
        return name

    def numel(self, name: str) -> int:
        """Return how many numbers a tensor holds."""
        return self.nbytes_of[name] // self.bytes_each[name]

    def add(
        self,
        module: str,
        reads: Sequence[str],
        write: str,
        numel: int,
        *,
        each: int | None = None,
        saves: Sequence[str] = (),
        views: bool = False,
        passes: bool = False,
        stats_nbytes: int = 0,
        parameters: Sequence[str] = (),
        holds: Sequence[str] = (),
    ) -> str:
        """Add an operation that makes one tensor; arguments as of `Op`, ``each`` the bytes of a number it makes."""
        self.tensor(write, numel, each or self.bytes_each[reads[0]])
        if views:
            self.source[write] = reads[0]
        self.trained |= {write} if parameters or self.trained & set(reads) else set()
        op = Op(
            module,
            tuple(reads),
            (write,),
            tuple(saves),
            stats_nbytes,
            tuple(parameters),
            tuple(holds),
            views,
            passes,
            self.segment,
        )
        self.ops.append(op)
        return write

    def cast(self, module: str, name: str, each: int) -> str:
        """Copy a tensor to another number type, where it has not got it."""
        if self.bytes_each[name] == each:
            return name
        return self.add(module, [name], f"{name} as {each} bytes", self.numel(name), each=each)

    def split(self, module: str, name: str, parts: Sequence[str]) -> tuple[str, ...]:
        """Cut a tensor into equal parts that lie in its memory."""
        for part in parts:
            self.tensor(part, self.numel(name) // len(parts), self.bytes_each[name])
            self.source[part] = name
            self.trained |= {part} if name in self.trained else set()
        self.ops.append(Op(module, (name,), tuple(parts), views=True, segment=self.segment))
        return tuple(parts)

    def linear(self, module: str, x: str, out: int, *, into: int, holds: Sequence[str] = ()) -> str:
        """Add a linear layer, which keeps its input, and under autocast the copy of its weight."""
        rows, names = self.numel(x) // into, (f"{module}.weight", f"{module}.bias")
        made, held = f"{module} out", (*holds, x)
        if not self.autocast:
            return self.add(module, [x], made, rows * out, saves=[x], parameters=names, holds=held)
        copies = []
        for name, numel in zip(reversed(names), (out, out * into), strict=True):
            copies.append(f"{name} as 2 bytes")
            self.tensor(copies[-1], numel, 2)
            self.trained.add(copies[-1])
            self.ops.append(Op(module, (), (copies[-1],), parameters=(name,), segment=self.segment))
        self.casts += copies
        needs = x in self.trained
        x = self.cast(module, x, 2)
        saves = [x, copies[1]] if needs else [x]
        return self.add(module, [x, *copies], made, rows * out, each=2, saves=saves, holds=held)

    def activation(self, module: str, x: str, kind: str) -> str:
        """Add an activation: a ReLU keeps what it makes, a GELU what it is given."""
        made = f"{module} out"
        return self.add(module, [x], made, self.numel(x), saves=[made if kind == "relu" else x])

    def norm(self, module: str, x: str, hidden: int) -> str:
        """Add a LayerNorm, which keeps its input, and mean and deviation of each row."""
        stats = 2 * self.numel(x) // hidden * self.bytes_each[x]
        names = (f"{module}.weight", f"{module}.bias")
        return self.add(module, [x], f"{module} out", self.numel(x), saves=[x], stats_nbytes=stats, parameters=names)

    def done(self, output: str) -> Activations:
        """End with the mean squared error against targets, after which the copies of autocast are dropped.

        The error is one number in the memory of as many as there are outputs: torch takes the mean in place.
        """
        self.segment = ""
        self.tensor("targets", self.numel(output))
        held = ["input", "targets", output, *self.casts]
        output = self.cast(LOSS, output, self.element)
        self.add(LOSS, [output], LOSS, self.numel(output), saves=[output, "targets"], holds=held)
        return Activations(tuple(self.ops), dict(self.nbytes_of), dict(self.source), self.element)
