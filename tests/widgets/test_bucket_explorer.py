"""The bucket explorer, without a browser: what it predicts, what it runs, and that real buckets are as predicted."""

from __future__ import annotations

import pytest

import lablib
from lablib.analysis import buckets as table_of
from lablib.errors import UsageError
from lablib.sim.buckets import predict_buckets
from lablib.sim.ddp import simulate
from lablib.training import arithmetic, emulate
from lablib.widgets import bucket_explorer, buckets

SMALL = {"layers": 3, "mib": 0.25, "backward_ms": 1.0, "latency_ms": 0.0, "speed": 1000}


def pretend(job, *, world_size, record, link=None):
    """Be a run that measures what is simulated."""
    assert record
    settings = {name: value for name, value in job.keywords.items() if name != "steps"}
    trace = simulate(job.args[0], world_size=world_size, link=link, iterations=range(job.keywords["steps"]), **settings)

    class Run:
        pass

    Run.trace = trace
    return Run


def explorer_of(run=None, **knobs):
    explorer = bucket_explorer(run=run, emulate=emulate.train, compute=arithmetic.train)
    for name, value in knobs.items():
        explorer.knobs[name].value = value
    assert explorer.error == ""
    return explorer


def bars(explorer, name):
    (found,) = [one for one in explorer.figure.data if one.name == name]
    return list(found.meta["slots"])


@pytest.mark.parametrize("iteration", range(3))
@pytest.mark.parametrize(
    ("knobs", "settings"),
    [
        ({}, {}),
        ({"cap": 1}, {"bucket_cap_mb": 1}),
        ({"first_cap": 0.5}, {"bucket_cap_mb_list": [0.5, 25]}),
        ({"first_cap": 2, "cap": 4}, {"bucket_cap_mb_list": [2, 4]}),
        ({"static_graph": True}, {"static_graph": True}),
        ({"find_unused": True}, {"find_unused_parameters": True}),
        ({"shape": "growing", "cap": 2}, {"bucket_cap_mb": 2}),
    ],
)
def test_the_picture_has_the_buckets_of_these_settings(iteration, knobs, settings):
    explorer = explorer_of(iteration=iteration, **knobs)
    plan = buckets._plan({name: knob.value for name, knob in explorer.knobs.items()})
    wanted = predict_buckets(plan.parameters, iteration=iteration, ready_order=plan.ready_order, **settings)
    assert bars(explorer, "filling") == [f"{rank} {one.index}" for rank in range(2) for one in wanted]
    assert f"iteration {iteration}, {len(wanted)} bucket" in explorer.summary
    assert explorer.summary.startswith("simulated · no backend · 2 ranks")


def test_every_knob_changes_the_picture():
    turns = {
        "iteration": 0,
        "world_size": 4,
        "cap": 2,
        "first_cap": 2,
        "static_graph": True,
        "find_unused": True,
        "layers": 5,
        "mib": 2.0,
        "shape": "first is biggest",
        "backward_ms": 10.0,
        "speed": 20,
        "latency_ms": 10.0,
    }
    assert turns.keys() == explorer_of().knobs.keys()
    for name, value in turns.items():
        explorer = explorer_of()
        before = explorer.figure.to_json()
        explorer.knobs[name].value = value
        assert explorer.error == ""
        assert explorer.figure.to_json() != before, name


def test_a_static_graph_looks_for_no_unused_parameters():
    explorer = explorer_of(find_unused=True)
    explorer.knobs["static_graph"].value = True
    assert explorer.knobs["find_unused"].disabled
    assert not explorer.knobs["find_unused"].value


def test_a_run_is_laid_over_the_prediction_and_stays_for_all_iterations():
    explorer = explorer_of(pretend, cap=2)
    explorer.run()
    assert explorer.error == ""
    for iteration in (0, 1, 2):
        explorer.knobs["iteration"].value = iteration
        assert "outline: predicted" in explorer.summary
        assert bars(explorer, "filling") == bars(explorer, "filling, beside") != []
    explorer.knobs["cap"].value = 4
    assert bars(explorer, "filling, beside") == []
    assert "outline" not in explorer.summary
    explorer.knobs["cap"].value = 2
    assert "outline: predicted" in explorer.summary


def test_a_run_needs_what_it_runs():
    with pytest.raises(UsageError, match="give emulate= and compute= too"):
        bucket_explorer(run=pretend)


@pytest.mark.slow
@pytest.mark.usefixtures("no_orphans")
def test_real_ranks_have_the_predicted_buckets_emulated_and_real():
    explorer = explorer_of(lablib.run, **SMALL, cap=0.5)
    explorer.run()
    assert explorer.error == ""
    assert explorer.summary.startswith("emulated · gloo · 2 ranks · cpu")
    plan = buckets._plan({name: knob.value for name, knob in explorer.knobs.items()})
    assert (explorer.measured.emulated.truth, explorer.measured.real.truth) == ("emulated", "real")
    for trace in (explorer.measured.emulated, explorer.measured.real):
        for iteration in range(3):
            wanted = [
                (one.index, one.parameters, one.nbytes)
                for one in predict_buckets(
                    plan.parameters, iteration=iteration, ready_order=plan.ready_order, bucket_cap_mb=0.5
                )
            ]
            rows = table_of(trace, iteration=iteration).rows
            for rank in range(2):
                found = [(row.bucket, row.parameters, row.nbytes) for row in rows if row.rank == rank]
                assert found == wanted
