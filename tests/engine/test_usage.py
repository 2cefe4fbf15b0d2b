"""Bad input gets an error of ours that says what to do, before anything is started."""

from __future__ import annotations

import threading
import time

import ipywidgets
import numpy
import plotly.graph_objects as go
import pytest
import torch
import torch.distributed as dist

from lablib import Cluster, RankFailed, UsageError, run, spawn
from lablib.engine import call

lock = threading.Lock()
widget = ipywidgets.IntSlider()
figure = go.FigureWidget()


def fine() -> int:
    return dist.get_rank()


def uses_a_lock() -> object:
    return lock


def uses_a_widget() -> object:
    return widget


def uses_a_figure() -> object:
    return figure


@pytest.mark.parametrize(
    ("world_size", "message"),
    [
        (0, "use 1 or more"),
        (-1, "use 1 or more"),
        ("4", "write world_size=4"),
        ("four", "not a whole number"),
        (2.0, "not a whole number"),
        (True, "not a whole number"),
        (None, "not a whole number"),
        (17, "above this host's maximum of 16"),
        (10**9, "LABLIB_MAX_RANKS"),
    ],
)
def test_world_size(world_size, message) -> None:
    with pytest.raises(UsageError, match=message):
        run(fine, world_size=world_size)
    with pytest.raises(UsageError, match=message):
        Cluster(world_size)


def test_numpys_integers_are_numbers() -> None:
    assert run(fine, world_size=numpy.int64(2)).values == [0, 1]


def test_the_hubs_maximum(monkeypatch) -> None:
    monkeypatch.setenv("LABLIB_MAX_RANKS", "2")
    with pytest.raises(UsageError, match="maximum of 2 ranks"):
        run(fine, world_size=3)
    monkeypatch.setenv("LABLIB_MAX_RANKS", "many")
    with pytest.raises(UsageError, match="LABLIB_MAX_RANKS='many'"):
        run(fine)


@pytest.mark.parametrize("timeout", [None, 0, -1, float("nan"), float("inf"), "10", True])
def test_timeout(timeout) -> None:
    with pytest.raises(UsageError, match="timeout="):
        run(fine, timeout=timeout)


def test_not_callable() -> None:
    with pytest.raises(UsageError, match="needs a function to run on each rank, not an int"):
        run(3)
    with pytest.raises(UsageError, match="needs a function to run on each rank, not None"):
        run(None)


def test_generators_and_coroutines() -> None:
    def generator():
        yield 1

    async def coroutine():
        return 1

    with pytest.raises(UsageError, match="generator"):
        run(generator)
    with pytest.raises(UsageError, match="not a generator"):
        run(generator())
    with pytest.raises(UsageError, match="async"):
        run(coroutine)


def by_value(function):
    """Return the function as a cell's: it travels by value, with the variables it uses."""
    function.__module__ = "__main__"
    return function


@pytest.mark.parametrize(
    ("fn", "name"), [(uses_a_lock, "`lock`"), (uses_a_widget, "`widget`"), (uses_a_figure, "`figure`")]
)
def test_what_cannot_travel_is_named(fn, name) -> None:
    with pytest.raises(UsageError, match=f"uses the variable {name}"):
        run(by_value(fn))


def test_a_captured_file_is_named(tmp_path) -> None:
    with open(tmp_path / "log", "w") as log:

        def writes() -> None:
            log.write("hello")

        def calls_it() -> None:
            writes()

        with pytest.raises(UsageError, match=r"writes uses the variable `log`.*open file"):
            run(calls_it)


def test_an_argument_that_cannot_travel_is_named() -> None:
    with pytest.raises(UsageError, match=r"argument 2 of .* cannot be sent"):
        run(print, 1, lock)


def test_a_large_capture_is_named_in_a_warning() -> None:
    big = torch.zeros(11 * 1024**2, dtype=torch.uint8)

    def uses_it() -> int:
        return big.numel()

    with pytest.warns(UserWarning, match=r"`big`, used by uses_it, is 11 MiB") as caught:
        assert run(uses_it).values == [big.numel()] * 2
    assert caught[0].filename == __file__


def test_a_view_of_a_big_tensor_is_small() -> None:
    view = torch.zeros(11 * 1024**2, dtype=torch.uint8)[:2]

    def uses_it() -> torch.Tensor:
        return view

    assert run(uses_it)[0].tolist() == [0, 0]


def test_an_unpicklable_result_is_named_and_nothing_is_lost() -> None:
    def mixed() -> object:
        return {"ok": 1, "bad": [2, (i for i in range(3))]} if dist.get_rank() else "fine"

    with Cluster(2) as cluster:
        with pytest.raises(RankFailed, match=r"rank 1: .*a generator at \['bad'\]\[1\].*return a list") as caught:
            cluster.run(mixed)
        assert caught.value.run.values[0] == "fine"
        assert cluster.run(fine).values == [0, 1]


def test_distributed_objects_are_refused_with_the_cure() -> None:
    def returns_ddp() -> object:
        return torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))

    def returns_dtensor() -> object:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, distribute_tensor

        return distribute_tensor(torch.ones(2), init_device_mesh("cpu", (2,)), [Replicate()])

    with pytest.raises(RankFailed, match=r"DistributedDataParallel.*state_dict"):
        run(returns_ddp)
    with pytest.raises(RankFailed, match=r"DTensor.*full_tensor"):
        run(returns_dtensor)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "nccl"}, "this host has none"),
        ({"backend": "mpi"}, "'nccl' .* and 'gloo'"),
        ({"device": "cuda"}, "this host has none"),
        ({"device": "tpu"}, "'cuda' and 'cpu'"),
        ({"backend": "nccl", "device": "cpu"}, "use backend='gloo'"),
        ({"start_method": "fork"}, "'forkserver' and 'spawn'"),
    ],
)
def test_backend_device_and_start_method(options, message) -> None:
    with pytest.raises(UsageError, match=message):
        run(fine, **options)


def test_a_closed_cluster() -> None:
    cluster = Cluster(2)
    cluster.close()
    cluster.close()
    with pytest.raises(UsageError, match="closed"):
        cluster.run(fine)


def test_a_call_from_inside_a_rank() -> None:
    def nested() -> None:
        run(fine)

    with pytest.raises(RankFailed, match=r"run was called on rank \d, inside a function"):
        run(nested)


def test_a_second_call_while_one_runs() -> None:
    results: list[object] = []

    def slow() -> int:
        time.sleep(1)
        return dist.get_rank()

    thread = threading.Thread(target=lambda: results.append(run(slow).values))
    thread.start()
    while not call._one_run.locked():
        time.sleep(0.001)
    with pytest.raises(UsageError, match="another run"):
        run(fine)
    thread.join()
    assert results == [[0, 1]]
    assert run(fine).values == [0, 1]


def test_spawn_refuses_what_it_cannot_do() -> None:
    with pytest.raises(UsageError, match="leave join out"):
        spawn(fine, join=False)
    with pytest.raises(UsageError, match=r"write args=\(2,\)"):
        spawn(fine, args=2)
    with pytest.raises(UsageError, match="nprocs=0"):
        spawn(fine, nprocs=0)


def test_modules_travel_by_name() -> None:
    def mentions_cudnn() -> bool:
        return torch.backends.cudnn.is_available()

    assert run(mentions_cudnn).values == [False, False]
