"""The frame of every explorer: knobs on top, one figure that changes in place, steps, and a button for real ranks.

    main thread or subshell thread          either thread          main thread, which the stop button reaches
    knob or step ──► _turned ──┐            button ──► _clicked ──► run ──► the callable that was given
                               ▼                                              │ (no lock: knobs stay alive)
                  one lock: adjust, draw, change the figure ◄─────────────────┘ overlay

JupyterLab hands messages of widgets to a subshell thread too, so two callbacks can come at once.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any

import ipywidgets
from IPython.display import display

from lablib.errors import LabError
from lablib.views.sketch import Sketch
from lablib.widgets.clicks import moment_of_click, on_main_thread, stoppable
from lablib.widgets.live import LiveFigure

RUN = "Run on real ranks"
RUNNING = "running, ■ stops it"
AGAIN = "An explorer lives as long as its kernel: after a restart, run this cell again."

Settings = dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """Hold what an explorer shows with its knobs as they are.

    Args:
        at: draws the picture after so many steps, 0 for the start.
        steps: how many there are.
    """

    at: Callable[[int], Sketch]
    steps: int = 0


class Explorer(ipywidgets.VBox):  # type: ignore[misc]
    """Show a prediction that follows its knobs, and lay a real run over it.

    Everything works without a browser: set ``explorer.knobs["op"].value`` or ``explorer.step.value``, call
    ``explorer.run()``, read ``explorer.figure``, ``explorer.summary`` and ``explorer.error``.

    Args:
        knobs: widgets with a ``value``, by name, in the order shown.
        draw: is given the knobs' values by name and what a run with these values measured, or None; it is called
            with the lock held.
        adjust: is called before drawing, with the knobs: here knobs change each other's options and hide.
        run: is given the knobs' values, runs on real ranks and returns what `draw` shall be given as measured.
        only_drawn: names of knobs that `run` does not use: what was measured stays when they are turned.
        rows: the names of the knobs that stand side by side, row by row; left out, as many as fit.
    """

    def __init__(
        self,
        knobs: Mapping[str, Any],
        draw: Callable[[Settings, Any], Scene],
        *,
        adjust: Callable[[Mapping[str, Any]], None] | None = None,
        run: Callable[[Settings], Any] | None = None,
        only_drawn: Collection[str] = (),
        rows: Sequence[Sequence[str]] | None = None,
    ) -> None:
        self.knobs = dict(knobs)
        self._draw = draw
        self._adjust = adjust
        self._run = run
        self._only_drawn = frozenset(only_drawn)
        self._lock = threading.RLock()
        self._muted = False
        self._running = False
        self._asked = False
        self._busy_until = 0.0
        self._measured: dict[tuple[Any, ...], Any] = {}

        self.step = ipywidgets.IntSlider(description="step", min=0, max=1, layout={"width": "420px"})
        self.play = ipywidgets.Play(interval=900, min=0, max=1, show_repeat=False)
        self.button = ipywidgets.Button(description=RUN, button_style="primary", layout={"width": "190px"})
        self._error = ipywidgets.HTML()
        self._summary = ipywidgets.HTML()
        self._output = ipywidgets.Output()
        self._tell("")
        self._prepare()
        self._scene = self._draw(self._settings(), None)
        self._offer_steps(self._scene.steps)
        self._sketch = self._scene.at(self.step.value)
        self.figure = LiveFigure(self._sketch.figure())
        self._say()
        for one, other in ((self.play, self.step), (self.step, self.play)):
            # ipywidgets.link raises where another thread turns the step at the same moment
            one.observe(lambda change, other=other: setattr(other, "value", change["new"]), "value")
        for knob in (*self.knobs.values(), self.step):
            knob.observe(self._turned, "value")
        self.button.on_click(self._clicked)
        bar = [self.play, self.step, *([self.button] if run else [])]
        wrap = {"flex_flow": "row wrap"}
        super().__init__(
            [
                *(ipywidgets.HBox([self.knobs[name] for name in row], layout=wrap) for row in rows or [[*self.knobs]]),
                ipywidgets.HBox(bar, layout=wrap),
                self._error,
                self.figure,
                self._summary,
                self._output,
            ]
        )

    @property
    def error(self) -> str:
        """Return the error that is shown, or nothing."""
        return self._error_text

    @property
    def summary(self) -> str:
        """Return the facts that the figure shows, in one line."""
        return f"{self._sketch.badge.text}: {self._sketch.summary}"

    @property
    def measured(self) -> Any:
        """Return what the last run with these knobs measured, or None."""
        return self._measured.get(self._key(self._settings()))

    def run(self) -> None:
        """Run on real ranks with the knobs as they are, and lay the result over the figure; errors are shown."""
        if self._run is None:
            self._tell("this explorer was given nothing to run: write run=lablib.run where it is made")
            return
        with self._lock:
            if self._running:
                return
            self._running = True
            settings = self._settings()
            self.button.disabled, self.button.description = True, RUNNING
        trouble = ""
        try:
            self._output.outputs = ()
            with self._output:
                trouble = self._attempt(settings)
        finally:
            with self._lock:
                self._running = False
                self.button.disabled, self.button.description = False, RUN
                if trouble:
                    self._tell(trouble)
                else:
                    self._redraw()

    def _attempt(self, settings: Settings) -> str:
        """Run, and return what went wrong: an Output widget would swallow an exception."""
        assert self._run is not None, "the button is there only with something to run"
        try:
            with stoppable():
                measured = self._run(settings)
        except KeyboardInterrupt:
            return "stopped: nothing was measured"
        except Exception as error:
            return _words(error)
        with self._lock:
            self._measured[self._key(settings)] = measured
        return ""

    def _clicked(self, _: Any) -> None:
        """Run, unless an earlier click runs or waits, or this one waited in the queue behind it."""
        clicked = moment_of_click()
        with self._lock:
            if self._asked or self._running or clicked < self._busy_until:
                return
            self._asked = True
        on_main_thread(partial(self._answer, clicked))

    def _answer(self, clicked: float) -> None:
        begun = time.monotonic()
        self._asked = False
        try:
            self.run()
        finally:
            self._busy_until = clicked + time.monotonic() - begun

    def _turned(self, change: Any) -> None:
        with self._lock:
            if not self._muted:
                self._redraw(knobs=change["owner"] is not self.step)

    def _redraw(self, *, knobs: bool = True) -> None:
        """Draw what knobs and step say; on an error say it and leave the figure as it was."""
        try:
            scene = self._scene
            if knobs:
                self._prepare()
                settings = self._settings()
                scene = self._draw(settings, self._measured.get(self._key(settings)))
            self._change(scene)
            self._tell("" if knobs else self._standing, standing=knobs)
        except Exception as error:
            self._tell(f"{_words(error)}\nThe figure still shows the last call that works.", standing=knobs)

    def _change(self, scene: Scene) -> None:
        """Set in the figure what is different, in one message to the browser."""
        is_other = scene.steps != self._scene.steps
        sketch = scene.at(_middle(scene.steps) if is_other else self.step.value)
        self.figure.change(sketch.changes(self._sketch))
        self._scene, self._sketch = scene, sketch
        if is_other:
            self._offer_steps(scene.steps)
        self._say()

    def _prepare(self) -> None:
        if self._adjust is not None:
            self._muted = True
            try:
                self._adjust(self.knobs)
            finally:
                self._muted = False

    def _offer_steps(self, steps: int) -> None:
        """Offer so many steps, and go to the middle of them."""
        self._muted = True
        try:
            self.step.max = self.play.max = steps
            self.step.layout.display = self.play.layout.display = None if steps else "none"
            self.step.value = self.play.value = _middle(steps)
        finally:
            self._muted = False

    def _settings(self) -> Settings:
        return {name: knob.value for name, knob in self.knobs.items()}

    def _key(self, settings: Settings) -> tuple[Any, ...]:
        return tuple((name, value) for name, value in settings.items() if name not in self._only_drawn)

    def _say(self) -> None:
        self._summary.value = f'<div role="status" style="font-size:14px;line-height:1.4">{escape(self.summary)}</div>'

    def _tell(self, text: str, *, standing: bool = True) -> None:
        """Show what is wrong, or nothing; what is wrong with knobs or a run stands, also when a step is drawn."""
        self._error_text = text
        if standing:
            self._standing = text
        style = "white-space:pre-wrap;margin:0;padding:6px;border-left:4px solid #c1121f;font-size:14px"
        self._error.value = f'<pre role="alert" style="{style}">{escape(text)}</pre>' if text else ""
        self._error.layout.display = None if text else "none"

    def _ipython_display_(self) -> None:
        display({**self._repr_mimebundle_(), "text/plain": repr(self)}, raw=True)  # type: ignore[no-untyped-call]
        note = f'<div style="font-size:12px;opacity:.7">{AGAIN}</div>'
        display({"text/html": note, "text/plain": AGAIN}, raw=True)  # type: ignore[no-untyped-call]

    def __repr__(self) -> str:
        return f"Explorer({self.summary})"


def _middle(steps: int) -> int:
    return (steps + 1) // 2


def _words(error: BaseException) -> str:
    """Return a user's mistake as its message, and one of ours with the place where it happened."""
    if isinstance(error, LabError):
        return f"{type(error).__name__}: {error}"
    return "".join(traceback.format_exception(error, limit=-3)).strip()
