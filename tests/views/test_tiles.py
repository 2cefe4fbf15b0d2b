"""The picture of a collective, as data."""

import itertools
import json

import numpy as np
import plotly.graph_objects as go
import pytest
from figures import sizes_of_text, widths_of_lines

from lablib.errors import UsageError
from lablib.sim import OPERATIONS, Collective, Undefined, compare, place
from lablib.views import Badge, summary
from lablib.views.palette import contrast, rank_colour
from lablib.views.sketch import put
from lablib.views.tile_grid import WIDTH, short, wrapped
from lablib.views.tiles import sketch, tiles

CUT = ("scatter", "reduce_scatter", "reduce_scatter_single", "all_to_all", "all_to_all_single")


def placed(op, n=4, elements=4, **options):
    call = Collective(op, n, **options)
    sizes = [elements * (len(call.group) if op in CUT and rank in call.group else 1) for rank in range(n)]
    return place(call, [10.0 * rank + np.arange(size) for rank, size in enumerate(sizes)])


def as_predicted(placement):
    """Return what ranks would measure if the prediction were right, with 99 where nothing is predicted."""
    return [
        np.concatenate(
            [np.full(slot.shape, 99.0) if isinstance(slot, Undefined) else slot.array for slot in held.slots]
        )
        for held in placement.after
    ]


def trace(fig, name):
    [found] = [one for one in fig.data if one.name == name]
    return found


def painted(one):
    """Return the colour of each bar or marker, out of the numbers and their scale."""
    scale = one.marker.colorscale[::2]
    return [scale[int(number)][1] for number in one.marker.color]


def colours(fig, name="tiles"):
    one = trace(fig, name)
    return dict(zip(one.meta["slots"], painted(one), strict=True))


def texts(fig):
    found = {}
    for one in fig.data:
        if one.name == "values":
            found |= dict(zip(one.meta["slots"], one.text, strict=True))
    return found


def words(fig):
    return [word for one in fig.data if one.name.startswith("labels") for word in one.text]


def ribbon(fig, panel, rank, slot):
    """Return the colours of the ribbon under one tile, left to right."""
    body, stripes = trace(fig, "tiles"), trace(fig, "contributors")
    at = body.meta["slots"].index(f"{panel} {rank} {slot}")
    left, right = body.x[at] - body.width[at] / 2, body.x[at] + body.width[at] / 2
    top, bottom = body.base[at], body.base[at] + body.y[at]
    return [
        colour
        for colour, x, y in zip(painted(stripes), stripes.x, stripes.base, strict=True)
        if left < x < right and top < y < bottom
    ]


def test_a_tile_has_the_colour_of_the_rank_its_values_come_from():
    fig = tiles(placed("broadcast", root=2), step=2)
    assert [colours(fig)[f"before {rank} 0"] for rank in range(4)] == [rank_colour(rank) for rank in range(4)]
    assert {colours(fig)[f"{panel} {rank} 0"] for panel in ("during", "after") for rank in range(4)} == {rank_colour(2)}
    assert texts(fig)["after 0 0"] == "20 21 22 23"


def test_a_combined_tile_names_its_contributors():
    fig = tiles(placed("all_reduce"), step=1)
    assert texts(fig)["during 1 0"] == "10"
    assert ribbon(fig, "during", 1, 0) == []
    assert ribbon(fig, "after", 3, 1) == [rank_colour(rank) for rank in range(4)]
    assert texts(fig)["after 3 1"] == "64"
    twos = [slot for slot in trace(fig, "tiles").meta["slots"] if slot.startswith("during") and ribbon(fig, *at(slot))]
    assert [ribbon(fig, *at(slot)) for slot in twos] == [
        [rank_colour(0), rank_colour(3)],
        [rank_colour(0), rank_colour(1)],
        [rank_colour(1), rank_colour(2)],
        [rank_colour(2), rank_colour(3)],
    ]


def at(slot):
    panel, rank, number = slot.split()
    return panel, int(rank), int(number)


def test_arrows_show_the_messages_of_the_step():
    placement = placed("broadcast", n=8)
    fig = tiles(placement, step=2)
    arrows = trace(fig, "arrows")
    assert painted(arrows) == [rank_colour(0), rank_colour(1)]
    assert list(arrows.hovertext) == ["rank 0 → rank 2: piece 0, 16 B", "rank 1 → rank 3: piece 0, 16 B"]
    curves = [one for one in fig.data if one.name == "messages" and len(one.x)]
    assert [curve.line.color for curve in curves] == [rank_colour(0), rank_colour(1)]
    assert len(trace(tiles(placement, step=0), "arrows").x) == 0
    with pytest.raises(UsageError, match="steps 0 to 3"):
        tiles(placement, step=4)


def test_what_just_arrived_has_a_thick_edge():
    body = trace(tiles(placed("broadcast"), step=2), "tiles")
    thick = [slot for slot, width in zip(body.meta["slots"], body.marker.line.width, strict=True) if width > 2]
    assert thick == ["during 2 0", "during 3 0"]


def test_bytes_stand_beside_each_rank():
    found = words(tiles(placed("all_reduce", elements=1000)))
    assert found.count("6,000") == 8
    assert found.count("out") == found.count("in") == 1


def test_ranks_outside_the_group_are_grey_and_say_so():
    fig = tiles(placed("all_reduce", ranks=(1, 3)))
    assert words(fig).count("outside") == 2
    grey = {colours(fig)[f"{panel} {rank} 0"] for panel in ("before", "during", "after") for rank in (0, 2)}
    assert len(grey) == 1
    assert grey.isdisjoint({rank_colour(rank) for rank in range(4)})
    assert texts(fig)["after 2 0"] == texts(fig)["before 2 0"] == "20 21 22 23"


def test_what_nobody_may_read_is_hatched():
    fig = tiles(placed("reduce", root=1))
    hatched = trace(fig, "tiles not to read")
    assert list(hatched.meta["slots"]) == ["after 0 0", "after 2 0", "after 3 0"]
    assert hatched.marker.pattern.shape == "/"
    assert texts(fig)["after 0 0"] == "do not read"
    assert any("hatched: a partial result" in word for word in words(fig))
    assert list(trace(tiles(placed("isend_irecv"), step=1), "tiles not to read").meta["slots"]) == ["during 1 0"]


def test_a_measurement_that_agrees_is_written_into_the_last_panel():
    placement = placed("reduce", n=2)
    fig = tiles(placement, measured=compare(placement, as_predicted(placement)), badge=Badge("real", 2, "cpu", "gloo"))
    assert texts(fig)["after 0 0"] == "<b>10 12 14 16</b>"
    assert texts(fig)["after 1 0"] == "<b>99 99 99 99</b>"
    assert "measured:" in words(fig)
    assert "1 tile as predicted" in words(fig)
    assert summary(fig).startswith("real · gloo · 2 ranks · cpu: reduce SUM")
    assert summary(fig).endswith("measured: 1 tiles equal, 0 equal but for rounding, 0 different")


def test_a_difference_is_loud():
    placement = placed("all_gather")
    measured = as_predicted(placement)
    measured[2][5] = 77
    fig = tiles(placement, measured=compare(placement, measured))
    assert "<b>1 of 16 tiles differ</b>" in words(fig)
    assert texts(fig)["after 2 1"] == "<b>77</b><br><s>11</s>"
    assert "<s>" not in "".join(text for slot, text in texts(fig).items() if slot != "after 2 1")
    assert any("struck out: predicted" in word for word in words(fig))
    alarm = colours(fig)["after 2 1"]
    assert list(colours(fig).values()).count(alarm) == 1
    assert alarm not in {rank_colour(rank) for rank in range(4)}


def test_too_few_values_are_a_difference():
    placement = placed("broadcast", n=2)
    fig = tiles(placement, measured=compare(placement, [np.arange(4.0), np.arange(3.0)]))
    assert "<b>1 of 2 tiles differ</b>" in words(fig)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("n", [2, 5, 8])
def test_every_picture_is_readable(op, n, theme):
    placement = placed(op, n)
    for step in range(len(placement.steps) + 1):
        drawn = sketch(placement, step=step, theme=theme)
        values = [one for one in drawn.traces if one["name"] == "values"]
        body = drawn.traces[0]
        boxes = dict(zip(body["meta"]["slots"], body["width"], strict=True))
        for one in values:
            for slot, text in zip(one["meta"]["slots"], one["text"], strict=True):
                assert max(map(len, text.split("<br>"))) * 8.2 <= boxes.get(slot, WIDTH), (slot, text)
        left, right = body["x"] - body["width"] / 2, body["x"] + body["width"] / 2
        assert 0 <= min(left) < max(right) < WIDTH - 120
    fig = drawn.figure()
    assert min(sizes_of_text(fig)) >= 14
    assert min(one.line.width for one in fig.data if one.name == "messages") >= 2
    assert min(width for width in widths_of_lines(fig) if np.ndim(width) == 0 and width) >= 2
    assert min(trace(fig, "tiles").marker.line.width) >= 2
    paints = colours(fig) | colours(fig, "tiles not to read")
    for one in fig.data:
        if one.name == "values":
            assert min([contrast(one.textfont.color, paints[slot]) for slot in one.meta["slots"]] or [21]) >= 4.5


def test_panels_never_lie_on_each_other():
    for op in OPERATIONS:
        body = sketch(placed(op, 8)).traces[0]
        edges = {"before": [], "during": [], "after": []}
        for slot, x, width in zip(body["meta"]["slots"], body["x"], body["width"], strict=True):
            edges[slot.split()[0]] += [x - width / 2, x + width / 2]
        before, during, after = (edges[name] or [0] for name in ("before", "during", "after"))
        assert max(before) < min(after), op
        assert not edges["during"] or max(before) < min(during) < max(during) < min(after), op


def test_a_sketch_changes_a_figure_into_another():
    sketches = [
        sketch(placed("all_reduce"), step=1),
        sketch(placed("all_reduce"), step=2),
        sketch(placed("all_to_all", 8)),
        sketch(placed("reduce", 2)),
        sketch(placed("barrier", 8, ranks=(0, 1))),
        sketch(placed("all_reduce"), badge=Badge("real", 4, "cpu", "gloo")),
    ]
    fig = go.Figure(sketches[0].figure())
    for before, after in itertools.pairwise(sketches):
        for number, path, value in after.changes(before):
            (fig.layout if number is None else fig.data[number])[path] = value
        assert json.loads(fig.to_json()) == json.loads(after.figure().to_json())
    assert list(after.changes(after)) == []


def test_the_summary_tells_the_outcome():
    assert summary(tiles(placed("reduce", n=2), step=1)) == (
        "simulated · no backend · 2 ranks · cpu: reduce SUM of float32 among ranks [0, 1], step 1 of 1; "
        "ranks [0] end with [10, 12, 14, 16]; ranks [1] end with what nobody may read; "
        "bytes sent [0, 16], received [16, 0]"
    )


@pytest.mark.parametrize(
    ("value", "columns", "text"),
    [
        (12.0, 4, "12"),
        (2.5, 4, "2.5"),
        (1 / 3, 4, "0.33"),
        (123456, 4, "1e5"),
        (6.5e12, 5, "6e12"),
        (-(2**63), 6, "-9e18"),
        (1e-7, 5, "1e-7"),
        (float("inf"), 4, "inf"),
        (float("nan"), 4, "nan"),
        (123456, 2, "…"),
    ],
)
def test_long_numbers_are_rounded_until_they_fit(value, columns, text):
    assert short(value, columns) == text


def test_values_wrap_and_say_when_some_are_left_out():
    assert wrapped((1, 2, 3), 3, 2) == ["1 2", "3"]
    assert wrapped((10, 11, 12, 13), 3, 2) == ["10", "…"]
    assert wrapped((10, 11, 12, 13), 4, 2) == ["10", "11…"]
    assert wrapped((), 3, 2) == []
    assert wrapped((-0.0123, 6), 3, 2) == ["…", "6"]  # … is as wide as two digits
    assert wrapped((6, -0.0123, -0.0123), 3, 2) == ["6", "…"]


def test_a_change_is_put_into_plain_dictionaries_too():
    before, after = sketch(placed("all_reduce"), step=1), sketch(placed("all_to_all", 8), badge=Badge("real", 8))
    drawn = json.loads(before.figure().to_json())
    for number, path, value in json.loads(json.dumps([*after.changes(before)], default=np.ndarray.tolist)):
        put(drawn["layout"] if number is None else drawn["data"][number], path, value)
    wanted = json.loads(after.figure().to_json())
    assert {name: drawn["layout"][name] for name in wanted["layout"]} == wanted["layout"]
    assert [list(one["text"]) for one in drawn["data"] if "text" in one] == [
        list(one["text"]) for one in wanted["data"] if "text" in one
    ]
    properties = {"a": {"b": 1}}
    put(properties, "a.b", None)
    put(properties, "c.d", 2)
    assert properties == {"a": {}, "c": {"d": 2}}


def test_no_word_is_empty():
    placement = placed("all_reduce")
    for step in range(len(placement.steps) + 1):
        for measured in (None, compare(placement, as_predicted(placement))):
            fig = tiles(placement, step=step, measured=measured)
            assert all(word for one in fig.data if one.name.startswith("labels") for word in one.text), step
