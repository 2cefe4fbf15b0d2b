"""Make a notebook the place where runs are shown, and cells the places that tracebacks name."""

from __future__ import annotations

from typing import Any

from IPython.core.getipython import get_ipython

from lablib.engine import listener
from lablib.engine.result import Run
from lablib.notebook import collector, show
from lablib.notebook.live import CellListener


class Notebook:
    """Be the frontend of an IPython session.

    Args:
        shell: the running InteractiveShell.
        draws: whether its outputs can be replaced later, as a notebook page's can and a terminal's cannot.
    """

    def __init__(self, shell: Any, *, draws: bool) -> None:
        self._shell = shell
        self._draws = draws

    def listener(self) -> listener.Listener:
        """Return a listener that shows the run in the cell."""
        return CellListener() if self._draws else listener.TerminalListener()

    def label_of(self, filename: str) -> str:
        """Return ``cell [12]`` for code of the cell that was last run with that number."""
        number = getattr(self._shell.compile, "_filename_map", {}).get(filename)
        return filename if number is None else f"cell [{number}]"


def activate() -> None:
    """Show runs in the running IPython session, where there is one."""
    shell: Any = get_ipython()
    if shell is None:
        return
    listener.use(Notebook(shell, draws=hasattr(shell, "kernel")))
    shell.display_formatter.formatters["text/html"].for_type(Run, show.run_html)
    collector.rest_while_importing("torch")
