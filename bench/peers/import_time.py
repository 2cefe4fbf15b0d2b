"""Measure `import lablib` beside `import torch`, in turn, each in a fresh interpreter.

One uncounted pair comes first, so that byte code and file cache are there for both.
"""

import subprocess
import sys

from bench import peer
from bench.figures import OURS, TORCH, Series

STOPWATCH = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def import_seconds(module: str) -> float:
    """Return how long the import statement takes in a fresh interpreter."""
    command = [sys.executable, "-c", STOPWATCH.format(module)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    order = peer.read_order()
    pairs = [(import_seconds("lablib"), import_seconds("torch")) for _ in range(order.calls + 1)][1:]
    ours, torch = zip(*pairs, strict=True)
    peer.report(Series("import", OURS, 0, "s", ours), Series("import", TORCH, 0, "s", torch))


if __name__ == "__main__":
    main()
