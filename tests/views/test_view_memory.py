"""The picture of memory over time, as data."""

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from figures import sizes_of_text, widths_of_lines
from memory_traces import MIB, memory_trace
from test_palette import SEEN_BY, distance

from lablib.errors import UsageError
from lablib.trace import Category, MemorySample, Trace
from lablib.views import memory, palette, summary
from lablib.views.memory import sketch
from lablib.views.palette import CATEGORIES

AFTER_THE_STEP = {Category.PARAMETERS: 3 * MIB, Category.GRADIENTS: 3 * MIB, Category.OPTIMIZER: 6 * MIB + 16}


def part(fig, name):
    [found] = [one for one in fig.data if one.name == name]
    return found


def words(fig, style):
    one = part(fig, f"labels, {style}")
    return list(zip(one.text or (), one.x, one.y, strict=True))


def rows(fig):
    """Return by rank where 0 bytes are, and how many pixels a byte has."""
    ticks = list(zip(fig.layout.yaxis.ticktext, fig.layout.yaxis.tickvals, strict=True))
    zeros = [(place, y) for place, (text, y) in enumerate(ticks) if text.startswith("<b>rank")]
    unit = (ticks[zeros[0][0]][1] - ticks[zeros[0][0] + 1][1]) / in_bytes(ticks[zeros[0][0] + 1][0])
    return {int(ticks[place][0].removeprefix("<b>rank ").split("<")[0]): y for place, y in zeros}, unit


def in_bytes(text):
    number, unit = text.split()
    return float(number.replace(",", "")) * {"B": 1, "KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30}[unit]


def pieces(x, y):
    """Return the parts of a trace between its gaps, as arrays of points."""
    points = np.column_stack([x, y]).astype(float)
    gaps = np.flatnonzero(np.isnan(points[:, 0]))
    return [points[a:b] for a, b in pairwise([0, *(gap + 1 for gap in gaps), len(points)]) if b - a > 1]


def drawn(fig, category):
    """Return each rank's bytes of a category by the moment from which they are drawn, in milliseconds."""
    zeros, unit = rows(fig)
    area = part(fig, f"{category}, area")
    found = {}
    for piece in map(clean, pieces(area.x, area.y)):
        rank = min((rank for rank, zero in zeros.items() if zero >= piece[:, 1].max() - 1e-6), key=zeros.get)
        half = len(piece) // 2
        there, back = piece[:half], piece[half:][::-1]
        assert np.array_equal(there[:, 0], back[:, 0])
        found[rank] = [
            (x, round((low - high) / unit))
            for x, high, low in zip(there[::2, 0], there[::2, 1], back[::2, 1], strict=True)
        ]
    return found


@pytest.mark.parametrize(
    "category", [Category.PARAMETERS, Category.GRADIENTS, Category.ACTIVATIONS, Category.OPTIMIZER]
)
def test_every_sample_is_a_step_of_its_height(category):
    trace = memory_trace(2, late_ns=300_000)
    found = drawn(memory(trace), category)
    for rank in range(2):
        wanted = [(one.time_ns / 1e6, one[category]) for one in trace.memory if one.rank == rank]
        assert [at for at, _ in found[rank]] == pytest.approx([at for at, _ in wanted])
        assert [nbytes for _, nbytes in found[rank]] == pytest.approx([nbytes for _, nbytes in wanted], abs=2)


def test_categories_lie_one_on_the_other_and_what_stays_lies_below():
    fig = memory(memory_trace(1))
    zeros, unit = rows(fig)
    last = {one: pieces(part(fig, f"{one}, area").x, part(fig, f"{one}, area").y) for one in CATEGORIES}
    low = zeros[0]
    for one in (Category.PARAMETERS, Category.GRADIENTS, Category.OPTIMIZER):
        [piece] = last[one]
        half = len(piece) // 2
        assert piece[half][1] == pytest.approx(low)
        low = piece[half - 1][1]
    assert zeros[0] - low == pytest.approx((12 * MIB + 16) * unit)
    keys = [one for one in fig.data if one.showlegend is not False and one.marker.symbol == "square"]
    assert [one.name for one in keys] == ["temporary", "activations", "optimizer state", "gradients", "parameters"]
    assert [one.marker.color for one in keys] == [CATEGORIES[Category(one.name)] for one in keys]


def test_the_peak_is_marked_with_its_value():
    trace = memory_trace(2, late_ns=300_000)
    fig = memory(trace)
    zeros, unit = rows(fig)
    marks = part(fig, "peak")
    for rank in range(2):
        mine = [one for one in trace.memory if one.rank == rank]
        peak = max(mine, key=lambda one: one.total)
        after = mine[mine.index(peak) + 1]
        assert marks.x[rank] == pytest.approx((peak.time_ns + after.time_ns) / 2e6)
        assert zeros[rank] - marks.y[rank] == pytest.approx(peak.total * unit)
    assert [text for text, *_ in words(fig, "peak to the left")] == ["<b>peak 12.0 MiB</b>"] * 2
    assert "ranks 0, 1: peak 12.0 MiB in the optimizer's step: parameters 3.00 MiB, gradients 3.00 MiB" in summary(fig)


def test_phases_and_modules_have_words_where_there_is_room():
    fig = memory(memory_trace(1))
    assert [text for text, *_ in words(fig, "phase")] == ["forward", "backward", "optimizer"]
    assert [text for text, *_ in words(fig, "module")] == [f"layer{i}" for i in (0, 1, 2, 2, 1, 0)]
    edges = sorted({x for x in part(fig, "a phase begins or ends").x if not np.isnan(x)})
    assert edges == pytest.approx([1, 7, 8, 20, 22])
    assert sorted({x for x in part(fig, "a module begins").x if not np.isnan(x)}) == pytest.approx([1, 3, 5, 8, 12, 16])
    many = memory(memory_trace(1, iterations=30))
    assert words(many, "phase") == words(many, "module") == []
    assert part(many, "a module begins").x.size == 0


def test_a_limit_is_a_line_and_far_away_only_words():
    fig = memory(memory_trace(2), limit_bytes=8 * MIB)
    zeros, unit = rows(fig)
    line = part(fig, "limit of the device")
    assert sorted({y for y in line.y if not np.isnan(y)}) == pytest.approx(
        [zeros[i] - 8 * MIB * unit for i in range(2)]
    )
    assert [text for text, *_ in words(fig, "limit")] == ["limit 8.00 MiB"] * 2
    assert "the highest peak is 4.00 MiB over the limit of 8.00 MiB" in summary(fig)
    far = memory(memory_trace(2), limit_bytes=80 << 30)
    assert part(far, "limit of the device").x.size == 0
    assert "limit of the device: 80.0 GiB, far above" in far.layout.xaxis.title.text
    assert "below the limit of 80.0 GiB" in summary(far)


def test_a_closed_form_is_a_box_for_each_category():
    fig = memory(memory_trace(2), predicted=AFTER_THE_STEP)
    zeros, unit = rows(fig)
    boxes = pieces(part(fig, "predicted").x, part(fig, "predicted").y)
    edges = [0, 3 * MIB, 6 * MIB, 12 * MIB + 16]
    wanted = [zeros[rank] - at * unit for rank in range(2) for pair in pairwise(edges) for at in pair]
    assert [y for box in map(clean, boxes) for y in (box[:, 1].max(), box[:, 1].min())] == pytest.approx(wanted)
    assert "closed form 12.0 MiB, at the end every category to the byte" in summary(fig)
    uneven = {0: AFTER_THE_STEP, 1: AFTER_THE_STEP | {Category.OPTIMIZER: 6 * MIB + 8}}
    told = summary(memory(memory_trace(2), predicted=uneven))
    assert "rank 0: closed form 12.0 MiB, at the end every category to the byte" in told
    assert "rank 1: closed form 12.0 MiB, at the end optimizer state 8 B more" in told


def clean(piece):
    return piece[~np.isnan(piece).any(axis=1)]


def test_a_predicted_trace_is_laid_over_the_same_phases():
    run, predicted = memory_trace(2, late_ns=500_000), memory_trace(2, truth="simulated", slow=3.0)
    fig = memory(run, predicted=predicted)
    zeros, unit = rows(fig)
    for rank, piece in enumerate(map(clean, pieces(part(fig, "predicted").x, part(fig, "predicted").y))):
        mine = [one for one in run.memory if one.rank == rank]
        assert piece[::2, 0] == pytest.approx([one.time_ns / 1e6 for one in mine])
        assert (zeros[rank] - piece[::2, 1]) / unit == pytest.approx([one.total for one in mine])
    assert "predicted peak 12.0 MiB, this is the same (every category to the byte)" in summary(fig)
    other = memory(memory_trace(1, other=5), predicted=predicted)
    assert "predicted peak 12.0 MiB, this is 5 B more (other 5 B more)" in summary(other)


@pytest.mark.parametrize(("truth", "timed"), [("simulated", None), ("real", False)])
def test_all_changes_are_as_wide_where_there_is_no_clock(truth, timed):
    trace = memory_trace(2, truth=truth, late_ns=300_000)
    fig, real = memory(trace, timed=timed), memory(memory_trace(1))
    assert (fig.layout.xaxis.showticklabels, real.layout.xaxis.showticklabels) == (False, True)
    assert "how long each takes is not shown" in fig.layout.xaxis.title.text
    assert not any(" ms on" in text for text in part(fig, "hover").hovertext)
    found = drawn(fig, Category.ACTIVATIONS)
    for rank in range(2):
        mine = [one[Category.ACTIVATIONS] for one in trace.memory if one.rank == rank]
        assert [at for at, _ in found[rank]] == list(range(len(mine)))
        assert [nbytes for _, nbytes in found[rank]] == pytest.approx(mine, abs=2)


def test_a_module_that_comes_at_another_time_does_not_bend_the_prediction():
    run = memory_trace(1)
    samples = list(run.memory)
    first = next(place for place, one in enumerate(samples) if (one.phase, one.module) == ("backward", "layer2"))
    samples[first] = replace(samples[first], module="layer0")  # as a hook of an outer module may tell it
    odd = Trace.of_spans([], world_size=1, truth="simulated", memory=samples)
    [piece] = map(clean, pieces(*(getattr(part(memory(run, predicted=odd), "predicted"), axis) for axis in "xy")))
    wanted = np.array([one.time_ns / 1e6 for one in run.memory])
    begins = [place for place in range(1, len(samples)) if samples[place].phase != samples[place - 1].phase]
    assert piece[::2, 0][begins] == pytest.approx(wanted[begins])
    assert np.abs(piece[::2, 0] - wanted).max() <= 1  # the millisecond that the odd sample takes
    assert min(np.diff(piece[:, 0])) >= 0


def test_a_prediction_of_one_iteration_is_laid_over_the_last():
    run = memory_trace(1, iterations=2)
    fig = memory(run, predicted=memory_trace(1, truth="simulated", slow=7.0))
    [piece] = map(clean, pieces(part(fig, "predicted").x, part(fig, "predicted").y))
    second = [one.time_ns / 1e6 for one in run.memory if one.iteration == 1]
    assert piece[::2, 0] == pytest.approx(second)
    assert piece[-1, 0] == fig.layout.xaxis.range[1]


def test_what_is_other_or_temporary_is_never_hidden():
    told = summary(memory(memory_trace(1, other=5)))
    assert "at most temporary 1.00 MiB, other 5 B" in told
    hover = part(memory(memory_trace(1, other=5 * MIB)), "hover").hovertext
    assert any(text.startswith("<b>other: 5.00 MiB</b> (5,242,880 B), 29 % of 17.0 MiB") for text in hover)


def test_hover_tells_category_bytes_share_phase_and_module():
    fig = memory(memory_trace(1))
    hover = part(fig, "hover")
    assert (
        "<b>activations: 4.00 MiB</b> (4,194,304 B), 57 % of 7.00 MiB<br>"
        "rank 0, iteration 0, from 3.00 ms on<br>in forward of layer1"
    ) in hover.hovertext
    held = sum(nbytes > 0 for one in memory_trace(1).memory for nbytes in one.nbytes)
    assert len(hover.hovertext) == len(hover.x) == held


def test_what_the_allocator_says_is_drawn_where_it_is_known():
    samples = [
        MemorySample.of(0, at * 1000, {Category.ACTIVATIONS: at * MIB}, allocated=(at + 1) * MIB, reserved=20 * MIB)
        for at in range(8)
    ]
    fig = memory(Trace.of_spans([], world_size=1, device="cuda", memory=samples))
    zeros, unit = rows(fig)
    reserved, allocated = (part(fig, f"{name} by the allocator") for name in ("reserved", "allocated"))
    assert {round((zeros[0] - y) / unit / MIB) for y in clean(np.column_stack([reserved.x, reserved.y]))[:, 1]} == {20}
    steps = clean(np.column_stack([allocated.x, allocated.y]))[::2, 1]
    assert (zeros[0] - steps) / unit == pytest.approx([(at + 1) * MIB for at in range(8)])
    assert reserved.showlegend and allocated.showlegend
    assert not part(memory(memory_trace(1)), "reserved by the allocator").showlegend


@pytest.mark.parametrize("samples", [30_000, 80_000])
def test_many_samples_become_few_and_no_extreme_of_a_column_is_lost(samples):
    rng = np.random.default_rng(samples)
    table = rng.integers(0, 64 * MIB, (samples, len(Category)))
    table[samples // 3, 0] = 1 << 30
    table[samples // 7] = 0
    trace = Trace.of_spans(
        [],
        world_size=1,
        memory=[MemorySample(0, 1000 * at, tuple(row)) for at, row in enumerate(table.tolist())],
    )
    fig = memory(trace)
    zeros, unit = rows(fig)
    since = np.arange(samples) * 1000 / 1e6
    column = np.minimum((since / since[-1] * 800).astype(int), 799)
    starts = np.flatnonzero(np.diff(column, prepend=-1))
    for number, category in enumerate(Category):
        steps = np.array(drawn(fig, category)[0])
        assert len(steps) < samples / 1.5
        place = column[np.rint(1000 * steps[:, 0]).astype(int)]
        for keep in (np.maximum, np.minimum):
            seen = np.full(800, 0 if keep is np.maximum else 2**40)
            keep.at(seen, place, steps[:, 1].astype(np.int64))
            assert np.abs(seen - keep.reduceat(table[:, number], starts)).max() <= 2
    peak = part(fig, "peak")
    assert (zeros[0] - peak.y[0]) / unit == pytest.approx(table.sum(axis=1).max())
    assert len(part(fig, "hover").hovertext) <= 2500 + 2 * len(Category)


def test_mistakes_say_what_to_do():
    with pytest.raises(UsageError, match="run with memory=True"):
        memory(Trace((), world_size=2))
    with pytest.raises(UsageError, match=r"iteration 3 is not in this trace; \[0, 1\] are"):
        memory(memory_trace(2, iterations=2), iteration=3)
    with pytest.raises(UsageError, match=r"ranks \[5\] have no samples"):
        memory(memory_trace(2), ranks=[0, 5])
    with pytest.raises(UsageError, match="more than 0 bytes"):
        memory(memory_trace(2), limit_bytes=0)


def test_one_iteration_and_some_ranks():
    fig = memory(memory_trace(4, iterations=3), iteration=1, ranks=[1, 3])
    assert [text for text in fig.layout.yaxis.ticktext if "rank" in text] == ["<b>rank 1</b>   0", "<b>rank 3</b>   0"]
    assert fig.layout.title.text == "<b>Memory in iteration 1</b>"
    assert "iteration 1; ranks 1, 3: peak" in summary(fig)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("world_size", [1, 4, 8])
def test_text_is_readable_from_the_back_row(theme, world_size):
    fig = memory(memory_trace(world_size), predicted=AFTER_THE_STEP, limit_bytes=10 * MIB, theme=theme)
    assert min(sizes_of_text(fig)) >= 14
    assert {width for width in widths_of_lines(fig) if width} >= {2, 3}
    assert min(width for width in widths_of_lines(fig) if width) >= 2
    zeros = sorted(rows(fig)[0].values())
    assert all(below - above >= 90 for above, below in pairwise(zeros))


def test_two_sketches_have_the_same_kinds_of_traces():
    one, other = (
        sketch(memory_trace(1)),
        sketch(memory_trace(8, other=3), limit_bytes=5 * MIB, predicted=AFTER_THE_STEP),
    )
    assert [(a["type"], a["name"]) for a in one.traces] == [(a["type"], a["name"]) for a in other.traces]
    assert any(True for _ in other.changes(one))


@pytest.mark.parametrize("eyes", SEEN_BY)
def test_categories_stay_apart(eyes):
    seen = np.array(SEEN_BY[eyes])
    assert set(CATEGORIES) == set(Category)
    assert min(distance(one, other, seen) for one, other in combinations(CATEGORIES.values(), 2)) > 12


@pytest.mark.parametrize("theme", [palette.LIGHT, palette.DARK], ids=lambda theme: theme.name)
def test_categories_and_alarm_show_on_the_paper(theme):
    assert all(palette.contrast(colour, theme.paper) >= 2.2 for colour in CATEGORIES.values())
    assert palette.contrast(palette.alarm(theme), theme.paper) >= 4.5
