"""The picture of what stays in memory under each way to share the work, as data."""

from itertools import pairwise

import numpy as np
import pytest
from figures import sizes_of_text, widths_of_lines
from hypothesis import given
from hypothesis import strategies as st

from lablib.errors import UsageError
from lablib.trace import Category
from lablib.views import Badge, MemoryBars, memory_bars, summary
from lablib.views.memory_bars import sketch
from lablib.views.memory_words import amount, change, differences, ranks
from lablib.views.palette import CATEGORIES, LIGHT, mixed

MIB = 1 << 20
WHOLE = {
    Category.PARAMETERS: 4 * MIB,
    Category.GRADIENTS: 4 * MIB,
    Category.OPTIMIZER: 8 * MIB + 4,
    Category.COMMUNICATION: 4 * MIB,
}
SLICED = {Category.PARAMETERS: 4 * MIB, Category.GRADIENTS: 4 * MIB, Category.OPTIMIZER: 2 * MIB + 4}
SIMULATED = Badge("simulated", 4)


def rows(world_size=4, **second):
    return [
        MemoryBars("DDP", [WHOLE] * world_size, payload={"all_reduce": 6 * MIB}),
        MemoryBars(
            "ZeRO 1", [SLICED] * world_size, payload={"reduce_scatter": 3 * MIB, "all_gather": 3 * MIB}, **second
        ),
    ]


def part(fig, name):
    [found] = [one for one in fig.data if one.name == name]
    return found


def bars(fig, category):
    one = part(fig, f"{category}, bars")
    scale = one.marker.colorscale[::2]
    return [
        (y, base, base + x, scale[int(number)][1])
        for y, base, x, number in zip(one.y, one.base, one.x, one.marker.color, strict=True)
    ]


def words(fig, style):
    one = part(fig, f"labels, {style}")
    return list(zip(one.text or (), one.x, one.y, strict=True))


def test_each_rank_has_a_bar_and_its_categories_lie_end_to_end():
    fig = memory_bars(rows(), badge=SIMULATED)
    ends: dict[float, float] = {}
    for category in CATEGORIES:
        for y, base, end, colour in bars(fig, category):
            assert base == ends.get(y, 0)
            assert colour == CATEGORIES[category]
            ends[y] = end
    assert [ends[y] for y in sorted(ends)] == [20 * MIB + 4] * 4 + [10 * MIB + 4] * 4
    assert all(below - above >= part(fig, "parameters, bars").width for above, below in pairwise(sorted(ends)))
    middles = list(fig.layout.yaxis.tickvals)
    assert [np.mean(sorted(ends)[block * 4 : block * 4 + 4]) for block in range(2)] == pytest.approx(middles)
    assert list(fig.layout.yaxis.ticktext) == ["DDP", "ZeRO 1"]


def test_words_tell_what_is_held_and_what_is_sent():
    fig = memory_bars(rows(), badge=SIMULATED, chosen="ZeRO 1")
    assert [text for text, *_ in words(fig, "size")] == ["<b>20.0 MiB</b>", "<b>10.0 MiB</b>"]
    assert [text for text, *_ in words(fig, "sent")] == ["6.00 MiB"] * 2 + ["sent in a step"]
    assert fig.layout.yaxis.ticktext[1] == "<b>▶ ZeRO 1</b>"
    [hover] = {text for text in part(fig, "gradients, bars").hovertext if "ZeRO 1, rank 2" in text}
    assert hover.startswith("<b>gradients: 4.00 MiB</b> (4,194,304 B), 40 % of 10.0 MiB<br>")
    assert hover.endswith("sends in a step by reduce_scatter: 3.00 MiB<br>sends in a step by all_gather: 3.00 MiB")
    told = "ZeRO 1: 10.0 MiB: parameters 4.00 MiB, gradients 4.00 MiB, optimizer state 2.00 MiB; sends 6.00 MiB a step"
    assert told in summary(fig)


def test_of_many_rows_the_chosen_one_is_told_in_full_and_first():
    many = [MemoryBars(f"way {place}", [SLICED], peaks=[11 * MIB]) for place in range(6)]
    told = summary(memory_bars(many, badge=SIMULATED, chosen="way 4"))
    assert ": way 4: 10.0 MiB (peak 11.0 MiB): parameters 4.00 MiB, " in told
    assert told.endswith("; way 3 10.0 MiB (peak 11.0 MiB); way 5 10.0 MiB (peak 11.0 MiB)")


def test_what_was_measured_is_full_and_what_was_predicted_its_outline():
    measured = [SLICED, SLICED | {Category.OPTIMIZER: 3 * MIB}, SLICED, SLICED]
    fig = memory_bars(rows(measured=measured), badge=Badge("real", 4, "cpu", "gloo"))
    colours = [colour for *_, colour in sorted(bars(fig, Category.PARAMETERS))]
    full = CATEGORIES[Category.PARAMETERS]
    assert colours == [mixed(full, LIGHT.paper, 0.6)] * 4 + [full] * 4
    assert [end for *_, end, _ in sorted(bars(fig, Category.OPTIMIZER))[4:]] == [
        8 * MIB + one[Category.OPTIMIZER] for one in measured
    ]
    outline = part(fig, "predicted")
    edges = sorted({x for x in outline.x if not np.isnan(x)})
    assert edges == [0, 4 * MIB, 8 * MIB, 10 * MIB + 4]
    assert outline.showlegend
    y = [y for y, *_ in sorted(bars(fig, Category.PARAMETERS))][4:]
    assert np.nanmin(outline.y) < y[0] < y[3] < np.nanmax(outline.y)
    assert "rank 1: optimizer state 1,048,572 B more" in summary(fig)
    assert "ranks 0, 2, 3: every category to the byte" in summary(fig)
    assert words(fig, "size")[1][0] == "<b>11.0 MiB</b>, not as predicted"
    exact = memory_bars(rows(measured=[SLICED] * 4), badge=SIMULATED)
    assert "measured, as predicted to the byte" in summary(exact)
    assert words(exact, "size")[1][0] == "<b>10.0 MiB</b>, as predicted"


def test_a_peak_lengthens_the_bar_and_a_limit_cuts_it():
    two = rows(peaks=[21 * MIB] * 4)
    fig = memory_bars(two, badge=SIMULATED, limit_bytes=20 * MIB)
    more = part(fig, "more at the peak")
    assert list(more.base + more.x) == [21 * MIB] * 4
    assert {x for x in part(fig, "limit of the device").x if not np.isnan(x)} == {20 * MIB}
    assert [text for text, *_ in words(fig, "too much")] == ["<b>20.0 MiB</b>", "<b>10.0 MiB</b>, peak 21.0 MiB"]
    assert [text for text, *_ in words(fig, "limit")] == ["limit 20.0 MiB"]
    assert "over the limit of 20.0 MiB: DDP / ZeRO 1" in summary(fig)
    far = memory_bars(two, badge=SIMULATED, limit_bytes=80 << 30)
    assert part(far, "limit of the device").x.size == 0
    assert "limit of the device: 80.0 GiB, far above" in far.layout.xaxis.title.text
    assert "over the limit of 80.0 GiB: none" in summary(far)


def test_words_do_not_lie_on_the_limit():
    fig = memory_bars(rows(), badge=SIMULATED, limit_bytes=10 * MIB + MIB // 2)
    [(_, x, _)] = words(fig, "size")
    assert x > 10 * MIB + MIB // 2


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("world_size", [1, 8])
def test_text_is_readable_from_the_back_row(theme, world_size):
    many = [MemoryBars(f"way {place}", [WHOLE] * world_size, [SLICED] * world_size) for place in range(12)]
    fig = memory_bars(many, badge=SIMULATED, limit_bytes=15 * MIB, theme=theme, room_px=400)
    assert min(sizes_of_text(fig)) >= 14
    assert min(width for width in widths_of_lines(fig) if width) >= 2
    assert min(np.diff(fig.layout.yaxis.tickvals)) >= 20
    assert part(fig, "parameters, bars").width >= 3


def test_two_sketches_have_the_same_kinds_of_traces():
    one = sketch(rows(), badge=SIMULATED)
    other = sketch(rows(8, measured=[SLICED] * 8, peaks=[1] * 8), badge=SIMULATED, limit_bytes=9 * MIB, chosen="DDP")
    assert [(a["type"], a["name"]) for a in one.traces] == [(a["type"], a["name"]) for a in other.traces]


def test_mistakes_say_what_to_do():
    with pytest.raises(UsageError, match="different labels"):
        memory_bars([], badge=SIMULATED)
    with pytest.raises(UsageError, match="different labels"):
        memory_bars([rows()[0], rows()[0]], badge=SIMULATED)
    with pytest.raises(UsageError, match="more than 0 bytes"):
        memory_bars(rows(), badge=SIMULATED, limit_bytes=-1)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1.00 KiB"),
        (10 * MIB - 1, "10.0 MiB"),
        (100 * MIB - 1, "100 MiB"),
        (1000 * MIB, "1,000 MiB"),
        (80 << 30, "80.0 GiB"),
        (5000 << 30, "5,000 GiB"),
        (-3 * MIB, "-3.00 MiB"),
    ],
)
def test_bytes_have_units(nbytes, text):
    assert amount(nbytes) == text


@given(st.integers(1, 1 << 45))
def test_an_amount_is_right_to_three_digits(nbytes):
    number, unit = amount(nbytes).replace(",", "").split()
    back = float(number) * {"B": 1, "KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30}[unit]
    assert back == pytest.approx(nbytes, rel=0.0051)


def test_differences_are_told_to_the_byte():
    assert (change(0), change(8), change(-2 * MIB)) == ("the same", "8 B more", "2.00 MiB less")
    assert differences(SLICED, WHOLE) == "optimizer state 6,291,456 B less, communication 4,194,304 B less"
    assert (ranks([2]), ranks([0, 1]), ranks([0, 1, 2, 3]), ranks([3, 0])) == (
        "rank 2",
        "ranks 0, 1",
        "ranks 0 to 3",
        "ranks 0, 3",
    )
