"""The sampler explorer: which samples does rank r see, twice, never?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import ipywidgets

from lablib.errors import UsageError
from lablib.sim.shards import Sharding, Shards, answers
from lablib.views import Badge
from lablib.views.shards import sketch
from lablib.widgets.frame import Explorer, Scene, Settings

MOST_SAMPLES = 5000
_ROWS = (
    ("samples", "world_size", "batch_size", "epochs"),
    ("shuffle", "seed", "seeds_differ", "set_epoch"),
    ("drop_last", "loader_drop_last", "right"),
)


def sampler_explorer(
    *,
    predict: Callable[[Sharding], Shards],
    run: Callable[..., Any] | None = None,
    job: Callable[..., Any] | None = None,
    theme: str | None = None,
) -> Explorer:
    """Return an explorer of DistributedSampler: who sees which samples, twice, never, and what that does to accuracy.

    Args:
        predict: says who sees what: ``lablib.training.sampling.shards``, which asks torch's own sampler.
        run: runs a function on real ranks: ``lablib.run``; left out, there is no button.
        job: what each rank does: ``lablib.training.sampling.load``.
        theme: ``light`` or ``dark``; see `views.frame.chosen_theme`.

    Raises:
        UsageError: run is given without job.
    """
    if run is not None and job is None:
        raise UsageError("give job=load too, after `from lablib.training.sampling import load`")

    def draw(settings: Settings, measured: Any) -> Scene:
        sharding = _sharding(settings)
        predicted = predict(sharding)
        right = answers(sharding.samples, share=settings["right"] / 100)
        shown: dict[str, Any] = {"right": right, "title": _title(sharding), "theme": theme}
        if measured is None:
            return Scene(lambda _: sketch(predicted, **shown))
        loaded = Shards.of(measured.values, samples=sharding.samples)
        badge = Badge.real(measured, note="beside the prediction")
        return Scene(lambda _: sketch(loaded, predicted=predicted, badge=badge, **shown))

    def measure(settings: Settings) -> Any:
        assert run is not None, "the button is there only with something to run"
        assert job is not None
        sharding = _sharding(settings)
        return run(partial(job, sharding), world_size=sharding.world_size)

    return Explorer(
        _knobs(), draw, adjust=_adjust, run=None if run is None else measure, only_drawn=("right",), rows=_ROWS
    )


def _knobs() -> dict[str, Any]:
    wide = {"layout": {"width": "250px"}, "style": {"description_width": "76px"}}
    narrow = {"layout": {"width": "150px"}, "style": {"description_width": "70px"}}

    def box(value: bool, words: str, width: int) -> Any:
        return ipywidgets.Checkbox(value, description=words, indent=False, layout={"width": f"{width}px"})

    return {
        "samples": ipywidgets.IntText(10, description="samples", **narrow),
        "world_size": ipywidgets.IntSlider(4, 1, 8, description="world size", **wide),
        "batch_size": ipywidgets.IntText(2, description="batch size", **narrow),
        "epochs": ipywidgets.IntSlider(2, 1, 4, description="epochs", **wide),
        "shuffle": box(True, "shuffle", 90),
        "seed": ipywidgets.IntText(0, description="seed", **narrow),
        "seeds_differ": box(False, "seed + rank on each rank", 220),
        "set_epoch": box(True, "set_epoch is called", 190),
        "drop_last": box(False, "drop_last of the sampler", 220),
        "loader_drop_last": box(False, "drop_last of the loader", 220),
        "right": ipywidgets.IntSlider(
            80,
            0,
            100,
            5,
            description="answers right, %",
            layout={"width": "320px"},
            style={"description_width": "116px"},
        ),
    }


def _adjust(knobs: Mapping[str, Any]) -> None:
    """Hide what only shuffling needs."""
    for name in ("seed", "seeds_differ", "set_epoch"):
        knobs[name].layout.display = None if knobs["shuffle"].value else "none"


def _sharding(settings: Settings) -> Sharding:
    if settings["samples"] > MOST_SAMPLES:
        raise UsageError(f"samples={settings['samples']}: more than {MOST_SAMPLES} are slow to draw; give fewer")
    seed, ranks = settings["seed"], range(settings["world_size"])
    return Sharding(
        seed=tuple(seed + rank for rank in ranks) if settings["seeds_differ"] else seed,
        **{
            name: settings[name]
            for name in (
                "samples",
                "world_size",
                "batch_size",
                "shuffle",
                "epochs",
                "set_epoch",
                "drop_last",
                "loader_drop_last",
            )
        },
    )


def _title(sharding: Sharding) -> str:
    """Return the calls that a learner would write."""
    seed = f", seed={sharding.seed if isinstance(sharding.seed, int) else f'{sharding.seed[0]} + rank'}"
    options = f"shuffle={sharding.shuffle}" + seed * sharding.shuffle + ", drop_last=True" * sharding.drop_last
    return f"DistributedSampler(data, {options})" + ", set_epoch(epoch)" * (sharding.shuffle and sharding.set_epoch)
