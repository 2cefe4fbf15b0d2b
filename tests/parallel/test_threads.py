"""DataParallel by hand against the module itself, and every byte that it moves."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from torch import nn

from lablib.parallel.threads import ThreadedDataParallel


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4))


@pytest.mark.parametrize("replicas", [1, 2, 3, 5])
def test_outputs_and_gradients_are_the_modules_own(replicas) -> None:
    plain, parallel = model(), ThreadedDataParallel(model(), replicas=replicas)
    batch = torch.randn(7, 6)
    torch.testing.assert_close(parallel(batch), plain(batch))
    plain(batch).pow(2).mean().backward()
    parallel(batch).pow(2).mean().backward()
    for one, other in zip(parallel.module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_every_step_moves_all_parameters_and_all_gradients_again() -> None:
    parallel = ThreadedDataParallel(model(), replicas=3)
    parameters = sum(one.nbytes for one in parallel.module.parameters())
    for step in (1, 2):
        parallel(torch.randn(9, 6)).sum().backward()
        assert parallel.moved_nbytes == {
            "parameters": step * 2 * parameters,
            "gradients": step * 2 * parameters,
            "inputs": step * 2 * 3 * 6 * 4,
            "outputs": step * 2 * 3 * 4 * 4,
            "gradients of outputs": step * 2 * 3 * 4 * 4,
        }


def test_replicas_run_in_threads_of_one_process_with_other_parameters_each_step() -> None:
    seen: list[tuple[int, float]] = []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            BARRIER.wait(timeout=10)
            seen.append((threading.get_ident(), float(self.weight.detach())))
            return x * self.weight

        def __deepcopy__(self, memo: object) -> Watched:
            return Watched()

    BARRIER = threading.Barrier(2)  # noqa: N806
    parallel = ThreadedDataParallel(Watched(), replicas=2)
    parallel(torch.ones(2))
    with torch.no_grad():
        parallel.module.weight += 1
    parallel(torch.ones(2))
    assert len({thread for thread, _ in seen[:2]}) == 2
    assert [weight for _, weight in seen] == [1.0, 1.0, 2.0, 2.0]


def test_a_tied_weight_is_sent_for_each_of_its_names_and_its_gradients_add_up() -> None:
    def tied() -> nn.Module:
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        module[1].weight = module[0].weight
        return module

    plain, parallel = tied(), ThreadedDataParallel(tied(), replicas=2)
    batch = torch.randn(4, 4)
    plain(batch).sum().backward()
    parallel(batch).sum().backward()
    torch.testing.assert_close(parallel.module[0].weight.grad, plain[0].weight.grad)
    assert parallel.module[0].weight is parallel.module[1].weight


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU it replicates")
def test_torchs_own_calls_the_module_once_on_a_cpu() -> None:
    seen: list[tuple[int, int]] = []

    class Noting(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append((len(x), threading.get_ident()))
            return x

    parallel = nn.DataParallel(Noting())
    parallel(torch.ones(8, 2))
    assert parallel.device_ids == []
    assert seen == [(8, threading.get_ident())]


def test_replicas_in_a_python_loop_share_one_core() -> None:
    class Loop(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sum(i * i for i in range(500_000))
            return x

    parallel = ThreadedDataParallel(Loop(), replicas=2)
    begin = time.perf_counter(), time.process_time()
    parallel(torch.ones(2))
    passed, on_cpu = time.perf_counter() - begin[0], time.process_time() - begin[1]
    assert on_cpu < 1.3 * passed
