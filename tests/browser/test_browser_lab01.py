"""Lab 01 as a learner finds it in `work/`: every cell runs, and its explorer follows hands on real controls."""

import pytest
from labexplorer import LabExplorer
from playwright.sync_api import expect

from lablib.sim import OPERATIONS

NAME = "01_collective_zoo.ipynb"
EXPLORER = "collectives_explorer(run="

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def lab01(lab):
    """Return the lab after all its cells ran once."""
    lab.open(NAME)
    lab.screenshot("lab01-opened")
    lab.run_all(timeout_s=200)
    return lab


@pytest.fixture
def explorer(lab01):
    """Return the explorer, made anew."""
    cell = lab01.cell(EXPLORER).run()
    explorer = LabExplorer(cell)
    explorer.settle("simulated · no backend · 4 ranks", ": all_reduce SUM of float32 among ranks [0, 1, 2, 3]")
    yield explorer
    assert cell.errors == []


def test_every_cell_runs_and_shows_no_error(lab01):
    assert lab01.errors == []
    assert lab01.ran_in_order


def test_figures_are_drawn(lab01, theme):
    for number, cell in enumerate(lab01.drawn_by("picture(")):
        figure = cell.figure()
        expect(figure).to_contain_text("REAL · gloo · 4 ranks · cpu")
        expect(figure).to_contain_text("as predicted")
        assert LabExplorer(cell).faults == []
        cell.screenshot(f"lab01-figure-{number}-{theme}")
    if theme == "light":
        lab01.screenshots("lab01")


def test_the_explorer_follows_its_controls_and_lays_a_real_run_over(explorer):
    cell, figure = explorer.cell, explorer.figure
    expect(figure).to_contain_text("SIMULATED")
    cell.choose("operation", "broadcast")
    cell.set_slider("world size", 8)
    cell.choose("src", "3")
    explorer.settle("broadcast of float32 among ranks [0, 1, 2, 3, 4, 5, 6, 7], step 2 of 3")
    expect(figure).to_contain_text("dist.broadcast(t, src=3)")
    expect(figure).to_contain_text("rank 7")
    expect(figure).to_contain_text("predicted")
    cell.set_slider("step", 0)
    explorer.settle("step 0 of 3")
    expect(figure).to_contain_text("before the first message")
    cell.set_slider("step", 3)
    explorer.settle("step 3 of 3")
    cell.screenshot("lab01-explorer-simulated")

    explorer.button.click()
    explorer.settle("real · gloo · 8 ranks · cpu", "measured: 8 tiles equal, 0 equal but for rounding, 0 different")
    expect(figure).to_contain_text("REAL · gloo · 8 ranks · cpu · laid over the prediction")
    expect(figure).to_contain_text("all 8 tiles as predicted")
    expect(explorer.button).to_be_enabled()
    assert explorer.faults == []
    cell.screenshot("lab01-explorer-real")

    cell.set_slider("elements", 5)
    explorer.settle("simulated", "[30, 31, 32, 33, 34]")
    expect(figure).not_to_contain_text("REAL")
    cell.set_slider("elements", 4)
    explorer.settle("real · gloo · 8 ranks")
    expect(explorer.alarm).to_be_hidden()


def test_a_group_is_chosen_with_the_buttons_of_its_ranks(explorer):
    cell = explorer.cell
    cell.press("2")
    explorer.settle("among ranks [0, 1, 3]")
    expect(explorer.figure).to_contain_text("outside")
    for rank in "013":
        cell.press(rank)
    expect(explorer.alarm).to_contain_text("a group needs a rank: press at least one of its buttons")
    expect(explorer.alarm).to_contain_text("The figure still shows the last call that works.")
    assert cell.lowest_contrast(".widget-html-content") >= 4.5
    cell.screenshot("lab01-explorer-mistake")
    cell.press("0")
    cell.press("1")
    explorer.settle("among ranks [0, 1]")
    expect(explorer.alarm).to_be_hidden()
    explorer.button.click()
    explorer.settle("real · gloo · 4 ranks", "0 equal but for rounding, 0 different")


def test_the_player_walks_through_the_steps(explorer):
    explorer.cell.set_slider("step", 0)
    explorer.settle("step 0 of 6")
    explorer.cell.area.locator(".widget-play button").first.click()
    explorer.settle("step 6 of 6")


def test_the_picture_in_the_readme_is_of_this_explorer(lab01, explorer):
    with lab01.window(1280, 850):
        explorer.button.click()
        explorer.settle("real · gloo · 4 ranks", "measured: 16 tiles equal, 0 equal but for rounding, 0 different")
        explorer.cell.scroll_to_the_top()
        expect(explorer.told).to_be_in_viewport(ratio=1)
        explorer.wait_until_as_wide_as(1000)
        expect(lab01.page.get_by_text("| Idle")).to_be_visible()
        assert explorer.faults == []
        assert lab01.screenshot("collectives-explorer").stat().st_size < 300_000


@pytest.mark.parametrize(
    ("world_size", "operations"),
    [
        (8, ["reduce_scatter", "all_to_all"]),  # the fullest
        pytest.param(8, OPERATIONS, marks=pytest.mark.soak),
        pytest.param(2, OPERATIONS, marks=pytest.mark.soak),
    ],
    ids=["8-fullest", "8-all", "2-all"],
)
def test_every_call_can_be_read(explorer, world_size, operations):
    explorer.cell.set_slider("world size", world_size)
    explorer.cell.set_slider("elements", 16)
    explorer.cell.choose("values", "random")
    for op in operations:
        explorer.cell.choose("operation", op)
        explorer.settle(f"{world_size} ranks · cpu: {op} ")
        assert (op, explorer.faults) == (op, [])


def test_knobs_and_words_can_be_read(explorer, theme):
    explorer.cell.screenshot(f"lab01-explorer-{theme}")
    assert explorer.cell.lowest_contrast(".widget-inline-hbox, .widget-html-content, button") >= 4.5


def test_figures_are_there_after_a_restart_and_the_explorer_says_how_to_wake_it_up(lab01):
    for number, cell in enumerate(lab01.restart_and_reopen(NAME)):
        cell.screenshot(f"lab01-figure-{number}-reopened")
        expect(cell.figure()).to_contain_text("as predicted")
    cell = lab01.cell(EXPLORER)
    cell.show()
    expect(cell.area).to_contain_text("after a restart, run this cell again")
    cell.screenshot("lab01-explorer-reopened")
    assert lab01.next_run() == 0
    lab01.cell("warm_up(").run(timeout_s=60)
    explorer = LabExplorer(cell.run())
    explorer.settle("all_reduce")
    assert lab01.errors == []


def test_nothing_pops_up_and_nothing_comes_from_elsewhere(lab01):
    assert lab01.popups == []
    assert lab01.asked_elsewhere == []
    assert lab01.script_errors == []
