"""What a call asks for, checked before anything is started."""

from __future__ import annotations

import math
import numbers
import operator
import os
from dataclasses import dataclass

from lablib.engine import backend as backends
from lablib.engine import births, whoami
from lablib.errors import UsageError
from lablib.links import Link

_MAX_RANKS_VARIABLE = "LABLIB_MAX_RANKS"
_MAX_RANKS = 16
_MAX_TIMEOUT_S = 7 * 24 * 3600.0


@dataclass(frozen=True)
class Options:
    """The options of a call, all of which this host can give."""

    world_size: int
    choice: backends.Choice
    gpus: int
    timeout_s: float
    start_method: str

    @classmethod
    def checked(
        cls,
        verb: str,
        world_size: object,
        backend: str | None,
        device: str | None,
        timeout: object,
        start_method: str | None,
        *,
        name: str = "world_size",
    ) -> Options:
        """Return the options of a call of ``verb``.

        Raises:
            UsageError: an option is wrong; ``name`` is what the verb calls its number of ranks.
        """
        whoami.refuse_inside_a_rank(verb)
        ranks = _checked_world_size(world_size, name)
        gpus = backends.count_gpus()
        choice = backends.choose(ranks, gpus=gpus, backend=backend, device=device)
        return cls(ranks, choice, gpus, checked_timeout(timeout), births.check_start_method(start_method))


def _checked_world_size(world_size: object, name: str) -> int:
    if isinstance(world_size, bool) or not isinstance(world_size, numbers.Integral):
        hint = f"; write {name}={world_size}" if isinstance(world_size, str) and world_size.strip().isdigit() else ""
        raise UsageError(f"{name}={world_size!r} is not a whole number of ranks{hint}")
    ranks = operator.index(world_size)  # numpy's integers too
    if ranks < 1:
        raise UsageError(f"{name}={ranks} ranks cannot run anything; use 1 or more")
    limit = _max_ranks()
    if ranks > limit:
        raise UsageError(
            f"{name}={ranks} is above this host's maximum of {limit} ranks; "
            f"use fewer, or set the environment variable {_MAX_RANKS_VARIABLE}"
        )
    return ranks


def _max_ranks() -> int:
    text = os.environ.get(_MAX_RANKS_VARIABLE, str(_MAX_RANKS))
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"the environment variable {_MAX_RANKS_VARIABLE}={text!r} is not a number of ranks, such as 8")
    return int(text)


def checked_timeout(timeout: object) -> float:
    """Return a timeout in seconds.

    Raises:
        UsageError: it is not a positive number of seconds, or would let a deadlock last for ever.
    """
    if timeout is None:
        raise UsageError("timeout=None would let a deadlock hold this cell for ever; give seconds, such as timeout=600")
    if isinstance(timeout, bool) or not isinstance(timeout, numbers.Real):
        raise UsageError(f"timeout={timeout!r} is not a number of seconds")
    seconds = float(timeout)
    if math.isnan(seconds) or not 0 < seconds <= _MAX_TIMEOUT_S:
        raise UsageError(f"timeout={timeout!r} is not a positive number of seconds (a week at most)")
    return seconds


@dataclass(frozen=True)
class Extras:
    """What a call asks for beside its function.

    Args:
        record: keep a trace.
        memory: keep what is in memory, too.
        link: the network that the ranks shall see; None for the real one.
    """

    record: bool = False
    memory: bool = False
    link: Link | None = None

    @classmethod
    def checked(cls, record: object, memory: object, link: object, *, device: str) -> Extras:
        """Return the extras of a call.

        Raises:
            UsageError: they are no such thing, or this device cannot have them.
        """
        for name, value in (("record", record), ("memory", memory)):
            if not isinstance(value, bool):
                raise UsageError(f"{name}={value!r} is neither True nor False")
        if link is not None and not isinstance(link, Link):
            raise UsageError(f"link={link!r} is not a lablib.Link, such as Link(latency_ms=1, bandwidth_mib_s=100)")
        if link is not None and device != "cpu":
            raise UsageError("link= emulates a network between ranks on the CPU only; add device='cpu', backend='gloo'")
        return cls(bool(record or memory), bool(memory), link)


NO_EXTRAS = Extras()
