"""Keep Python's collector from the objects that imports make.

torch makes hundreds of thousands of objects that stay. The collector looks through them again and again while they
come, which takes a fifth of the time of the import, and once more whenever it looks at everything.
"""

from __future__ import annotations

import gc
from typing import Any


def rest_during_this_cell(shell: Any) -> None:
    """Stop the collector until the running cell is over; it then leaves alone what there is by now.

    Args:
        shell: the running InteractiveShell. A collector that somebody has stopped already stays stopped.
    """
    if not gc.isenabled():
        return
    gc.disable()

    def go_on(*_: object) -> None:
        shell.events.unregister("post_run_cell", go_on)
        gc.freeze()
        gc.enable()

    shell.events.register("post_run_cell", go_on)
