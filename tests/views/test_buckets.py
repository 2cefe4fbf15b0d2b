"""The picture of DDP's buckets, as data."""

import itertools
import json
import time

import numpy as np
import plotly.graph_objects as go
import pytest
from ddp_traces import ddp_trace
from figures import sizes_of_text, widths_of_lines

from lablib.analysis import buckets as table_of
from lablib.errors import UsageError
from lablib.views import Badge, buckets, summary
from lablib.views.bucket_words import named
from lablib.views.buckets import sketch
from lablib.views.palette import mixed, rank_colour

PARTS = ("filling", "waiting", "travelling")


def part(fig, name):
    [found] = [one for one in fig.data if one.name == name]
    return found


def moments(fig):
    """Return the four moments of each row as drawn, by rank and bucket."""
    filling, waiting, travelling = (part(fig, name) for name in PARTS)
    return {
        slot: (filling.base[i], waiting.base[i], travelling.base[i], travelling.base[i] + travelling.x[i])
        for i, slot in enumerate(filling.meta["slots"])
    }


def painted(one):
    scale = one.marker.colorscale[::2]
    return [scale[int(number)][1] for number in one.marker.color]


def lines(fig, name):
    """Return the pieces of a line that has gaps, as lists of points."""
    one = part(fig, name)
    pieces, points = [], list(zip(one.x, one.y, strict=True))
    for gap, group in itertools.groupby(points, key=lambda point: bool(np.isnan(point[0]))):
        if not gap:
            pieces.append(list(group))
    return pieces


def test_a_row_shows_when_a_bucket_fills_waits_and_travels():
    trace = ddp_trace(2, late_ms=25)
    drawn = moments(buckets(trace))
    table = table_of(trace, iteration=1)
    assert list(drawn) == [f"{row.rank} {row.bucket}" for row in table.rows]
    for row in table.rows:
        wanted = [(at - table.start_ns) / 1e6 for at in (row.first_ready_ns, row.full_ns, row.sent_ns, row.done_ns)]
        assert drawn[f"{row.rank} {row.bucket}"] == pytest.approx(wanted)


def test_the_parts_follow_each_other_in_one_row():
    fig = buckets(ddp_trace(4))
    filling, waiting, travelling = (part(fig, name) for name in PARTS)
    for before, after in ((filling, waiting), (waiting, travelling)):
        assert list(before.base + before.x) == pytest.approx(list(after.base))
    assert list(filling.y) == list(waiting.y) == list(travelling.y)
    assert waiting.width < filling.width / 2 < travelling.width == filling.width  # told apart without colour


def test_rows_stand_by_bucket_and_in_it_by_rank():
    fig = buckets(ddp_trace(3))
    filling = part(fig, "filling")
    order = [slot for _, slot in sorted(zip(filling.y, filling.meta["slots"], strict=True))]
    assert order == [f"{rank} {bucket}" for bucket in range(4) for rank in range(3)]
    assert min(np.diff(sorted(filling.y))) >= filling.width
    assert painted(part(fig, "travelling"))[::4] == [rank_colour(rank) for rank in range(3)]
    assert painted(filling)[0] == mixed(rank_colour(0), "#ffffff", 0.65)
    assert "rank, top to bottom" in fig.layout.xaxis.title.text


def test_labels_name_bucket_size_and_parameters():
    fig = buckets(ddp_trace(1, layers=2, layers_a_bucket=1))
    assert list(fig.layout.yaxis.ticktext) == [
        "<b>bucket 0</b>  1.00 MiB<br>layer1.weight, layer1.bias",
        "<b>bucket 1</b>  1.00 MiB<br>layer0.weight, layer0.bias",
    ]
    assert list(fig.layout.yaxis.tickvals) == list(part(fig, "filling").y)
    hover = part(fig, "waiting").hovertext[1]
    assert "rank 0, bucket 1" in hover
    assert "1,048,576 B: layer0.weight, layer0.bias" in hover
    assert [f"{name}: " in hover for name in PARTS] == [True] * 3


def test_ticks_stand_where_gradients_are_ready_and_a_line_where_backward_ends():
    trace = ddp_trace(2, late_ms=25)
    table = table_of(trace, iteration=1)
    fig = buckets(trace)
    ticks = lines(fig, "a gradient is ready")
    wanted = sorted((at - table.start_ns) / 1e6 for row in table.rows for _, at in row.ready)
    assert sorted(points[0][0] for points in ticks) == pytest.approx(wanted)
    ends = lines(fig, "backward ends")
    assert {points[0][0] for points in ends} == {(table.backward[0].end_ns - table.start_ns) / 1e6}
    covered = sorted((points[0][1], points[1][1]) for points in ends)
    assert covered[0][0] == 0
    assert covered[-1][1] == fig.layout.yaxis.range[0]
    assert all(np.isclose(upper[1], lower[0]) for upper, lower in itertools.pairwise(covered))


def test_a_prediction_is_an_outline_around_the_ranks_it_is_for():
    predicted = ddp_trace(4, truth="simulated")
    fig = buckets(ddp_trace(4, late_ms=30), predicted=predicted)
    boxes = [piece for piece in lines(fig, "predicted") if piece[0][1] < piece[2][1]]
    assert len(boxes) == 2 * 4  # filling and travelling of each bucket, once for all ranks
    table = table_of(predicted, iteration=1)
    row = table.rows[0]
    assert [boxes[1][0][0], boxes[1][1][0]] == pytest.approx(
        [(at - table.start_ns) / 1e6 for at in (row.sent_ns, row.done_ns)]
    )
    filling = part(fig, "filling")
    first = [y for y, slot in zip(filling.y, filling.meta["slots"], strict=True) if slot.endswith(" 0")]
    assert boxes[0][0][1] < min(first) < max(first) < boxes[0][2][1]
    uneven = buckets(ddp_trace(4), predicted=ddp_trace(4, late_ms=30, truth="simulated"))
    assert len([piece for piece in lines(uneven, "predicted") if piece[0][1] < piece[2][1]]) == 2 * 2 * 4
    assert "predicted" in summary(uneven)
    assert part(fig, "predicted").showlegend
    assert not part(buckets(ddp_trace(4)), "predicted").showlegend


def test_a_prediction_may_have_other_buckets_and_one_iteration_only():
    predicted = ddp_trace(2, layers_a_bucket=1, truth="simulated", iterations=1)
    fig = buckets(ddp_trace(2), predicted=predicted)
    assert len(fig.layout.yaxis.ticktext) == 8
    three = ddp_trace(2, iterations=3)
    with pytest.raises(UsageError, match=r"iteration 2 is not predicted; \[0, 1\] are"):
        buckets(three, predicted=ddp_trace(2, truth="simulated"))
    with pytest.raises(UsageError, match="no bucket filled in iteration 5"):
        buckets(three, iteration=5)
    assert moments(buckets(three, iteration=0)) == moments(buckets(table_of(three), iteration=0))


def test_a_bucket_that_never_left_waits_to_the_end():
    trace = ddp_trace(2)
    cut = trace.with_spans(one for one in trace if not (one.kind == "collective" and one.bucket == 3))
    fig = buckets(cut)
    _, full, sent, done = moments(fig)["1 3"]
    assert full < sent == done
    assert sent >= max(one[3] for one in moments(fig).values())
    assert "never sent" in part(fig, "waiting").hovertext[3]
    assert "2 buckets never sent" in summary(fig)


def test_another_run_lies_hatched_under_each_row():
    run, real = ddp_trace(2), ddp_trace(2, late_ms=30, truth="real")
    fig = buckets(run, beside=real)
    own, other = part(fig, "travelling"), part(fig, "travelling, beside")
    assert other.meta["slots"] == own.meta["slots"]
    assert np.all(own.y + own.width / 2 <= other.y - other.width / 2 + 1e-9)
    table = table_of(real, iteration=1)
    assert list(other.base) == pytest.approx([(row.sent_ns - table.start_ns) / 1e6 for row in table.rows])
    assert (other.marker.pattern.shape, own.marker.pattern.shape) == ("/", None)
    assert "(real)" in other.hovertext[0]
    assert "(emulated)" in own.hovertext[0]
    assert part(fig, "hatched: the real run").showlegend
    assert not part(buckets(run), "hatched").showlegend


def test_badge_and_summary():
    assert summary(buckets(ddp_trace(2, layers=4), iteration=0)) == (
        "emulated · gloo · 2 ranks · cpu: iteration 0, 2 buckets of 2.00, 2.00 MiB on 2 ranks; "
        "the first is sent after 40.2 ms; bucket 0 of rank 0 waits longest, 0.2 ms; "
        "the last is done after 110.0 ms; backward ends after 113.0 ms"
    )
    fig = buckets(ddp_trace(2), badge=Badge("real", 2, "cpu", "gloo"), title="Default caps")
    assert fig.layout.meta["badge"] == "real · gloo · 2 ranks · cpu"
    assert fig.layout.title.text == "<b>Default caps</b>"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("ranks", "layers"), [(1, 2), (2, 24), (8, 50), (16, 50)])
def test_every_picture_is_readable(ranks, layers, theme):
    trace = ddp_trace(ranks, layers=layers)
    fig = buckets(trace, predicted=ddp_trace(ranks, layers=layers, truth="simulated"), theme=theme)
    assert min(sizes_of_text(fig)) >= 14
    assert min(width for width in widths_of_lines(fig) if width) >= 2
    assert min(part(fig, "waiting").width, part(fig, "filling").width) >= 2
    assert min(np.diff(fig.layout.yaxis.tickvals), default=99) >= 20 * (1 + ("<br>" in fig.layout.yaxis.ticktext[0]))
    assert fig.layout.height <= 1300 if ranks <= 8 else fig.layout.height <= 2200


def test_a_sketch_changes_a_figure_into_another():
    simulated = ddp_trace(2, truth="simulated")
    sketches = [
        sketch(ddp_trace(2)),
        sketch(ddp_trace(8, layers=50, late_ms=20), predicted=ddp_trace(8, layers=50)),
        sketch(ddp_trace(1, layers=3), iteration=0),
        sketch(simulated, predicted=simulated),
    ]
    fig = go.Figure(sketches[0].figure())
    for before, after in itertools.pairwise(sketches):
        for number, path, value in after.changes(before):
            (fig.layout if number is None else fig.data[number])[path] = value
        assert json.loads(fig.to_json()) == json.loads(after.figure().to_json())
    assert list(after.changes(after)) == []


def test_a_sketch_is_fast_enough_to_follow_a_knob():
    table, predicted = (table_of(ddp_trace(8, layers=50), iteration=1) for _ in range(2))
    sketch(table, predicted=predicted)
    taken = []
    for _ in range(5):
        start = time.process_time()
        sketch(table, predicted=predicted)
        taken.append(time.process_time() - start)
    assert min(taken) < 0.1  # 10 ms where it was measured


def test_names_are_shortened_until_they_fit():
    assert named(("3.weight", "3.bias")) == "3.weight, 3.bias"
    assert named(tuple(f"{i}.weight" for i in range(11, 3, -1))) == "11.weight … 4.weight (8)"
    assert named(tuple(f"encoder.{i}.weight" for i in range(9))) == "encoder.0.weight … (9)"
    assert named(("model.decoder.layers.11.attention.query",) * 3) == "3 parameters"
    assert named(("model.decoder.layers.11.attention.query",)) == "…der.layers.11.attention.query"
    assert named(()) == "parameters unknown"


def test_another_run_stands_hatched_under_each_row_on_its_own_clock():
    run, other = ddp_trace(3), ddp_trace(3, layer_ms=7, truth="real")
    alone, fig = buckets(run), buckets(run, beside=other)
    for name in PARTS:
        own, beside = part(fig, name), part(fig, f"{name}, beside")
        assert own.meta["slots"] == beside.meta["slots"]
        assert list(own.base) == list(part(alone, name).base)
        assert beside.marker.pattern.shape == "/" != own.marker.pattern.shape
        assert all(np.asarray(beside.y) - beside.width / 2 >= np.asarray(own.y) + own.width / 2 - 1e-6)
        assert list(part(alone, f"{name}, beside").y) == []
    table = table_of(other, iteration=1)
    wanted = [(row.first_ready_ns - table.start_ns) / 1e6 for row in table.rows]
    assert list(part(fig, "filling, beside").base) == pytest.approx(wanted)
    assert len(fig.data) == len(alone.data)  # an explorer changes the one into the other
