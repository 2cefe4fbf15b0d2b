"""How the bench runs contenders: real processes, made-up contenders."""

import dataclasses
import json

import pytest

from bench import contenders, launch
from bench.contenders import (
    ROOT,
    ContenderError,
    ContenderHung,
    Errand,
    errands,
    measure,
    read_line,
    why_left_out,
)
from bench.figures import ACCELERATE, OURS, SPAWN, TARGETS, Series
from bench.jobs import check_all_reduce

OURS_4 = Series("fresh", OURS, 4, "s", (0.1,))
SLOW_SPAWN_4 = Series("fresh", SPAWN, 4, "s", (10.0,))
QUICK_SPAWN_4 = Series("fresh", SPAWN, 4, "s", (1.0,))


def errand(**changes) -> Errand:
    return dataclasses.replace(Errand("fresh", "ours_fresh", (), 4, 1, 1), **changes)


def test_the_last_line_is_the_result():
    line = json.dumps({"series": [dataclasses.asdict(OURS_4)]})
    assert read_line(f"Launching training on 4 CPUs.\n{line}\n", of="accelerate") == [OURS_4]


@pytest.mark.parametrize("output", ["", "Killed\n", "[1, 2]\n", '{"other": 1}\n'])
def test_no_result_is_an_error_that_shows_the_output(output):
    with pytest.raises(ContenderError, match="accelerate: the last line is no result") as failure:
        read_line(output, of="accelerate")
    assert output.strip() in str(failure.value)


def test_every_errand_has_its_file_and_every_target_is_measured_even_when_quick():
    for quick in (True, False):
        plan = errands(quick=quick)
        for one in plan:
            assert (ROOT / "bench" / "peers" / f"{one.module}.py").is_file()
            assert one.calls >= 1 and one.rounds >= 1
        planned = {(one.module, one.ranks) for one in plan}
        modules = {
            ("fresh", OURS): "ours_fresh",
            ("fresh", SPAWN): "mp_spawn",
            ("fresh", ACCELERATE): "accelerate_fork",
            ("warm", OURS): "ours_warm",
            ("warm", "ipyparallel"): "ipyparallel_warm",
            ("memory", OURS): "memory_ours",
            ("memory", SPAWN): "memory_spawn",
            ("import", OURS): "import_time",
            ("import", "torch"): "import_time",
        }
        for side in (key for target in TARGETS for key in (target.ours, target.theirs)):
            assert (modules[side.measure, side.contender], side.ranks) in planned


def test_a_missing_package_is_said():
    assert why_left_out(errand()) is None
    assert "no_such_package is not installed" in why_left_out(errand(needs=("json", "no_such_package")))


def test_a_contender_that_fails_shows_why():
    with pytest.raises(ContenderError, match=r"fresh, 4 ranks: exit status 1") as failure:
        measure(errand(module="no_such_contender"))
    assert "no_such_contender" in str(failure.value)


def test_a_contender_that_hangs_is_ended():
    with pytest.raises(ContenderHung, match=r"no result within 0 s"):
        measure(errand(module="mp_spawn", limit_s=0.2))


@pytest.mark.parametrize("values", [[], [[7.0] * 4], [[7.0] * 4, [8.0] * 4]])
def test_a_wrong_or_missing_value_stops_the_measurement(values):
    with pytest.raises(SystemExit, match="wrong result with 2 ranks"):
        check_all_reduce(values, world_size=2, offset=1.0)


def test_right_values_pass():
    check_all_reduce([[3.0] * 4, [3.0] * 4], world_size=2, offset=1.0)


@pytest.fixture
def contender_says(monkeypatch):
    """Let the named contenders answer with series or raise instead of running."""

    def answer_with(answers):
        queue = {name: list(replies) for name, replies in answers.items()}

        def fake(one):
            reply = queue[one.name].pop(0)
            if isinstance(reply, Exception):
                raise reply
            return reply

        monkeypatch.setattr(contenders, "measure", fake)
        monkeypatch.setattr(contenders, "why_left_out", {}.get)

    return answer_with


BOTH = ["--quick", "--ranks", "4", "--only", "fresh", "mp_spawn"]


def test_exit_status_says_whether_a_target_was_missed(contender_says, capsys, tmp_path):
    contender_says({"fresh": [[OURS_4]], "mp_spawn": [[SLOW_SPAWN_4]]})
    assert launch.main([*BOTH, "--json", str(tmp_path / "out.json")]) == 0
    assert "met" in capsys.readouterr().out
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["targets"][0]["ratio"] == 100

    contender_says({"fresh": [[OURS_4]], "mp_spawn": [[QUICK_SPAWN_4]]})
    assert launch.main(BOTH) == 1
    assert "MISSED" in capsys.readouterr().out

    contender_says({"fresh": [[OURS_4]], "mp_spawn": [[QUICK_SPAWN_4]]})
    assert launch.main([*BOTH, "--no-targets"]) == 0
    assert "MISSED" not in capsys.readouterr().out


def test_a_failed_contender_is_told_and_does_not_cost_the_others(contender_says, capsys):
    contender_says({"fresh": [[OURS_4]], "mp_spawn": [ContenderError("mp_spawn, 4 ranks: exit status 1")]})
    assert launch.main(BOTH) == 1
    out = capsys.readouterr().out
    assert "FAILED mp_spawn, 4 ranks: exit status 1" in out and "100 ms" in out


def test_a_peer_that_hangs_once_is_tried_again_and_told(contender_says, capsys):
    contender_says({"fresh": [[OURS_4]], "mp_spawn": [ContenderHung("mp_spawn: no result"), [SLOW_SPAWN_4]]})
    assert launch.main(BOTH) == 0
    assert "hung: mp_spawn: no result, tried again" in capsys.readouterr().out


def test_a_hang_of_ours_is_a_failure_at_once(contender_says, capsys):
    contender_says({"fresh": [ContenderHung("fresh: no result")], "mp_spawn": [[SLOW_SPAWN_4]]})
    assert launch.main(BOTH) == 1
    assert "FAILED fresh: no result" in capsys.readouterr().out


def test_left_out_contenders_are_named(monkeypatch, capsys):
    plan = errands(quick=True)
    reasons = dict.fromkeys(plan, "accelerate is not installed")
    monkeypatch.setattr(contenders, "why_left_out", reasons.get)
    assert launch.main(["--quick", "--only", "accelerate"]) == 0
    assert capsys.readouterr().out.count("accelerate left out: accelerate is not installed") == 1


def test_names_that_do_not_exist_are_refused(capsys):
    with pytest.raises(SystemExit):
        launch.parse(["--only", "fresk"])
    assert "fresk" in capsys.readouterr().err
