"""A big timeline in a real browser, beside the same spans as plotly's bars."""

from __future__ import annotations

import itertools
import json

import numpy as np
import plotly.graph_objects as go
import psutil
import pytest
from chromium import FLAGS, find_chromium
from playwright.sync_api import sync_playwright
from plotly.offline import get_plotlyjs

from lablib.trace import Kind, Span, Trace
from lablib.views import timeline

pytestmark = [pytest.mark.browser, pytest.mark.soak]

RANKS, SPANS = 64, 500
MS = 1_000_000
PAINT = "const paint = () => new Promise(next => requestAnimationFrame(() => requestAnimationFrame(next)));"
RENDER = f"async () => {{ {PAINT} await Plotly.newPlot('here', fig.data, fig.layout); await paint(); }}"
ZOOM = f"async () => {{ {PAINT} await Plotly.relayout('here', {{'xaxis.range': [10, 60]}}); await paint(); }}"


def a_trace():
    """Return layers of 1 to 3 ms, each followed by a collective that the next layer hides."""
    lengths = np.random.default_rng(0).integers(MS, 3 * MS, (RANKS, SPANS))
    spans = []
    for rank, row in enumerate(lengths.tolist()):
        starts = itertools.accumulate(row, initial=0)
        for number, (start, length) in enumerate(zip(starts, row, strict=False)):
            name, kind = (("all_reduce", Kind.COLLECTIVE), ("layer", Kind.COMPUTE))[number % 2]
            spans.append(Span(rank, name, kind, start, start + length))
    return Trace.of_spans(spans, world_size=RANKS, truth="simulated")


def plain_bars(trace):
    """Return the spans as bars without text, colours or edges of their own."""
    rows = np.array([(one.start_ns / MS, one.length_ns / MS, one.rank) for one in trace])
    bars = {"type": "bar", "orientation": "h", "base": rows[:, 0], "x": rows[:, 1], "y": rows[:, 2]}
    return go.Figure(bars, {"height": timeline(trace).layout.height, "width": 1200})


def browser_seconds():
    """Return how many seconds of CPU the browser used so far: other work on this machine does not count."""
    return sum(sum(child.cpu_times()[:2]) for child in psutil.Process().children(recursive=True))


@pytest.mark.timeout(600)
def test_a_big_timeline_draws_4_times_and_zooms_20_times_as_fast_as_bars():
    trace = a_trace()
    taken = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        for name, fig in (("cells", timeline(trace)), ("bars", plain_bars(trace))):
            page = browser.new_page(viewport={"width": 1280, "height": 1300})
            page.set_default_timeout(300_000)
            page.set_content("<div id='here'></div>")
            page.add_script_tag(content=get_plotlyjs())
            page.evaluate("fig => { window.fig = fig; }", json.loads(fig.to_json()))
            for what, script in (("render", RENDER), ("zoom", ZOOM)):
                before = browser_seconds()
                page.evaluate(script)
                taken[name, what] = browser_seconds() - before
            page.close()
        browser.close()
    assert taken["bars", "render"] > 4 * taken["cells", "render"]
    assert taken["bars", "zoom"] > 20 * taken["cells", "zoom"]
