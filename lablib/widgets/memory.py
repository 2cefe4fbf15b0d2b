"""The memory explorer: what is in a rank's memory, when is it most, and what does each way to share the work save?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets

from lablib.analysis.memory import at_end, peak
from lablib.errors import UsageError
from lablib.sim.memory import OPTIMIZERS, STAGES
from lablib.sim.memory_plan import AUTOCAST, CHECKPOINTS, MODELS, MemoryPlan
from lablib.trace import Trace
from lablib.views import Badge, MemoryBars, pair
from lablib.views.memory import sketch as curve
from lablib.views.memory_bars import sketch as bars
from lablib.views.memory_words import amount
from lablib.views.sketch import Sketch
from lablib.widgets.frame import Explorer, Scene, Settings

MOST_RUN_BYTES = 1 << 30
"""What all ranks together may hold at their peak in a run."""

_STAGES = [stage for stage in STAGES if stage != "alone"]
_MANY_OPS = 150  # of a forward: above it only the chosen way is simulated, to answer at once
_DTYPES = ("float32", "bfloat16", AUTOCAST)
_HIDDEN = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_SEQUENCES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_LIMITS = {"none": None, **{amount(1 << power): 1 << power for power in range(20, 38)}}
_BARS_PX = 330.0
_ROWS = (
    ("model", "layers", "hidden"),
    ("batch", "sequence", "dtype"),
    ("optimizer", "checkpoint", "limit"),
    ("stage", "world_size", "rank"),
)


def memory_explorer(*, run: Callable[[MemoryPlan], Any] | None = None, theme: str | None = None) -> Explorer:
    """Return an explorer of a rank's memory: closed forms of every way to share the work, and one step of one of them.

    Args:
        run: trains a plan on real ranks and returns the run or its trace, such as ``lambda plan: lablib.run(
            partial(measured, plan), world_size=plan.world_size, memory=True)`` with `measured` of
            ``lablib.training.memory_run``; left out, there is no button.
        theme: ``light`` or ``dark``; see `views.frame.chosen_theme`.
    """

    def draw(settings: Settings, measured: Trace | None) -> Scene:
        return Scene(lambda _: _sketch(_plan(settings), settings["rank"], _LIMITS[settings["limit"]], measured, theme))

    def measure(settings: Settings) -> Trace:
        assert run is not None, "the button is there only with something to run"
        plan = _plan(settings)
        if (most := sum(plan.peaks())) > MOST_RUN_BYTES:
            raise UsageError(
                f"at their peak the ranks would hold {amount(most)} together, more than {amount(MOST_RUN_BYTES)}: "
                "choose fewer layers, a smaller size, batch or sequence, or fewer ranks"
            )
        found = run(plan)
        return found if isinstance(found, Trace) else found.trace

    return Explorer(
        _knobs(),
        draw,
        adjust=_adjust,
        run=None if run is None else measure,
        only_drawn=("rank", "limit"),
        rows=_ROWS,
    )


def _sketch(plan: MemoryPlan, rank: int, limit: int | None, measured: Trace | None, theme: str | None) -> Sketch:
    few = len(plan.activations.ops) <= _MANY_OPS
    chosen = STAGES[plan.stage]
    predicted = plan.simulate([rank])
    rows = []
    for stage in _STAGES:
        other = plan.under(stage)
        found: dict[str, Any] = {"peaks": other.peaks() if few or stage == plan.stage else ()}
        if measured is not None and stage == plan.stage:
            found = _found(measured, plan)
        rows.append(MemoryBars(STAGES[stage], other.states(), payload=other.payload(), **found))
    badge = Badge.of(predicted if measured is None else measured, note="" if measured is None else "outline: predicted")
    upper = bars(rows, badge=badge, limit_bytes=limit, chosen=chosen, theme=theme, room_px=_BARS_PX)
    heading = f"One step on rank {rank}, {chosen}"
    facts: dict[str, Any] = {"limit_bytes": limit, "ranks": [rank], "title": heading, "timed": False, "theme": theme}
    if measured is None:
        lower = curve(predicted, **facts)
    else:
        lower = curve(measured, iteration=_steady(measured), predicted=predicted, **facts)
    return pair.above(upper, lower, title=_title(plan), badge=badge)


def _found(trace: Trace, plan: MemoryPlan) -> dict[str, Any]:
    """Return what was measured: what stays, in the categories that the closed form has, and the peaks."""
    states, iteration = plan.states(), _steady(trace)
    stayed = [at_end(trace, rank=rank, phase="optimizer", iteration=iteration) for rank in range(plan.world_size)]
    return {
        "measured": [{one: nbytes[one] for one in kept} for nbytes, kept in zip(stayed, states, strict=True)],
        "peaks": [peak(trace, rank=rank, iteration=iteration).total for rank in range(plan.world_size)],
    }


def _steady(trace: Trace) -> int:
    """Return an iteration like any other: the first makes the optimizer's state, the second DDP's final buckets."""
    return min(2, max(one.iteration for one in trace.memory if one.iteration is not None))


def _title(plan: MemoryPlan) -> str:
    numbers = sum(one.numel for one in plan.parameters)
    layers = "layer" if plan.model == "MLP" else "block"
    count = f"{plan.layers} {layers}{'s' if plan.layers != 1 else ''} of width {plan.hidden:,}"
    return f"{plan.model}, {count}: {numbers:,} parameters, {plan.optimizer}, {plan.dtype}"


def _plan(settings: Settings) -> MemoryPlan:
    return MemoryPlan(**{name: value for name, value in settings.items() if name not in ("rank", "limit")})


def _knobs() -> dict[str, Any]:
    wide = {"layout": {"width": "330px"}, "style": {"description_width": "100px"}}

    def slider(options: tuple[int, ...], value: int, name: str) -> Any:
        return ipywidgets.SelectionSlider(options=options, value=value, description=name, **wide)

    def choice(options: Any, value: str, name: str) -> Any:
        return ipywidgets.Dropdown(options=options, value=value, description=name, **wide)

    return {
        "model": choice(MODELS, "MLP", "model"),
        "layers": ipywidgets.IntSlider(4, 1, 24, description="layers", **wide),
        "hidden": slider(_HIDDEN, 256, "width"),
        "batch": slider(_BATCHES, 32, "batch"),
        "sequence": slider(_SEQUENCES, 64, "sequence"),
        "dtype": choice(_DTYPES, "float32", "number type"),
        "optimizer": choice([*OPTIMIZERS], "adam", "optimizer"),
        "checkpoint": choice(CHECKPOINTS["MLP"], "none", "checkpointing"),
        "limit": choice([*_LIMITS], "none", "device has"),
        "stage": choice([(STAGES[stage], stage) for stage in _STAGES], "ddp", "shared by"),
        "world_size": ipywidgets.IntSlider(4, 1, 8, description="world size", **wide),
        "rank": ipywidgets.IntSlider(0, 0, 3, description="show rank", **wide),
    }


def _adjust(knobs: Mapping[str, Any]) -> None:
    """Offer the ranks and checkpoints that there are, and hide what the model has not."""
    model, checkpoint, rank = knobs["model"].value, knobs["checkpoint"], knobs["rank"]
    rank.max = knobs["world_size"].value - 1
    rank.disabled = rank.max == 0
    if checkpoint.options != CHECKPOINTS[model]:
        before = checkpoint.value
        checkpoint.options = CHECKPOINTS[model]
        checkpoint.value = before if before in CHECKPOINTS[model] else "none"
    knobs["sequence"].layout.display = None if model == "transformer" else "none"
