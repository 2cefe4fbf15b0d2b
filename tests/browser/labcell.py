"""One cell of an open notebook: run it, read its outputs, use the widgets in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import Locator, expect

if TYPE_CHECKING:
    from labpage import LabPage

# The lowest contrast, by the formula of WCAG 2, between a text in the element and what is painted behind it.
LOWEST_CONTRAST = r"""root => {
    const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
    const light = (colour) => {
        const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        const [r, g, b] = colour.map((v) => linear(v / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
        const [r, g, b, cover = 1] = numbers(getComputedStyle(element).backgroundColor);
        if (cover === 1) return [r, g, b];
        const below = behind(element.parentElement);
        return [r, g, b].map((v, i) => v * cover + below[i] * (1 - cover));
    };
    const texts = [...root.querySelectorAll('*')].filter((element) =>
        [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim()));
    return Math.min(...texts.map((element) => {
        const ink = numbers(getComputedStyle(element).color).slice(0, 3);
        const [low, high] = [light(ink), light(behind(element))].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    }));
}"""


def errors_in(outputs: list[dict[str, Any]]) -> list[str]:
    """Return the errors among the outputs of a cell, each as one line."""
    return [f"{output['ename']}: {output['evalue']}" for output in outputs if output["output_type"] == "error"]


class LabCell:
    """One cell of an open notebook, its outputs and the widgets in them."""

    def __init__(self, lab: LabPage, index: int, identity: str) -> None:
        self.lab = lab
        self.id = identity
        self._index = index
        self.shown = lab.tab.locator(f".jp-Notebook .jp-Cell[data-windowed-list-index='{index}']")
        self.area = self.shown.locator(".jp-Cell-outputArea")

    @property
    def state(self) -> dict[str, Any]:
        """Return the cell as `LabPage.cells` has it, at this moment."""
        return next(cell for cell in self.lab.cells if cell["id"] == self.id)

    @property
    def outputs(self) -> list[dict[str, Any]]:
        """Return the outputs as a saved notebook holds them."""
        return self.state["outputs"]

    @property
    def errors(self) -> list[str]:
        """Return each error that the cell shows, as one line."""
        return errors_in(self.outputs)

    @property
    def text(self) -> str:
        """Return the text that the outputs show on the page."""
        return self.area.inner_text()

    def start(self) -> int:
        """Run the cell by Ctrl+Enter, and return the number to give to `finish`."""
        run = self.lab.next_run()
        self.show()
        self.shown.locator(".cm-content").click()
        self.lab.page.keyboard.press("Control+Enter")
        return run

    def finish(self, run: int, *, timeout_s: float = 30.0) -> None:
        """Wait until the run is over that `start` began."""
        self.lab.wait_until_over(run, timeout_s=timeout_s)

    def run(self, *, timeout_s: float = 30.0) -> LabCell:
        """Run the cell to its end."""
        self.finish(self.start(), timeout_s=timeout_s)
        return self

    def show(self) -> None:
        """Bring the cell into view; JupyterLab makes cells and outputs only when they are needed."""
        self.lab.page.evaluate(
            "index => window.jupyterapp.shell.currentWidget.content.scrollToItem(index)", self._index
        )
        self.shown.scroll_into_view_if_needed()

    def scroll_to_the_top(self) -> None:
        """Bring the cell to the upper edge of the window."""
        self.show()
        self.shown.evaluate("cell => cell.scrollIntoView({block: 'start', behavior: 'instant'})")

    def saved_figure(self, n: int = 0) -> Locator:
        """Return what a notebook that was opened and not run shows as its n-th figure: often a picture of it."""
        self.show()
        figure = self.area.locator(".jp-RenderedPlotly").nth(n)
        shown = figure.locator(".plot-img, .main-svg").filter(visible=True).first
        expect(shown).to_be_visible()
        return shown

    def figure(self, n: int = 0) -> Locator:
        """Return the n-th figure of the outputs, drawn and in view."""
        self.show()
        figure = self.area.locator(".jp-RenderedPlotly").nth(n)
        figure.scroll_into_view_if_needed()
        figure.hover(position={"x": 2, "y": 2})  # a picture becomes a figure under the pointer
        expect(figure.locator(".main-svg").first).to_be_visible()
        return figure

    def lowest_contrast(self, part: str) -> float:
        """Return the lowest contrast of text in the outputs' elements that the CSS selector `part` finds."""
        return min(element.evaluate(LOWEST_CONTRAST) for element in self.area.locator(part).all())

    def press(self, label: str) -> None:
        """Press the widget button with this label; it may be one of several to choose from."""
        self.area.get_by_role("button", name=label, exact=True).click()

    def choose(self, label: str, option: str) -> None:
        """Choose an option of the drop-down list with this label."""
        self.area.get_by_label(label, exact=True).select_option(option)

    def set_slider(self, label: str, value: float) -> None:
        """Type a value into the read-out of the slider with this label."""
        slider = self.area.locator(".widget-slider").filter(has_text=label)
        readout = slider.locator(".widget-readout")
        readout.click()
        readout.fill(str(value))
        readout.press("Enter")

    def screenshot(self, name: str) -> Path:
        """Keep a picture of the cell, and return where."""
        self.show()
        return self.lab.keep(name, self.shown)
