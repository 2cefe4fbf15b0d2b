"""Random models for DDP: described without torch, so that a prediction can be made from the description alone."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from lablib.sim.buckets import Parameter

ELEMENT = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Case:
    """Describe one model and how DDP wraps it.

    Args:
        parameters: in order of registration, with those that are frozen.
        frozen: names of parameters without a gradient.
        tied: names that are registered a second time, at the end.
        used: for each rank, the order in which forward uses parameters; tied ones twice.
        settings: arguments of DDP, by the names that `BucketSettings` has.
    """

    parameters: tuple[Parameter, ...]
    frozen: frozenset[str]
    tied: tuple[str, ...]
    used: tuple[tuple[str, ...], ...]
    settings: dict[str, Any]

    @property
    def trained(self):
        return [one for one in self.parameters if one.name not in self.frozen]

    def ready(self, rank):
        """Return the order in which gradients become ready: last used first; used twice, the first use counts."""
        return list(dict.fromkeys(self.used[rank]))[::-1]


def random_case(seed: int, world_size: int) -> Case:
    rng = random.Random(seed)
    default_caps = rng.random() < 0.3
    settings = random_settings(rng, default_caps)
    parameters = random_parameters(rng, most=200_000 if default_caps and seed % 4 == 0 else 2_000)
    chosen = rng.sample([one.name for one in parameters], rng.randint(1, len(parameters)))
    trained = [one for one in parameters if one.name in chosen or rng.random() < 0.7]
    # torch can do without a dense gradient, never without a sparse one
    spare = 0.2 if "find_unused_parameters" in settings or "static_graph" in settings else 0
    used = [one.name for one in trained if one.sparse or rng.random() >= spare] or [trained[0].name]
    tied = tuple(name for name in used if rng.random() < 0.1)
    orders = []
    for _ in range(world_size):
        order = [*used, *tied]
        if rng.random() < 0.7:
            rng.shuffle(order)
        orders.append(tuple(order))
    frozen = {one.name for one in parameters} - {one.name for one in trained}
    return Case(parameters, frozenset(frozen), tied, tuple(orders), settings)


def random_parameters(rng: random.Random, *, most: int) -> tuple[Parameter, ...]:
    """Return up to 24 parameters of up to `most` × 16 bytes, a few of them empty, a few sparse."""
    dtypes = rng.sample(list(ELEMENT), rng.choice([1, 1, 1, 2, 4]))
    sparse_ones = rng.choice([0, 0, 0, 0.2])
    drawn = []
    for place in range(rng.randint(1, 24)):
        sparse = rng.random() < sparse_ones
        rows = rng.randint(1, most) if sparse or rng.random() > 0.03 else 0
        dtype = "float32" if sparse else rng.choice(dtypes)  # gloo does not add sparse halves
        drawn.append(Parameter(f"layer{place}.weight", 4 * ELEMENT[dtype] * rows, dtype, sparse=sparse))
    return tuple(drawn)


def random_settings(rng: random.Random, default_caps: bool) -> dict[str, Any]:
    settings: dict[str, Any] = {
        name: True
        for name in ("find_unused_parameters", "static_graph", "gradient_as_bucket_view")
        if rng.random() < 0.25
    }
    if default_caps:
        settings["first_bucket_mb"] = rng.choice([1.0, 1.0, 0.002, 0.05, 30.0])
    elif rng.random() < 0.7:
        settings["bucket_cap_mb"] = rng.choice([0, 0.001, 0.02, 0.1, 1])
    else:
        settings["bucket_cap_mb_list"] = [rng.choice([0.001, 0.02, 0.1, 1]) for _ in range(rng.randint(1, 4))]
    return settings
