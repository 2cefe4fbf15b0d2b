"""The frame of explorers, without a browser: knobs, steps, the run button, errors, two threads."""

from __future__ import annotations

import datetime
import signal
import threading
from types import SimpleNamespace

import ipywidgets
import plotly.graph_objects as go
import pytest

from lablib.errors import UsageError
from lablib.views import Badge
from lablib.views.sketch import Sketch
from lablib.widgets import Explorer, Scene, clicks, frame


def scene(settings, measured):
    """Draw a line of so many points; 13 is refused and 14 is a bug."""
    count = settings["count"]
    if count == 13:
        raise UsageError("13 points bring bad luck; take 12")
    if count == 14:
        raise ZeroDivisionError("a bug in the view")

    def at(step):
        height = 100 if measured is None else measured
        return Sketch(
            traces=[{"type": "scatter", "x": list(range(count)), "y": [step * height] * count}],
            layout={},
            title=f"{count} points",
            badge=Badge("simulated" if measured is None else "real", 1),
            summary=f"{count} points at {step * height}",
            height_px=300,
            theme="light",
        )

    return Scene(at, steps=count)


def explorer(run=None, adjust=None):
    return Explorer({"count": ipywidgets.IntSlider(4, 1, 20)}, scene, run=run, adjust=adjust)


def points(one):
    return len(one.figure.data[0].x), one.figure.data[0].y[0]


def test_a_knob_changes_the_figure_in_place():
    one = explorer()
    figure = one.figure
    assert isinstance(figure, go.FigureWidget)
    assert points(one) == (4, 200)
    one.knobs["count"].value = 6
    assert one.figure is figure
    assert figure in one.children
    assert points(one) == (6, 300)
    assert one.summary == "simulated · no backend · 1 rank · cpu: 6 points at 300"
    assert one.summary in one._summary.value


def test_steps_follow_the_story_and_the_player_moves_them():
    one = explorer()
    assert (one.step.value, one.step.max) == (2, 4)
    one.step.value = 0
    assert points(one) == (4, 0)
    one.play.value = 3
    assert (one.step.value, points(one)) == (3, (4, 300))
    one.knobs["count"].value = 8
    assert (one.step.value, one.step.max, one.play.max) == (4, 8, 8)


def test_a_step_that_another_thread_turns_meanwhile_is_no_error():
    one = explorer()
    one.play.observe(lambda _: setattr(one.step, "value", 0), "value")
    one.step.value = 3
    assert (one.step.value, one.play.value, points(one)) == (0, 0, (4, 0))


def test_rows_part_the_knobs():
    knobs = {name: ipywidgets.IntSlider(4, 1, 20) for name in ("count", "width", "height")}
    one = Explorer(knobs, scene, rows=[("width", "count"), ("height",)])
    rows = [[*row.children] for row in one.children[:2]]
    assert rows == [[knobs["width"], knobs["count"]], [knobs["height"]]]


def test_a_wrong_choice_is_explained_and_the_last_good_figure_stays():
    one = explorer()
    one.knobs["count"].value = 13
    assert "take 12" in one.error
    assert "last call that works" in one.error
    assert one._error.layout.display is None
    assert points(one) == (4, 200)
    one.knobs["count"].value = 3
    assert one.error == ""
    assert one._error.layout.display == "none"
    assert points(one) == (3, 200)


def test_what_is_wrong_with_a_knob_stands_while_steps_are_drawn(monkeypatch):
    one = explorer()
    one.knobs["count"].value = 13
    told = one.error
    with monkeypatch.context() as patch:
        patch.setattr(type(one.figure), "change", lambda *_: 1 / 0)
        one.step.value = 0
    assert "ZeroDivisionError" in one.error
    one.step.value = 1
    assert (one.error, points(one)) == (told, (4, 100))
    one.knobs["count"].value = 3
    one.step.value = 0
    assert (one.error, points(one)) == ("", (3, 0))


def test_an_error_while_the_figure_changes_leaves_steps_and_picture_in_step(monkeypatch):
    one = explorer()
    with monkeypatch.context() as patch:
        patch.setattr(type(one.figure), "change", lambda *_: 1 / 0)
        one.knobs["count"].value = 9
    assert "ZeroDivisionError" in one.error
    assert (one.step.value, one.step.max, points(one)) == (2, 4, (4, 200))
    one.step.value = 1
    assert "ZeroDivisionError" in one.error
    assert points(one) == (4, 100)
    one.knobs["count"].value = 10
    assert (one.error, one.step.max, points(one)) == ("", 10, (10, 500))


def test_a_bug_of_ours_shows_where_it_happened():
    one = explorer()
    one.knobs["count"].value = 14
    assert "a bug in the view" in one.error
    assert "test_explorer.py" in one.error


def test_the_run_is_laid_over_and_kept_for_these_settings():
    ran = []
    one = explorer(run=lambda settings: ran.append(settings) or 7)
    one.run()
    assert ran == [{"count": 4}]
    assert points(one) == (4, 14)
    assert one.summary.startswith("real")
    one.knobs["count"].value = 5
    assert one.measured is None
    assert one.summary.startswith("simulated")
    one.knobs["count"].value = 4
    assert (one.measured, points(one)) == (7, (4, 14))


def test_without_anything_to_run_there_is_no_button():
    one = explorer()
    assert one.button not in one.children[1].children
    one.run()
    assert "run=lablib.run" in one.error
    assert explorer(run=lambda settings: 1).button.description == "Run on real ranks"


def test_a_failed_or_stopped_run_is_told_and_the_button_comes_back():
    def fails(settings):
        raise KeyboardInterrupt if settings["count"] == 5 else UsageError("no ranks today")

    one = explorer(run=fails)
    one.run()
    assert "no ranks today" in one.error
    assert (one.button.disabled, one.button.description) == (False, frame.RUN)
    assert points(one) == (4, 200)
    one.knobs["count"].value = 5
    one.run()
    assert one.error.startswith("stopped")
    assert one.button.disabled is False


class Run:
    """Be a run that lasts until it is let go."""

    def __init__(self):
        self.begun, self.may_end, self.count = threading.Event(), threading.Event(), 0

    def __call__(self, settings):
        self.count += 1
        self.begun.set()
        assert self.may_end.wait(10)
        return 7


def test_knobs_live_while_a_run_goes_on_in_another_thread():
    run = Run()
    one = explorer(run=run)
    thread = threading.Thread(target=one.run)
    thread.start()
    assert run.begun.wait(10)
    assert (one.button.disabled, one.button.description) == (True, frame.RUNNING)
    one.knobs["count"].value = 6
    assert points(one) == (6, 300)
    one.run()  # a second one, while the first goes on, is dropped
    run.may_end.set()
    thread.join(10)
    assert run.count == 1
    assert one.button.disabled is False
    assert points(one) == (6, 300)
    one.knobs["count"].value = 4
    assert points(one)[1] == 14


def test_two_threads_that_turn_knobs_leave_one_picture():
    one = explorer(adjust=lambda knobs: None)
    failures = []

    def turn(values):
        try:
            for _ in range(20):
                for value in values:
                    one.knobs["count"].value = value
                    one.step.value = value % 3
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=turn, args=(values,)) for values in ((2, 5, 9), (3, 13, 7))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    one.knobs["count"].value = 1
    one.knobs["count"].value = 11
    one.step.value = 1
    assert one.error == ""
    fresh = scene({"count": 11}, None).at(1).figure()
    assert one.figure.to_dict()["layout"] == fresh.to_dict()["layout"]
    assert points(one) == (11, 100)


def test_a_knob_that_adjusts_another_draws_once():
    drawn = []

    def counted(settings, measured):
        drawn.append(settings["count"])
        return scene(settings, measured)

    def adjust(knobs):
        knobs["count"].value = min(knobs["count"].value, knobs["most"].value)

    knobs = {"count": ipywidgets.IntSlider(4, 1, 20), "most": ipywidgets.IntSlider(9, 1, 20)}
    one = Explorer(knobs, counted, adjust=adjust)
    knobs["most"].value = 2
    assert drawn == [4, 2]
    assert points(one)[0] == 2


@pytest.fixture
def browser(monkeypatch):
    """Return a function that clicks as a browser does, so many seconds after noon by the browser's clock."""
    parent = {}
    kernel = SimpleNamespace(get_parent=lambda: parent)
    monkeypatch.setattr(clicks, "get_ipython", lambda: SimpleNamespace(kernel=kernel))
    noon = datetime.datetime(2000, 1, 1, 12, tzinfo=datetime.timezone.utc)

    def click(one, after_s):
        parent["header"] = {"msg_type": "comm_msg", "date": noon + datetime.timedelta(seconds=after_s)}
        one.button.click()

    return click


def test_clicks_that_queued_up_during_a_run_are_dropped(browser, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(frame, "time", SimpleNamespace(monotonic=lambda: now[0], time=lambda: 0.0))
    ran = []

    def run(settings):
        ran.append(now[0])
        now[0] += 5  # each run takes five seconds
        return 1

    one = explorer(run=run)
    browser(one, 0)
    browser(one, 1)
    browser(one, 4.9)
    assert ran == [100.0]
    browser(one, 6)
    assert ran == [100.0, 105.0]


def test_a_click_on_another_thread_runs_on_the_main_one(monkeypatch):
    waiting, threads = [], []
    kernel = SimpleNamespace(get_parent=dict, io_loop=SimpleNamespace(add_callback=waiting.append))
    monkeypatch.setattr(clicks, "get_ipython", lambda: SimpleNamespace(kernel=kernel))
    one = explorer(run=lambda settings: threads.append(threading.current_thread()) or 7)
    for _ in range(3):
        subshell = threading.Thread(target=one.button.click)
        subshell.start()
        subshell.join(10)
    assert threads == []
    assert len(waiting) == 1  # two more clicks while it waits are dropped
    waiting.pop()()
    assert threads == [threading.main_thread()]
    assert points(one) == (4, 14)
    one.button.click()
    assert len(threads) == 2


def test_the_stop_button_reaches_whatever_runs():
    def run(settings):
        signal.raise_signal(signal.SIGINT)
        return 7

    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a kernel does between messages
    try:
        one = explorer(run=run)
        one.run()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, ignored)
    assert one.error.startswith("stopped")
    assert one.measured is None


def test_clicks_without_a_browser_run_each_time():
    ran = []
    one = explorer(run=lambda settings: ran.append(1) or 1)
    one.button.click()
    one.button.click()
    assert ran == [1, 1]


def test_its_text_is_one_line_and_it_says_how_to_wake_it_up(monkeypatch):
    shown = []
    monkeypatch.setattr(frame, "display", lambda bundle, raw: shown.append(bundle))
    one = explorer()
    assert repr(one) == f"Explorer({one.summary})"
    one._ipython_display_()
    live, note = shown
    assert "application/vnd.jupyter.widget-view+json" in live
    assert live["text/plain"] == repr(one)
    assert "run this cell again" in note["text/plain"]
