"""Measure how fast the collectives explorer answers: a knob's new figure, and a real run laid over it.

    python -m bench.explorer     about 20 seconds

A knob's time is what the kernel does before it can take the next message: prediction, view, change of the figure.
"""

import statistics
import sys
import time
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

import lablib
from lablib.sim import OPERATIONS
from lablib.training.collectives import measure
from lablib.widgets import Explorer, collectives_explorer

TURNS = 50
MOST_KNOB_S = 0.050
RUNS = 5


def turns() -> Iterator[tuple[str, Any]]:
    """Yield what a learner might turn, round and round; every turn changes the figure."""
    sizes = cycle((8, 4, 2, 6, 3, 7, 5))
    for op in cycle(OPERATIONS):
        yield from [("op", op), ("world_size", next(sizes)), ("step", 0), ("elements", 1), ("step", 1), ("elements", 4)]


def turn(explorer: Explorer, name: str, value: Any) -> float:
    """Turn a knob and return the seconds it took."""
    knob = explorer.step if name == "step" else explorer.knobs[name]
    begun = time.perf_counter()
    knob.value = value
    return time.perf_counter() - begun


def main() -> int:
    """Print both figures; return 1 when a limit is missed."""
    lablib.warm_up()
    explorer = collectives_explorer(run=lablib.run, job=measure)
    seconds = [turn(explorer, name, value) for name, value in islice(turns(), TURNS)]
    median = statistics.median(seconds)
    print(f"knob to new figure: median of {TURNS} {median * 1e3:.0f} ms, slowest {max(seconds) * 1e3:.0f} ms")
    missed = median > MOST_KNOB_S

    turn(explorer, "op", "all_reduce")
    lablib.run(print, world_size=2)  # the first run of a kernel waits for the fork server
    for world_size in (2, 4, 8):
        turn(explorer, "world_size", world_size)
        for _ in range(RUNS):
            begun = time.perf_counter()
            explorer.run()
            waited, own = time.perf_counter() - begun, explorer.measured.seconds
            missed = missed or waited > 5 * own + 0.5
        print(f"run to overlay, {world_size} ranks: {waited * 1e3:.0f} ms, of which the run itself {own * 1e3:.0f} ms")
    print(f"limits: {MOST_KNOB_S * 1e3:.0f} ms, and 5 times the run itself + 500 ms: {'MISSED' if missed else 'kept'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
