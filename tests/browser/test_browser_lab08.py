"""Lab 08 as a learner finds it in `work/`: the bucket explorer follows hands on real controls; the whole lab runs."""

import pytest
from labexplorer import LabExplorer
from playwright.sync_api import expect

NAME = "08_inside_the_reducer.ipynb"
EXPLORER = "bucket_explorer(run="

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def lab08(lab):
    """Return the lab with its imports done."""
    lab.open(NAME)
    lab.cell("warm_up(").run(timeout_s=60)
    return lab


@pytest.fixture(scope="module")
def whole_lab(lab08):
    """Return the lab after all its cells ran once more."""
    lab08.run_all(timeout_s=300)
    return lab08


@pytest.fixture
def explorer(lab08):
    """Return the explorer, made anew."""
    cell = lab08.cell(EXPLORER).run()
    explorer = LabExplorer(cell)
    explorer.settle("simulated · no backend · 2 ranks", "iteration 1, 2 buckets of 1.00, 7.00 MiB on 2 ranks")
    yield explorer
    assert cell.errors == []


def test_the_explorer_follows_its_controls_and_shows_three_truths(explorer):
    cell, figure = explorer.cell, explorer.figure
    cell.choose("cap, MiB", "2")
    explorer.settle("iteration 1, 4 buckets of 2.00, 2.00, 2.00, 2.00 MiB")
    cell.set_slider("world size", 4)
    explorer.settle("simulated · no backend · 4 ranks")
    cell.press("0")
    explorer.settle("iteration 0, 1 bucket of 8.00 MiB on 4 ranks")
    cell.press("1")
    explorer.settle("iteration 1, 4 buckets")
    cell.screenshot("lab08-explorer-simulated")

    explorer.button.click()
    explorer.settle("emulated · gloo · 4 ranks · cpu", "outline: predicted, hatched: real arithmetic")
    expect(explorer.button).to_be_enabled()
    expect(figure).to_contain_text("EMULATED")
    cell.screenshot("lab08-explorer-measured")
    cell.press("2")
    explorer.settle("emulated · gloo", "iteration 2, 4 buckets")

    cell.set_slider("layers", 25)
    explorer.settle("simulated", "iteration 2, 13 buckets")
    expect(figure).not_to_contain_text("EMULATED")
    expect(explorer.alarm).to_be_hidden()


def test_settings_of_ddp_are_boxes_to_tick(explorer):
    box = explorer.cell.area.get_by_label("static_graph", exact=True)
    box.check()
    explorer.settle("iteration 1, 1 bucket of 8.00 MiB")
    box.uncheck()
    explorer.settle("iteration 1, 2 buckets")


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.soak)], indirect=True)
@pytest.mark.parametrize("layers", [pytest.param(1, marks=pytest.mark.soak), 25])
def test_words_can_be_read_with_few_and_many_buckets(explorer, layers, theme):
    explorer.cell.choose("cap, MiB", "1")
    explorer.cell.set_slider("layers", layers)
    explorer.cell.set_slider("world size", 8)
    explorer.settle("8 ranks", f"{layers} bucket")
    assert [fault for fault in explorer.faults if not fault.startswith("sticks out")] == []
    assert explorer.cell.lowest_contrast(".widget-inline-hbox, .widget-html-content, button") >= 4.5
    explorer.cell.screenshot(f"lab08-explorer-{layers}-layers-{theme}")


@pytest.mark.soak
def test_every_cell_runs_and_shows_no_error(whole_lab):
    assert whole_lab.errors == []
    assert whole_lab.ran_in_order


@pytest.mark.soak
def test_figures_are_drawn_and_can_be_read(whole_lab, theme):
    for number, cell in enumerate(whole_lab.drawn_by("views.")):
        cell.figure()
        cell.screenshot(f"lab08-figure-{number}-{theme}")
    whole_lab.screenshots(f"lab08-{theme}")


@pytest.mark.soak
def test_figures_are_there_after_a_restart(whole_lab):
    whole_lab.restart_and_reopen(NAME)
    cell = whole_lab.cell(EXPLORER)
    cell.show()
    expect(cell.area).to_contain_text("after a restart, run this cell again")


def test_nothing_pops_up_and_nothing_comes_from_elsewhere(lab08):
    assert lab08.popups == []
    assert lab08.asked_elsewhere == []
    assert lab08.script_errors == []
