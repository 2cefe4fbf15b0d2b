"""Measure how fast the collectives explorer answers: a knob's new figure, and a real run laid over it.

    python -m bench.explorer     about 20 seconds

A knob's time is what a real Jupyter kernel does before it can take the next message: prediction, view, change of the
figure, messages to the browser.
"""

import json
import statistics
import sys
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from jupyter_client.manager import start_new_kernel

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


def turn_all() -> list[float]:
    """Return the seconds of every turn."""
    explorer = collectives_explorer()
    return [turn(explorer, name, value) for name, value in islice(turns(), TURNS)]


def turn_all_in_a_kernel() -> list[float]:
    """Return the same, measured in a Jupyter kernel of its own."""
    manager, client = start_new_kernel(cwd=str(Path(__file__).resolve().parents[1]))
    try:
        said: list[str] = []
        reply = client.execute_interactive(
            "import json, bench.explorer; print(json.dumps(bench.explorer.turn_all()))",
            timeout=120,
            output_hook=lambda message: said.append(message["content"].get("text", "")),
        )
        if reply["content"]["status"] != "ok":
            raise RuntimeError("\n".join(reply["content"]["traceback"]))
        seconds: list[float] = json.loads("".join(said))
        return seconds
    finally:
        manager.shutdown_kernel(now=True)


def main() -> int:
    """Print both figures; return 1 when a limit is missed."""
    seconds = turn_all_in_a_kernel()
    median = statistics.median(seconds)
    print(f"knob to new figure: median of {TURNS} {median * 1e3:.0f} ms, slowest {max(seconds) * 1e3:.0f} ms")
    missed = median > MOST_KNOB_S

    explorer = collectives_explorer(run=lablib.run, job=measure)
    turn(explorer, "op", "all_reduce")
    lablib.run(int, world_size=2)  # the first run of a kernel waits for the fork server
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
