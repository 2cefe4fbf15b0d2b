"""A lab as a learner has it before them: a notebook in JupyterLab, in a real browser.

    page = LabPage(browser_page, server, pictures)
    page.open("00_ranks_and_launch.ipynb")
    page.run_all()
    cell = page.cell("grid = run(")          # the cell whose source holds this text
    cell.press("Run on real ranks")          # widgets in its output
    cell.set_slider("ranks", 4)
    cell.figure()                            # a Playwright locator
    page.screenshot("lab 00")

Keys, buttons and menus are used as a learner uses them; cells and outputs are read from JupyterLab's own model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import playwright.sync_api
from labcell import LabCell, errors_in
from labserver import LabServer
from playwright.sync_api import Locator, Page, Request, expect

OPENS_WITHIN_S = 60.0
DRAWS_WITHIN_S = 20.0
KERNEL = "window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel"
TAB = ".jp-NotebookPanel:not(.lm-mod-hidden)"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}

expect.set_options(timeout=DRAWS_WITHIN_S * 1000)

# What a cell is, read from the model of the visible notebook.
CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets.map(({model}) => ({
    id: model.id,
    kind: model.type,
    source: model.sharedModel.getSource(),
    count: model.executionCount ?? null,
    running: model.executionState === 'running',
    outputs: model.outputs?.toJSON() ?? [],
}))"""
READY = """name => {
    const panel = window.jupyterapp?.shell?.currentWidget;
    return panel?.context?.path === name && panel.context.isReady
        && panel.sessionContext?.session?.kernel?.status === 'idle';
}"""
# A shipped notebook may hold execution counts of an earlier kernel: the command that runs cells says when it is over.
FOLLOW_RUNS = """() => {
    window.runs = [];
    window.jupyterapp.commands.commandExecuted.connect((_, {id, result}) => {
        if (id.startsWith('notebook:run')) {
            const run = {over: false};
            window.runs.push(run);
            result.finally(() => { run.over = true; });
        }
    });
}"""
OVER = f"""number => window.runs[number]?.over && {KERNEL}.status === 'idle'
    && !window.jupyterapp.shell.currentWidget.content.widgets.some(({{model}}) => model.executionState === 'running')"""
# Below its last cell a notebook has a windowful of nothing.
SCROLL_ON = """pane => {
    const last = [...pane.querySelectorAll('.jp-Cell')].at(-1).getBoundingClientRect();
    const more = last.bottom > pane.getBoundingClientRect().bottom;
    if (more) pane.scrollBy({top: pane.clientHeight - 60, behavior: 'instant'});
    return more;
}"""


class LabPage:
    """The one notebook that is open in a browser page.

    Args:
        page: a Playwright page.
        server: the JupyterLab to open notebooks from.
        pictures: the folder for screenshots.
    """

    def __init__(self, page: Page, server: LabServer, pictures: Path) -> None:
        self.page = page
        self.server = server
        self.pictures = pictures
        self.tab = page.locator(TAB)
        self.asked_elsewhere: list[str] = []
        self.script_errors: list[str] = []
        page.on("request", self._note_request)
        page.on("pageerror", lambda error: self.script_errors.append(str(error)))

    def _note_request(self, request: Request) -> None:
        if not request.url.startswith((self.server.origin, "data:", "blob:")):
            self.asked_elsewhere.append(request.url)

    def open(self, name: str) -> None:
        """Open a notebook of `work/` in a page that forgets what was open before."""
        self.page.goto(self.server.address(name))
        self.page.wait_for_function(READY, arg=name, timeout=OPENS_WITHIN_S * 1000)
        self.page.evaluate(FOLLOW_RUNS)

    @property
    def cells(self) -> list[dict[str, Any]]:
        """Return all cells: id, kind, source, execution count, whether it runs, outputs."""
        return self.page.evaluate(CELLS)

    @property
    def code(self) -> list[dict[str, Any]]:
        """Return the code cells that are not empty."""
        return [cell for cell in self.cells if cell["kind"] == "code" and cell["source"].strip()]

    @property
    def ran_in_order(self) -> bool:
        """Return whether the last thing that ran was every cell, from top to bottom."""
        counts = [cell["count"] for cell in self.code]
        return None not in counts and counts == list(range(counts[0], counts[0] + len(counts)))

    @property
    def popups(self) -> list[str]:
        """Return the text of each dialog and notice that covers the page."""
        return self.page.locator(".jp-Dialog, .Toastify__toast").all_inner_texts()

    @property
    def errors(self) -> list[str]:
        """Return each error that some cell shows."""
        return [error for cell in self.code for error in errors_in(cell["outputs"])]

    def cell(self, text: str) -> LabCell:
        """Return the first code cell whose source holds `text`."""
        for index, cell in enumerate(self.cells):
            if cell["kind"] == "code" and text in cell["source"]:
                return LabCell(self, index, cell["id"])
        raise AssertionError(f"no code cell holds {text!r}")

    def cells_with_figures(self) -> list[LabCell]:
        """Return the cells whose outputs hold a plotly figure."""
        found = []
        for index, cell in enumerate(self.cells):
            kinds = {kind for output in cell["outputs"] for kind in output.get("data", {})}
            if "application/vnd.plotly.v1+json" in kinds:
                found.append(LabCell(self, index, cell["id"]))
        return found

    def drawn_by(self, call: str) -> list[LabCell]:
        """Return the cells whose outputs hold a figure: exactly those whose last line begins with this call."""
        cells = self.cells_with_figures()
        expected = [cell["id"] for cell in self.code if cell["source"].splitlines()[-1].startswith(call)]
        assert [cell.id for cell in cells] == expected != []
        return cells

    def restart_and_reopen(self, name: str) -> list[LabCell]:
        """Restart the kernel, open the notebook anew, and return the cells whose figures are drawn: all as before."""
        before = len(self.cells_with_figures())
        self.save()
        self.restart()
        assert len(self.cells_with_figures()) == before
        self.open(name)
        cells = self.cells_with_figures()
        assert len(cells) == before > 0
        for cell in cells:
            assert cell.saved_figure().bounding_box()["width"] >= 600
        return cells

    def run_all(self, *, timeout_s: float = 100.0) -> None:
        """Run all cells by the menu and wait until the last is over, or one ended in an error."""
        run = self.next_run()
        self.menu("Run", "Run All Cells")
        self.wait_until_over(run, timeout_s=timeout_s)

    def next_run(self) -> int:
        """Return the number that the next run of a cell, or of all, will have."""
        return self.page.evaluate("window.runs.length")

    def wait_until_over(self, run: int, *, timeout_s: float) -> None:
        """Wait until the run with this number is over and the kernel idle."""
        try:
            self.page.wait_for_function(OVER, arg=run, timeout=timeout_s * 1000)
        except playwright.sync_api.TimeoutError:
            self.screenshot("not-over")
            running = [cell["source"] for cell in self.code if cell["running"]]
            at = running[0] if running else "no cell"
            raise AssertionError(f"not over after {timeout_s:g} s, at:\n{at}") from None

    def menu(self, name: str, item: str) -> None:
        """Choose an item of the menu bar."""
        self.page.get_by_role("menubar").get_by_role("menuitem", name=name, exact=True).click()
        label = self.page.locator(".lm-Menu-itemLabel").get_by_text(re.compile(rf"^{re.escape(item)}…?$"))
        label.filter(visible=True).click()

    def stop(self) -> None:
        """Press the stop button of the notebook's toolbar."""
        self.tab.get_by_role("button", name="Interrupt the kernel").click()

    def restart(self) -> None:
        """Restart the kernel by the toolbar's button and its question."""
        # A restarted kernel first says so; only then does "idle" speak of the new process.
        self.page.evaluate(
            f"""() => {{
                window.restarted = false;
                {KERNEL}.statusChanged.connect((_, status) => {{
                    window.restarted ||= status === 'restarting' || status === 'starting';
                }});
            }}"""
        )
        self.tab.get_by_role("button", name="Restart the kernel", exact=True).click()
        self.page.get_by_role("button", name="Confirm Kernel Restart").click()
        idle = f"() => window.restarted && {KERNEL}.status === 'idle'"
        self.page.wait_for_function(idle, timeout=OPENS_WITHIN_S * 1000)

    def save(self) -> None:
        """Save the notebook, and wait until it is written."""
        self.page.keyboard.press("Control+s")
        self.page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")

    def theme(self, name: str) -> None:
        """Switch to the "light" or the "dark" theme."""
        self.page.evaluate(
            "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", THEMES[name]
        )
        light = "true" if name == "light" else "false"
        expect(self.page.locator("body")).to_have_attribute("data-jp-theme-light", light)

    @contextmanager
    def window(self, width: int, height: int) -> Iterator[None]:
        """Show nothing but the notebook, in a window of this size; later all is as before."""
        before = self.page.viewport_size
        self.page.set_viewport_size({"width": width, "height": height})
        self._toggle_files()
        try:
            yield
        finally:
            self._toggle_files()
            self.page.set_viewport_size(before)

    def _toggle_files(self) -> None:
        self.page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")

    def screenshot(self, name: str) -> Path:
        """Keep a picture of the window, and return where."""
        return self.keep(name, self.page)

    def screenshots(self, name: str) -> list[Path]:
        """Keep the whole notebook as pictures `name`-01, -02, …, one window below the other."""
        pane = self.tab.locator(".jp-WindowedPanel-outer")
        pane.evaluate("pane => pane.scrollTo(0, 0)")
        kept = [self.screenshot(f"{name}-01")]
        while pane.evaluate(SCROLL_ON):
            kept.append(self.screenshot(f"{name}-{len(kept) + 1:02}"))
        return kept

    def keep(self, name: str, shown: Page | Locator) -> Path:
        """Keep a picture of a page or a part of it, and return where."""
        self.pictures.mkdir(parents=True, exist_ok=True)
        path = self.pictures / f"{name}.png"
        shown.screenshot(path=path)
        return path
