"""The memory explorer in an open notebook: it follows its knobs, real ranks are laid over it, its words can be read."""

import pytest
from labexplorer import LabExplorer
from playwright.sync_api import expect

NAME = "memory.ipynb"
CELL = """\
from functools import partial

import lablib
from lablib.training.memory_run import measured
from lablib.widgets import memory_explorer


def run(plan):
    return lablib.run(partial(measured, plan), world_size=plan.world_size, memory=True)


memory_explorer(run=run)
"""

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(180)]


def unreadable(explorer):
    """Return what cannot be read; words stand beside bars on purpose where the bars of some ranks are shorter."""
    return [fault for fault in explorer.faults if "sticks out" not in fault]


def test_it_follows_its_knobs_and_real_ranks_are_laid_over_it(lab):
    lab.server.write(NAME, CELL)
    lab.open(NAME)
    explorer = LabExplorer(lab.cell("memory_explorer(").run(timeout_s=60))
    cell, figure = explorer.cell, explorer.figure
    explorer.settle("simulated · no backend · 4 ranks", "DDP: 5.02 MiB")
    with lab.window(1280, 1500):
        explorer.wait_until_as_wide_as(1000)
        assert unreadable(explorer) == []
        cell.choose("device has", "4.00 MiB")
        explorer.settle("over the limit of 4.00 MiB: DDP / DDP, gradients as bucket views")
        cell.choose("shared by", "ZeRO 2 by hand")
        explorer.settle("ZeRO 2 by hand: 1.76 MiB (peak 3.86 MiB): parameters")
        expect(figure).to_contain_text("One step on rank 0, ZeRO 2 by hand")
        explorer.button.click()
        explorer.settle("real · gloo · 4 ranks · cpu · outline: predicted", "measured, as predicted to the byte")
        expect(explorer.button).to_be_enabled()
        assert unreadable(explorer) == []
        for theme in ("dark", "light"):
            lab.theme(theme)
            cell.screenshot(f"memory-explorer-{theme}")
            assert cell.lowest_contrast(".widget-inline-hbox, .widget-html-content, button") >= 4.5
        expect(explorer.alarm).to_be_hidden()
    assert lab.errors == lab.script_errors == lab.popups == lab.asked_elsewhere == []
