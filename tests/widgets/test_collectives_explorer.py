"""The collectives explorer, without a browser."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import traitlets

import lablib
from lablib.errors import UsageError
from lablib.sim import OPERATIONS, results
from lablib.training.collectives import measure
from lablib.widgets import RankPicker, collectives_explorer


def pretend(job, call, inputs, *, world_size):
    """Be a run whose ranks measure what is predicted."""
    values = [one if isinstance(one, np.ndarray) else np.zeros(one.shape) for one in results(call, inputs)]
    return SimpleNamespace(values=values, backend="gloo", device="cpu", world_size=world_size, seconds=0.0)


def words(explorer):
    return [word for one in explorer.figure.data if one.name.startswith("labels") for word in one.text]


@pytest.mark.parametrize("op", OPERATIONS)
def test_every_operation_answers_at_once_and_its_figure_is_that_of_the_view(op):
    explorer = collectives_explorer(run=pretend, job=measure)
    explorer.knobs["op"].value = op
    for world_size in (2, 8, 3):
        explorer.knobs["world_size"].value = world_size
        assert explorer.error == ""
        assert f"{world_size} ranks" in explorer.summary
        assert sum("<b>rank " in word for word in words(explorer)) == world_size
    explorer.run()
    assert explorer.error == ""
    assert explorer.summary.startswith("real · gloo · 3 ranks · cpu")
    assert explorer.summary.endswith("0 different")


def test_knobs_that_do_not_matter_are_hidden():
    explorer = collectives_explorer()

    def shown():
        return {name for name, knob in explorer.knobs.items() if knob.layout.display != "none"}

    always = {"op", "world_size", "dtype", "elements", "values", "ranks"}
    assert shown() == always | {"reduce_op"}
    explorer.knobs["op"].value = "reduce"
    assert shown() == always | {"reduce_op", "root"}
    assert explorer.knobs["root"].description == "dst"
    explorer.knobs["op"].value = "send_recv"
    assert shown() == always | {"root", "to"}
    explorer.knobs["op"].value = "all_to_all_single"
    assert shown() == always | {"uneven"}


def test_root_and_group_follow_the_world_size():
    explorer = collectives_explorer()
    explorer.knobs["op"].value = "broadcast"
    explorer.knobs["root"].value = 3
    explorer.knobs["world_size"].value = 2
    assert explorer.knobs["root"].value == 0
    assert explorer.knobs["ranks"].value == (0, 1)
    explorer.knobs["world_size"].value = 6
    assert explorer.knobs["ranks"].value == (0, 1, 2, 3, 4, 5)
    explorer.knobs["ranks"].value = (1, 4, 5)
    assert explorer.knobs["root"].value == 1
    assert list(explorer.knobs["root"].options) == [1, 4, 5]
    assert "group=group" in explorer.figure.layout.title.text
    assert words(explorer).count("outside") == 3
    explorer.knobs["ranks"].value = ()
    assert "press at least one" in explorer.error


def test_what_gloo_refuses_is_said_before_it_runs():
    explorer = collectives_explorer()
    explorer.knobs["dtype"].value = "int64"
    explorer.knobs["reduce_op"].value = "AVG"
    assert "use SUM and divide" in explorer.error
    explorer.knobs["dtype"].value = "float64"
    assert explorer.error == ""


def test_uneven_sizes_reach_the_picture():
    explorer = collectives_explorer(run=pretend, job=measure)
    for op in ("reduce_scatter", "all_to_all", "all_to_all_single", "all_gather"):
        explorer.knobs["op"].value = op
        even = explorer.summary
        explorer.knobs["uneven"].value = True
        assert (explorer.error, explorer.summary != even) == ("", True)
        explorer.run()
        assert explorer.summary.endswith("0 different")
        explorer.knobs["uneven"].value = False


@pytest.mark.parametrize("values", ["10 × rank + position", "rank + 1", "2 to the rank", "random"])
@pytest.mark.parametrize("dtype", ["float16", "uint8"])
def test_values_of_every_kind(values, dtype):
    explorer = collectives_explorer()
    explorer.knobs["dtype"].value = dtype
    explorer.knobs["values"].value = values
    assert (explorer.error, dtype in explorer.summary) == ("", True)


def test_a_difference_is_marked():
    def wrong(job, call, inputs, *, world_size):
        run = pretend(job, call, inputs, world_size=world_size)
        run.values[1][2] += 1
        return run

    explorer = collectives_explorer(run=wrong, job=measure)
    explorer.run()
    assert "<b>1 of 16 tiles differ</b>" in words(explorer)
    assert explorer.summary.endswith("1 different")


def test_numbers_that_overflow_are_drawn():
    explorer = collectives_explorer(run=pretend, job=measure)
    for name, value in {"dtype": "float16", "reduce_op": "PRODUCT", "values": "2 to the rank", "world_size": 8}.items():
        explorer.knobs[name].value = value
    explorer.run()
    assert explorer.error == ""
    assert "all ranks end with [inf, inf, inf, inf]" in explorer.summary
    assert explorer.summary.endswith("0 different")


@pytest.mark.parametrize("op", OPERATIONS)
def test_one_element_is_enough(op):
    explorer = collectives_explorer(run=pretend, job=measure)
    explorer.knobs["elements"].value = 1
    explorer.knobs["world_size"].value = 8
    explorer.knobs["op"].value = op
    explorer.run()
    assert explorer.error == ""
    assert explorer.summary.endswith("0 different")


@pytest.mark.parametrize(
    ("found", "told"),
    [(np.full(4, np.nan), "<b>4 of 16 tiles differ</b>"), (np.zeros(0), "<b>4 of 16 tiles differ</b>")],
    ids=["nan", "nothing"],
)
def test_a_rank_with_odd_numbers_is_marked(found, told):
    def odd(job, call, inputs, *, world_size):
        run = pretend(job, call, inputs, world_size=world_size)
        run.values[2] = found
        return run

    explorer = collectives_explorer(run=odd, job=measure)
    explorer.run()
    assert explorer.error == ""
    assert told in words(explorer)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            [None] * 4,
            "UsageError: rank 0 gave a NoneType, which is no tensor of real numbers; let the ranks run measure",
        ),
        (["10"] * 4, "UsageError: rank 0 gave a str"),
        ([np.zeros(4)] * 3, "UsageError: 3 tensors for 4 ranks were measured; give one a rank"),
    ],
)
def test_a_job_that_measures_something_else_is_told(values, told):
    def other(job, call, inputs, *, world_size):
        return SimpleNamespace(values=values, backend="gloo", device="cpu", world_size=world_size, seconds=0.0)

    explorer = collectives_explorer(run=other, job=print)
    explorer.run()
    assert explorer.error.startswith(told)
    assert "The figure still shows the last call that works." in explorer.error
    assert explorer.summary.startswith("simulated")


@pytest.mark.parametrize(("knob", "value"), [("op", "allreduce"), ("dtype", "int16"), ("world_size", "many")])
def test_what_a_knob_does_not_offer_is_refused_and_nothing_changes(knob, value):
    explorer = collectives_explorer()
    before = explorer.summary
    with pytest.raises(traitlets.TraitError):
        explorer.knobs[knob].value = value
    assert (explorer.error, explorer.summary) == ("", before)


def test_something_to_run_needs_a_job():
    with pytest.raises(UsageError, match="give job=measure"):
        collectives_explorer(run=pretend)


@pytest.mark.slow
@pytest.mark.parametrize(("op", "dtype"), [("all_reduce", "bfloat16"), ("reduce", "int32"), ("all_to_all", "float32")])
def test_real_ranks_measure_what_was_predicted(op, dtype, no_orphans):
    explorer = collectives_explorer(run=lablib.run, job=measure)
    explorer.knobs["op"].value = op
    explorer.knobs["dtype"].value = dtype
    explorer.knobs["ranks"].value = (0, 2, 3)
    explorer.run()
    assert explorer.error == ""
    assert explorer.summary.startswith("real · gloo · 4 ranks · cpu")
    assert explorer.summary.endswith("0 equal but for rounding, 0 different")


def test_a_picker_is_a_knob_and_buttons_at_once():
    picker = RankPicker(3, most=4)
    seen = []
    picker.observe(lambda change: seen.append(change["new"]), "value")
    assert picker.value == (0, 1, 2)
    buttons = picker.children[1:]
    assert [button.layout.display for button in buttons] == [None, None, None, "none"]
    buttons[1].value = False
    picker.value = (2,)
    assert [button.value for button in buttons[:3]] == [False, False, True]
    picker.resize(4)
    assert picker.value == (2, 3)
    picker.resize(2)
    assert picker.value == ()
    assert seen == [(0, 2), (2,), (2, 3), ()]
