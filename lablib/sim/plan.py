"""What one rank computes in a training step: layers that take a known time and have parameters of known size.

The simulation of DDP adds these times up, and `lablib.training.emulate` builds real modules that sleep as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lablib.errors import UsageError
from lablib.sim.buckets import MIB, Parameter


@dataclass(frozen=True)
class Layer:
    """Describe one layer.

    Args:
        name: the module's name in its model, such as ``layer3``.
        forward_ms, backward_ms: how long it computes; all its gradients become ready at the end of its backward, the
            last parameter's first, as a Linear's bias does.
        parameters: named ``<layer>.<parameter>``.
    """

    name: str
    forward_ms: float
    backward_ms: float
    parameters: tuple[Parameter, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Describe one rank's training step.

    Args:
        layers: in the order in which forward uses them; backward goes the other way.
        optimizer_ms: how long the optimizer's step takes.
        late_ms: how long this rank does nothing before each forward, as one that waits for its data.
        registered: names of all layers in the order of their registration, which is that of ``parameters()``; empty
            where they are used in that order.

    Raises:
        UsageError: a time is negative, or the names do not fit.
    """

    layers: tuple[Layer, ...]
    optimizer_ms: float = 0.0
    late_ms: float = 0.0
    registered: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        used = [layer.name for layer in self.layers]
        if len(set(used)) < len(used) or not used:
            raise UsageError("a plan needs layers with different names")
        if self.registered and sorted(self.registered) != sorted(used):
            raise UsageError(f"registered={self.registered!r} must name each of the layers {', '.join(used)} once")
        for layer in self.layers:
            for parameter in layer.parameters:
                if parameter.name.rpartition(".")[0] != layer.name:
                    raise UsageError(
                        f"{parameter.name!r} is no parameter of {layer.name!r}: begin it with {layer.name}."
                    )
        times = [self.optimizer_ms, self.late_ms, *(one.forward_ms for one in self.layers)]
        if not all(0 <= time < float("inf") for time in (*times, *(one.backward_ms for one in self.layers))):
            raise UsageError("a time in the plan is not a number of milliseconds from 0 on")

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return all parameters in the order of their registration."""
        by_name = {layer.name: layer for layer in self.layers}
        return tuple(one for name in self.registered or by_name for one in by_name[name].parameters)

    @property
    def ready_order(self) -> tuple[str, ...]:
        """Return the names of all parameters in the order in which their gradients become ready."""
        return tuple(one.name for layer in reversed(self.layers) for one in reversed(layer.parameters))

    def slowed(self, factor: float) -> Plan:
        """Return the plan of a rank that computes so many times slower."""
        layers = tuple(
            replace(layer, forward_ms=factor * layer.forward_ms, backward_ms=factor * layer.backward_ms)
            for layer in self.layers
        )
        return replace(self, layers=layers, optimizer_ms=factor * self.optimizer_ms)

    def flipped(self) -> Plan:
        """Return the plan of a rank that has the same model and uses its layers in the opposite order."""
        registered = self.registered or tuple(layer.name for layer in self.layers)
        return replace(self, layers=self.layers[::-1], registered=registered)


def chain(
    mib: Sequence[float], *, forward_ms: float, backward_ms: float, optimizer_ms: float = 0.0, bias_nbytes: int = 0
) -> Plan:
    """Return a plan of layers ``layer0``, ``layer1``, … that are used in this order and take the same time.

    Args:
        mib: MiB of each layer's weight.
        forward_ms, backward_ms: of each layer.
        optimizer_ms: of the optimizer's step.
        bias_nbytes: size of each layer's bias; 0 for none.
    """

    def parameters(name: str, weight: float) -> Iterable[Parameter]:
        yield Parameter(f"{name}.weight", 4 * round(weight * MIB / 4))
        if bias_nbytes:
            yield Parameter(f"{name}.bias", bias_nbytes)

    return Plan(
        tuple(
            Layer(name, forward_ms, backward_ms, tuple(parameters(name, weight)))
            for name, weight in ((f"layer{place}", weight) for place, weight in enumerate(mib))
        ),
        optimizer_ms,
    )
