"""What is in the ranks' memory during one training step, predicted: forward, backward, optimizer, ``zero_grad``.

The step is that of `lablib.training.memory_models.train_step`; ZeRO by hand adds a ``reduce`` after backward.

Sources: `lablib.sim.memory_walk`; torch/optim/adam.py and adagrad.py (``_single_tensor_…``, ``_multi_tensor_…``);
`lablib.parallel.zero`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lablib.errors import UsageError
from lablib.sim.dtypes import dtype_named
from lablib.sim.memory import layout, shards_of, states
from lablib.sim.memory_shares import WALKS
from lablib.sim.memory_walk import TICK_NS, Held, Walk
from lablib.sim.sharding import Parameter
from lablib.sim.tape import LOSS, Activations
from lablib.trace.memory import Category
from lablib.trace.spans import Kind, Span, Trace


def simulate(
    parameters: Iterable[Parameter],
    activations: Activations,
    *,
    stage: str,
    world_size: int,
    optimizer: str = "adam",
    dtype: str = "float32",
    master_weights: bool = False,
    ranks_per_node: int | None = None,
    foreach: bool = False,
    iteration: int = 1,
    ranks: Sequence[int] | None = None,
) -> Trace:
    """Predict one training step; ``lablib.analysis.memory.peak`` of it is the predicted peak.

    Args:
        parameters, stage, world_size, optimizer, dtype, master_weights, ranks_per_node: as of
            `lablib.sim.memory.states`. With master weights the step makes a float32 copy of the gradients.
        activations: of `lablib.sim.activations`, for the same model and number type.
        foreach: whether the optimizer works on all tensors at once, as it does by default on a GPU, so that its
            temporary tensors are as large as all parameters together; on a CPU it takes one after the other.
        iteration: in iteration 0 the optimizer has no state before its own step; later ones are all alike.
        ranks: predict these only; None predicts all.

    Returns:
        a simulated trace: samples of every rank, and spans of forward, backward and optimizer. Only the order of its
        times means something.

    Raises:
        UsageError: as of `states`, or the activations are of another model.
    """
    listed = list(parameters)
    unknown = {name for op in activations.ops for name in op.parameters} - {one.name for one in listed}
    if unknown:
        raise UsageError(
            f"the activations need a parameter {min(unknown)}, which is not given: take one model for both"
        )
    element = dtype_named(dtype).nbytes
    if activations.element != element:
        raise UsageError(f"the activations are of another number type than dtype={dtype!r}: give both the same")
    spans: list[Span] = []
    samples = []
    for rank in range(world_size) if ranks is None else ranks:
        kept = states(
            listed,
            stage=stage,
            world_size=world_size,
            rank=rank,
            optimizer=optimizer,
            dtype=dtype,
            master_weights=master_weights,
            ranks_per_node=ranks_per_node,
        )
        shape = layout(listed, stage=stage, world_size=world_size, rank=rank, ranks_per_node=ranks_per_node)
        held = Held(rank, iteration)
        shards = shards_of(stage, world_size, ranks_per_node)
        walk = WALKS.get(stage, Walk)(held, activations, listed, stage=stage, shards=shards, element=element)
        held.make("parameters", Category.PARAMETERS, kept[Category.PARAMETERS])
        held.make("buckets", Category.COMMUNICATION, kept[Category.COMMUNICATION])
        masters = 4 * sum(shape.updated) if master_weights else 0
        held.make("masters", Category.OPTIMIZER, masters)
        state = kept[Category.OPTIMIZER] - masters
        if iteration:
            held.make("state", Category.OPTIMIZER, state)
        walk.begin()
        walk.forward()
        walk.backward()
        held.phase = ""
        walk.reduce()
        held.phase = "optimizer"
        if master_weights:
            held.make("master gradients", Category.TEMPORARY, masters)
        if not iteration:
            held.make("state", Category.OPTIMIZER, state)
            held.sample()
        step(held, shape.updated, optimizer=optimizer, element=4 if master_weights else element, foreach=foreach)
        held.drop_all("master gradients")
        held.phase = ""
        held.drop_all("gradient")
        held.drop_all(LOSS)
        held.sample()
        spans += [_span(held, kind) for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.OPTIMIZER)]
        samples += held.samples
    return Trace.of_spans(spans, world_size=world_size, truth="simulated", memory=samples)


def step(held: Held, updated: tuple[int, ...], *, optimizer: str, element: int, foreach: bool) -> None:
    """Make what an optimizer makes while it updates tensors of so many numbers: square roots, to divide by."""
    held.sample()
    if optimizer in ("adam", "adamw", "adagrad"):
        again = (optimizer == "adagrad") == foreach  # whether what it divides by is another tensor than the root
        last = ""
        for place, numel in enumerate((sum(updated),) if foreach else updated):
            root = f"root {place}"
            held.make(root, Category.TEMPORARY, element * numel)
            held.sample()
            if again:
                held.make(f"corrected {place}", Category.TEMPORARY, element * numel)
                held.sample()
                held.drop(root)
                root = f"corrected {place}"
            if last:  # a variable held it until here
                held.drop(last)
            last = root
        if last:
            held.drop(last)
    held.sample()


def _span(held: Held, kind: Kind) -> Span:
    times = [sample.time_ns for sample in held.samples if sample.phase == kind]
    return Span(held.rank, str(kind), kind, times[0], times[-1] + TICK_NS, iteration=held.iteration)
