"""Measure ipyparallel: engines started once, then round trips through a direct view.

Its files go to a temporary folder instead of the user's profile. Five uncounted calls come before the series.
"""

import os
import tempfile

import ipyparallel as ipp

from bench import jobs, peer
from bench.figures import IPYPARALLEL, Series

WARM_UP_CALLS = 5


def join_group(rank: int, world_size: int, port: int) -> None:
    """Import torch and join the group; runs in an engine."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)


def measure(order: peer.Order) -> None:
    cluster = ipp.Cluster(n=order.ranks)
    try:
        clients = []
        start = peer.seconds(lambda: clients.append(cluster.start_and_connect_sync()))
        client = clients[0]
        view = client[:]
        port = peer.free_port()

        def join_all() -> None:
            pending = [
                client[engine].apply_async(join_group, rank, order.ranks, port)
                for rank, engine in enumerate(client.ids)
            ]
            for one in pending:
                one.get()

        def job() -> None:
            values = view.apply_sync(jobs.all_reduce, peer.OFFSET)
            jobs.check_all_reduce(values, world_size=order.ranks, offset=peer.OFFSET)

        group = peer.seconds(join_all)
        for _ in range(WARM_UP_CALLS):
            job()
            view.apply_sync(jobs.empty)
        warm = tuple(peer.seconds(job) for _ in range(order.calls))
        empty = tuple(peer.seconds(lambda: view.apply_sync(jobs.empty)) for _ in range(order.calls))
    finally:
        cluster.stop_cluster_sync()
    peer.report(
        Series("start of the warm ranks", IPYPARALLEL, order.ranks, "s", (start + group,)),
        Series("warm", IPYPARALLEL, order.ranks, "s", warm),
        Series("warm, empty call", IPYPARALLEL, order.ranks, "s", empty),
    )


def main() -> None:
    order = peer.read_order()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["IPYTHONDIR"] = folder
        measure(order)


if __name__ == "__main__":
    main()
