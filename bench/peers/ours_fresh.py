"""Measure `lablib.run`: new ranks for every call, forked after the call, no pause between calls.

The job travels by value, as a function from a notebook cell does. The uncounted first call waits for the fork
server; it is reported on its own, because a notebook pays it once.
"""

import cloudpickle

import lablib
from bench import jobs, peer
from bench.figures import OURS, Series


def call(ranks: int) -> None:
    """Run the job on new ranks and collect one value per rank."""
    result = lablib.run(jobs.all_reduce, peer.OFFSET, world_size=ranks, backend="gloo", device="cpu")
    jobs.check_all_reduce(list(result.values), world_size=ranks, offset=peer.OFFSET)


def main() -> None:
    order = peer.read_order()
    cloudpickle.register_pickle_by_value(jobs)
    first = peer.seconds(lambda: call(order.ranks))
    samples = tuple(peer.seconds(lambda: call(order.ranks)) for _ in range(order.calls))
    peer.report(
        Series("first fresh call, with the fork server's start", OURS, order.ranks, "s", (first,)),
        Series("fresh", OURS, order.ranks, "s", samples),
    )


if __name__ == "__main__":
    main()
