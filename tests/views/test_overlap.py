"""The picture of hidden communication, as data."""

import itertools
import json

import numpy as np
import plotly.graph_objects as go
import pytest
from ddp_traces import MS, ddp_trace
from figures import sizes_of_text, widths_of_lines

from lablib.analysis import Overlap
from lablib.analysis import overlap as rows_of
from lablib.errors import UsageError
from lablib.trace import Kind, Span, Trace
from lablib.views import Badge, overlap, summary
from lablib.views.overlap import sketch
from lablib.views.palette import mixed, rank_colour

SIMULATED = Badge("simulated", 2)


def part(fig, name):
    [found] = [
        one for one in fig.data if one.name == name and list(one.x) != [None]
    ]  # keys of the legend have no place
    return found


def edges(fig, name):
    one = part(fig, name)
    return {slot: (base, base + length) for slot, base, length in zip(one.meta["slots"], one.base, one.x, strict=True)}


def painted(one):
    scale = one.marker.colorscale[::2]
    return [scale[int(number)][1] for number in one.marker.color]


def row(compute, communication, hidden, *, rank=0, iteration=0):
    return Overlap(rank, iteration, compute * MS, communication * MS, hidden * MS)


def test_hidden_communication_lies_under_compute_and_exposed_behind_it():
    fig = overlap([row(30, 20, 12), row(10, 40, 10, rank=1)], badge=SIMULATED)
    assert edges(fig, "compute") == {"0 0": (0, 30), "0 1": (0, 10)}
    assert edges(fig, "hidden") == {"0 0": (18, 30), "0 1": (0, 10)}
    assert edges(fig, "exposed") == {"0 0": (30, 38), "0 1": (10, 40)}
    best, worst = (part(fig, name).x for name in ("best possible", "with nothing hidden"))
    assert [list(best[::3]), list(worst[::3])] == [[30, 40], [50, 50]]
    assert list(part(fig, "coefficients").text) == [
        "<b>0.60</b>  12.0 of 20.0 ms",
        "<b>1.00</b>  10.0 of 10.0 ms",
    ]
    assert max(part(fig, "compute").y) < max(part(fig, "hidden").y)
    assert list(part(fig, "hidden").y) == list(part(fig, "exposed").y)


def test_parts_are_told_apart_without_colour_too():
    fig = overlap([row(30, 20, 12), row(30, 20, 12, rank=1)], badge=SIMULATED)
    assert painted(part(fig, "exposed")) == painted(part(fig, "hidden")) == [rank_colour(0), rank_colour(1)]
    assert painted(part(fig, "compute")) == [mixed(rank_colour(rank), "#ffffff", 0.65) for rank in range(2)]
    assert part(fig, "hidden").marker.pattern.shape == "/"
    assert part(fig, "exposed").marker.pattern.shape is part(fig, "compute").marker.pattern.shape is None


def test_a_trace_has_a_block_for_each_iteration():
    trace = ddp_trace(2, iterations=3)
    fig = overlap(trace)
    assert part(fig, "compute").meta["slots"] == [f"{i} {rank}" for i in range(3) for rank in range(2)]
    assert list(fig.layout.yaxis.ticktext)[:3] == ["<b>iteration 0</b>  rank 0", "rank 1", "<b>iteration 1</b>  rank 0"]
    steps = np.diff(part(fig, "compute").y)
    assert steps[1] > steps[0]
    [first, _] = rows_of(trace, iteration=0)
    assert edges(fig, "exposed")["0 0"] == pytest.approx((first.compute_ns / MS, first.busy_ns / MS))
    one = overlap(trace, iteration=2)
    assert part(one, "compute").meta["slots"] == ["2 0", "2 1"]
    assert summary(one) == "emulated · gloo · 2 ranks · cpu: 2 ranks; iteration 2: coefficient 0.75"
    spans = [*trace, Span(0, "load data", Kind.REGION, 0, 1, iteration=9)]
    assert summary(overlap(trace.with_spans(spans))) == summary(fig)


def test_a_file_without_iterations_is_one_block():
    spans = [Span(0, "gemm", Kind.COMPUTE, 0, 5 * MS), Span(0, "all_reduce", Kind.COLLECTIVE, 4 * MS, 8 * MS)]
    fig = overlap(Trace.of_spans(spans, world_size=2, backend="nccl", device="cuda"))
    assert list(fig.layout.yaxis.ticktext) == ["rank 0"]
    assert summary(fig) == "real · nccl · 2 ranks · cuda: 1 rank; whole trace: coefficient 0.25"


def test_a_prediction_is_an_outline():
    predicted = ddp_trace(2, ms_a_mib=12, truth="simulated")
    fig = overlap(ddp_trace(2), iteration=1, predicted=predicted)
    outline = part(fig, "predicted")
    wanted = rows_of(predicted, iteration=1)[1]
    ms = [wanted.compute_ns - wanted.hidden_ns, wanted.busy_ns]
    assert [outline.x[18], outline.x[19]] == pytest.approx([one / MS for one in ms])
    assert len(outline.x) == 2 * 2 * 6
    assert "predicted" in summary(fig)
    assert outline.showlegend
    assert not part(overlap(ddp_trace(2)), "predicted").showlegend


def test_where_nothing_can_be_hidden():
    fig = overlap([row(30, 0, 0), row(0, 5, 0, rank=1)], badge=SIMULATED)
    assert list(part(fig, "coefficients").text) == ["nothing to hide", "nothing to hide it behind"]
    assert summary(fig).endswith("2 ranks; iteration 0: coefficient none")
    with pytest.raises(UsageError, match="give badge="):
        overlap([row(30, 0, 0)])
    with pytest.raises(UsageError, match="no rows to draw of iteration 3"):
        overlap([row(30, 0, 0)], iteration=3, badge=SIMULATED)
    with pytest.raises(UsageError, match="record=True"):
        overlap(Trace((), world_size=1))


def test_pointing_at_a_row_tells_all_its_times():
    [hover] = part(overlap([row(30, 20, 12)], badge=SIMULATED), "exposed").hovertext
    assert hover.split("<br>") == [
        "<b>rank 0</b>, iteration 0",
        "compute 30.00 ms",
        "communication 20.00 ms",
        "hidden 12.00 ms",
        "exposed 8.00 ms",
        "both in 38.00 ms; at best 30.00, at worst 50.00",
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("ranks", "iterations"), [(1, 1), (8, 3), (64, 2)])
def test_every_picture_is_readable(ranks, iterations, theme):
    fig = overlap(ddp_trace(ranks, iterations=iterations), theme=theme)
    assert min(sizes_of_text(fig)) >= 14
    assert min(width for width in widths_of_lines(fig) if width) >= 2
    assert min(np.diff(fig.layout.yaxis.tickvals), default=99) >= 19
    assert min(np.diff(part(fig, "coefficients").y), default=99) >= 19
    assert part(fig, "compute").width >= 4


def test_a_sketch_changes_a_figure_into_another():
    simulated = ddp_trace(2, truth="simulated")
    sketches = [
        sketch(ddp_trace(2)),
        sketch(ddp_trace(8), predicted=ddp_trace(8, late_ms=10)),
        sketch([row(0, 5, 0, rank=1)], badge=SIMULATED),
        sketch(simulated, iteration=0),
    ]
    fig = go.Figure(sketches[0].figure())
    for before, after in itertools.pairwise(sketches):
        for number, path, value in after.changes(before):
            (fig.layout if number is None else fig.data[number])[path] = value
        assert json.loads(fig.to_json()) == json.loads(after.figure().to_json())
    assert list(after.changes(after)) == []
