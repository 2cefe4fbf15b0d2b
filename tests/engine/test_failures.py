"""What goes wrong on the ranks is told with its first cause, loses nothing, and costs one call."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from processes import wait_until_gone

from lablib import Cluster, RankFailed, RankLost, RunError, RunTimeout, run


def raises() -> None:
    if dist.get_rank() == 1:
        raise ValueError("bad luck")
    dist.all_reduce(torch.ones(1))


def exits() -> None:
    if dist.get_rank() == 1:
        os._exit(5)
    dist.all_reduce(torch.ones(1))


def is_killed() -> None:
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1))


def crashes() -> None:
    if dist.get_rank() == 1:
        ctypes.string_at(0)
    dist.all_reduce(torch.ones(1))


def deadlocks() -> None:
    if dist.get_rank() == 1:
        time.sleep(600)
    dist.all_reduce(torch.ones(1))


def holds_the_gil() -> None:
    if dist.get_rank() == 1:
        ctypes.PyDLL(None).sleep(600)  # PyDLL keeps the GIL
    dist.all_reduce(torch.ones(1))


KINDS: list[tuple[Callable[[], None], type[RunError], str]] = [
    (raises, RankFailed, "rank 1 raised ValueError: bad luck"),
    (exits, RankLost, "rank 1 exited with code 5 before the function returned"),
    (is_killed, RankLost, "rank 1 was killed by SIGKILL before the function returned"),
    (crashes, RankLost, "rank 1 was killed by SIGSEGV before the function returned"),
    (
        deadlocks,
        RunTimeout,
        "ranks 0 and 2 began all_reduce at test_failures.py, line {line}, and rank 1 never arrived",
    ),
    (
        holds_the_gil,
        RunTimeout,
        "ranks 0 and 2 began all_reduce at test_failures.py, line {line}, and rank 1 never arrived",
    ),
]


@pytest.mark.parametrize(("fn", "kind", "summary"), KINDS, ids=[fn.__name__ for fn, _, _ in KINDS])
def test_the_cause_is_named_and_the_next_call_works(fn, kind, summary) -> None:
    last_line = fn.__code__.co_firstlineno + 3
    with Cluster(3, timeout=1) as cluster:
        with pytest.raises(kind) as caught:
            cluster.run(fn)
        assert caught.value.rank == 1
        assert caught.value.summary.endswith(summary.format(line=last_line))
        assert "in " + fn.__name__ in str(caught.value) or kind is RankLost
        assert cluster.run(dist.get_rank).values == [0, 1, 2]


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_a_lost_rank_with_either_start_method(start_method) -> None:
    with pytest.raises(RankLost, match="rank 1 exited with code 5"):
        run(exits, start_method=start_method)


def test_values_and_output_that_arrived_are_kept() -> None:
    def rank_2_fails() -> str:
        print(f"rank {dist.get_rank()} speaks")
        if dist.get_rank() == 2:
            time.sleep(0.3)
            raise KeyError("gone")
        return f"value {dist.get_rank()}"

    with pytest.raises(RankFailed) as caught:
        run(rank_2_fails, world_size=3)
    result = caught.value.run
    assert result.values[:2] == ["value 0", "value 1"]
    assert not result.values[2]
    assert repr(result.values[2]) == "<no value: rank 2 raised KeyError>"
    assert result.output == [f"rank {rank} speaks\n" for rank in range(3)]
    assert isinstance(caught.value.__cause__, KeyError)
    assert "rank_2_fails" in caught.value.tracebacks[2]


def test_an_error_on_every_rank_is_told_once() -> None:
    def misspelt() -> None:
        undefined_name  # noqa: B018, F821

    with pytest.raises(RankFailed) as caught:
        run(misspelt, world_size=3)
    assert caught.value.summary == "ranks 0, 1 and 2 raised NameError: name 'undefined_name' is not defined"


def test_a_slow_teardown_does_not_shift_the_blame() -> None:
    def tears_down_slowly() -> None:
        try:
            if dist.get_rank() == 1:
                raise ValueError("the culprit")
            dist.all_reduce(torch.ones(1))
        finally:
            dist.destroy_process_group()
            time.sleep(1)

    with pytest.raises(RankFailed) as caught:
        run(tears_down_slowly, timeout=20)
    assert caught.value.summary == "rank 1 raised ValueError: the culprit"


def test_a_teardown_that_closes_connections_does_not_shift_the_blame() -> None:
    def closes_then_reports() -> None:
        if dist.get_rank() == 0:
            dist.recv(torch.ones(1), src=1)
            return
        group = dist.group.WORLD
        try:
            raise ValueError("the culprit")
        finally:
            group.abort() if hasattr(group, "abort") else None
            dist.destroy_process_group()
            del group
            time.sleep(1)

    with pytest.raises(RankFailed) as caught:
        run(closes_then_reports, timeout=20)
    assert caught.value.summary == "rank 1 raised ValueError: the culprit"


def test_sys_exit_in_a_rank_is_a_failure() -> None:
    with pytest.raises(RankFailed, match="SystemExit: 3"):
        run(sys.exit, 3)


def test_send_send_deadlock_is_explained() -> None:
    def both_send() -> None:
        dist.send(torch.ones(1), dst=1 - dist.get_rank())

    with pytest.raises(RunTimeout) as caught:
        run(both_send, timeout=1)
    line = both_send.__code__.co_firstlineno + 1
    assert caught.value.summary == (
        f"time is up after 1 s: rank 0 waits in send to rank 1 at test_failures.py, line {line}; "
        f"rank 1 waits in send to rank 0 at test_failures.py, line {line}"
    )


def test_different_collectives_are_explained() -> None:
    def disagree() -> None:
        dist.barrier()
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(2))
        else:
            dist.broadcast(torch.ones(2), src=0)
            dist.barrier()

    with pytest.raises(RunTimeout) as caught:
        run(disagree, timeout=1)
    first = disagree.__code__.co_firstlineno
    assert caught.value.summary == (
        "time is up after 1 s: call 2 on the default group is all_reduce of 8 bytes on rank 0 at "
        f"test_failures.py, line {first + 3} but broadcast of 8 bytes on rank 1 at test_failures.py, line {first + 5}"
    )


def test_a_rank_missing_from_a_subgroups_collective_is_named() -> None:
    def one_is_missing() -> None:
        group = dist.new_group([1, 2])
        if dist.get_rank() == 1:
            dist.all_reduce(torch.ones(1), group=group)

    with pytest.raises(RunTimeout, match=r"rank 1 began all_reduce .*, and rank 2 never arrived") as caught:
        run(one_is_missing, world_size=3, timeout=1)
    assert "rank 2 had returned" in str(caught.value)


def test_a_group_that_some_ranks_do_not_make_is_named() -> None:
    def members_only() -> None:
        if dist.get_rank() in (0, 1):
            dist.new_group([0, 1])
        dist.new_group([0, 1, 2])

    with pytest.raises(RunTimeout, match=r"wait in new_group at .*; every rank must make every group") as caught:
        run(members_only, world_size=3, timeout=1)
    assert "was in new_group, at test_failures.py" in str(caught.value)


def test_a_rank_that_left_long_ago_in_a_finished_world_is_named() -> None:
    def returns_early() -> None:
        for _ in range(70):  # more than a logbook keeps
            dist.all_reduce(torch.ones(1))
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(1))

    with pytest.raises(RunTimeout, match=r"rank 0 began all_reduce .*, and rank 1 never arrived"):
        run(returns_early, timeout=2)


def test_a_busy_loop_is_shown_with_its_line() -> None:
    def spins() -> None:
        while True:
            pass

    with pytest.raises(RunTimeout) as caught:
        run(spins, world_size=1, timeout=0.5)
    assert "rank 0 is still at test_failures.py, line" in caught.value.summary
    assert caught.value.rank == 0


def test_a_frozen_rank_costs_one_timeout() -> None:
    def freezes() -> None:
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        dist.barrier()

    with Cluster(2, timeout=1) as cluster:
        with pytest.raises(RunTimeout, match="rank 1 never arrived"):
            cluster.run(freezes)
        assert cluster.run(dist.get_rank).values == [0, 1]


def test_children_of_a_rank_go_with_it() -> None:
    def leaves_a_child() -> int:
        import subprocess

        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        return child.pid

    assert wait_until_gone(run(leaves_a_child).values, 5) == []


def test_a_rank_that_prints_for_ever_is_stopped_by_the_timeout(capsys) -> None:
    def prints_for_ever() -> None:
        while True:
            print("again")

    with pytest.raises(RunTimeout) as caught:
        run(prints_for_ever, world_size=1, timeout=1)
    assert len(caught.value.run.output[0]) < 600_000


def test_the_server_dying_is_told_and_mended() -> None:
    from lablib.engine import forking

    assert run(dist.get_rank).values == [0, 1]
    os.kill(forking.server_pid() or 0, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while True:  # the dead server is noticed at the latest by the call after next
        try:
            assert run(dist.get_rank).values == [0, 1]
            break
        except (RankLost, OSError):
            assert time.monotonic() < deadline
