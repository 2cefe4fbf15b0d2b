"""The verbs a learner types: `run`, `Cluster`, `spawn`, `run_script`, `warm_up`.

run(fn)          new ranks for one call          a group is ready, torchrun's environment
Cluster(n).run   the same ranks call after call  the same
spawn(fn)        new ranks for one call          plain environment, no group: torch.multiprocessing.spawn's call
run_script       new ranks for one script        torchrun's environment, no group
"""

from __future__ import annotations

import functools
import os
import runpy
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lablib.engine import births, cargo, forking, whoami
from lablib.engine import surroundings as around
from lablib.engine.call import Call, carry_out, on_new_ranks, only_run, prepare
from lablib.engine.options import Extras, Options, checked_timeout
from lablib.engine.result import Run
from lablib.engine.stop import StopButton
from lablib.engine.team import Team
from lablib.errors import UsageError
from lablib.links import Link


def warm_up(*, training: bool = True) -> None:
    """Start this kernel's fork server in the background and return at once; the first run is then as fast as any.

    Args:
        training: make ready for DDP and optimizers, too, whose constructors import ``torch._dynamo``. With False the
            first run is ready a second or two sooner, and this follows when there was no rank for five seconds. It is
            decided when the server starts; a later call changes nothing.
    """
    whoami.refuse_inside_a_rank("warm_up")
    births.warm_up(training=training)


def run(
    fn: Callable[..., Any],
    *args: Any,
    world_size: int = 2,
    backend: str | None = None,
    device: str | None = None,
    timeout: float = 60.0,
    record: bool = False,
    memory: bool = False,
    link: Link | None = None,
    group: bool = True,
    start_method: str | None = None,
) -> Run:
    """Run ``fn(*args)`` on new ranks and return what every rank brought back.

    In each rank the process group is ready and the environment is torchrun's.

    Args:
        fn: any function, also one from a notebook cell; give it keyword arguments with ``functools.partial``.
        world_size: number of ranks, from 1 to LABLIB_MAX_RANKS (16 unless set).
        backend: ``nccl`` or ``gloo``; left out, NCCL where each rank can have a GPU of its own, gloo otherwise.
        device: ``cuda`` or ``cpu``; left out, what the backend needs.
        timeout: seconds from the moment when every rank has begun ``fn``.
        record: keep what happens on the ranks as the run's ``trace``.
        memory: keep what is in each rank's memory in the trace as well, by category. Every operator is looked at, so
            that steps take several times as long; build model, DDP and optimizer in ``fn`` to have all of it counted.
        link: let the ranks see a slower network; on the CPU only.
        group: make the default process group; without it the ranks have the environment only.
        start_method: ``forkserver`` or ``spawn``; left out, the best this host has.

    Raises:
        UsageError: the call cannot work; nothing was started.
        RankFailed, RankLost, RunTimeout: it went wrong on the ranks; ``error.run`` has all that arrived.
    """
    options = Options.checked("run", world_size, backend, device, timeout, start_method)
    cargo.check_callable(fn, "run")
    extras = Extras.checked(record, memory, link, device=options.choice.device)
    return on_new_ranks("run", options, fn, args, group=group, extras=extras)


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str | None = None,
    *,
    timeout: float = 60.0,
) -> Run:
    """Run ``fn(rank, *args)`` on ``nprocs`` new processes, with the call of ``torch.multiprocessing.spawn``.

    Code written for that function works unchanged, from a notebook cell too: no group is made and no variable is set.

    Args:
        fn: is called with the rank first.
        args: what follows the rank.
        nprocs: number of processes.
        join: must be True, since ranks never outlive the call.
        daemon: changes nothing, since ranks never outlive the call.
        start_method: ``forkserver`` or ``spawn``; left out, the best this host has.
        timeout: seconds.

    Raises:
        UsageError: the call cannot work; nothing was started.
        RankFailed, RankLost, RunTimeout: it went wrong in the processes.
    """
    options = Options.checked("spawn", nprocs, None, None, timeout, start_method, name="nprocs")
    cargo.check_callable(fn, "spawn")
    if not join:
        raise UsageError("spawn waits for its processes, which never outlive the call; leave join out")
    if not isinstance(args, tuple | list):
        raise UsageError(f"args={args!r} is not a tuple; write args=({args!r},)")
    how: dict[str, Any] = {"variables": around.none_of_its_own, "group": False, "rank_first": True}
    return on_new_ranks("spawn", options, fn, tuple(args), **how)


def run_script(
    path: str | os.PathLike[str],
    args: Sequence[str] = (),
    *,
    world_size: int = 2,
    backend: str | None = None,
    device: str | None = None,
    timeout: float = 60.0,
    record: bool = False,
    memory: bool = False,
    link: Link | None = None,
) -> Run:
    """Run a script on new ranks in torchrun's environment, as ``torchrun --standalone script args`` does.

    Args:
        path: the script; it makes its own process group.
        args: its command line.
        world_size, timeout, record, memory, link: as for `run`.
        backend, device: as for `run`; the backend chosen here only decides the device.

    Raises:
        UsageError: there is no such script.
        RankFailed, RankLost, RunTimeout: it went wrong on the ranks.
    """
    options = Options.checked("run_script", world_size, backend, device, timeout, None)
    extras = Extras.checked(record, memory, link, device=options.choice.device)
    script = Path(path).expanduser().absolute()
    if not script.is_file():
        raise UsageError(f"there is no script {script}")
    job = functools.partial(_run_as_main, str(script), [str(arg) for arg in args])
    return on_new_ranks("run_script", options, job, (), group=False, extras=extras)


def _run_as_main(script: str, args: list[str]) -> None:
    sys.argv = [script, *args]
    sys.path.insert(0, str(Path(script).parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise


class Cluster:
    """Keep ranks warm between calls.

    A call that leaves a thread, a child process, a message that nobody waited for or a changed process group behind, or
    that fails, costs the ranks: the next call gets new ones, and nothing else is lost.

    Args:
        world_size, backend, device, timeout, start_method: as for `run`.

    Raises:
        UsageError: as for `run`.
    """

    def __init__(
        self,
        world_size: int = 2,
        *,
        backend: str | None = None,
        device: str | None = None,
        timeout: float = 60.0,
        start_method: str | None = None,
    ) -> None:
        self._options = Options.checked("Cluster", world_size, backend, device, timeout, start_method)
        self._closed = False
        self._end: Callable[[], object] = bool  # nothing to end yet
        with StopButton():
            self._renew()

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return self._options.world_size

    def run(
        self,
        fn: Callable[..., Any],
        *args: Any,
        timeout: float | None = None,
        record: bool = False,
        memory: bool = False,
        link: Link | None = None,
    ) -> Run:
        """Run ``fn(*args)`` on this cluster's ranks; see `run`.

        Args:
            fn, args: as for `run`.
            timeout: seconds; left out, the cluster's own.
            record, memory, link: as for `run`.

        Raises:
            UsageError: the cluster is closed, or the call cannot work.
            RankFailed, RankLost, RunTimeout: it went wrong on the ranks; the next call works again.
        """
        whoami.refuse_inside_a_rank("Cluster.run")
        if self._closed:
            raise UsageError("this Cluster is closed; make a new one with Cluster(world_size)")
        cargo.check_callable(fn, "Cluster.run")
        timeout_s = None if timeout is None else checked_timeout(timeout)
        extras = Extras.checked(record, memory, link, device=self._options.choice.device)
        begun = time.perf_counter()
        with StopButton() as stop, only_run("Cluster.run"):
            call = prepare(self._options, fn, args, timeout_s=timeout_s, extras=extras)
            if not self._team.intact:
                self._renew()
            try:
                return self._carry_out(call, stop, begun)
            except forking.ServerDied:
                self._renew()
                return self._carry_out(call, stop, begun)

    def _carry_out(self, call: Call, stop: StopButton, begun: float) -> Run:
        reusable = False
        try:
            run, reusable = carry_out(call, self._team, stop, begun=begun)
        finally:
            if not reusable:
                self._team.close()
        return run

    def _renew(self) -> None:
        self._end()
        self._team = Team(self.world_size, self._options.start_method)
        self._end = weakref.finalize(self, self._team.close)

    def close(self) -> None:
        """End the ranks; harmless when they are gone."""
        self._closed = True
        with StopButton():
            self._end()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Cluster({self.world_size} ranks{', closed' if self._closed else ''})"
