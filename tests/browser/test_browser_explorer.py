"""An explorer in a browser that is slow."""

import pytest
from labexplorer import LabExplorer

NAME = "explorer.ipynb"
# anywidget waits two seconds for a widget's module; later it drops what the kernel sends.
SLOW = """\
from traitlets import Unicode

from lablib.widgets import collectives_explorer, frame, live

WAIT = "await new Promise((go) => setTimeout(go, 2500));"


class Slow(live.LiveFigure):
    _plotly = Unicode(f"{WAIT}{live.LiveFigure._plotly.default_value}").tag(sync=True)


frame.LiveFigure = Slow
collectives_explorer()
"""

pytestmark = [pytest.mark.browser, pytest.mark.timeout(150)]


def test_a_figure_follows_its_knobs_however_long_plotly_takes_to_load(lab):
    lab.server.write(NAME, SLOW)
    lab.open(NAME)
    explorer = LabExplorer(lab.cell("collectives_explorer()").run(timeout_s=60))
    explorer.settle("all_reduce SUM")
    explorer.cell.choose("operation", "broadcast")
    explorer.settle("broadcast")
    explorer.cell.set_slider("step", 0)
    explorer.settle("step 0 of 2")
    assert lab.errors == []
    assert lab.script_errors == []
