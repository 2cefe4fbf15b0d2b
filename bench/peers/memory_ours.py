"""Measure the memory of `lablib.run`'s ranks and fork server after one DDP step."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloudpickle

import lablib
from bench import jobs, peer
from bench.figures import OURS
from bench.memory import READY_LIMIT_S, measure_waiting_ranks


def main() -> None:
    order = peer.read_order()
    cloudpickle.register_pickle_by_value(jobs)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as reader:
        reading = reader.submit(measure_waiting_ranks, Path(folder), contender=OURS, ranks=order.ranks)
        lablib.run(
            jobs.step_and_wait,
            folder,
            world_size=order.ranks,
            backend="gloo",
            device="cpu",
            timeout=READY_LIMIT_S,
        )
        series = reading.result()
    peer.report(*series)


if __name__ == "__main__":
    main()
