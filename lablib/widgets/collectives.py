"""The collectives explorer: which rank holds what after each call?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets
import numpy as np

from lablib.errors import UsageError
from lablib.sim import DTYPES, OPERATIONS, REDUCE_OPS, Collective, compare, place
from lablib.sim.collective import Splits
from lablib.views import Badge
from lablib.views.tiles import sketch
from lablib.widgets.frame import Explorer, Scene, Settings
from lablib.widgets.ranks import RankPicker

_PAIRS = ("send_recv", "isend_irecv")
_CUT = ("scatter", "reduce_scatter", "reduce_scatter_single", "all_to_all", "all_to_all_single")
_ROWS = (("op", "world_size", "dtype", "reduce_op"), ("values", "elements", "root", "to", "uneven"), ("ranks",))
_VALUES = ("10 × rank + position", "rank + 1", "2 to the rank", "random")


def collectives_explorer(
    *, run: Callable[..., Any] | None = None, job: Callable[..., Any] | None = None, theme: str | None = None
) -> Explorer:
    """Return an explorer of all collectives and point-to-point patterns.

    Args:
        run: runs a function on real ranks: ``lablib.run``; left out, there is no button.
        job: what each rank does: ``lablib.training.collectives.measure``.
        theme: ``light`` or ``dark``; see `views.frame.chosen_theme`.

    Raises:
        UsageError: run is given without job.
    """
    if run is not None and job is None:
        raise UsageError("give job=measure too, after `from lablib.training.collectives import measure`")

    def draw(settings: Settings, measured: Any) -> Scene:
        call = _call(settings)
        placement = place(call, _inputs(call, settings))
        agreement = None if measured is None else compare(placement, list(measured.values))
        badge = None if measured is None else Badge.real(measured, note="laid over the prediction")
        return Scene(
            lambda step: sketch(placement, step=step, measured=agreement, badge=badge, theme=theme),
            len(placement.steps),
        )

    def measure(settings: Settings) -> Any:
        assert run is not None, "the button is there only with something to run"
        call = _call(settings)
        return run(job, call, _inputs(call, settings), world_size=call.world_size)

    return Explorer(_knobs(), draw, adjust=_adjust, run=None if run is None else measure, rows=_ROWS)


def _knobs() -> dict[str, Any]:
    wide = {"layout": {"width": "250px"}, "style": {"description_width": "72px"}}
    narrow = {"layout": {"width": "156px"}, "style": {"description_width": "44px"}}
    return {
        "op": ipywidgets.Dropdown(options=list(OPERATIONS), value="all_reduce", description="operation", **wide),
        "world_size": ipywidgets.IntSlider(4, 2, 8, description="world size", **wide),
        "reduce_op": ipywidgets.Dropdown(options=list(REDUCE_OPS), description="op", **narrow),
        "root": ipywidgets.Dropdown(options=list(range(4)), description="root", **narrow),
        "to": ipywidgets.Dropdown(options=list(range(4)), value=1, description="to", **narrow),
        "dtype": ipywidgets.Dropdown(options=list(DTYPES), description="dtype", **narrow),
        "elements": ipywidgets.IntSlider(4, 1, 16, description="elements", **wide),
        "values": ipywidgets.Dropdown(options=_VALUES, description="values", **wide),
        "uneven": ipywidgets.Checkbox(False, description="uneven sizes", indent=False, layout={"width": "130px"}),
        "ranks": RankPicker(4, most=8, description="group"),
    }


def _adjust(knobs: Mapping[str, Any]) -> None:
    """Offer what this call can have, and hide what it does not use."""
    kind, op = OPERATIONS[knobs["op"].value], knobs["op"].value
    knobs["ranks"].resize(knobs["world_size"].value)
    group = list(knobs["ranks"].value)
    for name in ("root", "to"):
        chosen = knobs[name].value
        if list(knobs[name].options) != group:
            knobs[name].options = group
        knobs[name].value = chosen if chosen in group else None
    if group and knobs["root"].value is None:
        knobs["root"].value = group[0]
    others = [rank for rank in group if rank != knobs["root"].value]
    if others and knobs["to"].value not in others:
        knobs["to"].value = others[0]
    knobs["root"].description = kind.root or "root"
    shown = {"root": bool(kind.root), "to": op in _PAIRS, "reduce_op": kind.reduces, "uneven": bool(kind.splits)}
    for name, is_shown in shown.items():
        knobs[name].layout.display = None if is_shown else "none"


def _call(settings: Settings) -> Collective:
    kind, n, group = OPERATIONS[settings["op"]], settings["world_size"], settings["ranks"]
    if not group:
        raise UsageError("a group needs a rank: press at least one of its buttons")
    splits: Splits | None = None
    if settings["uneven"] and kind.splits:
        rows = _uneven(len(group), settings["elements"])
        splits = rows if kind.splits == "matrix" else rows[0]
    return Collective(
        settings["op"],
        n,
        root=settings["root"] if kind.root else None,
        to=settings["to"] if settings["op"] in _PAIRS else None,
        reduce_op=settings["reduce_op"],
        dtype=settings["dtype"],
        ranks=None if group == tuple(range(n)) else group,
        splits=splits,
    )


def _uneven(n: int, elements: int) -> tuple[tuple[int, ...], ...]:
    """Return sizes from 1 to `elements`, for each sender and receiver another one."""
    return tuple(tuple(1 + (2 * i + j) % elements for j in range(n)) for i in range(n))


def _inputs(call: Collective, settings: Settings) -> list[np.ndarray[Any, Any]]:
    """Return what each rank brings."""
    elements, n = settings["elements"], len(call.group)
    sizes = [elements * (n if call.op in _CUT else 1)] * call.world_size
    if call.splits:
        rows = _uneven(n, elements)
        for position, rank in enumerate(call.group):
            row = rows[position] if call.kind.splits == "matrix" else rows[0]
            sizes[rank] = row[position] if call.op == "all_gather" else sum(row)
    dtype = DTYPES[call.dtype]
    return [dtype.cast(_values(settings["values"], rank, size)) for rank, size in enumerate(sizes)]


def _values(kind: str, rank: int, size: int) -> np.ndarray[Any, Any]:
    if kind == "random":
        return np.random.default_rng(rank).normal(0, 10, size).round(2)
    if kind == "10 × rank + position":
        return 10.0 * rank + np.arange(size)
    return np.full(size, rank + 1.0 if kind == "rank + 1" else 2.0**rank)
