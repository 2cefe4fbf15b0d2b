"""How the bench reads memory: a process that waits stands in for a rank."""

import subprocess
import sys
import time

import psutil
import pytest

from bench.contenders import SMAPS_ROLLUP
from bench.memory import measure_waiting_ranks, pss_mib

pytestmark = pytest.mark.skipif(not SMAPS_ROLLUP.exists(), reason="needs Linux's /proc/<pid>/smaps_rollup")

# Holds 32 MiB, says so as a rank does, and waits.
RANK = """
import os, pathlib, sys, time
held = b"x" * (32 << 20)
folder, rank = pathlib.Path(sys.argv[1]), sys.argv[2]
(folder / f"{rank}.tmp").write_text(str(os.getpid()))
(folder / f"{rank}.tmp").rename(folder / f"{rank}.pid")
while not (folder / "go").exists():
    time.sleep(0.01)
"""


def test_ranks_and_helpers_are_read_while_they_wait_and_then_let_go(tmp_path):
    others = sum(pss_mib(child.pid) for child in psutil.Process().children(recursive=True))  # of other tests
    helper = subprocess.Popen(["sleep", "60"])
    while psutil.Process(helper.pid).name() != "sleep":  # until then it is a copy of this process
        time.sleep(0.01)
    ranks = [subprocess.Popen([sys.executable, "-c", RANK, str(tmp_path), str(rank)]) for rank in range(2)]
    try:
        series = measure_waiting_ranks(tmp_path, contender="x", ranks=2)
        assert [rank.wait(timeout=30) for rank in ranks] == [0, 0]
    finally:
        for process in (helper, *ranks):
            process.kill()
            process.wait()
    a_rank, alone, helpers = (one.samples for one in series)
    assert len(alone) == 2 and all(32 < mib < 64 for mib in alone)
    assert 0 < helpers[0] < others + 8
    assert a_rank == ((sum(alone) + helpers[0]) / 2,)
    assert {(one.contender, one.ranks, one.unit) for one in series} == {("x", 2, "MiB")}


def test_a_rank_that_is_not_ours_is_refused(tmp_path):
    (tmp_path / "0.pid").write_text("1")
    with pytest.raises(SystemExit, match=r"ranks \[1\] are not among"):
        measure_waiting_ranks(tmp_path, contender="x", ranks=1)
    assert (tmp_path / "go").exists(), "the ranks must be let go all the same"


def test_memory_of_an_unknown_process_is_an_error():
    with pytest.raises((FileNotFoundError, ProcessLookupError)):
        pss_mib(2**22 + 1)
