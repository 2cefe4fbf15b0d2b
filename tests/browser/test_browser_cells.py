"""What a learner sees of the engine in the real page: live output, ■, a failed rank, a run from a widget."""

import pytest
from playwright.sync_api import expect

NAME = "cells.ipynb"
IMPORTS = """\
import time
from pathlib import Path

import ipywidgets as widgets
import torch
import torch.distributed as dist

from lablib import run, warm_up

warm_up()
"""
TALK = """\
def talk():
    if dist.get_rank() == 1:
        print("one is first", flush=True)
    while not Path("go").exists():
        time.sleep(0.01)
    if dist.get_rank() == 0:
        print("zero is last", flush=True)

run(talk, timeout=100).values
"""
DEADLOCK = """\
def deadlock():
    print("I wait for the other", flush=True)
    dist.recv(torch.zeros(1), src=1 - dist.get_rank())

run(deadlock, timeout=100)
"""
NEXT = """\
def add_up():
    one = torch.ones(1)
    dist.all_reduce(one)
    return one.item()

run(add_up)
"""
FAIL = """\
def fail():
    if dist.get_rank() == 1:
        raise ValueError("no such batch")
    dist.barrier()

run(fail)
"""
KNOBS = """\
ranks = widgets.IntSlider(value=2, min=2, max=4, description="ranks")
word = widgets.Dropdown(options=["hello", "bye"], description="word")
button = widgets.Button(description="Run on real ranks")
shown = widgets.Output()

@shown.capture(clear_output=True)
def pressed(_):
    said = word.value
    print(run(lambda: f"{said} {dist.get_rank()}", world_size=ranks.value).values)

button.on_click(pressed)
widgets.VBox([ranks, word, button, shown])
"""
STOPPED_WITHIN_S = 10.0

pytestmark = [pytest.mark.browser, pytest.mark.timeout(150)]


@pytest.fixture(scope="module")
def page(lab):
    """Return the page with a notebook of small cells, its imports done."""
    lab.server.write(NAME, IMPORTS, TALK, DEADLOCK, NEXT, FAIL, KNOBS)
    lab.open(NAME)
    lab.cell("warm_up(").run(timeout_s=60)
    assert lab.errors == []
    return lab


def test_output_is_live_and_in_rank_order_at_the_end(page):
    cell = page.cell("def talk")
    run = cell.start()
    expect(cell.area).to_contain_text("[rank 1] one is first")
    expect(cell.area).to_contain_text("running, ■ stops it")
    assert cell.state["running"]
    assert "[rank 0]" not in cell.text
    cell.screenshot("cell-live")
    (page.server.work / "go").touch()
    cell.finish(run)
    expect(cell.area).not_to_contain_text("stops it")
    assert cell.text.splitlines()[:2] == ["■ [rank 0] zero is last", "■ [rank 1] one is first"]
    cell.screenshot("cell-in-rank-order")


def test_the_stop_button_frees_a_deadlock_and_the_next_cell_works(page):
    cell = page.cell("def deadlock")
    run = cell.start()
    for rank in (0, 1):
        expect(cell.area).to_contain_text(f"[rank {rank}] I wait for the other")
    cell.screenshot("cell-deadlock")
    page.stop()
    cell.finish(run, timeout_s=STOPPED_WITHIN_S)
    (error,) = cell.errors
    assert error.startswith("KeyboardInterrupt: stopped, and the ranks are ended")
    expect(cell.area).to_contain_text("rank 0 was waiting in recv from rank 1 at cell [")
    expect(cell.area).not_to_contain_text("stops it")
    for frame in ("Traceback", ".py"):
        assert frame not in cell.text
    cell.screenshot("cell-stopped")
    after = page.cell("def add_up").run()
    assert "2 ranks" in after.text
    assert after.text.count("2.0") == 2
    after.screenshot("cell-run")


def test_a_failed_rank_is_shown_with_the_learners_line_and_nothing_of_the_launcher(page):
    cell = page.cell("def fail").run()
    expect(cell.area).to_contain_text("RankFailed: rank 1 raised ValueError: no such batch")
    number = cell.state["count"]
    assert f"cell [{number}], line 3, in fail" in cell.text
    for frame in ("Traceback", "File ", ".py", "lablib"):
        assert frame not in cell.text
    cell.screenshot("cell-failed")


def test_knobs_of_a_widget_reach_a_run_on_real_ranks(page):
    cell = page.cell("widgets.IntSlider").run()
    cell.set_slider("ranks", 3)
    cell.choose("word", "bye")
    cell.press("Run on real ranks")
    expect(cell.area).to_contain_text("['bye 0', 'bye 1', 'bye 2']")
    assert cell.errors == []
    cell.screenshot("cell-knobs")


def test_errors_and_values_are_readable(page, theme):
    for text, part in (("def fail", ".jp-RenderedText"), ("def add_up", ".jp-OutputArea-output > div, code")):
        cell = page.cell(text).run()
        cell.screenshot(f"cell-{text.removeprefix('def ')}-{theme}")
        assert cell.lowest_contrast(part) >= 4.5
