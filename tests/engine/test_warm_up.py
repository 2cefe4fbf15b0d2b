"""What the fork server has imported when, seen from its ranks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

JOBS = """
import json, os, sys, time
from lablib import run, warm_up
from lablib.engine import forking

forking._TRAINING_AFTER_S = 0.5


def ready():
    return "torch._dynamo" in sys.modules


def busy():
    if os.fork() == 0:
        os._exit(0)
    time.sleep(1.5)
    return ready()
"""


def told(jobs: str, **variables: str) -> list[object]:
    """Run lines after JOBS in a process of their own; return what they put into `said`."""
    script = f"{JOBS}\nsaid = []\n{jobs}\nprint(json.dumps(said))"
    how = {"capture_output": True, "text": True, "timeout": 100, "env": os.environ | variables}
    done = subprocess.run([sys.executable, "-c", script], check=False, **how)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_training_later_waits_until_no_rank_was_there_for_a_while() -> None:
    said = told("""
warm_up(training=False)
said += [run(ready).values, run(busy).values]
for _ in range(30):
    time.sleep(1)
    if all(run(ready).values):
        break
said.append(run(ready).values)
""")
    assert said == [[False, False], [False, False], [True, True]]


@pytest.mark.parametrize("call", ["", "warm_up(training=True); warm_up(training=False)"])
def test_training_is_ready_in_the_first_run_unless_told_otherwise(call: str) -> None:
    assert told(f"{call}\nsaid.append(run(ready).values)") == [[True, True]]


def test_what_cannot_be_imported_later_costs_only_those_who_need_it(tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    (tmp_path / "profile.py").write_text(  # torch._dynamo needs Python's own
        f"import pathlib; pathlib.Path({str(tried)!r}).touch(); raise ValueError('a file of the learner')"
    )
    said = told(
        f"""
def trains():
    import torch._dynamo

def collects():
    import gc
    return gc.isenabled()

warm_up(training=False)
said.append(run(ready).values)
before = forking.server_pid()
while not os.path.exists({str(tried)!r}):
    time.sleep(0.05)
said += [run(ready).values, run(collects).values, forking.server_pid() == before]
try:
    run(trains)
except Exception as error:
    said.append(str(error).splitlines()[0])
""",
        PYTHONPATH=str(tmp_path),
    )
    assert said[:4] == [[False, False], [False, False], [True, True], True]
    assert "ValueError: a file of the learner" in str(said[4])


@pytest.mark.parametrize("ending", ["forking._server._stop()", "os.kill(forking.server_pid(), 15); time.sleep(0.5)"])
def test_a_server_that_ends_before_the_kernel_is_followed_by_another(ending: str, tmp_path: Path) -> None:
    assert told(
        f"warm_up(training=False)\nsaid.append(run(ready).values)\n{ending}\nwarm_up(training=False)\n"
        "said.append(run(ready).values)",
        TMPDIR=str(tmp_path),
    ) == [[False, False], [False, False]]
    assert list(tmp_path.glob("pymp-*")) == []


@pytest.mark.parametrize("after_s", [0.5, 1.5])
def test_a_kernel_killed_while_its_server_imports_leaves_no_socket(after_s: float, tmp_path: Path) -> None:
    script = f"{JOBS}\nwarm_up(training=False)\nprint(flush=True)\ntime.sleep(100)"
    kernel = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    kernel.stdout.readline()
    time.sleep(after_s)
    assert list(tmp_path.glob("pymp-*/listener-*"))
    kernel.send_signal(signal.SIGKILL)
    kernel.communicate()
    deadline = time.monotonic() + 5
    while list(tmp_path.glob("pymp-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(tmp_path.glob("pymp-*")) == []
