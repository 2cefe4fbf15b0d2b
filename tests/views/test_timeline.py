"""The timeline, as data."""

import itertools
import json

import numpy as np
import plotly.graph_objects as go
import pytest
from ddp_traces import MS, ddp_trace, random_trace
from figures import sizes_of_text, widths_of_lines
from hypothesis import given, settings
from hypothesis import strategies as st

from lablib.errors import UsageError
from lablib.trace import Kind, Span, Trace
from lablib.views import Badge, summary, timeline
from lablib.views.lanes import lanes_of
from lablib.views.palette import DARK, LIGHT, contrast, mixed, rank_colour
from lablib.views.raster import raster
from lablib.views.timeline import MOST_BARS, sketch

BARS = ("regions", "phases", "compute", "buckets", "communication")


def part(fig, name):
    [found] = [one for one in fig.data if one.name == name]
    return found


def painted(one, of="marker"):
    look = one.marker if of == "marker" else one.marker.line
    scale = look.colorscale[::2]
    return [scale[int(number)][1] for number in look.color]


def drawn(fig):
    """Return the bars as (style, left, right, y)."""
    return [
        (name, base, base + length, y)
        for name in BARS
        for base, length, y in zip(part(fig, name).base, part(fig, name).x, part(fig, name).y, strict=True)
    ]


def test_every_span_is_a_bar_in_milliseconds_since_the_first():
    trace = ddp_trace(2, jitter=lambda rank, bucket: rank)
    fig = timeline(trace)
    bars = sorted((round(left, 6), round(right, 6)) for _, left, right, _ in drawn(fig))
    wanted = sorted(
        ((span.start_ns - trace.start_ns) / MS, (span.end_ns - trace.start_ns) / MS)
        for span in trace
        if span.kind is not Kind.GRADIENT
    )
    assert bars == wanted
    ticks = part(fig, "gradients")
    assert sorted(set(ticks.x[~np.isnan(ticks.x)])) == sorted({one.start_ns / MS for one in trace.only("gradient")})


def test_lanes_name_rank_and_kind():
    spans = [*ddp_trace(2), Span(0, "load data", Kind.REGION, 0, 5 * MS)]
    spans += [Span(1, "gemm", Kind.COMPUTE, 0, MS, lane=f"stream {number}") for number in (20, 7)]
    fig = timeline(Trace.of_spans(spans, world_size=2))
    assert list(fig.layout.yaxis.ticktext) == [
        "<b>rank 0</b>  regions",
        "phases",
        "compute",
        "gradients",
        "buckets",
        "communication",
        "<b>rank 1</b>  phases",
        "compute",
        "compute, stream 7",
        "compute, stream 20",
        "gradients",
        "buckets",
        "communication",
    ]
    assert list(fig.layout.yaxis.tickvals) == sorted(fig.layout.yaxis.tickvals)


def test_ranks_have_their_colours_and_communication_its_hatch():
    fig = timeline(ddp_trace(3))
    communication = part(fig, "communication")
    assert set(painted(communication)) == {rank_colour(rank) for rank in range(3)}
    assert communication.marker.pattern.shape == "/"
    for name in ("phases", "compute", "buckets"):
        assert part(fig, name).marker.pattern.shape is None
        assert set(painted(part(fig, name), "line")) == {rank_colour(rank) for rank in range(3)}


def test_operations_on_their_way_together_go_on_lanes_of_their_own():
    calls = [(0, 10), (2, 20), (5, 7), (11, 12), (20, 30)]
    trace = Trace.of_spans(
        [Span(0, "all_reduce", Kind.COLLECTIVE, start * MS, end * MS) for start, end in calls], world_size=1
    )
    fig = timeline(trace)
    bars = part(fig, "communication")
    lanes = {y: number for number, y in enumerate(sorted(set(bars.y)))}
    assert [lanes[y] for y in bars.y] == [0, 1, 2, 0, 0]
    assert min(np.diff(sorted(lanes))) > bars.width


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([*Kind]), st.integers(0, 40), st.integers(0, 12)), max_size=24
    ),
)
@settings(deadline=None)
def test_bars_never_lie_on_each_other(rows):
    spans = Trace.of_spans(
        [Span(rank, kind.value, kind, at * MS, (at + length) * MS) for rank, kind, at, length in rows], world_size=4
    ).spans
    lanes = lanes_of(spans, zero_ns=0, flat=False)
    for y in set(lanes.y):
        here = sorted((lanes.start[i], lanes.end[i]) for i in np.flatnonzero(lanes.y == y))
        crowded = len({lanes.y[i] for i in np.flatnonzero(lanes.group == lanes.group[lanes.y == y][0])}) == 8
        assert crowded or all(one[1] <= other[0] for one, other in itertools.pairwise(here))
    for group, other in itertools.pairwise(lanes.groups):
        assert group.top + group.height <= other.top + 1e-9
    for i, number in enumerate(lanes.group):
        group = lanes.groups[number]
        assert group.rank == spans[i].rank
        assert group.top < lanes.y[i] < group.top + group.height <= lanes.height


def test_a_part_of_the_trace():
    trace = ddp_trace(4)
    fig = timeline(trace, iteration=1, kinds=["backward", Kind.COLLECTIVE], ranks=[3, 1])
    assert {name for name, *_ in drawn(fig)} == {"phases", "communication"}
    assert {text.split(":")[0] for text in part(fig, "communication").hovertext} == {"<b>rank 1", "<b>rank 3"}
    assert len(drawn(fig)) == 2 * (1 + 4)
    assert summary(fig) == (
        "emulated · gloo · 4 ranks · cpu: iteration 1: 2 ranks, 193.0 ms, spans: 2 backward, 8 collective"
    )
    window = timeline(trace, window_ms=(80, 100), kinds=["compute"])
    assert {(left, right) for _, left, right, _ in drawn(window)} == {(80, 100)}
    assert 79 < window.layout.xaxis.range[0] < 80
    for wrong, words in (
        ({"iteration": 9}, r"iteration 9 is not in this trace; \[0, 1\] are"),
        ({"kinds": ["forwards"]}, "'forwards' is not a valid Kind; choose from region, forward"),
        ({"ranks": [1, 4]}, r"ranks \[4\] do not exist; this trace has 4 ranks"),
        ({"window_ms": (3, 3)}, "ends before it starts"),
    ):
        with pytest.raises(UsageError, match=words):
            timeline(trace, **wrong)


def test_pointing_at_a_bar_tells_everything():
    trace = ddp_trace(2)
    hover = part(timeline(trace), "communication").hovertext[0]
    assert hover.split("<br>") == [
        "<b>rank 0: all_reduce</b> (collective)",
        "120.200 → 150.000 ms (29.800 ms)",
        "iteration 0, bucket 0, 2,097,152 B",
        "group default [0, 1], call 1",
        "cell [3], line 12",
    ]
    assert part(timeline(trace), "gradients").hovertext[0] == "rank 0: gradient of layer7.bias is ready"
    foreign = Span(0, "<b>evil", Kind.REGION, 0, MS)
    assert "&lt;b&gt;evil" in part(timeline(Trace.of_spans([foreign], world_size=1)), "regions").text[0]


def test_an_empty_trace_and_a_single_moment():
    empty = timeline(Trace((), world_size=2))
    assert list(part(empty, "message").text) == ["no spans to draw"]
    assert summary(empty) == "real · no backend · 2 ranks · cpu: no spans"
    assert drawn(empty) == []
    moment = timeline(Trace.of_spans([Span(0, "w", Kind.GRADIENT, 5, 5)], world_size=1))
    assert list(part(moment, "gradients").x[:2]) == [0, 0]
    assert moment.layout.xaxis.range[0] < 0 < moment.layout.xaxis.range[1]


def test_many_spans_become_cells():
    trace = random_trace(8, 600)
    assert len(trace) > MOST_BARS
    fig = timeline(trace)
    cells = part(fig, "cells")
    assert drawn(fig) == []
    assert (cells.visible, part(timeline(ddp_trace(2)), "cells").visible) == (True, False)
    assert cells.dy * len(cells.z) == pytest.approx(fig.layout.yaxis.range[0])
    rows = [number for number, row in enumerate(cells.text) if any(row)]
    assert rows == [number for number in range(len(cells.z)) if number % 3]  # a gap before each rank
    assert "4,800 spans" in fig.layout.xaxis.title.text
    assert summary(fig).endswith("spans: 3,600 compute, 1,200 collective")
    assert drawn(timeline(trace, window_ms=(0, 20)))


def test_a_cell_has_colour_and_name_of_what_fills_it_most():
    spans = Trace.of_spans(
        [
            Span(0, "long", Kind.COMPUTE, 0, 30 * MS),
            Span(0, "tiny", Kind.COMPUTE, 31 * MS, 31 * MS + 1),
            Span(0, "most", Kind.COMPUTE, 42 * MS, 50 * MS),
            Span(1, "all_reduce", Kind.COLLECTIVE, 25 * MS, 55 * MS),
        ],
        world_size=2,
    ).spans
    lanes = lanes_of(spans, zero_ns=0, flat=True)
    full = {"COMPUTE": "#000000", "COLLECTIVE": "#ff0000"}
    cells = raster(lanes, lambda span: full[span.kind.name], LIGHT, start=0, end=60, columns=6)
    shown = [row for row in cells["text"].tolist() if any(row)]
    assert shown == [
        ["rank 0: long"] * 3 + ["rank 0: tiny", "rank 0: most", ""],
        ["", ""] + ["rank 1: all_reduce"] * 4,
    ]
    scale = cells["colorscale"][::2]
    row = [None if np.isnan(z) else scale[int(z)][1] for z in cells["z"][1]]
    assert row[0] == row[4] == "#000000"  # filled, or nearly
    assert row[3] == mixed("#000000", LIGHT.paper, 0.65 * (1 - 1 / 3))  # hardly filled: paler
    assert row[5] is None


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("ranks", [1, 2, 8, 24])
def test_every_picture_is_readable(ranks, theme):
    fig = timeline(ddp_trace(ranks), theme=theme)
    assert min(sizes_of_text(fig)) >= 14
    assert fig.layout.uniformtext.minsize >= 14
    assert min(width for width in widths_of_lines(fig) if width) >= 2
    assert min(np.diff(fig.layout.yaxis.tickvals)) >= 18
    paper = {"light": LIGHT, "dark": DARK}[theme]
    for name in ("regions", "phases", "compute", "buckets"):
        assert min([contrast(paper.ink, fill) for fill in painted(part(fig, name))] or [21]) >= 4.5


def test_labels_of_many_ranks_keep_apart():
    fig = timeline(random_trace(64, 100))
    assert min(np.diff(fig.layout.yaxis.tickvals)) >= 18
    assert fig.layout.height < 1300
    assert fig.layout.yaxis.ticktext[0] == "<b>rank 0</b>"


def test_a_sketch_changes_a_figure_into_another():
    sketches = [
        sketch(ddp_trace(2)),
        sketch(ddp_trace(8), iteration=1, badge=Badge("real", 8)),
        sketch(random_trace(8, 600)),
        sketch(Trace((), world_size=1)),
        sketch(ddp_trace(2), title="another"),
    ]
    fig = go.Figure(sketches[0].figure())
    for before, after in itertools.pairwise(sketches):
        for number, path, value in after.changes(before):
            (fig.layout if number is None else fig.data[number])[path] = value
        assert json.loads(fig.to_json()) == json.loads(after.figure().to_json())
    assert list(after.changes(after)) == []
