"""Lab 05 as a learner finds it in `work/`: the sampler explorer follows hands on real controls; the whole lab runs."""

import re

import pytest
from labexplorer import LabExplorer
from playwright.sync_api import expect

NAME = "05_distributed_sampler.ipynb"
EXPLORER = "sampler_explorer("

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def lab05(lab):
    """Return the lab with its imports done."""
    lab.open(NAME)
    lab.screenshot("lab05-opened")
    lab.cell("warm_up(").run(timeout_s=60)
    return lab


@pytest.fixture(scope="module")
def whole_lab(lab05):
    """Return the lab after all its cells ran once more."""
    lab05.run_all(timeout_s=200)
    return lab05


@pytest.fixture
def explorer(lab05):
    """Return the explorer, made anew."""
    cell = lab05.cell(EXPLORER).run()
    explorer = LabExplorer(cell)
    explorer.settle("simulated · no backend · 4 ranks", "10 samples on 4 ranks")
    yield explorer
    assert cell.errors == []


def type_in(explorer, label, value):
    """Type a number into a field, as a learner does."""
    field = explorer.cell.area.get_by_label(label, exact=True)
    field.fill(str(value))
    field.press("Tab")


def tick(explorer, words):
    """Click on a box with these words."""
    explorer.cell.area.locator(".widget-checkbox label").filter(has_text=words).locator("input").click()


def test_the_explorer_follows_its_controls_and_lays_a_real_run_over(explorer):
    cell, figure = explorer.cell, explorer.figure
    expect(figure).to_contain_text("SIMULATED")
    expect(figure).to_contain_text("epoch 1")
    type_in(explorer, "samples", 13)
    cell.set_slider("world size", 5)
    cell.set_slider("epochs", 3)
    explorer.settle("13 samples on 5 ranks", "epoch 2: 2 batches a rank, 2 more than once")
    expect(figure).to_contain_text("rank 4")
    tick(explorer, "set_epoch is called")
    explorer.settle("13 samples on 5 ranks")
    expect(figure).not_to_contain_text("set_epoch")
    explorer.button.click()
    explorer.settle("real · gloo · 5 ranks · cpu", "measured: 30 batches, 0 not as predicted")
    expect(figure).to_contain_text("REAL · gloo · 5 ranks · cpu · beside the prediction")
    expect(figure).to_contain_text("all 10 batches as predicted")
    expect(explorer.button).to_be_enabled()
    assert explorer.faults == []
    assert figure.get_by_text("3 in 2 batches", exact=True).filter(visible=True).count() == 15
    cell.screenshot("lab05-explorer-real")
    cell.set_slider("answers right, %", 50)
    explorer.settle("real · gloo · 5 ranks")
    tick(explorer, "drop_last of the sampler")
    explorer.settle("simulated", "0 more than once, 3 never seen")
    expect(figure).to_contain_text("drop_last=True")
    expect(explorer.alarm).to_be_hidden()


def test_a_mistake_is_told_and_the_last_picture_stays(explorer):
    type_in(explorer, "batch size", 0)
    expect(explorer.alarm).to_contain_text("batch_size=0: give a whole number from 1 on")
    expect(explorer.alarm).to_contain_text("The figure still shows the last call that works.")
    assert explorer.cell.lowest_contrast(".widget-html-content") >= 4.5
    explorer.cell.screenshot("lab05-explorer-mistake")
    type_in(explorer, "batch size", 4)
    explorer.settle("epoch 0: 1 batch a rank")
    expect(explorer.alarm).to_be_hidden()


@pytest.mark.parametrize(
    ("samples", "world_size", "batch_size", "epochs"),
    [
        (64, 8, 2, 4),
        *(
            pytest.param(*sizes, marks=pytest.mark.soak)
            for sizes in [(3, 8, 1, 4), (300, 4, 8, 2), (700, 2, 32, 1), (5000, 8, 32, 4), (5000, 1, 1, 1)]
        ),
    ],
)
def test_every_size_can_be_read(explorer, samples, world_size, batch_size, epochs):
    tick(explorer, "seed + rank on each rank")
    type_in(explorer, "samples", samples)
    type_in(explorer, "batch size", batch_size)
    explorer.cell.set_slider("world size", world_size)
    explorer.cell.set_slider("epochs", epochs)
    explorer.settle(f"{samples} samples on {world_size} rank", f"epoch {epochs - 1}:")
    assert [fault for fault in explorer.faults if "sticks out" not in fault] == []
    captions = explorer.figure.locator("text", has_text=re.compile(r"^[\d,]+ in [\d,]+ batch(es)?$"))
    assert captions.filter(visible=True).count() == world_size * epochs
    explorer.cell.screenshot(f"lab05-explorer-{samples}-on-{world_size}")


def test_samples_that_nobody_gets_are_told_aloud(explorer):
    type_in(explorer, "samples", 3)
    explorer.cell.set_slider("world size", 8)
    tick(explorer, "drop_last of the sampler")
    explorer.settle("0 batches a rank, 0 more than once, 3 never seen (0, 1, 2)")
    expect(explorer.figure).to_contain_text("no batch")
    explorer.button.click()
    explorer.settle("real · gloo · 8 ranks", "measured: 0 batches, 0 not as predicted")
    explorer.cell.screenshot("lab05-explorer-nothing")


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.soak)], indirect=True)
def test_knobs_and_words_can_be_read(explorer, theme):
    explorer.cell.screenshot(f"lab05-explorer-{theme}")
    assert explorer.cell.lowest_contrast(".widget-inline-hbox, .widget-checkbox, .widget-html-content, button") >= 4.5


@pytest.mark.soak
def test_every_cell_runs_and_shows_no_error(whole_lab):
    assert whole_lab.errors == []
    assert whole_lab.ran_in_order


@pytest.mark.soak
def test_figures_are_drawn(whole_lab, theme):
    for number, cell in enumerate(whole_lab.drawn_by("picture(")):
        figure = cell.figure()
        expect(figure).to_contain_text("REAL · gloo · 4 ranks · cpu")
        expect(figure).to_contain_text("as predicted")
        expect(figure).not_to_contain_text("not as predicted")
        cell.screenshot(f"lab05-figure-{number}-{theme}")
    whole_lab.screenshots(f"lab05-{theme}")


def test_nothing_pops_up_and_nothing_comes_from_elsewhere(lab05):
    assert lab05.popups == []
    assert lab05.asked_elsewhere == []
    assert lab05.script_errors == []
