"""Measure accelerate's `notebook_launcher`, which forks the calling process.

Two jobs take turns: one makes the group with `Accelerator()`, as accelerate's guide does, the other with
plain `init_process_group`, which is quicker and does exactly what the other contenders do; targets are judged
by that one. The launcher returns nothing, so the ranks put their results in a queue. The caller uses torch
for nothing else: once its torch has started threads, forked ranks hang. Even so a call hangs now and then on
a busy machine: the launcher's own store has a thread, and a rank forked while that thread holds a lock of the
C library waits for the lock for good. One uncounted call of each comes first.
"""

import multiprocessing
from collections.abc import Callable
from functools import partial

import torch.distributed as dist
from accelerate import Accelerator, notebook_launcher

from bench import jobs, peer
from bench.figures import ACCELERATE, Series

Results = "multiprocessing.SimpleQueue[tuple[int, list[float]]]"


def with_accelerator(results: Results) -> None:
    """Set the group up through `Accelerator`, do the job, send the result back."""
    Accelerator(cpu=True)
    _do_the_job(results)


def with_plain_group(results: Results) -> None:
    """Set the group up from the environment, do the job, send the result back."""
    dist.init_process_group("gloo")
    _do_the_job(results)


def _do_the_job(results: Results) -> None:
    results.put((dist.get_rank(), jobs.all_reduce(peer.OFFSET)))
    dist.destroy_process_group()


def call(worker: Callable[[Results], None], ranks: int) -> None:
    """Run the job on new ranks and collect one value per rank."""
    results = multiprocessing.get_context("fork").SimpleQueue()
    notebook_launcher(worker, args=(results,), num_processes=ranks, use_port=str(peer.free_port()))
    values = dict(results.get() for _ in range(ranks))
    jobs.check_all_reduce([values[rank] for rank in range(ranks)], world_size=ranks, offset=peer.OFFSET)


def main() -> None:
    order = peer.read_order()
    names = {with_plain_group: ACCELERATE, with_accelerator: f"{ACCELERATE} with Accelerator()"}
    samples: dict[str, list[float]] = {name: [] for name in names.values()}
    for turn in range(order.calls + 1):
        for worker, name in names.items():
            seconds = peer.seconds(partial(call, worker, order.ranks))
            if turn > 0:
                samples[name].append(seconds)
    peer.report(*(Series("fresh", name, order.ranks, "s", tuple(taken)) for name, taken in samples.items()))


if __name__ == "__main__":
    main()
