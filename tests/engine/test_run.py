"""What a function finds in a rank, and what comes back from it."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time

import numpy
import psutil
import pytest
import torch
import torch.distributed as dist

import lablib
from lablib import Cluster, device, run, spawn


def add_ranks(x: float) -> torch.Tensor:
    tensor = torch.full((4,), float(dist.get_rank() + x), device=device())
    dist.all_reduce(tensor)
    return tensor


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_every_rank_brings_its_value_back(world_size: int) -> None:
    result = run(add_ranks, 1, world_size=world_size)
    expected = sum(range(1, world_size + 1))
    assert result.world_size == len(result) == world_size
    assert [value.tolist() for value in result] == [[expected] * 4] * world_size
    assert result[0].tolist() == result.values[0].tolist()
    assert (result.backend, result.device) == ("gloo", "cpu")
    assert len(set(result.pids)) == world_size
    assert os.getpid() not in result.pids


def test_fresh_ranks_are_new_processes_each_time() -> None:
    first, second = run(os.getpid), run(os.getpid)
    assert not set(first.values) & set(second.values)
    assert first.values == first.pids


def test_warm_ranks_are_the_same_processes() -> None:
    with Cluster(3) as cluster:
        assert cluster.run(os.getpid).values == cluster.run(os.getpid).values


def test_the_environment_is_torchruns() -> None:
    def environment() -> dict[str, str]:
        return dict(os.environ)

    script = "import json, os; print(json.dumps(dict(os.environ)))"
    names = [
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "ROLE_NAME",
    ]
    ours = run(environment, world_size=2).values
    assert [own["RANK"] for own in ours] == ["0", "1"]
    assert [own["LOCAL_RANK"] for own in ours] == ["0", "1"]
    assert ours[0]["MASTER_PORT"] == ours[1]["MASTER_PORT"]
    path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"lablib_env_{os.getpid()}.py")
    with open(path, "w") as file:
        file.write(script)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1", path],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    finally:
        os.unlink(path)
    import json

    torchruns = json.loads(done.stdout.strip().splitlines()[-1])
    alone = run(environment, world_size=1)[0]
    elastic = {name for name in torchruns if name.startswith("TORCHELASTIC_") and name in alone}
    assert elastic >= {"TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}
    assert {name: alone[name] for name in names} == {name: torchruns[name] for name in names}


def test_a_script_function_joins_the_served_store() -> None:
    def as_in_a_torchrun_script() -> tuple[int, float]:
        dist.init_process_group("gloo")
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        rank = dist.get_rank()
        dist.destroy_process_group()
        return rank, tensor.item()

    assert run(as_in_a_torchrun_script, world_size=3, group=False).values == [(0, 3.0), (1, 3.0), (2, 3.0)]


def test_the_store_listens_on_loopback_only() -> None:
    def listening() -> list[str]:
        import psutil

        return [c.laddr.ip for c in psutil.Process().net_connections() if c.status == psutil.CONN_LISTEN]

    addresses = [address for own in run(listening).values for address in own]
    assert addresses
    assert {address.removeprefix("::ffff:") for address in addresses} == {"127.0.0.1"}


def test_kernel_environment_folder_and_import_path_travel(tmp_path, monkeypatch) -> None:
    (tmp_path / "beside_the_notebook.py").write_text("ANSWER = 42\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COURSE", "yes")

    def look() -> tuple[str, str, int]:
        import beside_the_notebook

        return os.getcwd(), os.environ["COURSE"], beside_the_notebook.ANSWER

    assert run(look).values == [(str(tmp_path), "yes", 42)] * 2


def test_ranks_draw_different_random_numbers_each_time() -> None:
    def draw() -> tuple[float, float, float]:
        import random

        return torch.rand(1).item(), float(numpy.random.rand()), random.random()

    with Cluster(2) as cluster:
        draws = [drawn for _ in range(2) for drawn in (*run(draw).values, *cluster.run(draw).values)]
    for kind in zip(*draws, strict=True):
        assert len(set(kind)) == len(draws)


def test_a_seed_set_by_the_learner_counts() -> None:
    def draw() -> float:
        torch.manual_seed(7)
        return torch.rand(1).item()

    assert len(set(run(draw).values + run(draw).values)) == 1


def test_threads_are_shared_out() -> None:
    from lablib.engine import cores

    counted = run(torch.get_num_threads, world_size=2).values
    assert counted == [max(1, cores.usable_cores() // 2)] * 2


def test_output_comes_back_by_rank_native_code_included(capfd) -> None:
    def speak() -> None:
        import ctypes

        print(f"python {os.environ['RANK']}")
        print("no line break", end="", file=sys.stderr)
        ctypes.CDLL(None).puts(b"native")

    result = run(speak)
    for rank, text in enumerate(result.output):
        assert sorted(text.replace("no line break", "no line break\n").split("\n")) == sorted(
            [f"python {rank}", "no line break", "native", ""]
        )
    printed = capfd.readouterr().out
    assert "[rank 0] python 0" in printed
    assert "[rank 1] python 1" in printed


def test_output_is_bounded_and_says_what_was_left_out(capsys) -> None:
    def shout() -> None:
        print("first")
        for _ in range(30_000):
            print("x" * 99)
        print("last")

    (text,) = run(shout, world_size=1).output
    assert text.startswith("first\n")
    assert text.endswith("last\n")
    assert "characters left out" in text
    assert len(text) < 600_000


def test_output_that_is_not_text_is_kept_readable(capsys) -> None:
    def binary() -> None:
        os.write(1, b"\xff\xfe caf\xc3\xa9\n")

    assert run(binary, world_size=1).output == ["\ufffd\ufffd café\n"]


def test_keyword_arguments_go_by_partial() -> None:
    def scaled(x: int, *, by: int) -> int:
        return x * by

    assert run(functools.partial(scaled, by=3), 2).values == [6, 6]


def test_spawn_has_torchs_call_and_sets_no_variable() -> None:
    def demo_basic(rank: int, world_size: int) -> tuple[int, float]:
        assert "RANK" not in os.environ
        os.environ["MASTER_ADDR"] = "localhost"
        os.environ["MASTER_PORT"] = port
        dist.init_process_group("gloo", rank=rank, world_size=world_size)
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        dist.destroy_process_group()
        return rank, tensor.item()

    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    result = spawn(demo_basic, args=(2,), nprocs=2, join=True)
    assert result.values == [(0, 2.0), (1, 2.0)]
    assert result.backend is None


def test_run_script_is_a_torchrun_rank(tmp_path, capsys) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch, torch.distributed as dist\n"
        "if __name__ == '__main__':\n"
        "    dist.init_process_group('gloo')\n"
        "    t = torch.ones(1); dist.all_reduce(t)\n"
        "    print(dist.get_rank(), int(t), sys.argv[1:])\n"
        "    dist.destroy_process_group()\n"
        "    sys.exit(0)\n"
    )
    assert lablib.run_script(script, ["--epochs", "1"]).output == [
        "0 2 ['--epochs', '1']\n",
        "1 2 ['--epochs', '1']\n",
    ]


def test_ranks_may_have_dataloader_workers() -> None:
    def load() -> list[int]:
        loader = torch.utils.data.DataLoader(list(range(4)), num_workers=2)
        return [int(batch) for batch in loader]

    assert run(load).values == [[0, 1, 2, 3]] * 2


def test_the_spawn_start_method_does_the_same() -> None:
    first = run(add_ranks, 1, start_method="spawn")
    assert [value.tolist() for value in first] == [[3.0] * 4] * 2
    with Cluster(2, start_method="spawn") as cluster:
        assert [value.tolist() for value in cluster.run(add_ranks, 2)] == [[5.0] * 4] * 2
        assert cluster.run(os.getpid).values == cluster.run(os.getpid).values


def test_a_warm_rank_that_is_left_unclean_is_replaced() -> None:
    def leaves_a_thread() -> int:
        import threading

        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        return os.getpid()

    def leaves_a_group() -> int:
        dist.new_group([0])
        return os.getpid()

    def leaves_a_send_and_a_receive() -> int:
        other = 1 - dist.get_rank()
        dist.isend(torch.ones(1), other)
        dist.irecv(torch.ones(1), other)
        return os.getpid()

    def destroys_the_group() -> int:
        dist.destroy_process_group()
        return os.getpid()

    def sums() -> float:
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        return tensor.item()

    def exchanges() -> float:
        theirs, other = torch.ones(1), 1 - dist.get_rank()
        works = [dist.isend(torch.full((1,), 3.0), other), dist.irecv(theirs, other)]
        for work in works:
            work.wait()
        return theirs.item()

    with Cluster(2) as cluster:
        assert cluster.run(exchanges).pids == cluster.run(exchanges).pids
        for untidy in (leaves_a_thread, leaves_a_group, leaves_a_send_and_a_receive, destroys_the_group):
            before = cluster.run(untidy).values
            assert cluster.run(sums).values == [2.0, 2.0]
            assert cluster.run(exchanges).values == [3.0, 3.0]
            assert not set(before) & set(cluster.run(os.getpid).values)


def test_an_idle_warm_rank_that_dies_is_replaced() -> None:
    with Cluster(2) as cluster:
        before = cluster.run(os.getpid).values
        os.kill(before[1], 9)
        while psutil.pid_exists(before[1]):  # until it is reaped: a zombie's other threads may still hold its sockets
            time.sleep(0.01)
        after = cluster.run(os.getpid).values
        assert not set(before) & set(after)
