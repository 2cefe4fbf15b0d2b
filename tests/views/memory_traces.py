"""Traces with samples of memory, made by hand."""

from __future__ import annotations

from lablib.trace import Category, MemorySample, Trace

MIB = 1 << 20


def step(rank=0, *, layers=3, iterations=1, other=0, slow=1.0, start_ns=0):
    """Return samples of a model whose layers have 1 MiB of parameters and keep 2 MiB of activations, with Adam."""
    held: dict[Category, int] = {Category.PARAMETERS: layers * MIB}
    samples: list[MemorySample] = []
    now = start_ns

    def put(ms, iteration, phase="", module="", **changes):
        nonlocal now
        held.update({Category[name.upper()]: nbytes for name, nbytes in changes.items()})
        samples.append(MemorySample.of(rank, now, held, phase=phase, module=module, iteration=iteration))
        now += round(slow * ms * 1e6)

    for iteration in range(iterations):
        put(1, iteration, gradients=0)
        for layer in range(layers):
            put(2, iteration, "forward", f"layer{layer}", activations=2 * (layer + 1) * MIB)
        put(1, iteration)
        for layer in reversed(range(layers)):
            put(1, iteration, "backward", f"layer{layer}", temporary=MIB)
            put(
                2, iteration, "backward", f"layer{layer}", gradients=(layers - layer) * MIB, activations=2 * layer * MIB
            )
            put(1, iteration, "backward", f"layer{layer}", temporary=0)
        put(2, iteration, "optimizer", optimizer=2 * layers * MIB + 16, other=other)
        put(1, iteration)
    return samples


def memory_trace(world_size=2, *, truth="real", late_ns=0, **step_of):
    """Return a trace in which each rank does the same, each a little later than the one before."""
    samples = [one for rank in range(world_size) for one in step(rank, start_ns=rank * late_ns, **step_of)]
    backend = None if truth == "simulated" else "gloo"
    return Trace.of_spans([], world_size=world_size, truth=truth, backend=backend, memory=samples)
