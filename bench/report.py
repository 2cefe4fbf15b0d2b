"""Write the measurements as a table and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bench.figures import OURS, Key, Series, Verdict
from bench.machine import Machine

TITLES = {
    "fresh": "Fresh ranks: start them, one all_reduce, results back in the caller",
    "warm": "Warm ranks: one all_reduce, results back in the caller",
    "warm, empty call": "Warm ranks: an empty call",
    "start of the warm ranks": "Start of the warm ranks, torch and group included (once)",
    "first fresh call, with the fork server's start": "First fresh call, with the fork server's start (once)",
    "memory": "Memory after one DDP step: (PSS of ranks and helper processes) / ranks",
    "memory, a rank alone": "Memory after one DDP step: PSS of each rank",
    "memory, helper processes": "Memory after one DDP step: PSS of fork server and resource tracker",
    "import": "Import in a fresh interpreter",
}


def amount(value: float, unit: str) -> str:
    """Write a value with three digits in a unit that a person reads: s, ms or MiB."""
    if unit == "s":
        return f"{value * 1000:.3g} ms" if value < 0.9995 else f"{value:.3g} s"
    return f"{value:.0f} {unit}"


def compared(one: Series, ours: Series | None) -> str:
    """Say how a contender's median stands to ours: `12 × ours`, or nothing for ours itself."""
    if ours is None or one.contender == OURS or ours.median == 0:
        return ""
    return f"{one.median / ours.median:.3g} × ours"


def table(series: Sequence[Series]) -> str:
    """Return one block per measure, with median, least, most and number of samples."""
    by_key = {one.key: one for one in series}
    measures = sorted({one.measure for one in series}, key=_place)
    blocks = []
    for measure in measures:
        rows = [("", "ranks", "median", "least", "most", "samples", "")]
        for one in sorted((one for one in series if one.measure == measure), key=lambda one: one.ranks):
            spread = (amount(value, one.unit) for value in (one.median, min(one.samples), max(one.samples)))
            ours = by_key.get(Key(measure, OURS, one.ranks))
            ranks = str(one.ranks) if one.ranks else ""
            rows.append((one.contender, ranks, *spread, str(len(one.samples)), compared(one, ours)))
        blocks.append(f"{TITLES.get(measure, measure)}\n{_columns(rows)}")
    return "\n\n".join(blocks)


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    """Return one line per target: what was promised, what was measured, and `met` or `MISSED`."""
    if not verdicts:
        return ""
    words = {True: "met", False: "MISSED", None: "not measured"}
    rows = [("Targets (ratios of medians)", "measured", "")]
    for verdict in verdicts:
        ratio = "" if verdict.ratio is None else f"{verdict.ratio:.3g}"
        rows.append((verdict.target.text, ratio, words[verdict.passed]))
    return _columns(rows)


def machine_lines(machine: Machine) -> str:
    """Return the machine, the versions and the load in a few lines."""
    versions = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
    before, after = (" ".join(f"{load:.2f}" for load in loads) for loads in (machine.load_before, machine.load_after))
    return (
        f"{machine.system}, Python {machine.python}\n"
        f"{machine.cpus} CPUs, {machine.usable_cpus} of them usable\n"
        f"{versions}\n"
        f"load average (1, 5, 15 min): {before or 'unknown'} before, {after or 'unknown'} after"
    )


def as_json(
    series: Sequence[Series],
    verdicts: Sequence[Verdict],
    *,
    machine: Machine,
    notes: Sequence[str],
    failed: Sequence[str],
) -> dict[str, Any]:
    """Return everything that was measured, with every sample, ready for `json.dump`."""
    return {
        "machine": asdict(machine),
        "series": [{**asdict(one), "median": one.median} for one in series],
        "targets": [
            {
                "text": verdict.target.text,
                "kind": verdict.target.kind,
                "limit": verdict.target.limit,
                "ratio": verdict.ratio,
                "passed": verdict.passed,
            }
            for verdict in verdicts
        ],
        "notes": list(notes),
        "failed": list(failed),
    }


def _place(measure: str) -> tuple[int, str]:
    known = list(TITLES)
    return (known.index(measure) if measure in known else len(known), measure)


def _columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Line the columns up: the first to the left, the last as it is, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        middle = [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)]
        lines.append("  ".join(["  " + row[0].ljust(widths[0]), *middle, row[-1]]).rstrip())
    return "\n".join(lines)
