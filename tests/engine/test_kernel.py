"""The life of ranks under a real Jupyter kernel: stop, restart, shutdown, kill, threads, late prints."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from kernels import Kernel
from processes import ranks_of, wait_until_gone

FUNCTIONS = """
def sums():
    t = torch.ones(1); dist.all_reduce(t); return t.item()
def deadlock():
    dist.recv(torch.ones(1), src=0 if dist.get_rank() else 1)
def in_python():
    while True: time.sleep(0.01)
def gil_held():
    while True: ctypes.PyDLL(None).sleep(600)
def ready(n=2): return run(sums, world_size=n).values
"""
STUCK = ["in_python", "deadlock", "gil_held"]


@pytest.fixture(scope="module")
def shared() -> Iterator[Kernel]:
    kernel = Kernel(prelude=FUNCTIONS)
    yield kernel
    kernel.close()


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    kernel = Kernel(prelude=FUNCTIONS)
    yield kernel
    kernel.close()


def test_a_cell_function_runs_and_its_run_is_shown(shared) -> None:
    cell = shared.run("run(sums, world_size=3)")
    assert cell.error == ""
    assert cell.result.startswith("Run(3 ranks, gloo on cpu")


def test_tracebacks_name_the_cell_and_its_line(shared) -> None:
    helper = shared.run("def helper():\n    x = 1\n    raise ValueError('bad luck')")
    cell = shared.run("def fails():\n\n    helper()\nrun(fails)")
    assert cell.error == "RankFailed"
    assert "ranks 0 and 1 raised ValueError: bad luck" in cell.error_text
    assert f"cell [{cell.number}], line 3, in fails\n    helper()" in cell.error_text
    assert f"cell [{helper.number}], line 3, in helper\n    raise ValueError('bad luck')" in cell.error_text
    assert "launch.py" not in cell.error_text


def test_a_deadlock_names_the_cells_line(shared) -> None:
    cell = shared.run(
        "def waits():\n    if dist.get_rank() == 0:\n        dist.barrier()\n    else:\n"
        "        time.sleep(99)\nrun(waits, timeout=1)"
    )
    assert cell.error == "RunTimeout"
    assert f"rank 0 began barrier at cell [{cell.number}], line 3, and rank 1 never arrived" in cell.error_text
    assert f"rank 1 was at cell [{cell.number}], line 5, in waits: time.sleep(99)" in cell.error_text


def test_output_is_shown_live_and_at_the_end_in_rank_order(shared) -> None:
    message = shared.start(
        "def talks():\n    r = dist.get_rank()\n    time.sleep(0.8 if r == 0 else 0)\n    print('hello', r)\n"
        "    dist.barrier(); time.sleep(0.3); print('bye', r)\nr = run(talks)"
    )
    cell = shared.finish(message)
    assert cell.updates >= 1
    assert list(cell.displays.values()) == ["[rank 0] hello 0\n[rank 0] bye 0\n[rank 1] hello 1\n[rank 1] bye 1"]
    assert cell.text == ""


def test_a_stopped_run_keeps_what_was_printed_and_runs_no_more(shared) -> None:
    message = shared.start("def says():\n    print('so far', flush=True); time.sleep(600)\nrun(says)")
    shared.wait_for_ranks(2)
    time.sleep(1)
    shared.stop()
    cell = shared.finish(message)
    assert list(cell.displays.values()) == ["[rank 0] so far\n[rank 1] so far"]


@pytest.mark.parametrize("stuck", STUCK)
def test_the_stop_button_frees_the_cell(shared, stuck) -> None:
    message = shared.start(f"run({stuck})")
    ranks = shared.wait_for_ranks(2)
    time.sleep(0.5)
    pressed = time.monotonic()
    shared.stop()
    cell = shared.finish(message)
    assert cell.error == "KeyboardInterrupt"
    assert time.monotonic() - pressed < 2
    assert cell.error_text.startswith("KeyboardInterrupt: stopped, and the ranks are ended\nrank 0 was ")
    assert "launch.py" not in cell.error_text
    assert wait_until_gone(ranks, 5) == []
    assert shared.run("ready()").result == "[1.0, 1.0]".replace("1.0", "2.0")


def test_stop_pressed_twice_and_more(shared) -> None:
    for pause in (0.0, 0.005, 0.05):
        message = shared.start("run(deadlock)")
        ranks = shared.wait_for_ranks(2)
        for _ in range(3):
            shared.stop()
            time.sleep(pause)
        # a late press may hit IPython while it shows the first one's error
        assert shared.finish(message).error in ("KeyboardInterrupt", "")
        assert wait_until_gone(ranks, 5) == []
        while shared.run("1 + 1").error:  # the last stop may reach the next cell
            pass
        assert shared.run("ready()").result == "[2.0, 2.0]"


def test_stop_while_ranks_start(shared) -> None:
    for pause in (0.0, 0.01, 0.02, 0.05):
        message = shared.start_and_wait("run(deadlock, world_size=4)", pause)
        shared.stop()
        # pressed so early, it may reach IPython before the cell's own code
        assert shared.finish(message).error in ("KeyboardInterrupt", "")
        assert shared.run("ready()").result == "[2.0, 2.0]"
    assert wait_until_gone([rank.pid for rank in ranks_of(shared.pid)], 5) == []


def test_a_warm_cluster_survives_the_stop_button(shared) -> None:
    shared.run("cluster = Cluster(2)")
    message = shared.start("cluster.run(deadlock)")
    time.sleep(0.5)
    shared.stop()
    assert shared.finish(message).error == "KeyboardInterrupt"
    assert shared.run("cluster.run(sums).values").result == "[2.0, 2.0]"
    shared.run("cluster.close()")


def test_a_run_from_a_helper_thread(shared) -> None:
    cell = shared.run(
        "found = []\nt = threading.Thread(target=lambda: found.append(ready(3)))\nt.start(); t.join(); print(found)"
    )
    assert cell.text == "[[3.0, 3.0, 3.0]]\n"
    cell = shared.run(
        "made = []\nt = threading.Thread(target=lambda: made.append(Cluster(2)))\n"
        "t.start(); t.join()\nprint(made[0].run(sums).values)\nmade[0].close()"
    )
    assert cell.text == "[2.0, 2.0]\n"
    cell = shared.run(
        "t = threading.Thread(target=lambda: made.append(Cluster(2, start_method='spawn')))\n"
        "t.start(); t.join()\nprint(made[1].run(sums).values)\nmade[1].close()"
    )
    assert cell.text == "[2.0, 2.0]\n"


def test_a_kernel_that_used_threads_may_launch(shared) -> None:
    cell = shared.run("x = torch.randn(2000, 2000); y = (x @ x).sum()\nready()")
    assert cell.result == "[2.0, 2.0]"


def test_late_prints_do_not_land_in_a_later_cell(shared) -> None:
    shared.run(
        "def late():\n    threading.Thread(target=lambda: [time.sleep(0.01) or print('late') for _ in range(99)],"
        " daemon=True).start()\ncluster = Cluster(2); cluster.run(late)"
    )
    cells = [shared.run("def quiet(): time.sleep(0.3)\ncluster.run(quiet)"), shared.run("time.sleep(0.3)")]
    assert [cell.shown.count("late") for cell in cells] == [0, 0]
    shared.run("cluster.close()")


def test_slow_teardown_keeps_the_blame(shared) -> None:
    cell = shared.run(
        "def tears_down():\n    try:\n        if dist.get_rank() == 1: raise ValueError('the culprit')\n"
        "        dist.barrier()\n    finally:\n        dist.destroy_process_group(); time.sleep(1)\nrun(tears_down)"
    )
    assert "rank 1 raised ValueError: the culprit" in cell.error_text


def test_a_widget_of_the_notebook_is_named(shared) -> None:
    cell = shared.run("import ipywidgets\nslider = ipywidgets.IntSlider()\ndef uses(): return slider.value\nrun(uses)")
    assert cell.error == "UsageError"
    assert "uses uses the variable `slider` (an IntSlider)" in cell.error_text
    assert "launch.py" not in cell.error_text


def test_expect_shows_and_demands(shared) -> None:
    cell = shared.run(
        "def fails(): raise ValueError('as planned')\n"
        "with expect(RankFailed) as failure:\n    run(fails)\nprint(failure.summary)"
    )
    assert cell.error == ""
    assert cell.text.endswith("ranks 0 and 1 raised ValueError: as planned\n")
    assert shared.run("with expect(RankFailed):\n    run(sums)").error == "AssertionError"


def leave_behind(kernel: Kernel, *, start_method: str = "forkserver") -> list[int]:
    """Leave an idle cluster, the child of a rank that was killed, and a run; return every process there is.

    Each rank of the run is stuck in its own way, and has a child.
    """
    ranks = 4 if start_method == "forkserver" else 2  # spawned ones take seconds
    kernel.run(
        "import subprocess\ndef with_child(): subprocess.Popen(['sleep', '600'])\n"
        "def stuck(): with_child(); [gil_held, in_python, deadlock, deadlock][dist.get_rank()]()\n"
        f"method = '{start_method}'\nidle = Cluster(2)\n"
        "bereaved = Cluster(1, start_method=method); pids = bereaved.run(with_child).pids"
    )
    family = kernel.family()
    kernel.run("os.kill(pids[0], 9); time.sleep(0.2)")
    kernel.start(f"run(stuck, world_size={ranks}, start_method=method)")
    kernel.wait_for_ranks(2 + 2 * ranks)
    time.sleep(0.3)
    return sorted({*family, *kernel.family()})


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_kill_9_of_the_kernel_leaves_nothing(kernel, start_method) -> None:
    family = leave_behind(kernel, start_method=start_method)
    kernel.kill()
    assert wait_until_gone(family, 5) == []


def test_a_graceful_shutdown_leaves_nothing(kernel) -> None:
    family = leave_behind(kernel)
    kernel.shut_down()
    assert wait_until_gone(family, 5) == []


def test_a_kernel_that_is_told_to_leave_leaves_by_itself(kernel, tmp_path) -> None:
    kernel.run(
        f"import atexit, pathlib\natexit.register(pathlib.Path({str(tmp_path / 'bye')!r}).touch)\n"
        "cluster = Cluster(2)\ncluster.run(sums)\nready()"
    )
    family = kernel.family()
    kernel.shut_down()
    assert (tmp_path / "bye").exists()
    assert wait_until_gone(family, 5) == []


def test_a_restart_leaves_nothing_and_works_again(kernel) -> None:
    family = leave_behind(kernel)
    kernel.restart()
    assert wait_until_gone(family, 5) == []
    cell = kernel.run("from lablib import run\nimport torch.distributed as dist\nrun(dist.get_rank).values")
    assert cell.result == "[0, 1]"


def test_kill_9_while_the_server_warms_up() -> None:
    kernel = Kernel()
    try:
        kernel.run("from lablib.engine import forking\nforking._server._stop()\nwarm_up()")
        family = kernel.family()
        kernel.kill()
        assert wait_until_gone(family, 5) == []
    finally:
        kernel.close()


def test_a_second_stop_button_press_in_an_idle_kernel_is_harmless(shared) -> None:
    shared.run("cluster = Cluster(2)")
    shared.stop()
    time.sleep(0.2)
    assert shared.run("cluster.run(sums).values").result == "[2.0, 2.0]"
    shared.run("cluster.close()")
