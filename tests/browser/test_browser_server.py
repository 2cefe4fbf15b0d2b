"""The JupyterLab of the browser tests leaves nothing behind."""

import subprocess
import sys

import pytest
from labserver import ENDS_WITHIN_S, ROOT
from processes import wait_until_gone

SERVE = """
import sys, time
from pathlib import Path
from labserver import LabServer

print(LabServer(Path(sys.argv[1])).pid, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_it_ends_when_the_tests_are_killed(tmp_path):
    folders = [ROOT, ROOT / "tests" / "browser", ROOT / "tests"]
    told = "import sys; sys.path[:0] = " + repr([str(folder) for folder in folders])
    tests = subprocess.Popen([sys.executable, "-c", told + SERVE, tmp_path], stdout=subprocess.PIPE, text=True)
    server = int(tests.stdout.readline())
    tests.kill()
    tests.communicate()
    assert wait_until_gone([server], ENDS_WITHIN_S) == []
