"""What lab 00's checks run on the ranks: a learner's function, watched."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


class SetupProblem(Exception):
    """End a learner's set-up on all ranks, before one of them waits for half an hour."""


def try_setup(setup: Callable[[], object]) -> float:
    """Be one rank: watch what `setup` asks for, and add up in the group it makes."""
    import torch
    import torch.distributed as dist

    told = dict(os.environ)
    made = []
    make_group = dist.init_process_group
    signature = inspect.signature(make_group)

    def watched(*args: Any, **kwargs: Any) -> None:
        if problem := _problem(told, signature.bind(*args, **kwargs).arguments):
            raise SetupProblem(problem)
        make_group(*args, **kwargs)
        made.append(True)

    dist.init_process_group = watched
    try:
        setup()
    finally:
        dist.init_process_group = make_group
    if not dist.is_initialized():
        raise SetupProblem(
            "the group is gone again: destroy_process_group belongs to the end of the job"
            if made
            else "no group was made: every rank must call dist.init_process_group"
        )
    total = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(total)
    dist.destroy_process_group()
    return total.item()


def _problem(told: Mapping[str, str], asked: Mapping[str, Any]) -> str:
    for name in ("MASTER_PORT", "MASTER_ADDR"):
        if os.environ.get(name) != told[name]:
            return f"{name} is overwritten: the launcher's store is where the launcher said, and nowhere else"
    meet = asked.get("init_method") or "env://"
    if meet.startswith("tcp://") and not meet.endswith(f":{told['MASTER_PORT']}"):
        return "init_method names a port of its own, and the launcher's store is on the one in MASTER_PORT"
    for name in ("rank", "world_size"):
        if isinstance(asked.get(name), str):
            return f'{name} is a text, as everything in the environment: write int(os.environ["{name.upper()}"])'
        if asked.get(name, -1) not in (-1, int(told[name.upper()])):
            return f"{name} is not what the launcher said in {name.upper()}: a fixed one is wrong somewhere"
    return ""


@dataclass(frozen=True)
class Sums:
    """Hold what one rank returned, and the ranks of each group that it made together with all others."""

    value: Any
    groups: tuple[Any, ...]


def try_sums(two_sums: Callable[[], object]) -> Sums:
    """Be one rank: run `two_sums` and note the groups it makes."""
    import torch.distributed as dist

    new_group = dist.new_group
    signature = inspect.signature(new_group)
    groups: list[Any] = []

    def noted(*args: Any, **kwargs: Any) -> Any:
        asked = signature.bind(*args, **kwargs).arguments
        if not asked.get("use_local_synchronization"):
            ranks = asked.get("ranks")
            groups.append("all" if ranks is None else tuple(sorted(ranks)))
        return new_group(*args, **kwargs)

    dist.new_group = noted
    try:
        return Sums(two_sums(), tuple(groups))
    finally:
        dist.new_group = new_group
