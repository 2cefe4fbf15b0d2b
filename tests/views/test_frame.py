"""What all figures share: a theme, a title, a badge that says how true it is, and a summary."""

import plotly.graph_objects as go
import pytest
from figures import sizes_of_text, texts

from lablib.engine.result import Run
from lablib.trace import Trace
from lablib.views import Badge, summary
from lablib.views.frame import THEME_VARIABLE, chosen_theme, dress

RUN = Run(values=[1, 2], output=["", ""], backend="gloo", device="cpu", reason="", seconds=0.1, pids=[1, 2])


def dressed(badge, theme=None):
    return dress(go.Figure(), title="Title", badge=badge, summary="two facts", height_px=300, theme=chosen_theme(theme))


def test_a_badge_tells_the_kind_of_truth_the_backend_the_ranks_and_the_device():
    assert Badge.real(RUN).text == "real · gloo · 2 ranks · cpu"
    assert Badge("simulated", 1, "cuda", "nccl").text == "simulated · nccl · 1 rank · cuda"
    assert Badge("emulated", 8, note="slow links").text == "emulated · no backend · 8 ranks · cpu · slow links"


def test_a_trace_says_itself_how_true_it_is():
    trace = Trace((), world_size=4, truth="emulated", backend="gloo")
    assert Badge.of(trace, note="slow links").text == "emulated · gloo · 4 ranks · cpu · slow links"
    assert Badge.of(Trace((), world_size=1, truth="simulated")).text == "simulated · no backend · 1 rank · cpu"


def test_the_badge_stands_in_the_figure_and_in_the_summary():
    fig = dressed(Badge.real(RUN))
    assert "<b>REAL</b> · gloo · 2 ranks · cpu" in texts(fig)
    assert summary(fig) == "real · gloo · 2 ranks · cpu: two facts"


def test_the_three_kinds_of_truth_look_different():
    pills = [dressed(Badge(truth, 2)).layout.annotations[0] for truth in ("real", "emulated", "simulated")]
    assert len({pill.bordercolor for pill in pills}) == 3


def test_a_theme_is_named_by_the_call_or_else_by_the_environment(monkeypatch):
    monkeypatch.delenv(THEME_VARIABLE, raising=False)
    assert dressed(Badge.real(RUN)).layout.paper_bgcolor == "#ffffff"
    monkeypatch.setenv(THEME_VARIABLE, "dark")
    dark = dressed(Badge.real(RUN))
    assert dark.layout.paper_bgcolor == chosen_theme("dark").paper
    assert dark.layout.font.color == dark.layout.hoverlabel.font.color == chosen_theme("dark").ink
    assert dressed(Badge.real(RUN), "light").layout.paper_bgcolor == "#ffffff"
    with pytest.raises(ValueError, match="choose light or dark"):
        chosen_theme("blue")


def test_text_is_readable_from_the_back_row():
    assert min(sizes_of_text(dressed(Badge.real(RUN)))) >= 14


def test_a_foreign_figure_has_no_summary():
    with pytest.raises(ValueError, match="no summary"):
        summary(go.Figure())
