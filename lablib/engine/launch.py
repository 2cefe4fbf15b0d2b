"""The verbs a learner types: `run`, `Cluster`, `spawn`, `run_script`, `warm_up`.

    run(fn)          new ranks for one call          a group is ready, torchrun's environment
    Cluster(n).run   the same ranks call after call  the same
    spawn(fn)        new ranks for one call          plain environment, no group: torch.multiprocessing.spawn's call
    run_script       new ranks for one script        torchrun's environment, no group
"""

from __future__ import annotations

import contextlib
import functools
import math
import numbers
import operator
import os
import runpy
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lablib.engine import backend as backends
from lablib.engine import births, cargo, cores, diagnosis, listener, parent, values, whoami, wire
from lablib.engine.result import Run
from lablib.engine.team import Team
from lablib.errors import RunError, UsageError

_MAX_RANKS_VARIABLE = "LABLIB_MAX_RANKS"
_MAX_RANKS = 16
_MAX_TIMEOUT_S = 7 * 24 * 3600.0
_START = {"forkserver": "starting ranks (once, about 3 s)", "spawn": "starting ranks (some seconds for each)"}
_one_run = threading.Lock()


def warm_up() -> None:
    """Start this kernel's fork server in the background and return at once; the first run is then as fast as the rest."""
    whoami.refuse_inside_a_rank("warm_up")
    births.warm_up()


def run(
    fn: Callable[..., Any],
    *args: Any,
    world_size: int = 2,
    backend: str | None = None,
    device: str | None = None,
    timeout: float = 60.0,
    record: bool = False,
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
        record: bring a trace back.
        group: make the default process group; without it the ranks have the environment only.
        start_method: ``forkserver`` or ``spawn``; left out, the best this host has.

    Raises:
        UsageError: the call cannot work; nothing was started.
        RankFailed, RankLost, RunTimeout: it went wrong on the ranks; ``error.run`` has all that arrived.
    """
    options = _Options.checked("run", world_size, backend, device, timeout, start_method)
    cargo.check_callable(fn, "run")
    with _only_run("run"), _team(options) as team:
        return _call(team, options, fn, args, timeout_s=options.timeout_s, environment=_torchrun_like, group=group)


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
    options = _Options.checked("spawn", nprocs, None, None, timeout, start_method, name="nprocs")
    cargo.check_callable(fn, "spawn")
    if not join:
        raise UsageError("spawn waits for its processes, which never outlive the call; leave join out")
    if not isinstance(args, tuple | list):
        raise UsageError(f"args={args!r} is not a tuple; write args=({args!r},)")
    with _only_run("spawn"), _team(options) as team:
        return _call(
            team, options, fn, tuple(args), timeout_s=options.timeout_s, environment=_plain, group=False, rank_first=True
        )


def run_script(
    path: str | os.PathLike[str],
    args: Sequence[str] = (),
    *,
    world_size: int = 2,
    backend: str | None = None,
    device: str | None = None,
    timeout: float = 60.0,
    record: bool = False,
) -> Run:
    """Run a script on new ranks in torchrun's environment, as ``torchrun --standalone script args`` does.

    Args:
        path: the script; it makes its own process group.
        args: its command line.
        world_size, backend, device, timeout, record: as for `run`; the backend chosen here only decides the device.

    Raises:
        UsageError: there is no such script.
        RankFailed, RankLost, RunTimeout: it went wrong on the ranks.
    """
    options = _Options.checked("run_script", world_size, backend, device, timeout, None)
    script = Path(path).expanduser().absolute()
    if not script.is_file():
        raise UsageError(f"there is no script {script}")
    job = functools.partial(_run_as_main, str(script), [str(arg) for arg in args])
    with _only_run("run_script"), _team(options) as team:
        return _call(team, options, job, (), timeout_s=options.timeout_s, environment=_torchrun_like, group=False)


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

    A call that leaves a thread, a child process or a changed process group behind, or that fails, costs the ranks: the
    next call gets new ones, and nothing else is lost.

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
        self._options = _Options.checked("Cluster", world_size, backend, device, timeout, start_method)
        self._team: Team | None = Team(world_size, self._options.start_method)
        self._end = weakref.finalize(self, _close_team, self._team)
        self._closed = False

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return self._options.world_size

    def run(self, fn: Callable[..., Any], *args: Any, timeout: float | None = None, record: bool = False) -> Run:
        """Run ``fn(*args)`` on this cluster's ranks; see `run`.

        Args:
            fn, args, record: as for `run`.
            timeout: seconds; left out, the cluster's own.

        Raises:
            UsageError: the cluster is closed, or the call cannot work.
            RankFailed, RankLost, RunTimeout: it went wrong on the ranks; the next call works again.
        """
        whoami.refuse_inside_a_rank("Cluster.run")
        if self._closed:
            raise UsageError("this Cluster is closed; make a new one with Cluster(world_size)")
        cargo.check_callable(fn, "Cluster.run")
        timeout_s = self._options.timeout_s if timeout is None else _checked_timeout(timeout)
        with _only_run("Cluster.run"):
            team = self._intact_team()
            kept = False
            try:
                result, kept = _call_and_tell(team, self._options, fn, args, timeout_s=timeout_s)
            finally:
                if not kept:
                    _close_team(team, wait_s=1.0)
            return result

    def _intact_team(self) -> Team:
        if self._team is None or not self._team.intact:
            self._end()
            self._team = Team(self.world_size, self._options.start_method)
            self._end = weakref.finalize(self, _close_team, self._team)
        return self._team

    def close(self) -> None:
        """End the ranks; harmless when they are gone."""
        self._closed = True
        self._end()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Cluster({self.world_size} ranks{', closed' if self._closed else ''})"


@dataclass(frozen=True)
class _Options:
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
    ) -> _Options:
        whoami.refuse_inside_a_rank(verb)
        ranks = _checked_world_size(world_size, name)
        gpus = backends.count_gpus()
        choice = backends.choose(ranks, gpus=gpus, backend=backend, device=device)
        return cls(ranks, choice, gpus, _checked_timeout(timeout), births.check_start_method(start_method))


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


def _checked_timeout(timeout: object) -> float:
    if timeout is None:
        raise UsageError("timeout=None would let a deadlock hold this cell for ever; give seconds, such as timeout=600")
    if isinstance(timeout, bool) or not isinstance(timeout, numbers.Real):
        raise UsageError(f"timeout={timeout!r} is not a number of seconds")
    seconds = float(timeout)
    if math.isnan(seconds) or not 0 < seconds <= _MAX_TIMEOUT_S:
        raise UsageError(f"timeout={timeout!r} is not a positive number of seconds (a week at most)")
    return seconds


@contextlib.contextmanager
def _only_run(verb: str) -> Iterator[None]:
    if not _one_run.acquire(blocking=False):
        raise UsageError(f"{verb} was called while another run of this notebook goes on; wait for it, or stop it with ■")
    try:
        yield
    finally:
        _one_run.release()


@contextlib.contextmanager
def _team(options: _Options) -> Iterator[Team]:
    team = Team(options.world_size, options.start_method)
    wait_s = 1.0
    try:
        yield team
        wait_s = 0.0
    finally:
        _close_team(team, wait_s=wait_s)


def _close_team(team: Team, wait_s: float = 1.0) -> None:
    while True:
        try:
            return team.close(wait_s=wait_s)
        except KeyboardInterrupt:  # a second stop must not leave ranks behind
            continue


def _call(team: Team, options: _Options, fn: Callable[..., Any], args: tuple[Any, ...], **how: Any) -> Run:
    return _call_and_tell(team, options, fn, args, **how)[0]


def _call_and_tell(
    team: Team,
    options: _Options,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    *,
    timeout_s: float,
    environment: Callable[..., dict[str, str]] | None = None,
    group: bool = True,
    rank_first: bool = False,
) -> tuple[Run, bool]:
    """Return the run, and whether the team can take another job."""
    begun = time.perf_counter()
    frontend = listener.frontend
    told = frontend.listener()
    jobs = _jobs(team, options, fn, args, environment or _torchrun_like, group, rank_first, frontend.label_of)
    told.started(options.world_size, _about(options, group), _START[options.start_method])
    outcome = parent.conduct(team, jobs, told, timeout_s=timeout_s)
    evidence = _evidence(team, outcome)
    error: RunError | None = None if outcome.went_well else diagnosis.explain(evidence, timeout_s=outcome.timed_out)
    result = Run(
        values=[_value(one, progress) for one, progress in zip(evidence, outcome.progress, strict=True)],
        output=[member.output.text for member in team.members],
        backend=options.choice.backend if group else None,
        device=options.choice.device,
        reason=options.choice.reason,
        seconds=time.perf_counter() - begun,
        pids=[member.hello.pid if member.hello else 0 for member in team.members],
    )
    told.done(result)
    if error is not None:
        error.run = result
        raise error from _original(outcome, error.rank)
    return result, all(progress.done is not None and progress.done.reusable for progress in outcome.progress)


def _jobs(
    team: Team,
    options: _Options,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    environment: Callable[..., dict[str, str]],
    group: bool,
    rank_first: bool,
    label_of: Callable[[str], str],
) -> list[wire.Job]:
    parcels = [cargo.pack(fn, args, label_of=label_of)] * options.world_size
    if rank_first:
        parcels = [cargo.pack(fn, (rank, *args), label_of=label_of) for rank in range(options.world_size)]
    threads = max(1, cores.usable_cores() // options.world_size)
    shared = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    import_path = [path or os.getcwd() for path in sys.path]
    job_id = uuid.uuid4().hex
    jobs = []
    for rank, parcel in enumerate(parcels):
        device = options.choice.device_of(rank, gpus=options.gpus)
        own = environment(rank, options.world_size, team.port, job_id)
        surroundings = wire.Surroundings(
            environment={**shared, **own, "LABLIB_DEVICE": device},
            folder=os.getcwd(),
            import_path=import_path,
            threads=threads,
            backend=options.choice.backend if group else None,
            device=device,
            store=environment is _torchrun_like,
        )
        jobs.append(wire.Job(parcel, surroundings, record=False))
    return jobs


def _torchrun_like(rank: int, world_size: int, port: int, job_id: str) -> dict[str, str]:
    """Return what torchrun sets (torch/distributed/elastic/agent/server/local_elastic_agent.py), on one host."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "ROLE_RANK": str(rank),
        "ROLE_NAME": "default",
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "GROUP_WORLD_SIZE": "1",
        "ROLE_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": job_id,
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # plain init_process_group() joins the store that rank 0 serves
        **_loopback(),
    }


def _plain(rank: int, world_size: int, port: int, job_id: str) -> dict[str, str]:
    """Return what torch.multiprocessing.spawn sets: nothing of its own."""
    return _loopback()


def _loopback() -> dict[str, str]:
    return {"GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME") or ("lo0" if sys.platform == "darwin" else "lo")}


def _about(options: _Options, group: bool) -> str:
    made = options.choice.backend if group else "no group"
    return f"{options.world_size} ranks, {made} on {options.choice.device}: {options.choice.reason}"


def _evidence(team: Team, outcome: parent.Outcome) -> list[diagnosis.Evidence]:
    return [
        diagnosis.Evidence(
            rank=member.rank,
            state=progress.state,
            failure=progress.failure,
            ended="" if progress.state != "lost" else member.how_it_ended(),
            stack=outcome.stacks[member.rank] if outcome.stacks else (),
            calls=tuple(outcome.calls[member.rank]) if outcome.calls else (),
            output=member.output.text if outcome.stacks else "",
        )
        for member, progress in zip(team.members, outcome.progress, strict=True)
    ]


def _value(one: diagnosis.Evidence, progress: parent.Progress) -> Any:
    if progress.done is not None:
        return values.unpack(progress.done.payload)
    if progress.failure is not None:
        return values.NoValue(f"rank {one.rank} raised {progress.failure.kind}")
    return values.NoValue(f"rank {one.rank} {one.ended or 'did not return'}")


def _original(outcome: parent.Outcome, rank: int | None) -> BaseException | None:
    failure = outcome.progress[rank].failure if rank is not None else None
    if failure is None or failure.exception is None:
        return None
    try:
        original = values.unpack(failure.exception)
    except Exception:  # its class exists in the rank only; kind, message and traceback are in the error
        return None
    return original if isinstance(original, BaseException) else None
