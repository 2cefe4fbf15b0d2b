"""The bucket explorer: which bucket leaves first, and when?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import ipywidgets
import numpy as np

from lablib.errors import UsageError
from lablib.links import Link
from lablib.sim.ddp import simulate
from lablib.sim.plan import Plan, chain
from lablib.trace import Trace
from lablib.views import Badge
from lablib.views.buckets import sketch
from lablib.widgets.frame import Explorer, Scene, Settings

ITERATIONS = 3
_AS_TORCH = "as torch does"
_CAPS_MIB = (_AS_TORCH, 0.25, 0.5, 1, 2, 4, 8, 16, 25, 50)
_FIRST_MIB = (_AS_TORCH, 0.25, 0.5, 1, 2, 4, 8)
_SHAPES = ("all the same", "first is biggest", "last is biggest", "growing")
_SPEEDS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


@dataclass(frozen=True)
class _Measured:
    """Hold the same model on real ranks twice: with layers that sleep and a slow network, and as it comes."""

    emulated: Trace
    real: Trace


def bucket_explorer(
    *,
    run: Callable[..., Any] | None = None,
    emulate: Callable[..., Any] | None = None,
    compute: Callable[..., Any] | None = None,
    theme: str | None = None,
) -> Explorer:
    """Return an explorer of DistributedDataParallel's buckets: predicted, emulated and real.

    Args:
        run: runs a function on real ranks: ``lablib.run``; left out, there is no button.
        emulate: trains a plan's model with layers that sleep: ``lablib.training.emulate.train``.
        compute: trains it with real arithmetic: ``lablib.training.arithmetic.train``.
        theme: ``light`` or ``dark``; see `views.frame.chosen_theme`.

    Raises:
        UsageError: run is given without the others.
    """
    if run is not None and (emulate is None or compute is None):
        raise UsageError(
            "give emulate= and compute= too: the train functions of lablib.training.emulate and .arithmetic"
        )

    def draw(settings: Settings, measured: _Measured | None) -> Scene:
        iteration = settings["iteration"]
        predicted = simulate(
            _plan(settings),
            world_size=settings["world_size"],
            link=_link(settings),
            iterations=[iteration],
            **_arguments(settings),
        )
        if measured is None:
            return Scene(lambda _: sketch(predicted, iteration=iteration, theme=theme))
        badge = Badge.of(measured.emulated, note="outline: predicted, hatched: real arithmetic, real network")
        return Scene(
            lambda _: sketch(
                measured.emulated,
                iteration=iteration,
                predicted=predicted,
                beside=measured.real,
                badge=badge,
                theme=theme,
            )
        )

    def measure(settings: Settings) -> _Measured:
        assert run is not None, "the button is there only with something to run"
        assert emulate is not None and compute is not None
        how = {"steps": ITERATIONS, **_arguments(settings)}
        plan, options = _plan(settings), {"world_size": settings["world_size"], "record": True}
        emulated = run(partial(emulate, plan, **how), link=_link(settings), **options)
        return _Measured(emulated.trace, run(partial(compute, plan, **how), **options).trace)

    return Explorer(_knobs(), draw, adjust=_adjust, run=None if run is None else measure, only_drawn=("iteration",))


def _knobs() -> dict[str, Any]:
    narrow = {"width": "244px"}
    wide = {"width": "344px"}
    style = {"description_width": "104px"}

    def slider(value: float, low: float, high: float, step: float, name: str) -> Any:
        return ipywidgets.FloatSlider(value, min=low, max=high, step=step, description=name, layout=wide, style=style)

    def choice(options: tuple[Any, ...], value: Any, name: str) -> Any:
        return ipywidgets.Dropdown(options=options, value=value, description=name, layout=narrow, style=style)

    return {
        "iteration": ipywidgets.ToggleButtons(
            options=list(range(ITERATIONS)), value=1, description="iteration", style={"button_width": "48px"}
        ),
        "world_size": ipywidgets.IntSlider(2, 2, 8, description="world size", layout=wide, style=style),
        "cap": choice(_CAPS_MIB, _AS_TORCH, "cap, MiB"),
        "first_cap": choice(_FIRST_MIB, _AS_TORCH, "first, MiB"),
        "static_graph": ipywidgets.Checkbox(False, description="static_graph", indent=False, layout={"width": "130px"}),
        "find_unused": ipywidgets.Checkbox(
            False, description="find_unused_parameters", indent=False, layout={"width": "210px"}
        ),
        "layers": ipywidgets.IntSlider(8, 1, 25, description="layers", layout=wide, style=style),
        "mib": slider(1.0, 0.25, 4.0, 0.25, "MiB a layer"),
        "shape": choice(_SHAPES, _SHAPES[0], "sizes"),
        "backward_ms": slider(20.0, 1.0, 40.0, 1.0, "backward, ms"),
        "speed": ipywidgets.SelectionSlider(
            options=_SPEEDS, value=100, description="link, MiB/s", layout=wide, style=style
        ),
        "latency_ms": slider(1.0, 0.0, 20.0, 0.5, "latency, ms"),
    }


def _adjust(knobs: Mapping[str, Any]) -> None:
    """A graph that is static has no unused parameters to look for in each iteration."""
    knobs["find_unused"].disabled = knobs["static_graph"].value
    if knobs["static_graph"].value:
        knobs["find_unused"].value = False


def _plan(settings: Settings) -> Plan:
    n = settings["layers"]
    weights = {
        "all the same": np.ones(n),
        "first is biggest": np.array([4.0, *np.ones(n - 1)]),
        "last is biggest": np.array([*np.ones(n - 1), 4.0]),
        "growing": np.linspace(0.5, 1.5, n),
    }[settings["shape"]]
    sizes = weights * settings["mib"]
    return chain(
        sizes.tolist(), forward_ms=settings["backward_ms"] / 2, backward_ms=settings["backward_ms"], optimizer_ms=1.0
    )


def _link(settings: Settings) -> Link:
    return Link(latency_ms=settings["latency_ms"], bandwidth_mib_s=settings["speed"])


def _arguments(settings: Settings) -> dict[str, Any]:
    """Return the arguments of DistributedDataParallel that the knobs stand for."""
    cap, first = settings["cap"], settings["first_cap"]
    chosen: dict[str, Any] = {}
    if first != _AS_TORCH:
        chosen["bucket_cap_mb_list"] = [first, 25 if cap == _AS_TORCH else cap]
    elif cap != _AS_TORCH:
        chosen["bucket_cap_mb"] = cap
    if settings["static_graph"]:
        chosen["static_graph"] = True
    if settings["find_unused"]:
        chosen["find_unused_parameters"] = True
    return chosen
