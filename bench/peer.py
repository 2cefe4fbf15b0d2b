"""What every contender's process shares: its arguments, its stopwatch and the line it prints."""

import argparse
import json
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from bench.figures import Series

OFFSET = 1.0


@dataclass(frozen=True)
class Order:
    """What a contender is told to do: how many ranks, how many counted calls."""

    ranks: int
    calls: int


def read_order() -> Order:
    """Read the order from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--calls", type=int, required=True)
    given = parser.parse_args()
    return Order(ranks=given.ranks, calls=given.calls)


def seconds(call: Callable[[], Any]) -> float:
    """Return how long one call takes on the caller's clock."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def free_port() -> int:
    """Return a TCP port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def report(*series: Series) -> None:
    """Print the one line that the bench reads: the last one on standard output."""
    print(json.dumps({"series": [asdict(one) for one in series]}), flush=True)
