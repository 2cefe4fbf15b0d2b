"""Run a notebook's function on real ranks of torch.distributed, and see what happened.

Importing lablib starts nothing and imports neither torch nor anything that draws.
"""

import sys

from lablib.engine.launch import Cluster, run, run_script, spawn, warm_up
from lablib.engine.result import Run
from lablib.engine.whoami import device
from lablib.errors import LabError, RankFailed, RankLost, RunError, RunTimeout, TraceError, UsageError
from lablib.links import Link
from lablib.notebook.expect import expect
from lablib.trace.recorder import span

__all__ = [
    "Cluster",
    "LabError",
    "Link",
    "RankFailed",
    "RankLost",
    "Run",
    "RunError",
    "RunTimeout",
    "TraceError",
    "UsageError",
    "device",
    "expect",
    "run",
    "run_script",
    "span",
    "spawn",
    "warm_up",
]

if "IPython" in sys.modules:
    from lablib.notebook.activate import activate

    activate()
    del activate
