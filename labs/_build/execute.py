"""Run a notebook as a learner would: a fresh kernel, in an empty folder."""

from __future__ import annotations

import json
import tempfile
from typing import Any

from _build.notebook import OnlyPrints, Printed, printed
from _build.source import Lab

CELL_SECONDS = 120  # nbval's limit in CI


def outputs_of(lab: Lab, built: dict[str, Any]) -> Printed:
    """Run one notebook and return what its checked cells printed. Raises SourceError at a cell that fails."""
    # Here, because these take seconds to import and a plain build needs none of them.
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    notebook = nbformat.reads(json.dumps(built), as_version=4)
    with tempfile.TemporaryDirectory(prefix="lab-") as folder:
        resources = {"metadata": {"path": folder}}
        client = NotebookClient(
            notebook,
            timeout=CELL_SECONDS,
            kernel_name="python3",
            resources=resources,
            extra_arguments=["--Application.log_level=ERROR"],
        )
        with client.setup_kernel():
            for index, cell in enumerate(notebook.cells):
                try:
                    client.execute_cell(cell, index)
                except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
                    lab.wrong(lab.cells[index].line, f"the cell fails\n{error}")
    try:
        return printed(notebook.cells)
    except OnlyPrints as error:
        lab.wrong(1, str(error))
