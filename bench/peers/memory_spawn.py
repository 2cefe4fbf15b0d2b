"""Measure the memory of ranks from `torch.multiprocessing.spawn` after one DDP step."""

import os
import tempfile
from pathlib import Path

import torch.distributed as dist
import torch.multiprocessing as mp

from bench import jobs, peer
from bench.figures import SPAWN


def worker(rank: int, world_size: int, port: int, folder: str) -> None:
    """Set the group up, take one step and wait."""
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    jobs.step_and_wait(folder)
    dist.destroy_process_group()


def main() -> None:
    from bench.memory import measure_waiting_ranks

    order = peer.read_order()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (order.ranks, peer.free_port(), folder)
        context = mp.spawn(worker, args=arguments, nprocs=order.ranks, join=False)
        series = measure_waiting_ranks(Path(folder), contender=SPAWN, ranks=order.ranks)
        while not context.join():
            pass
    peer.report(*series)


if __name__ == "__main__":
    main()
