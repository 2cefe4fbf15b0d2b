"""The picture of distances, as data."""

import math

import numpy as np
import pytest
from figures import sizes_of_text, widths_of_lines

from lablib.errors import UsageError
from lablib.views import Badge, distances, summary

PAIR = Badge("real", 2, backend="gloo", note="float64")
TWO = {"plain": {"SGD": 1e-16, "Adam": 0.54, "exact": 0.0}, "clipped": {"SGD": 0.024, "Adam": 0.51}}


def part(fig, name):
    [found] = [one for one in fig.data if one.name == name]
    return found


def test_each_case_is_a_row_and_each_series_a_sign():
    fig = distances(TWO, badge=PAIR)
    assert list(fig.layout.yaxis.ticktext) == ["SGD", "Adam", "exact"]
    plain, clipped = part(fig, "plain"), part(fig, "clipped")
    assert list(plain.x) == pytest.approx([-16, math.log10(0.54), -18])
    assert [text.strip() for text in plain.text] == ["1e-16", "0.54", "0"]
    assert [text.strip() for text in clipped.text] == ["0.024", "0.51"]
    assert plain.marker.symbol != clipped.marker.symbol
    for one in (plain, clipped):
        nearest = [int(np.abs(fig.layout.yaxis.tickvals - y).argmin()) for y in one.y]
        assert nearest == [0, 1, 2][: len(nearest)]
    assert min(abs(plain.y[:2] - clipped.y)) >= 19  # so that numbers do not lie on each other


def test_rounding_is_an_area_of_its_own():
    fig = distances(TWO, badge=PAIR, rounding=1e-9)
    band = part(fig, "rounding: the same")
    assert max(band.x) == pytest.approx(-9)
    assert min(band.x) == fig.layout.xaxis.range[0] < min(part(fig, "plain").x)
    assert max(part(fig, "plain").x) < fig.layout.xaxis.range[1]


def test_the_summary_tells_what_is_the_same():
    assert summary(distances(TWO, badge=PAIR)) == (
        "real · gloo · 2 ranks · cpu · float64: plain: the same: SGD, exact; apart: Adam 0.54;"
        " clipped: the same: none; apart: SGD 0.024, Adam 0.51"
    )


def test_what_is_no_distance_is_refused():
    with pytest.raises(UsageError, match="no distance to draw"):
        distances({"plain": {}}, badge=PAIR)
    with pytest.raises(UsageError, match="Adam: a distance is a number from 0 on"):
        distances({"plain": {"Adam": math.nan}}, badge=PAIR)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_picture_is_readable(theme):
    fig = distances(TWO, badge=PAIR, theme=theme)
    assert min(sizes_of_text(fig)) >= 14
    assert min(widths_of_lines(fig)) >= 2
