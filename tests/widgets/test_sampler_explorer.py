"""The sampler explorer, without a browser: what it predicts is what real loaders give."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

import lablib
from lablib.errors import UsageError
from lablib.sim.shards import Shards
from lablib.training.sampling import load, shards
from lablib.widgets import sampler, sampler_explorer


def pretend(job, *, world_size):
    """Be a run on ranks that are all in this process."""
    [sharding] = job.args
    values = [job.func(sharding, rank=rank) for rank in range(world_size)]
    return SimpleNamespace(values=values, backend="gloo", device="cpu", world_size=world_size)


def explorer_of(run=None, **knobs):
    explorer = sampler_explorer(predict=shards, run=run, job=load)
    turn(explorer, **knobs)
    assert explorer.error == ""
    return explorer


def turn(explorer, **knobs):
    for name, value in knobs.items():
        explorer.knobs[name].value = value


def words(explorer):
    return [word for one in explorer.figure.data if one.name.startswith("labels") for word in one.text]


def drawn(explorer, samples, epochs, world_size):
    """Read from the figure who sees what."""
    [cells] = [one for one in explorer.figure.data if one.name == "samples"]
    ranks = [[[] for _ in range(epochs)] for _ in range(world_size)]
    for slot in cells.meta["slots"]:
        if slot.count(" ") == 4:
            epoch, rank, batch, _, index = map(int, slot.split())
            batches = ranks[rank][epoch]
            if batch == len(batches):
                batches.append([])
            batches[batch].append(index)
    return Shards.of(ranks, samples=samples)


def any_knobs(random):
    """Return a position for every knob."""
    return {
        "samples": random.choice([random.randint(0, 12), random.randint(0, 100)]),
        "world_size": random.randint(1, 8),
        "batch_size": random.choice([1, 2, 3, random.randint(1, 40)]),
        "epochs": random.randint(1, 4),
        "shuffle": random.random() < 0.8,
        "seed": random.randrange(100),
        "seeds_differ": random.random() < 0.4,
        "set_epoch": random.random() < 0.6,
        "drop_last": random.random() < 0.4,
        "loader_drop_last": random.random() < 0.3,
        "right": random.randrange(0, 101, 5),
    }


def loaded(knobs):
    """Return what DataLoaders give that are written as in torch's documentation."""
    data = torch.arange(knobs["samples"])
    ranks = []
    for rank in range(knobs["world_size"]):
        own = DistributedSampler(
            data,
            knobs["world_size"],
            rank,
            shuffle=knobs["shuffle"],
            seed=knobs["seed"] + (rank if knobs["seeds_differ"] else 0),
            drop_last=knobs["drop_last"],
        )
        loader = DataLoader(data, knobs["batch_size"], sampler=own, drop_last=knobs["loader_drop_last"])
        ranks.append([])
        for epoch in range(knobs["epochs"]):
            if knobs["set_epoch"]:
                own.set_epoch(epoch)
            ranks[-1].append([batch.tolist() for batch in loader])
    return Shards.of(ranks, samples=knobs["samples"])


def test_the_table_equals_the_batches_of_real_loaders_in_500_random_settings():
    choose = random.Random(0)
    for _ in range(500):
        knobs = any_knobs(choose)
        assert shards(sampler._sharding(knobs)) == loaded(knobs), knobs


def test_what_is_drawn_equals_the_batches_of_real_loaders():
    choose, explorer, compared = random.Random(1), explorer_of(), 0
    for _ in range(15):
        knobs = {**any_knobs(choose), "samples": choose.randint(1, 40)}
        turn(explorer, **knobs)
        assert explorer.error == ""
        seen = drawn(explorer, knobs["samples"], knobs["epochs"], knobs["world_size"])
        if any(seen.lengths(epoch=0)):  # else batches are too long for cells
            assert seen == loaded(knobs), knobs
            compared += 1
    assert compared > 8


def test_every_knob_changes_the_picture():
    turns = {
        "samples": 11,
        "world_size": 3,
        "batch_size": 3,
        "epochs": 3,
        "shuffle": False,
        "seed": 1,
        "seeds_differ": True,
        "set_epoch": False,
        "drop_last": True,
        "loader_drop_last": True,
        "right": 50,
    }
    assert turns.keys() == explorer_of().knobs.keys()
    for name, value in turns.items():
        explorer = explorer_of()
        before = explorer.figure.to_json()
        turn(explorer, **{name: value})
        assert explorer.error == ""
        assert explorer.figure.to_json() != before, name


def test_without_set_epoch_both_epochs_are_the_same():
    explorer = explorer_of(set_epoch=False)
    table = drawn(explorer, 10, 2, 4)
    assert table.batches[0] == table.batches[1]
    turn(explorer, set_epoch=True)
    table = drawn(explorer, 10, 2, 4)
    assert table.batches[0] != table.batches[1]


def test_knobs_that_only_shuffling_needs_are_hidden():
    explorer = explorer_of()

    def hidden():
        return {name for name, knob in explorer.knobs.items() if knob.layout.display == "none"}

    assert hidden() == set()
    turn(explorer, shuffle=False)
    assert hidden() == {"seed", "seeds_differ", "set_epoch"}
    assert explorer.figure.layout.title.text == "<b>DistributedSampler(data, shuffle=False)</b>"
    turn(explorer, shuffle=True, seeds_differ=True, seed=3, drop_last=True)
    assert "shuffle=True, seed=3 + rank, drop_last=True), set_epoch(epoch)" in explorer.figure.layout.title.text


def test_padding_is_off_by_what_is_counted_twice():
    explorer = explorer_of(shuffle=False, epochs=1, right=80)
    table, right = shards(sampler._sharding(knobs_of(explorer))), sampler.answers(10, share=0.8)
    counted = sum(right[index] for rank in range(4) for index in table.indices(epoch=0, rank=rank))
    assert f"accuracy as counted {counted} of 12: {100 * counted / 12:.1f} %, exact 8 of 10: 80.0 %" in explorer.summary
    turn(explorer, samples=12)
    assert "exact" in words(explorer)


def knobs_of(explorer):
    return {name: knob.value for name, knob in explorer.knobs.items()}


def test_fewer_samples_than_ranks_with_drop_last_is_told_aloud():
    explorer = explorer_of(samples=3, world_size=8, drop_last=True)
    assert words(explorer).count("no batch") == 16
    assert (
        "0 batches a rank, 0 more than once, 3 never seen (0, 1, 2), accuracy as counted nothing counted"
        in explorer.summary
    )


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"samples": -1}, "samples=-1: give a whole number from 0 on"),
        ({"samples": 5001}, "samples=5001: more than 5000 are slow to draw; give fewer"),
        ({"batch_size": 0}, "batch_size=0: give a whole number from 1 on"),
        ({"seed": -1}, "seed=-1: give a whole number from 0"),
    ],
)
def test_bad_input_is_named_and_the_last_good_picture_stays(knobs, reason):
    explorer = explorer_of()
    before = explorer.summary
    turn(explorer, **knobs)
    assert reason in explorer.error
    assert explorer.summary == before
    turn(explorer, samples=0, batch_size=1, seed=0)
    assert explorer.error == ""
    assert "0 samples on 4 ranks" in explorer.summary


def test_a_run_is_laid_over_and_stays_while_only_accuracy_changes():
    explorer = explorer_of(pretend)
    explorer.run()
    assert explorer.error == ""
    assert explorer.summary.startswith("real · gloo · 4 ranks · cpu · beside the prediction")
    assert explorer.summary.endswith("measured: 16 batches, 0 not as predicted")
    turn(explorer, right=50)
    assert explorer.summary.startswith("real")
    turn(explorer, seed=2)
    assert explorer.summary.startswith("simulated")


def test_a_difference_is_marked():
    def wrong(job, *, world_size):
        run = pretend(job, world_size=world_size)
        run.values[2][1][0].reverse()
        return run

    explorer = explorer_of(wrong)
    explorer.run()
    assert "<b>1 batch not as predicted</b>" in words(explorer)
    assert explorer.summary.endswith("measured: 16 batches, 1 not as predicted")
    [crosses] = [one for one in explorer.figure.data if one.name == "not as predicted"]
    assert len(crosses.x) == 2


def test_a_run_needs_a_job():
    with pytest.raises(UsageError, match="give job=load too"):
        sampler_explorer(predict=shards, run=pretend)


@pytest.mark.slow
@pytest.mark.usefixtures("no_orphans")
@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"samples": 3, "world_size": 8, "drop_last": True},
        {"samples": 1000, "world_size": 3, "batch_size": 16, "seeds_differ": True, "epochs": 4},
        {"shuffle": False, "loader_drop_last": True, "world_size": 1},
    ],
)
def test_real_ranks_load_what_was_predicted(knobs):
    explorer = explorer_of(lablib.run, **knobs)
    explorer.run()
    assert explorer.error == ""
    assert explorer.summary.startswith("real · gloo")
    assert explorer.summary.endswith(" 0 not as predicted")
    assert explorer.measured.world_size == explorer.knobs["world_size"].value
