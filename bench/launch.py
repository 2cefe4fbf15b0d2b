"""Measure, in one run and on the same job, how long ranks take to start and what they cost.

    python -m bench.launch                      everything: about 8 minutes on 2 cores
    python -m bench.launch --quick              one round: about 4 minutes
    python -m bench.launch --only fresh mp_spawn --json launch.json

The job: N ranks on one machine join a gloo group, all-reduce four numbers, and the caller receives what
every rank returned; wrong or missing results stop the measurement. Each contender runs in a process of its
own, used as its documentation says, and contenders take turns in every round, so that a slow minute of the
machine hits them all. The caller has imported torch before the clock starts. Each contender makes uncounted
calls first (their number stands in its file under bench/peers); what a notebook pays once, such as starting
the fork server, has a row of its own.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

if __package__ in (None, ""):  # started by its path: make the folder above importable
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import contenders, machine, report
from bench.figures import Series, judge, pool


@dataclass(frozen=True)
class Collected:
    """Hold what the processes brought back; `left_out`, `hung` and `failed` are lines for the reader."""

    series: list[Series]
    left_out: list[str]
    hung: list[str]
    failed: list[str]


def collect(plan: Sequence[contenders.Errand]) -> Collected:
    """Measure round by round and pool the samples of all rounds."""
    reasons = {errand: contenders.why_left_out(errand) for errand in plan}
    left_out = list(dict.fromkeys(f"{one.name} left out: {why}" for one, why in reasons.items() if why))
    for line in left_out:
        print(line, file=sys.stderr)
    result = Collected([], left_out, [], [])
    rounds = max((errand.rounds for errand in plan), default=0)
    for turn in range(rounds):
        for errand in (one for one in plan if reasons[one] is None and turn < one.rounds):
            start = time.monotonic()
            result.series.extend(_measure(errand, result))
            took = time.monotonic() - start
            print(f"round {turn + 1} of {rounds}: {errand.text} ({took:.0f} s)", file=sys.stderr)
    return replace(result, series=pool(result.series))


def _measure(errand: contenders.Errand, result: Collected) -> list[Series]:
    for attempt in range(errand.tries):
        try:
            return contenders.measure(errand)
        except contenders.ContenderHung as hang:
            lines = result.failed if attempt + 1 == errand.tries else result.hung
            lines.append(str(hang))
        except contenders.ContenderError as error:
            result.failed.append(str(error))
            break
        print(f"HUNG {errand.text}", file=sys.stderr)
    return []


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.launch",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="one round, fewer calls")
    parser.add_argument("--only", nargs="+", choices=contenders.NAMES, metavar="NAME", help=", ".join(contenders.NAMES))
    parser.add_argument("--ranks", nargs="+", type=int, choices=(4, 8), help="only these numbers of ranks")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write every sample there, too")
    parser.add_argument("--no-targets", action="store_true", help="do not judge; exit status 0 when a target is missed")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, and return 1 when a target is missed or a contender failed."""
    given = parse(argv)
    plan = [
        errand
        for errand in contenders.errands(quick=given.quick)
        if (not given.only or errand.name in given.only)
        and (not given.ranks or errand.ranks == 0 or errand.ranks in given.ranks)
    ]
    load_before = machine.load_average()
    found = collect(plan)
    here = machine.describe(load_before=load_before)
    verdicts = [] if given.no_targets else judge(found.series)
    notes = [*found.left_out, *(f"hung: {line}, tried again" for line in found.hung)]
    parts = [report.machine_lines(here), report.table(found.series), report.verdict_table(verdicts)]
    parts += ["\n".join([*notes, *(f"FAILED {line}" for line in found.failed)])]
    print("\n\n".join(part for part in parts if part))
    if given.json:
        content = report.as_json(found.series, verdicts, machine=here, notes=notes, failed=found.failed)
        given.json.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if found.failed or any(verdict.passed is False for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
