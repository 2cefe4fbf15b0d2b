"""Measure what recording costs: a DDP step, and a collective of one element.

    python -m bench.record             about 3 minutes
    python -m bench.record --quick     a fifth of the steps

The same two ranks take a step plainly, recorded, and under torch.profiler in turn; a ratio is that of neighbours, so
that a slow minute of the machine hits both. A step's time is the mean over the ranks, and its first step of each turn,
in which hooks are put in, is not counted.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence

import numpy as np

import lablib
from bench.steps import CALLS, calls, step

STEPS = 200
MOST_RATIO = 1.05
CALL_TURNS = 100
MOST_CALL_US = 50.0


def ratios(cluster: lablib.Cluster, steps: int) -> tuple[list[float], list[float]]:
    """Return recorded and profiled steps, each divided by the plain one beside it."""
    recorded, profiled = [], []
    for turn in range(steps):
        order = ("plain", "recorded", "profiled")
        times = {}
        for how in order if turn % 2 else reversed(order):
            run = cluster.run(step, how == "profiled", record=how == "recorded")
            times[how] = statistics.mean(run.values)
        recorded.append(times["recorded"] / times["plain"])
        profiled.append(times["profiled"] / times["plain"])
    return recorded, profiled


def extras(cluster: lablib.Cluster, turns: int) -> tuple[float, list[float]]:
    """Return the microseconds of a plain call, and how many more each turn of recorded ones took than its neighbour."""
    plain, more = [], []
    for turn in range(turns):
        first, second = (statistics.mean(cluster.run(calls, record=bool(turn % 2) ^ late)) for late in (False, True))
        before, after = (second, first) if turn % 2 else (first, second)
        plain.append(before)
        more.append(after - before)
    return statistics.median(plain), more


def interval(samples: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median, by bootstrap."""
    drawn = np.random.default_rng(0).choice(np.asarray(samples), size=(4000, len(samples)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return float(low), float(high)


def main(argv: Sequence[str] | None = None) -> int:
    """Print both figures; return 1 when a limit is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.record", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the steps")
    steps = STEPS // 5 if parser.parse_args(argv).quick else STEPS
    with lablib.Cluster(2) as cluster:
        recorded, profiled = ratios(cluster, steps)
        plain, more = extras(cluster, CALL_TURNS)
    for name, samples in (("recorded", recorded), ("torch.profiler", profiled)):
        low, high = interval(samples)
        middle = statistics.median(samples)
        print(f"DDP step, {name} against plain: {middle:.3f} (95 %: {low:.3f} to {high:.3f}), {steps} pairs")
    low, high = interval(more)
    print(
        f"all_reduce of 1 element: {plain:.0f} µs plain, {statistics.median(more):.0f} µs more when recorded "
        f"(95 %: {low:.0f} to {high:.0f}), {CALLS} calls × {CALL_TURNS}"
    )
    missed = statistics.median(recorded) > MOST_RATIO or statistics.median(more) > MOST_CALL_US
    print(f"limits: ratio {MOST_RATIO}, {MOST_CALL_US:.0f} µs a collective: {'MISSED' if missed else 'kept'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
