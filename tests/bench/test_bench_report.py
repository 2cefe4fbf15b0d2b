"""The table and the JSON of the bench, from made-up numbers."""

import json

import pytest

from bench.figures import OURS, SPAWN, Series, judge
from bench.machine import Machine, describe
from bench.report import amount, as_json, machine_lines, table, verdict_table

SERIES = [
    Series("import", OURS, 0, "s", (0.02,)),
    Series("fresh", SPAWN, 8, "s", (20.0,)),
    Series("fresh", OURS, 4, "s", (0.1, 0.125, 0.2)),
    Series("fresh", SPAWN, 4, "s", (12.5, 10.0, 11.0)),
]
MACHINE = Machine("Linux", 2, 1, "3.11.7", {"torch": "2.13.0", "ipyparallel": "not installed"}, (0.5, 0.25, 0.1), ())


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0036, "s", "3.6 ms"),
        (0.106, "s", "106 ms"),
        (0.9999, "s", "1 s"),
        (13.31, "s", "13.3 s"),
        (36.4, "MiB", "36 MiB"),
    ],
)
def test_amounts_are_readable(value, unit, text):
    assert amount(value, unit) == text


def test_table_orders_by_measure_and_ranks_and_compares_with_ours():
    lines = table(SERIES).splitlines()
    rows = [line.split() for line in lines]
    assert lines[0].startswith("Fresh ranks")
    assert rows[1] == ["ranks", "median", "least", "most", "samples"]
    assert rows[2] == [OURS, "4", "125", "ms", "100", "ms", "200", "ms", "3"]
    assert rows[3] == [SPAWN, "4", "11", "s", "10", "s", "12.5", "s", "3", "88", "×", "ours"]
    assert rows[4] == [SPAWN, "8", "20", "s", "20", "s", "20", "s", "1"], "nothing of ours to compare with"
    assert lines[-1].split() == [OURS, "20", "ms", "20", "ms", "20", "ms", "1"]


def test_verdicts_are_spelled_out():
    met, *_ = judge(SERIES)
    (missed, *_) = judge([*SERIES[1:3], Series("fresh", SPAWN, 4, "s", (5.0,))])
    lines = verdict_table([met, missed, judge([])[0]]).splitlines()
    assert lines[1].split()[-2:] == ["88", "met"]
    assert lines[2].split()[-2:] == ["40", "MISSED"]
    assert lines[3].endswith("not measured")
    assert verdict_table([]) == ""


def test_machine_says_cpus_versions_and_load():
    text = machine_lines(MACHINE)
    assert "2 CPUs, 1 of them usable" in text
    assert "torch 2.13.0, ipyparallel not installed" in text
    assert "0.50 0.25 0.10 before, unknown after" in text


def test_describe_counts_this_machine():
    here = describe(load_before=(1.0,))
    assert 1 <= here.usable_cpus <= here.cpus
    assert here.packages["torch"] != "not installed"
    assert here.load_before == (1.0,)


def test_json_keeps_every_sample_and_survives_a_round_trip():
    content = as_json(SERIES, judge(SERIES), machine=MACHINE, notes=["accelerate left out"], failed=["x: y"])
    read = json.loads(json.dumps(content))
    assert set(read) == {"machine", "series", "targets", "notes", "failed"}
    assert read["machine"]["cpus"] == 2
    assert read["series"][2] == {
        "measure": "fresh",
        "contender": OURS,
        "ranks": 4,
        "unit": "s",
        "samples": [0.1, 0.125, 0.2],
        "median": 0.125,
    }
    first, *others = read["targets"]
    assert (first["kind"], first["limit"], first["ratio"], first["passed"]) == ("faster", 80, 88.0, True)
    assert {one["passed"] for one in others} == {None}
    assert (read["notes"], read["failed"]) == (["accelerate left out"], ["x: y"])
