"""Faults, many times over: `make soak` prints the figures that each test holds."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch.distributed as dist
from processes import ranks_of, wait_until_gone

ENGINE_TESTS = Path(__file__).parents[1] / "engine"
sys.path.insert(0, str(ENGINE_TESTS))

from kernels import Kernel  # noqa: E402
from test_failures import crashes, deadlocks, exits, is_killed, raises  # noqa: E402
from test_kernel import FUNCTIONS  # noqa: E402

from lablib import Cluster, RankFailed, RankLost, RunTimeout, warm_up  # noqa: E402

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

CAUSES = [
    (raises, RankFailed, "rank 1 raised ValueError: bad luck"),
    (exits, RankLost, "rank 1 exited with code 5"),
    (is_killed, RankLost, "rank 1 was killed by SIGKILL"),
    (crashes, RankLost, "rank 1 was killed by SIGSEGV"),
    (deadlocks, RunTimeout, "and rank 1 never arrived"),
]


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    kernel = Kernel(prelude=FUNCTIONS)
    yield kernel
    kernel.close()


def leftovers() -> set[str]:
    """Return the files that ranks or a killed kernel could leave behind; semaphores there may be other programs'."""
    shared = (path for path in Path("/dev/shm").iterdir() if path.name.startswith(("torch", "lablib")))
    return {str(path) for path in (*Path(tempfile.gettempdir()).iterdir(), *shared)}


def test_100_failures_in_a_row_on_one_cluster() -> None:
    warm_up()
    begun = time.monotonic()
    with Cluster(2, timeout=1) as cluster:
        cluster.run(dist.get_rank)  # the fork server's socket is there from now on, as long as this process
        files, descriptors = leftovers(), 0
        for turn in range(100):
            fn, kind, cause = CAUSES[turn % len(CAUSES)]
            with pytest.raises(kind) as caught:
                cluster.run(fn)
            assert cause in caught.value.summary
            assert caught.value.rank == 1
            assert cluster.run(dist.get_rank).values == [0, 1]
            if turn == 9:
                descriptors = psutil.Process().num_fds()
    seconds = time.monotonic() - begun
    processes = wait_until_gone([rank.pid for rank in ranks_of(os.getpid())], 5)
    new_files = leftovers() - files
    print(
        f"\n100 failures in {seconds:.0f} s: 100 causes told, 100 next calls right, "
        f"{len(processes)} processes and {len(new_files)} files left"
    )
    assert processes == []
    assert new_files == set()
    assert psutil.Process().num_fds() <= descriptors


def test_the_stop_button_frees_a_deadlock_20_times(kernel) -> None:
    waits = []
    for _ in range(20):
        message = kernel.start("run(deadlock)")
        kernel.wait_for_ranks(2)
        time.sleep(0.3)
        pressed = time.monotonic()
        kernel.stop()
        assert kernel.finish(message).error == "KeyboardInterrupt"
        waits.append(time.monotonic() - pressed)
        assert kernel.run("ready()").result == "[2.0, 2.0]"
    print(f"\nstop button: 20 of 20 cells freed, longest {max(waits):.2f} s")
    assert max(waits) <= 2


def test_kill_9_of_the_kernel_20_times() -> None:
    waits = []
    files = leftovers()
    for turn in range(20):
        kernel = Kernel(prelude=FUNCTIONS)
        try:
            stuck = ("deadlock", "gil_held", "in_python")[turn % 3]
            kernel.run("cluster = Cluster(2)")
            kernel.start(f"run({stuck})")
            kernel.wait_for_ranks(4)
            time.sleep(0.3)
            family = kernel.family()
            killed = time.monotonic()
            kernel.kill()
            assert wait_until_gone(family, 5) == []
            waits.append(time.monotonic() - killed)
        finally:
            kernel.close()
    assert leftovers() - files == set()
    print(f"\nkill -9 of the kernel: nothing alive, 20 of 20, after {max(waits):.2f} s at the most")


def test_50_clusters_from_10_processes_at_once(tmp_path) -> None:
    script = tmp_path / "five_clusters.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "from lablib import Cluster\n"
        "def sums():\n"
        "    t = torch.ones(1); dist.all_reduce(t); return t.item()\n"
        "clusters = [Cluster(2, timeout=120) for _ in range(5)]\n"
        "print([cluster.run(sums).values for cluster in clusters], flush=True)\n"
        "[cluster.close() for cluster in clusters]\n"
    )
    begun = time.monotonic()
    running = [
        subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(10)
    ]
    try:
        said = [process.communicate(timeout=600) for process in running]
    finally:
        for process in running:
            process.kill()
    expected = str([[2.0, 2.0]] * 5)
    right = sum(out.strip().splitlines()[-1:] == [expected] for out, _ in said)
    print(f"\n50 clusters from 10 processes: {5 * right} right, in {time.monotonic() - begun:.0f} s")
    assert right == 10, said


@pytest.mark.parametrize("turn", range(100))
def test_stop_at_any_moment(turn: int, request) -> None:
    kernel = request.getfixturevalue("patient_kernel")
    message = kernel.start_and_wait("run(sums, world_size=4)", 0.0015 * turn)
    kernel.stop()
    kernel.finish(message)
    while kernel.run("1 + 1").error:  # a late press may reach the next cell
        pass
    assert kernel.run("ready()").result == "[2.0, 2.0]"
    assert wait_until_gone([rank.pid for rank in ranks_of(kernel.pid)], 5) == []


@pytest.fixture(scope="module")
def patient_kernel() -> Iterator[Kernel]:
    kernel = Kernel(prelude=FUNCTIONS)
    yield kernel
    kernel.close()
