"""Measure how fast explorers answer: a knob's new figure, and a real run laid over it.

    python -m bench.explorer     about half a minute

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
from lablib.widgets import Explorer, bucket_explorer, collectives_explorer, memory_explorer

TURNS = 50
MOST_KNOB_S = {"collectives": 0.050, "buckets": 0.100, "memory": 0.100}
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


def bucket_turns() -> Iterator[tuple[str, Any]]:
    """Yield sliders of the bucket explorer, round and round; every turn changes the figure."""
    for backward_ms in cycle((5.0, 12.0, 30.0)):
        yield from [
            ("backward_ms", backward_ms),
            ("speed", 50),
            ("latency_ms", 4.0),
            ("speed", 200),
            ("latency_ms", 1.0),
        ]


def memory_turns() -> Iterator[tuple[str, Any]]:
    """Yield knobs of the memory explorer, round and round; every turn changes the figure."""
    for stage in cycle(("zero2", "fsdp2", "zero3", "ddp")):
        yield from [("stage", stage), ("batch", 64), ("rank", 3), ("batch", 16), ("rank", 0)]


def turn_all() -> dict[str, list[float]]:
    """Return the seconds of every turn of every explorer.

    The buckets are 25 on each of 8 ranks; the memory is that of a transformer with 12 blocks on 8 ranks.
    """
    buckets = bucket_explorer()
    for name, value in {"world_size": 8, "layers": 25, "cap": 1}.items():
        buckets.knobs[name].value = value
    memory = memory_explorer()
    for name, value in {"model": "transformer", "layers": 12, "world_size": 8}.items():
        memory.knobs[name].value = value
    todo = {
        "collectives": (collectives_explorer(), turns()),
        "buckets": (buckets, bucket_turns()),
        "memory": (memory, memory_turns()),
    }
    return {
        kind: [turn(explorer, name, value) for name, value in islice(some, TURNS)]
        for kind, (explorer, some) in todo.items()
    }


def turn_all_in_a_kernel() -> dict[str, list[float]]:
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
        seconds: dict[str, list[float]] = json.loads("".join(said))
        return seconds
    finally:
        manager.shutdown_kernel(now=True)


def main() -> int:
    """Print both figures; return 1 when a limit is missed."""
    missed = False
    for kind, seconds in turn_all_in_a_kernel().items():
        median, limit = statistics.median(seconds), MOST_KNOB_S[kind]
        missed = missed or median > limit
        print(
            f"{kind}: knob to new figure, median of {TURNS} {median * 1e3:.0f} ms (limit {limit * 1e3:.0f} ms), "
            f"slowest {max(seconds) * 1e3:.0f} ms"
        )

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
    print(f"limits, of a run 5 times its own seconds + 500 ms: {'MISSED' if missed else 'kept'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
