"""The picture of who sees which sample, as data."""

import itertools
import json
import time

import numpy as np
import plotly.graph_objects as go
import pytest
from figures import sizes_of_text, widths_of_lines

from lablib.errors import UsageError
from lablib.sim.shards import Sharding, Shards, answers
from lablib.training.sampling import shards as predict
from lablib.views import Badge, shards, summary
from lablib.views.palette import contrast, rank_colour
from lablib.views.shard_grid import WIDTH
from lablib.views.shards import sketch
from lablib.views.sketch import put

TEN = Sharding(10, 4, 2, shuffle=False)
SEEDS = tuple(range(8))


def changed(table):
    """Return the same with a wrong sample on rank 1, and without the last batch of rank 2."""
    ranks = [[[list(batch) for batch in epoch[rank]] for epoch in table.batches] for rank in range(table.world_size)]
    ranks[1][0][0][0] = (ranks[1][0][0][0] + 1) % table.samples
    ranks[2][0].pop()
    return Shards.of(ranks, samples=table.samples)


def trace(fig, name):
    [found] = [one for one in fig.data if one.name == name]
    return found


def painted(one):
    scale = one.marker.colorscale[::2]
    return [scale[int(number)][1] for number in one.marker.color]


def places(fig):
    """Return slot -> (left, top, width, height, edge, pattern, colour) of each sample or bar."""
    found = {}
    for name in ("samples", "samples never seen"):
        one = trace(fig, name)
        columns = (
            np.asarray(one.x) - np.asarray(one.width) / 2,
            one.base,
            one.width,
            one.y,
            one.marker.line.width,
            one.marker.pattern.shape,
            painted(one),
        )
        found |= dict(zip(one.meta["slots"], zip(*columns, strict=True), strict=True))
    return found


def numbers(fig):
    return {
        slot: text
        for one in fig.data
        if one.name == "numbers"
        for slot, text in zip(one.meta["slots"], one.text, strict=True)
    }


def words(fig):
    return [word for one in fig.data if (one.name or "").startswith("labels") for word in one.text]


def words_in(fig, style):
    return list(trace(fig, f"labels, {style}").text)


def table_in(fig, samples):
    """Read the table back from the cells of the ranks, by where they stand and the numbers in them."""
    cells = {slot: place for slot, place in places(fig).items() if slot.count(" ") == 4}
    text, batches = numbers(fig), {}
    for slot, (left, top, *_) in cells.items():
        epoch, rank, batch, place, _ = map(int, slot.split())
        batches.setdefault((rank, epoch), {}).setdefault(batch, []).append((top, left, int(text[slot])))
        assert place == len(batches[rank, epoch][batch]) - 1
    ranks, epochs = (max(key[i] for key in batches) + 1 for i in range(2))
    return Shards.of(
        [
            [
                [[index for *_, index in sorted(batch)] for batch in batches[rank, epoch].values()]
                for epoch in range(epochs)
            ]
            for rank in range(ranks)
        ],
        samples=samples,
    )


@pytest.mark.parametrize(
    "sharding",
    [TEN, Sharding(40, 3, 4, epochs=3), Sharding(33, 8, 2, seed=SEEDS, epochs=2), Sharding(60, 2, 7), Sharding(1, 8)],
)
def test_the_picture_has_the_batches_of_its_table(sharding):
    table = predict(sharding)
    assert table_in(shards(table), sharding.samples) == table


def test_a_sample_has_the_colour_of_its_rank_and_a_mark_where_it_is_seen_again():
    fig = shards(predict(TEN))
    drawn = places(fig)
    for index in range(2, 10):
        *_, edge, pattern, colour = drawn[f"0 {index}"]
        assert (edge, pattern, colour) == (0, "", rank_colour(index % 4))
    for index in (0, 1):
        assert drawn[f"0 {index}"][4] == 3  # told without colour
    ribbons = painted(trace(fig, "ranks"))[4:]
    assert ribbons == [rank_colour(rank) for rank in (0, 2, 1, 3)]
    edges = {slot: place[4] for slot, place in drawn.items() if slot.count(" ") == 4}
    assert {slot for slot, edge in edges.items() if edge} == {"0 2 1 0 0", "0 3 1 0 1"}
    assert "thick edge: seen more than once" in " ".join(words(fig))
    hovers = dict(zip(trace(fig, "samples").meta["slots"], trace(fig, "samples").hovertext, strict=True))
    assert hovers["0 0"].split("<br>")[1:] == ["rank 0, batch 0, place 0", "rank 2, batch 1, place 0"]


def test_a_sample_that_nobody_sees_is_hatched():
    fig = shards(predict(Sharding(10, 4, shuffle=False, drop_last=True)))
    never = trace(fig, "samples never seen")
    assert never.meta["slots"] == ["0 8", "0 9"]
    assert list(never.marker.pattern.shape) == ["/", "/"]
    assert [numbers(fig)[slot] for slot in never.meta["slots"]] == ["8", "9"]
    assert {"0 more than once", "2 never"} <= set(words(fig))
    assert "hatched: seen by no rank" in " ".join(words(fig))


def test_a_rank_without_a_batch_is_told_so_aloud():
    fig = shards(predict(Sharding(3, 8, drop_last=True)))
    assert words_in(fig, "wrong") == ["no batch"] * 8
    assert "0 batches a rank, 0 more than once, 3 never seen (0, 1, 2)" in summary(fig)


def test_epochs_stand_side_by_side_and_do_not_meet():
    fig = shards(predict(Sharding(30, 4, 3, epochs=4, seed=(0, 1, 2, 3))))
    lefts = {epoch: [] for epoch in range(4)}
    for slot, (left, _, width, *_) in places(fig).items():
        lefts[int(slot.split()[0])] += [left, left + width]
    spans = [(min(lefts[epoch]), max(lefts[epoch])) for epoch in range(4)]
    assert all(before[1] < after[0] for before, after in itertools.pairwise(spans))
    assert spans[-1][1] <= WIDTH
    assert [word for word in words(fig) if "epoch" in word] == [f"<b>epoch {epoch}</b>" for epoch in range(4)]
    tops = {slot.split(" ", 1)[1]: set() for slot in places(fig) if slot.count(" ") == 1}
    for slot, (_, top, *_) in places(fig).items():
        if slot.count(" ") == 1:
            tops[slot.split(" ", 1)[1]].add(top)
    assert {len(different) for different in tops.values()} == {1}


def test_real_batches_that_differ_are_marked():
    predicted = predict(Sharding(10, 4, 2, epochs=2))
    same = shards(predicted, predicted=predicted, badge=Badge("real", 4, backend="gloo"))
    assert words_in(same, "right") == ["all 8 batches as predicted"] * 2
    assert list(trace(same, "not as predicted").x) == []
    assert summary(same).endswith("measured: 16 batches, 0 not as predicted")
    fig = shards(changed(predicted), predicted=predicted)
    assert words_in(fig, "right") == ["all 8 batches as predicted"]
    assert words_in(fig, "wrong") == ["<b>2 batches not as predicted</b>", "3 in 2 batches", "2 in 1 batch"]
    [cross] = trace(fig, "not as predicted").x
    [slot] = [slot for slot, place in places(fig).items() if place[6] == "#c1121f"]
    assert slot.startswith("0 1 0 0 ")
    assert places(fig)[slot][0] < cross < places(fig)[slot][0] + places(fig)[slot][2]
    assert summary(fig).endswith("measured: 15 batches, 2 not as predicted")
    with pytest.raises(UsageError, match="compare equal settings"):
        shards(predicted, predicted=predict(TEN))


@pytest.mark.parametrize("samples", [1200, 5000])
@pytest.mark.parametrize("batch_size", [8, 64])
def test_many_samples_share_bars_that_add_up(samples, batch_size):
    sharding = Sharding(samples, 8, batch_size, epochs=2, seed=SEEDS)
    table = predict(sharding)
    fig = shards(table)
    never = [place for slot, place in places(fig).items() if slot.endswith("never")]
    assert never
    assert {(place[4], place[5]) for place in never} == {(0, "/")}
    again = [place for slot, place in places(fig).items() if slot.endswith("again")]
    assert {(place[4], place[5]) for place in again} == {(0, "x")}
    heights = {}
    for slot, place in places(fig).items():
        if "-" in slot:
            epoch, samples_of_bin, *_ = slot.split()
            heights.setdefault((epoch, samples_of_bin), []).append(place[3])
    assert len(heights) == 2 * int((WIDTH - 122 - 26) / 2 // 9)
    assert {round(sum(one), 6) for one in heights.values()} == {96}
    edges = sorted(tuple(map(int, name.split("-"))) for epoch, name in heights if epoch == "0")
    assert (edges[0][0], edges[-1][1]) == (0, samples - 1)
    assert all(before[1] + 1 == after[0] for before, after in itertools.pairwise(edges))
    for epoch in range(2):
        area = sum(
            place[3] / 96 * (int(slot.split()[1].split("-")[1]) - int(slot.split()[1].split("-")[0]) + 1)
            for slot, place in places(fig).items()
            if "-" in slot and slot.startswith(f"{epoch} ") and slot.endswith("never")
        )
        assert round(area) == len(table.never(epoch=epoch))


def test_bars_of_batches_and_of_ranks_show_how_much_is_seen_again_or_differs():
    by_batch = predict(Sharding(4001, 4, 100, shuffle=False))
    drawn = places(shards(by_batch))
    assert drawn["0 0 0 once"][3] == 22
    assert "0 0 0 again" not in drawn
    assert drawn["0 1 10 again"][3] == 22  # rank 1's last batch is one sample, seen before
    assert drawn["0 0 10 once"][2] == pytest.approx(drawn["0 0 0 once"][2] / 100, abs=3)
    by_rank = predict(Sharding(1001, 4, 1, shuffle=False))
    drawn = places(shards(by_rank))
    assert drawn["0 1 once"][2] == pytest.approx(918 * 250 / 251)
    assert drawn["0 1 again"][2] == pytest.approx(918 / 251)
    wrong = places(shards(changed(by_rank), predicted=by_rank))
    assert wrong["0 1 different"][2] == pytest.approx(918 / 251)


def test_accuracy_as_counted_stands_beside_the_exact_one():
    table = predict(TEN)
    fig = shards(table, right=[False, False] + [True] * 8)
    assert "off by −13.3 points" in words(fig)
    assert "8 of 12: 66.7 %" in words(fig)
    assert "8 of 10: 80.0 %" in words(fig)
    bars = trace(fig, "accuracies")
    full, counted, _, exact = bars.width
    assert counted / full == pytest.approx(8 / 12)
    assert exact / full == pytest.approx(0.8)
    assert "accuracy as counted 8 of 12: 66.7 %, exact 8 of 10: 80.0 %" in summary(fig)
    assert "exact" in words(shards(predict(Sharding(12, 4)), right=answers(12, share=0.5)))
    tiny = [False] + [True] * 4000
    assert "off by −0.025 points" in words(shards(predict(Sharding(4001, 2, shuffle=False)), right=tiny))
    assert "accuracy" not in summary(shards(table))
    with pytest.raises(UsageError, match="2 answers for 10 samples"):
        shards(table, right=[True, False])


SIZES = [
    Sharding(0, 2),
    Sharding(1, 1),
    Sharding(1, 8, epochs=4),
    Sharding(3, 8, drop_last=True),
    Sharding(64, 8, 4, epochs=4, seed=SEEDS),
    Sharding(160, 8, 4, epochs=4, seed=SEEDS),
    Sharding(161, 2, 16, epochs=4),
    Sharding(700, 2, 32, seed=(1, 2)),
    Sharding(5000, 1, 1),
    Sharding(5000, 8, 8, epochs=4, seed=SEEDS),
    Sharding(5000, 8, 5000, epochs=4, seed=SEEDS),
]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("sharding", SIZES, ids=str)
def test_every_picture_is_readable(sharding, theme):
    table = predict(sharding)
    fig = shards(table, right=answers(sharding.samples, share=0.8), theme=theme)
    assert all(words(fig))  # plotly never shows what follows in the place of an empty word
    for one in fig.data:  # plotly hides what is outside
        if one.type == "scatter":
            assert all(0 <= x <= WIDTH for x in one.x)
            assert all(0 <= y <= fig.layout.yaxis.range[0] for y in one.y)
    assert min(sizes_of_text(fig)) >= 14
    assert min((width for widths in widths_of_lines(fig) for width in np.atleast_1d(widths) if width), default=2) >= 2
    drawn = places(fig)
    assert all(left >= 118 and left + width <= WIDTH + 1 for left, _, width, *_ in drawn.values())
    assert all(top >= 0 and top + height <= fig.layout.yaxis.range[0] for _, top, _, height, *_ in drawn.values())
    assert fig.layout.height <= 1300
    for one in fig.data:
        if one.name == "numbers" and len(one.text):
            fills = {drawn[slot][6] for slot in one.meta["slots"]}
            assert min(contrast(one.textfont.color, fill) for fill in fills) >= 4
    wide = {slot: drawn[slot][2] for slot in numbers(fig)}
    assert all(width >= 8.2 * len(numbers(fig)[slot]) for slot, width in wide.items())


def test_cells_do_not_lie_on_each_other():
    for sharding in SIZES:
        boxes = np.array([place[:4] for place in places(shards(predict(sharding))).values()]).reshape(-1, 4)
        left, top, width, height = boxes.T
        x = np.minimum.outer(left + width, left + width) - np.maximum.outer(left, left)
        y = np.minimum.outer(top + height, top + height) - np.maximum.outer(top, top)
        meet = (x > 1e-6) & (y > 1e-6)
        assert meet.sum() == len(boxes), sharding


def test_badge_and_summary():
    assert summary(shards(predict(TEN))) == (
        "simulated · no backend · 4 ranks · cpu: 10 samples on 4 ranks; "
        "epoch 0: 2 batches a rank, 2 more than once (0, 1), 0 never seen"
    )
    fig = shards(predict(TEN), badge=Badge("real", 4, "cpu", "gloo"), title="Ten samples")
    assert fig.layout.meta["badge"] == "real · gloo · 4 ranks · cpu"
    assert fig.layout.title.text == "<b>Ten samples</b>"


def test_a_sketch_changes_a_figure_into_another():
    tables = [predict(sharding) for sharding in SIZES]
    sketches = [sketch(table) for table in tables]
    sketches += [sketch(changed(tables[4]), predicted=tables[4], right=answers(64, share=0.7)), sketches[0]]
    fig = sketches[0].figure().to_plotly_json()
    told = {"data": fig["data"], "layout": fig["layout"]}
    for before, after in itertools.pairwise(sketches):
        for number, path, value in after.changes(before):
            put(told["layout"] if number is None else told["data"][number], path, value)
        now = json.loads(go.Figure(told).to_json())
        assert now == json.loads(after.figure().to_json())
    assert list(after.changes(after)) == []


@pytest.mark.parametrize("samples", [100, 600, 5000])
def test_a_sketch_is_fast_enough_to_follow_a_knob(samples):
    sharding = Sharding(samples, 8, 8, epochs=4, seed=SEEDS)
    table, right = predict(sharding), answers(samples, share=0.8)
    taken = []
    for _ in range(7):
        fresh = Shards(table.samples, table.batches)  # nothing counted yet
        start = time.process_time()
        sketch(fresh, right=right)
        taken.append(time.process_time() - start)
    assert min(taken) < 0.15  # 45 ms where it was measured, of 5,000 samples


def test_ten_samples_stand_on_one_line_beside_one_and_two_epochs():
    for epochs in (1, 2):
        drawn = places(shards(predict(Sharding(10, 4, 2, epochs=epochs))))
        assert len({drawn[f"0 {index}"][1] for index in range(10)}) == 1
