"""What the fork server has imported when, seen from its ranks."""

from __future__ import annotations

import json
import subprocess
import sys

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


def told(jobs: str) -> list[object]:
    """Run lines after JOBS in a process of their own; return what `say` was given."""
    script = f"{JOBS}\nsaid = []\n{jobs}\nprint(json.dumps(said))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True)
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
