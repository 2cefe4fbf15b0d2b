"""Which call the ranks make: the operation, who is root, who takes part, how the tensor is cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lablib.errors import UsageError
from lablib.sim.dtypes import check_reduce_op, dtype_named

Splits = tuple[int, ...] | tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Operation:
    """Know one operation of torch.distributed.

    Args:
        code: the call, as a learner types it.
        root: the parameter that names the root rank; empty where no rank is special.
        reduces: whether contributions are combined.
        splits: how the tensor may be cut unevenly: ``row`` (one size a rank), ``matrix`` (one a pair), or not at all.
    """

    code: str
    root: Literal["", "src", "dst"] = ""
    reduces: bool = False
    splits: Literal["", "row", "matrix"] = ""

    @property
    def has_root(self) -> bool:
        """Return whether one rank is special."""
        return bool(self.root)


OPERATIONS = {
    "broadcast": Operation("dist.broadcast(t, src={root}{group})", root="src"),
    "reduce": Operation("dist.reduce(t, dst={root}, op=dist.ReduceOp.{reduce_op}{group})", root="dst", reduces=True),
    "all_reduce": Operation("dist.all_reduce(t, op=dist.ReduceOp.{reduce_op}{group})", reduces=True),
    "scatter": Operation("dist.scatter(out, parts, src={root}{group})", root="src"),
    "gather": Operation("dist.gather(t, outs, dst={root}{group})", root="dst"),
    "all_gather": Operation("dist.all_gather(outs, t{group})", splits="row"),
    "all_gather_single": Operation("dist.all_gather_single(out, t{group})"),
    "reduce_scatter": Operation(
        "dist.reduce_scatter(out, parts, op=dist.ReduceOp.{reduce_op}{group})", reduces=True, splits="row"
    ),
    "reduce_scatter_single": Operation(
        "dist.reduce_scatter_single(out, t, op=dist.ReduceOp.{reduce_op}{group})", reduces=True
    ),
    "all_to_all": Operation("dist.all_to_all(outs, parts{group})", splits="matrix"),
    "all_to_all_single": Operation("dist.all_to_all_single(out, t{sizes}{group})", splits="matrix"),
    "barrier": Operation("dist.barrier({only_group})"),
    "send_recv": Operation("dist.send(t, dst={to}{group})  and  dist.recv(t, src={root}{group})", root="src"),
    "isend_irecv": Operation(
        "dist.isend(t, dst={to}{group}).wait()  and  dist.irecv(t, src={root}{group}).wait()", root="src"
    ),
    "batch_isend_irecv": Operation(
        "dist.batch_isend_irecv([P2POp(dist.isend, t, after), P2POp(dist.irecv, out, before)])"
    ),
}


@dataclass(frozen=True)
class Collective:
    """Describe one call that every rank of a group makes.

    Args:
        op: a name in `OPERATIONS`.
        world_size: number of ranks in the job.
        root: the rank that gives (``src``) or gets (``dst``), by its number in the job; left out, the group's first.
        to: who receives in ``send_recv`` and ``isend_irecv``; left out, the next rank of the group.
        reduce_op: SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR or BXOR.
        dtype: the tensors' type, as torch spells it.
        ranks: who takes part; left out, everyone. As in ``dist.new_group`` they are sorted.
        splits: sizes along the first dimension where they are not all the same: one a rank for reduce_scatter and
            all_gather (gloo has no uneven all_gather), a row of them for each sender for all_to_all; in the order of
            the group.

    Raises:
        UsageError: such a call cannot work; the message says what to write.
    """

    op: str
    world_size: int
    root: int | None = None
    to: int | None = None
    reduce_op: str = "SUM"
    dtype: str = "float32"
    ranks: tuple[int, ...] | None = None
    splits: Splits | None = None

    def __post_init__(self) -> None:
        if self.op not in OPERATIONS:
            raise UsageError(f"there is no operation {self.op!r}; choose {', '.join(OPERATIONS)}")
        if self.world_size < 1:
            raise UsageError(f"world_size={self.world_size} is no number of ranks; give 1 or more")
        dtype_named(self.dtype)
        if self.kind.reduces:
            check_reduce_op(self.reduce_op, self.dtype)
        self._check_members()
        if self.splits is not None:
            self._check_splits(self.splits)

    def _check_members(self) -> None:
        if self.ranks is not None:
            outside = [rank for rank in self.ranks if not 0 <= rank < self.world_size]
            if outside or not self.ranks or len(set(self.ranks)) < len(self.ranks):
                last = self.world_size - 1
                raise UsageError(f"ranks={list(self.ranks)} is no group; name each rank once, from 0 to {last}")
        for name, rank in (("root", self.root), ("to", self.to)):
            if rank is not None and rank not in self.group:
                raise UsageError(f"{name}={rank} is not in the group {list(self.group)}; choose one of its ranks")
        if self.op not in ("send_recv", "isend_irecv"):
            return
        if len(self.group) < 2:
            raise UsageError(f"{self.op} needs two ranks, and the group {list(self.group)} has one; add another")
        if self.target == self.source:
            raise UsageError(f"rank {self.source} cannot send to itself; give another rank as to=")

    def _check_splits(self, splits: Splits) -> None:
        n = len(self.group)
        wanted = self.kind.splits
        if not wanted:
            raise UsageError(f"{self.op} has no uneven form: leave splits out, or pad the tensors to one size")
        rows = splits if wanted == "matrix" else (splits,)
        sizes_fit = len(rows) == (n if wanted == "matrix" else 1) and all(
            isinstance(row, tuple) and len(row) == n and all(isinstance(size, int) and size >= 0 for size in row)
            for row in rows
        )
        if not sizes_fit:
            shape = f"{n} tuples of {n} sizes: [sender][receiver]" if wanted == "matrix" else f"a tuple of {n} sizes"
            raise UsageError(f"splits={splits!r} does not fit {self.op} of {n} ranks; give {shape}, none negative")

    @property
    def kind(self) -> Operation:
        """Return what is known about the operation."""
        return OPERATIONS[self.op]

    @property
    def group(self) -> tuple[int, ...]:
        """Return the ranks that take part, sorted as ``dist.new_group`` sorts them."""
        return tuple(range(self.world_size)) if self.ranks is None else tuple(sorted(self.ranks))

    @property
    def source(self) -> int:
        """Return the root, or who sends."""
        return self.group[0] if self.root is None else self.root

    @property
    def target(self) -> int:
        """Return who receives in a point-to-point operation."""
        if self.to is not None:
            return self.to
        return self.group[(self.group.index(self.source) + 1) % len(self.group)]

    @property
    def code(self) -> str:
        """Return the call in Python, for rank functions that did ``import torch.distributed as dist``."""
        group = "" if len(self.group) == self.world_size else "group=group"
        return self.kind.code.format(
            root=self.source,
            to=self.target if self.root is not None or len(self.group) > 1 else self.source,
            reduce_op=self.reduce_op,
            group=group and f", {group}",
            only_group=group,
            sizes=", out_sizes, in_sizes" if self.splits else "",
        )

    def row_splits(self, sender: int, rows: int) -> list[int]:
        """Return how the `rows` rows of a tensor are cut, one size for each rank of the group.

        Args:
            sender: position in the group of the rank that holds the tensor.
            rows: its size along the first dimension.

        Raises UsageError where the cut does not fit the tensor.
        """
        n = len(self.group)
        if self.splits is None:
            if rows % n:
                fits = sorted({rows - rows % n, rows + n - rows % n} - {0})
                tries = " or ".join(map(str, fits))
                raise UsageError(f"{rows} rows do not divide among {n} ranks; try {tries} rows")
            return [rows // n] * n
        row = self.splits[sender] if self.kind.splits == "matrix" else self.splits
        sizes = [size for size in row if isinstance(size, int)] if isinstance(row, tuple) else []
        if sum(sizes) != rows:
            rank = self.group[sender]
            raise UsageError(f"splits cut {sum(sizes)} rows and rank {rank}'s tensor has {rows}; make them equal")
        return sizes
