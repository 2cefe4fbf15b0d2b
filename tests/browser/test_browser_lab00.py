"""Lab 00 as a learner finds it in `work/`: run from top to bottom, looked at in both themes, closed, opened again."""

import re

import pytest
from playwright.sync_api import expect

NAME = "00_ranks_and_launch.ipynb"

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def lab00(lab):
    """Return the lab after all its cells ran once."""
    lab.open(NAME)
    lab.screenshot("lab00-opened")
    lab.run_all(timeout_s=200)
    return lab


def test_every_cell_runs_and_shows_no_error(lab00):
    assert lab00.errors == []
    assert lab00.ran_in_order


def test_nothing_pops_up_and_nothing_comes_from_elsewhere(lab00):
    assert lab00.popups == []
    assert lab00.asked_elsewhere == []
    assert lab00.script_errors == []


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.soak)], indirect=True)
def test_figures_are_drawn(lab00, theme):
    for number, cell in enumerate(lab00.drawn_by("views.")):
        figure = cell.figure()
        size, room = figure.bounding_box(), cell.area.bounding_box()
        assert 600 <= size["width"] <= room["width"]
        badge = re.search(r"(REAL|SIMULATED|EMULATED) · .*?(\d) ranks", figure.text_content())
        ranks = re.findall(r"rank \d(?=local_rank)", figure.text_content())
        assert ranks == [f"rank {rank}" for rank in range(int(badge[2]))]
        cell.screenshot(f"lab00-figure-{number}-{theme}")
    lab00.screenshots(f"lab00-{theme}")


def test_a_rank_picked_in_the_list_shows_its_environment(lab00):
    cell = lab00.cell("four.device")
    figure = cell.figure()
    expect(figure).to_contain_text("LOCAL_RANK=0")
    expect(figure).not_to_contain_text("LOCAL_RANK=2")
    figure.locator(".updatemenu-header").click()
    figure.locator(".updatemenu-dropdown-button").filter(has_text="rank 2").click()
    expect(figure).to_contain_text("LOCAL_RANK=2")
    expect(figure).not_to_contain_text("LOCAL_RANK=0")
    cell.screenshot("lab00-environment")


def test_pointing_at_a_rank_shows_its_environment(lab00):
    cell = lab00.cell("four.device")
    cell.figure().locator("text").filter(has_text="local_rank 1").hover(force=True)
    expect(cell.area.locator(".hoverlayer")).to_contain_text("LOCAL_RANK=1")
    cell.screenshot("lab00-pointed-at")


@pytest.mark.soak
def test_figures_are_there_after_a_restart_and_after_reopening(lab00):
    for number, cell in enumerate(lab00.restart_and_reopen(NAME)):
        cell.screenshot(f"lab00-figure-{number}-reopened")
        expect(cell.figure()).to_contain_text("rank 0")
    assert lab00.next_run() == 0
    assert lab00.errors == []
