"""Measure `lablib.Cluster`: ranks kept alive between calls.

The jobs travel by value, as functions from a notebook cell do. The start includes the fork server's. Five
uncounted calls come before the series.
"""

import cloudpickle

import lablib
from bench import jobs, peer
from bench.figures import OURS, Series

WARM_UP_CALLS = 5


def main() -> None:
    order = peer.read_order()
    cloudpickle.register_pickle_by_value(jobs)
    clusters: list[lablib.Cluster] = []

    def start_ranks() -> None:
        clusters.append(lablib.Cluster(order.ranks, backend="gloo", device="cpu"))
        clusters[0].run(jobs.empty)

    def job() -> None:
        values = list(clusters[0].run(jobs.all_reduce, peer.OFFSET).values)
        jobs.check_all_reduce(values, world_size=order.ranks, offset=peer.OFFSET)

    start = peer.seconds(start_ranks)
    with clusters[0] as cluster:
        for _ in range(WARM_UP_CALLS):
            job()
            cluster.run(jobs.empty)
        warm = tuple(peer.seconds(job) for _ in range(order.calls))
        empty = tuple(peer.seconds(lambda: cluster.run(jobs.empty)) for _ in range(order.calls))
    peer.report(
        Series("start of the warm ranks", OURS, order.ranks, "s", (start,)),
        Series("warm", OURS, order.ranks, "s", warm),
        Series("warm, empty call", OURS, order.ranks, "s", empty),
    )


if __name__ == "__main__":
    main()
