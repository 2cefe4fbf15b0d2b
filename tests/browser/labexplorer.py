"""An explorer in an open notebook: its knobs, its figure, and whether all of its words can be read."""

from __future__ import annotations

from labcell import LabCell
from playwright.sync_api import Locator, expect

# The figure is drawn as the line below it says; each new line is a new element.
DRAWN = """area => {
    const [figure, told] = [area.querySelector('.js-plotly-plot'), area.querySelector('[role=status]')];
    return told && figure?._fullLayout?.meta?.summary === told.innerText.trim();
}"""
# Words that lie on each other, leave the figure, or stick out of the tile that they stand in or beside.
FAULTS = """figure => {
    const box = (element) => element.getBoundingClientRect();
    const meet = (a, b, by) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > by
        && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > by;
    const holds = (a, b) => a.left <= b.left + 1 && a.right >= b.right - 1
        && a.top <= b.top + 1 && a.bottom >= b.bottom - 1;
    const words = [...figure.querySelectorAll('.main-svg text')].filter((one) => one.textContent.trim())
        .map((one) => ({text: one.textContent, box: box(one)})).filter(({box}) => box.width > 0);
    const tiles = [...figure.querySelectorAll('.barlayer path')].map(box);
    const faults = [];
    words.forEach((one, i) => {
        if (!holds(box(figure), one.box)) faults.push(`cut off: ${one.text}`);
        words.slice(0, i).filter((other) => meet(one.box, other.box, 2))
            .forEach((other) => faults.push(`on each other: ${one.text} | ${other.text}`));
        if (tiles.some((tile) => meet(tile, one.box, 1) && !holds(tile, one.box)))
            faults.push(`sticks out of a tile: ${one.text}`);
    });
    return faults;
}"""
# Labels of knobs for which there is too little room.
CUT_LABELS = """area => [...area.querySelectorAll('.widget-label, .widget-label-basic, .widget-label-basic span')]
    .filter((label) => label.offsetParent && label.scrollWidth > label.clientWidth + 1 && label.clientWidth > 0)
    .map((label) => `cut off: ${label.textContent}`)"""


class LabExplorer:
    """The explorer that a cell shows."""

    def __init__(self, cell: LabCell) -> None:
        self.cell = cell
        self.figure: Locator = cell.area.locator(".js-plotly-plot")
        self.told: Locator = cell.area.get_by_role("status")
        self.alarm: Locator = cell.area.get_by_role("alert")
        self.button: Locator = cell.area.get_by_role("button", name="Run on real ranks", exact=True)

    def settle(self, *words: str) -> None:
        """Wait until the line below the figure has these words, and the figure shows what it says."""
        self.cell.show()
        for word in words:
            expect(self.told).to_contain_text(word)
        self.cell.lab.page.wait_for_function(DRAWN, arg=self.cell.area.element_handle())

    def wait_until_as_wide_as(self, pixels: int) -> None:
        """Wait until the figure is drawn at least as wide."""
        wide = "([area, pixels]) => area.querySelector('.js-plotly-plot')._fullLayout.width >= pixels"
        self.cell.lab.page.wait_for_function(wide, arg=[self.cell.area.element_handle(), pixels])

    @property
    def faults(self) -> list[str]:
        """Return what cannot be read in the figure and beside its knobs."""
        return self.figure.evaluate(FAULTS) + self.cell.area.evaluate(CUT_LABELS)
