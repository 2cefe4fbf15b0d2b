"""Measure `torch.multiprocessing.spawn` as PyTorch's tutorials use it.

The function comes from a module, since one defined in a notebook cell cannot be found by the new processes.
Nothing stays warm between two calls; the uncounted first call has two ranks and fills the file cache.
"""

import os

import torch.distributed as dist
import torch.multiprocessing as mp

from bench import jobs, peer
from bench.figures import SPAWN, Series


def worker(rank: int, world_size: int, port: int, results: "mp.SimpleQueue[tuple[int, list[float]]]") -> None:
    """Set the group up, do the job, send the result back."""
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    results.put((rank, jobs.all_reduce(peer.OFFSET)))
    dist.destroy_process_group()


def call(ranks: int) -> None:
    """Run the job on new ranks and collect one value per rank."""
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(worker, args=(ranks, peer.free_port(), results), nprocs=ranks)
    values = dict(results.get() for _ in range(ranks))
    jobs.check_all_reduce([values[rank] for rank in range(ranks)], world_size=ranks, offset=peer.OFFSET)


def main() -> None:
    order = peer.read_order()
    call(2)
    samples = tuple(peer.seconds(lambda: call(order.ranks)) for _ in range(order.calls))
    peer.report(Series("fresh", SPAWN, order.ranks, "s", samples))


if __name__ == "__main__":
    main()
