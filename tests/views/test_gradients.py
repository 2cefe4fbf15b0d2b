"""The picture of gradients as arrows, as data."""

import itertools
import json

import plotly.graph_objects as go
import pytest
from figures import sizes_of_text, widths_of_lines

from lablib.errors import UsageError
from lablib.views import Badge, gradients, summary
from lablib.views.gradients import sketch
from lablib.views.palette import LIGHT, rank_colour, rank_dash

PAIR = Badge("real", 2, backend="gloo")
OWN = [(7.0, 0.0), (-7.0, 7.0)]
MEANS = {"plain": (0.0, 3.5), "weighted": (1.0000001, 3.0)}


def part(fig, name):
    [found] = [one for one in fig.data if one.name == name]
    return found


def tip(one):
    return one.x[1], one.y[1]


def test_each_gradient_is_an_arrow_from_the_origin():
    fig = gradients(OWN, true=(1, 3), means={}, badge=PAIR)
    for rank, own in enumerate(OWN):
        arrow = part(fig, f"rank {rank}")
        assert (arrow.x[0], arrow.y[0], *tip(arrow)) == (0, 0, *own)
        assert arrow.line.color == rank_colour(rank)
        assert (arrow.marker.symbol, arrow.marker.angleref, arrow.marker.size[0]) == ("arrow", "previous", 0)
    true = part(fig, "all data, one process")
    assert tip(true) == (1, 3)
    assert true.line.color == LIGHT.ink
    assert true.line.width > part(fig, "rank 0").line.width
    assert fig.layout.yaxis.scaleanchor == "x"


def test_a_mean_that_is_off_and_one_that_is_not_have_other_signs():
    fig = gradients(OWN, true=(1, 3), means=MEANS, badge=PAIR)
    plain = part(fig, "plain: (0, 3.5), 1.1 off")
    weighted = part(fig, "weighted: (1, 3), the true one")
    assert (tip(plain), plain.x[0], plain.y[0]) == ((0, 3.5), 0, 0)
    assert len(set(weighted.x)) == len(set(weighted.y)) == 1
    assert plain.marker.symbol != weighted.marker.symbol
    assert (plain.marker.color, weighted.marker.color) == (LIGHT.muted, LIGHT.real)


def test_the_means_of_two_ranks_lie_on_a_line_and_those_of_more_do_not():
    line = part(gradients(OWN, true=(1, 3), means={}, badge=PAIR), "every weighted mean of the two")
    assert (list(line.x), list(line.y)) == ([7, -7], [0, 7])
    assert line.showlegend
    more = part(gradients([*OWN, (1, 1)], true=(1, 3), means={}, badge=PAIR), "every weighted mean of the two")
    assert len(more.x) == 0
    assert not more.showlegend


def test_ranks_are_named_at_their_tips():
    names = part(gradients(OWN, true=(1, 3), means={}, badge=PAIR, labels=["4 samples"]), "ranks")
    assert list(names.text) == ["<b>rank 0</b>  4 samples", "<b>rank 1</b>"]
    assert list(names.textposition) == ["top right", "top left"]
    assert list(zip(names.x, names.y, strict=True)) == OWN


def test_the_axes_show_every_arrow_and_say_what_it_is():
    fig = gradients(OWN, true=(1, 9), means={"plain": (-9, 0)}, badge=PAIR, axes=["one", "two"])
    assert (fig.layout.xaxis.range[0] < -9, fig.layout.xaxis.range[1] > 7) == (True, True)
    assert (fig.layout.yaxis.range[0] < 0, fig.layout.yaxis.range[1] > 9) == (True, True)
    assert (fig.layout.xaxis.title.text, fig.layout.yaxis.title.text) == ("one", "two")
    nothing = gradients([(0, 0)], true=(0, 0), means={}, badge=PAIR)
    assert nothing.layout.xaxis.range[0] < nothing.layout.xaxis.range[1]


def test_the_summary_has_all_numbers():
    fig = gradients(OWN, true=(1, 3), means=MEANS, badge=PAIR, labels=["4 samples", "3 samples"])
    assert summary(fig) == (
        "real · gloo · 2 ranks · cpu: rank 0 (7, 0) of 4 samples; rank 1 (-7, 7) of 3 samples;"
        " all data in one process (1, 3); plain (0, 3.5), 1.1 off; weighted (1, 3), the true one"
    )


def test_what_is_no_arrow_is_refused():
    with pytest.raises(UsageError, match="no gradient to draw"):
        gradients([], true=(1, 3), means={}, badge=PAIR)
    with pytest.raises(UsageError, match="a gradient of 3 numbers is no arrow"):
        gradients([(1, 2, 3)], true=(1, 3), means={}, badge=PAIR)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("ranks", [1, 2, 9])
def test_every_picture_is_readable(ranks, theme):
    own = [(rank + 1.0, -rank) for rank in range(ranks)]
    fig = gradients(own, true=(1, 3), means=MEANS, badge=Badge("real", ranks), theme=theme)
    assert min(sizes_of_text(fig)) >= 14
    assert min(widths_of_lines(fig)) >= 2
    if ranks > 8:
        assert part(fig, "rank 8").line.dash == rank_dash(8) != part(fig, "rank 0").line.dash


def test_a_sketch_changes_a_figure_into_another():
    sketches = [
        sketch(OWN, true=(1, 3), means=MEANS, badge=PAIR),
        sketch([(1, 1), (2, -2)], true=(1, 3), means={"a": (1, 3), "b": (0, 0)}, badge=PAIR, labels=["x", "y"]),
    ]
    fig = go.Figure(sketches[0].figure())
    for before, after in itertools.pairwise(sketches):
        for number, path, value in after.changes(before):
            (fig.layout if number is None else fig.data[number])[path] = value
        assert json.loads(fig.to_json()) == json.loads(after.figure().to_json())
    assert list(sketches[0].changes(sketches[0])) == []
