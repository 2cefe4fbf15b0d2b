"""The picture of hosts, ranks and groups, as data."""

import subprocess
import sys
from html import unescape

import pytest
from figures import sizes_of_text, texts, widths_of_lines

from lablib.views import Badge, RankPlace, hosts, summary
from lablib.views.palette import rank_colour

BADGE = Badge("real", 4, "cpu", "gloo")


def place(rank, per_host=2, **changed):
    host, local_rank = divmod(rank, per_host)
    facts = {
        "pid": 4000 + rank,
        "env": {"RANK": str(rank), "LOCAL_RANK": str(local_rank), "RUN_ID": "<none>"},
        "groups": (f"row {host}", f"column {local_rank}"),
        "launcher": f"torchrun, PID {70 + host}",
    }
    return RankPlace(rank, local_rank, f"host {host}", **{**facts, **changed})


GRID = [place(rank) for rank in range(4)]


def tiles(fig):
    return {trace.meta["rank"]: trace for trace in fig.data if "rank" in trace.meta}


def outlines(fig):
    return {trace.meta["group"]: trace for trace in fig.data if "group" in trace.meta}


def boxes(trace):
    """Return left, right, upper and lower edge of each box of an outline."""
    points = list(zip(trace.x, trace.y, strict=True))
    corners = [points[start : start + 5] for start in range(0, len(points), 6)]
    return [(min(x), max(x), min(y), max(y)) for x, y in (zip(*box, strict=True) for box in corners)]


def holds(box, tile):
    left, right, upper, lower = box
    x, y = sum(tile.x[:4]) / 4, sum(tile.y[:4]) / 4
    return left < x < right and upper < y < lower


def test_every_rank_has_a_tile_in_its_own_colour_that_tells_its_facts():
    fig = hosts(GRID, badge=BADGE)
    assert sorted(tiles(fig)) == [0, 1, 2, 3]
    for rank, tile in tiles(fig).items():
        assert tile.fillcolor == rank_colour(rank)
        assert tile.meta["pid"] == 4000 + rank
        assert f"LOCAL_RANK={rank % 2}" in tile.text
        assert f"PID {4000 + rank}" in tile.text
    assert any("<b>rank 2</b>" in text and "local_rank 0" in text and "PID 4002" in text for text in texts(fig))


def test_hosts_are_rows_with_their_launcher_and_local_ranks_are_columns():
    fig = hosts(reversed(GRID), badge=BADGE)
    x = {rank: min(tile.x) for rank, tile in tiles(fig).items()}
    y = {rank: min(tile.y) for rank, tile in tiles(fig).items()}
    assert x[0] == x[2] < x[1] == x[3]
    assert y[0] == y[1] < y[2] == y[3]
    assert any("host 1" in text and "started by torchrun, PID 71" in text for text in texts(fig))


def test_an_outline_holds_its_members_and_nobody_else():
    fig = hosts(GRID, badge=BADGE)
    assert list(outlines(fig)) == ["row 0", "row 1", "column 0", "column 1"]
    for name, ranks in {"row 1": {2, 3}, "column 0": {0, 2}}.items():
        [box] = boxes(outlines(fig)[name])
        assert {rank for rank, tile in tiles(fig).items() if holds(box, tile)} == ranks


def test_members_with_others_between_them_are_outlined_one_by_one():
    apart = [place(rank, per_host=4, groups=("evens",) if rank % 2 == 0 else ()) for rank in range(4)]
    fig = hosts(apart, badge=BADGE)
    found = boxes(outlines(fig)["evens"])
    assert [[rank for rank, tile in tiles(fig).items() if holds(box, tile)] for box in found] == [[0], [2]]


def test_outlines_of_groups_that_share_a_rank_do_not_lie_on_each_other():
    found = outlines(hosts(GRID, badge=BADGE))
    edges = [{box[0] for box in boxes(trace)} for trace in found.values()]
    assert edges[0].isdisjoint(edges[2])
    assert len({trace.line.dash for trace in found.values()}) == 4


def test_the_list_shows_the_environment_of_the_rank_that_is_picked():
    fig = hosts(GRID, badge=BADGE)
    [menu] = fig.layout.updatemenus
    assert [button.label for button in menu.buttons] == [f"environment of rank {rank}" for rank in range(4)]
    [changes] = menu.buttons[2].args
    assert list(changes) == ["annotations[0].text"]
    assert fig.layout.annotations[0].name == "environment"
    assert "RANK=2" in changes["annotations[0].text"]
    assert "RUN_ID=&lt;none&gt;" in changes["annotations[0].text"]


def test_the_first_rank_of_the_list_is_shown_at_first():
    fig = hosts(reversed(GRID), badge=BADGE)
    [menu] = fig.layout.updatemenus
    assert fig.layout.annotations[0].text == menu.buttons[0].args[0]["annotations[0].text"]
    assert "<b>rank 0</b>" in fig.layout.annotations[0].text


def test_the_variables_of_a_rank_stand_in_columns():
    env = {"A": "1", "LONG": "<&>", "B": "22", "C": "3", "D": "4"}
    fig = hosts([RankPlace(0, 0, "host 0", env=env)], badge=BADGE)
    shown = fig.layout.annotations[0]
    _, *lines = [unescape(line) for line in shown.text.split("<br>")]
    assert shown.font.family == "monospace"
    assert [[line.find(pair) for pair in line.split()] for line in lines] == [[0, 10, 20], [0, 10]]
    assert [line.split() for line in lines] == [["A=1", "LONG=<&>", "B=22"], ["C=3", "D=4"]]


def test_the_summary_tells_who_is_where_and_in_which_group():
    assert summary(hosts(GRID, badge=BADGE)) == (
        "real · gloo · 4 ranks · cpu: host 0 has ranks [0, 1]; host 1 has ranks [2, 3]; "
        "groups: row 0 = [0, 1]; row 1 = [2, 3]; column 0 = [0, 2]; column 1 = [1, 3]"
    )


def test_a_simulated_place_has_no_process():
    fig = hosts([RankPlace(0, 0, "alpha", device="cuda:0")], badge=Badge("simulated", 1, "cuda", "nccl"))
    assert not any("PID" in text for text in texts(fig))
    assert "SIMULATED" in "".join(texts(fig))
    assert "no variables" in fig.layout.annotations[0].text


@pytest.mark.parametrize("ranks", [8, 16, 64])
def test_many_ranks_keep_to_the_picture_and_apart(ranks):
    fig = hosts([place(rank, per_host=16, groups=()) for rank in range(ranks)], badge=BADGE)
    corners = {(min(tile.x), min(tile.y)) for tile in tiles(fig).values()}
    assert len(corners) == ranks
    left, right = fig.layout.xaxis.range
    assert all(left < min(tile.x) and max(tile.x) < right for tile in tiles(fig).values())
    assert fig.layout.height > 100 * len({y for _, y in corners})


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_lines_are_readable_from_the_back_row(theme):
    fig = hosts(GRID, badge=BADGE, theme=theme)
    assert min(sizes_of_text(fig)) >= 14
    assert min(widths_of_lines(fig)) >= 2
    assert fig.layout.meta["theme"] == theme


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="no rank"):
        hosts([], badge=BADGE)
    with pytest.raises(ValueError, match="unique"):
        hosts([place(1), place(1)], badge=BADGE)


def test_a_view_needs_neither_torch_nor_widgets_nor_processes():
    code = (
        "import sys, lablib.views\nprint([name for name in ('torch', 'ipywidgets', 'IPython') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
