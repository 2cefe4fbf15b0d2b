"""What the browser is told about a live figure."""

from __future__ import annotations

import ipywidgets
import numpy as np
import plotly.graph_objects as go
import pytest

from lablib.widgets.live import LiveFigure

FIGURE = go.Figure([{"type": "scatter", "y": [1, 2, 3]}], {"height": 200})


@pytest.fixture
def sent(monkeypatch):
    """Return the list of messages that widgets send."""
    messages = []

    class Comm:
        comm_id = "1"

        def __init__(self, *, data, **_):
            messages.append(data["state"])

        def send(self, data, **_):
            messages.append(data["state"])

        def on_msg(self, _):
            pass

        def close(self, *_, **__):
            pass

    monkeypatch.setattr(ipywidgets.widgets.widget.comm, "create_comm", Comm)
    return messages


def test_the_first_message_has_the_whole_figure(sent):
    LiveFigure(FIGURE)
    assert sent[0]["_widget_data"][0]["y"] == [1, 2, 3]
    assert sent[0]["_widget_layout"]["height"] == 200


def test_a_small_module_comes_before_plotlys(sent):
    LiveFigure(FIGURE)
    assert len(sent[0]["_esm"]) < 10_000 < len(sent[0]["_plotly"])
    assert sent[0]["_plotly"] == str(go.FigureWidget._esm)
    assert sent[0]["_config"] == {"responsive": True}


def test_plotly_still_needs_this(sent):
    go.FigureWidget(FIGURE)
    assert sent[0]["_widget_data"] == []


def test_numbers_travel_in_one_piece(sent):
    figure = LiveFigure(FIGURE)
    figure.change([(0, "y", np.arange(6.0).reshape(3, 2).T[0])])
    buffer = figure.get_state()["_widget_data"][0]["y"]["buffer"]
    assert (buffer.contiguous, buffer.tolist()) == (True, [0, 2, 4])


def test_a_view_that_is_made_later_shows_the_present_figure(sent):
    figure = LiveFigure(FIGURE)
    sent.clear()
    figure.change([(0, "y", [4, 5]), (None, "title.text", "new")])
    updates = [message["_py2js_update"] for message in sent if "_py2js_update" in message]
    assert [update["style_data"] for update in updates if update] == [{"y": [[4, 5]]}]
    told = [message for message in sent if "_widget_data" in message][-1]
    assert (told["_widget_data"][0]["y"], told["_widget_layout"]["title"]["text"]) == ([4, 5], "new")
    assert figure.get_state()["_widget_data"][0]["y"] == [4, 5]
