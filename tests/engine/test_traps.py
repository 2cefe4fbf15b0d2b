"""Traps that learners walk into: their own classes, forks in a rank, errors about errors, hangs in native code."""

from __future__ import annotations

import ctypes
import dataclasses
import io
import mmap
import os
import re
import resource
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from lablib import Cluster, RankFailed, RankLost, RunTimeout, UsageError, run
from lablib.engine import call, forking, pages


def of_the_notebook(obj):
    """Make a class or function of this file one of the notebook: it is in ``__main__`` under its own name."""
    obj.__module__ = "__main__"
    obj.__qualname__ = obj.__name__
    setattr(sys.modules["__main__"], obj.__name__, obj)
    return obj


@of_the_notebook
class Counter:
    count = 0

    def __init__(self) -> None:
        self.rank = dist.get_rank()


@of_the_notebook
@dataclasses.dataclass
class Statistic:
    value: int


@of_the_notebook
class TwoArguments(Exception):
    def __init__(self, first: int, second: int) -> None:
        Exception.__init__(self, first, second)  # super() would look for this file's class, not the notebook's


@of_the_notebook
class CannotBeRebuilt:
    def __reduce__(self):
        return eval, ("1 / 0",)


@of_the_notebook
class WithoutText(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


def test_a_class_of_the_notebook_comes_back_as_itself() -> None:
    def counts() -> Counter:
        Counter.count += 5
        return Counter()

    counts.__module__ = "__main__"
    values = run(counts).values
    assert [type(value) is Counter for value in values] == [True, True]
    assert [value.rank for value in values] == [0, 1]
    assert Counter.count == 0  # the rank's copy counted, not the notebook's class


def test_an_exception_class_of_the_notebook_too() -> None:
    def fails() -> None:
        raise TwoArguments(1, 2)

    with pytest.raises(RankFailed) as caught:
        run(fails)
    assert type(caught.value.__cause__) is TwoArguments


def test_ranks_may_pickle_classes_of_the_notebook() -> None:
    def gather() -> tuple[list[Statistic | None], int]:
        found: list[Statistic | None] = [None] * 2
        dist.all_gather_object(found, Statistic(dist.get_rank()))
        buffer = io.BytesIO()
        torch.save(Statistic(3), buffer)
        return found, buffer.tell()

    for found, nbytes in run(gather):
        assert found == [Statistic(0), Statistic(1)]
        assert nbytes > 0


def test_a_rank_that_forks_answers_once() -> None:
    def forks() -> str:
        return "child" if os.fork() == 0 else "parent"

    with Cluster(2) as cluster:
        for _ in range(3):
            assert cluster.run(forks).values == ["parent", "parent"]


def test_the_summary_is_the_same_each_time() -> None:
    def says_its_rank() -> None:
        raise ValueError(f"I am rank {dist.get_rank()}")

    def leaves() -> None:
        os._exit(3)

    for fn, expected in (
        (says_its_rank, "ranks 0, 1, 2 and 3 raised ValueError: I am rank 0"),
        (leaves, "ranks 0, 1, 2 and 3 exited with code 3 before the function returned"),
    ):
        for _ in range(5):
            with pytest.raises((RankFailed, RankLost)) as caught:
                run(fn, world_size=4)
            assert caught.value.summary == expected


def ddp_backward_on_rank_0_only() -> None:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    loss = model(torch.ones(1, 2)).sum()
    if dist.get_rank() == 0:
        loss.backward()
    else:
        time.sleep(600)


def asynchronous_on_rank_0_only() -> None:
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        work.wait()
    else:
        time.sleep(600)


@pytest.mark.parametrize("fn", [ddp_backward_on_rank_0_only, asynchronous_on_rank_0_only])
def test_hangs_in_native_code_are_named_by_the_logbooks(fn) -> None:
    with pytest.raises(RunTimeout, match=r"rank 0 began all_reduce at .*, and rank 1 never arrived"):
        run(fn, timeout=1.5)


def test_a_value_that_cannot_be_rebuilt_loses_nothing_else() -> None:
    def returns_it() -> object:
        print("printed")
        return CannotBeRebuilt() if dist.get_rank() == 0 else 7

    with pytest.raises(
        RankFailed, match="rank 0 returned a value that this notebook cannot rebuild: ZeroDivision"
    ) as caught:
        run(returns_it)
    assert caught.value.run.values[1] == 7
    assert not caught.value.run.values[0]
    assert caught.value.run.output == ["printed\n", "printed\n"]


def test_an_error_that_only_sounds_like_a_lost_connection_is_a_cause() -> None:
    def breaks() -> None:
        raise BrokenPipeError(32, "Broken pipe")

    def database() -> None:
        raise RuntimeError("database: connection reset")

    with pytest.raises(RankFailed, match="raised BrokenPipeError"):
        run(breaks, world_size=1)
    with pytest.raises(RankFailed, match="raised RuntimeError: database"):
        run(database)


def test_the_report_survives_an_exception_without_text() -> None:
    def fails() -> None:
        raise WithoutText

    with pytest.raises(RankFailed, match="raised WithoutText: <its __str__ raised KeyError>"):
        run(fails)


def test_causes_are_told() -> None:
    def fails() -> None:
        try:
            _ = 1 / 0
        except ZeroDivisionError as error:
            raise ValueError("outer") from error

    with pytest.raises(RankFailed, match="caused by ZeroDivisionError: division by zero"):
        run(fails)


def test_a_deep_traceback_is_cut_short() -> None:
    def deeper(level: int = 0) -> int:
        return deeper(level + 1)

    with pytest.raises(RankFailed, match=r"more lines; error\.tracebacks\[0\] has them") as caught:
        run(deeper)
    assert len(str(caught.value).splitlines()) < 25


def test_a_crash_names_its_line() -> None:
    def crashes() -> None:
        dist.barrier()
        ctypes.string_at(0)

    with pytest.raises(RankLost) as caught:
        run(crashes)
    line = crashes.__code__.co_firstlineno + 2
    assert f"it was at test_traps.py, line {line}, in crashes: ctypes.string_at(0)" in str(caught.value)


def test_a_stream_that_a_job_put_in_place_does_not_stay(capsys) -> None:
    def replaces() -> None:
        sys.stdout = io.StringIO()

    def breaks_it() -> int:
        sys.stdout = None
        return 5

    with Cluster(2) as cluster:
        pids = cluster.run(replaces).pids
        assert cluster.run(breaks_it).values == [5, 5]
        result = cluster.run(print, "hello")
        assert result.output == ["hello\n", "hello\n"]
        assert result.pids == pids


def test_an_alarm_of_ones_own_ends_a_rank_as_it_ends_any_process() -> None:
    def alarmed() -> None:
        signal.alarm(1)
        time.sleep(60)

    with pytest.raises(RankLost, match="SIGALRM"):
        run(alarmed, world_size=1)


def test_the_servers_memory_lies_in_large_pages_soon_after_it_started() -> None:
    # older Linux and other systems cannot: there forking costs more, and nothing else changes
    try:
        block = mmap.mmap(-1, 8 * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        block.write(bytes(len(block)))
        block.madvise(pages.MADV_COLLAPSE)
    except OSError as error:
        pytest.skip(f"this system does not make large pages on request: {error}")

    def large_pages_kib() -> int:
        told = Path(f"/proc/{forking.server_pid()}/smaps_rollup").read_text()
        return int(re.search(r"AnonHugePages: +(\d+) kB", told)[1])

    run(dist.get_rank)
    deadline = time.monotonic() + 30
    while large_pages_kib() < 100_000:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_server_killed_just_now_costs_nothing() -> None:
    def kill_server() -> None:
        os.kill(forking.server_pid() or 0, signal.SIGKILL)
        while forking.server_is_alive():
            time.sleep(0.001)

    run(dist.get_rank)
    kill_server()
    assert run(dist.get_rank).values == [0, 1]
    with Cluster(2) as cluster:
        cluster.run(dist.get_rank)
        kill_server()
        assert cluster.run(dist.get_rank).values == [0, 1]


def test_too_few_open_files_are_said_before_anything_starts() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 50, hard))
    try:
        with pytest.raises(UsageError, match="more open files"):
            run(dist.get_rank, world_size=8)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert run(dist.get_rank).values == [0, 1]


def test_a_folder_that_is_gone_is_said(tmp_path, monkeypatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UsageError, match="folder is gone"):
        run(dist.get_rank)


@pytest.mark.parametrize("moment", ["acquired", "released"])
def test_a_press_of_stop_never_keeps_the_lock(moment, monkeypatch) -> None:
    class Pressing:
        """A lock in whose hands stop is pressed."""

        def __init__(self) -> None:
            self.held = False

        def acquire(self, blocking: bool) -> bool:
            assert not self.held
            self.held = True
            if moment == "acquired":
                signal.raise_signal(signal.SIGINT)
            return True

        def release(self) -> None:
            if moment == "released":
                signal.raise_signal(signal.SIGINT)
            self.held = False

    lock = Pressing()
    monkeypatch.setattr(call, "_one_run", lock)
    with pytest.raises(KeyboardInterrupt):
        run(dist.get_rank)
    assert not lock.held
