"""One call on ranks: packed before anything starts, carried out on a team, told as a `Run` or an error.

prepare ──► Call ──► carry_out(team) ──► Run
                         └─► RunError, with a Run of everything that arrived
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from lablib.engine import cargo, diagnosis, forking, listener, parent, surroundings, values, wire
from lablib.engine.options import NO_EXTRAS, Extras, Options
from lablib.engine.result import Run
from lablib.engine.stop import StopButton
from lablib.engine.team import Team
from lablib.errors import RankFailed, UsageError
from lablib.trace.spans import Trace

_START = {"forkserver": "starting ranks (once, about 3 s)", "spawn": "starting ranks (some seconds for each)"}
_one_run = threading.Lock()


@dataclass(frozen=True)
class Call:
    """A call that is ready to go.

    Args:
        options: what was asked for.
        parcels: the function and its arguments, one for each rank.
        variables: the environment variables of each rank.
        group: the default process group is made.
        timeout_s: seconds from the moment when every rank has begun the function.
        extras: recording, and the network.
    """

    options: Options
    parcels: list[cargo.Parcel]
    variables: surroundings.Variables
    group: bool
    timeout_s: float
    extras: Extras

    def jobs(self, port: int) -> list[wire.Job]:
        """Return the job of each rank."""
        around = surroundings.of_each_rank(self.options, port=port, variables=self.variables, group=self.group)
        return [
            wire.Job(parcel, own, self.extras.record, self.extras.memory, self.extras.link)
            for parcel, own in zip(self.parcels, around, strict=True)
        ]

    @property
    def about(self) -> str:
        """Return backend, device and the reason for them in words."""
        made = self.options.choice.backend if self.group else "no group"
        return f"{self.options.world_size} ranks, {made} on {self.options.choice.device}: {self.options.choice.reason}"


def prepare(
    options: Options,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    *,
    variables: surroundings.Variables = surroundings.torchruns,
    group: bool = True,
    rank_first: bool = False,
    timeout_s: float | None = None,
    extras: Extras = NO_EXTRAS,
) -> Call:
    """Pack a function for the ranks.

    Raises:
        UsageError: it, or something it uses, cannot travel.
    """
    label_of = listener.frontend.label_of
    if rank_first:
        parcels = [cargo.pack(fn, (rank, *args), label_of=label_of) for rank in range(options.world_size)]
    else:
        parcels = [cargo.pack(fn, args, label_of=label_of)] * options.world_size
    return Call(options, parcels, variables, group, options.timeout_s if timeout_s is None else timeout_s, extras)


def on_new_ranks(verb: str, options: Options, fn: Callable[..., Any], args: tuple[Any, ...], **how: Any) -> Run:
    """Carry a call out on ranks that begin after it and are gone when it is over; ``how`` is as for `prepare`."""
    begun = time.perf_counter()
    with StopButton() as stop, only_run(verb):
        call = prepare(options, fn, args, **how)
        try:
            with new_team(options) as team:
                return carry_out(call, team, stop, begun=begun)[0]
        except forking.ServerDied:
            with new_team(options) as team:
                return carry_out(call, team, stop, begun=begun)[0]


@contextlib.contextmanager
def new_team(options: Options) -> Iterator[Team]:
    """Have ranks for the length of a block; after an error wait until they are gone."""
    team = Team(options.world_size, options.start_method)
    try:
        yield team
    except BaseException:
        team.close()
        raise
    team.close(wait_s=0)


@contextlib.contextmanager
def only_run(verb: str) -> Iterator[None]:
    """Be the one run of this process for the length of a block; enter it inside a StopButton's block.

    Raises:
        UsageError: another one goes on, in whatever thread.
    """
    if not _one_run.acquire(blocking=False):
        raise UsageError(
            f"{verb} was called while another run of this notebook goes on; "
            "wait for it: it ends at its timeout at the latest"
        )
    try:
        yield
    finally:
        _one_run.release()


def carry_out(call: Call, team: Team, stop: StopButton, *, begun: float) -> tuple[Run, bool]:
    """Carry a call out on a team; return the run, and whether the team can take another.

    Args:
        call, team, stop: what, where, and what may end it.
        begun: the moment on ``time.perf_counter`` from which the run's seconds count.

    Raises:
        RankFailed, RankLost, RunTimeout: it went wrong on the ranks.
        KeyboardInterrupt: stop was pressed.
    """
    told = listener.frontend.listener()
    start = _START[call.options.start_method]
    warm = call.options.start_method == "forkserver" and forking.is_warm()
    told.started(call.options.world_size, call.about, "" if warm else start)
    if call.extras.link is not None:
        team.free_cards()
    outcome = parent.conduct(team, call.jobs(team.port), told, stop, timeout_s=call.timeout_s)
    evidence = _evidence(team, outcome)
    with stop.at_once():  # what a learner's class does when it is rebuilt may take any time
        found, unreadable = _values(evidence, outcome)
    run = Run(
        values=found,
        output=[member.output.text for member in team.members],
        backend=call.options.choice.backend if call.group else None,
        device=call.options.choice.device,
        reason=call.options.choice.reason,
        seconds=time.perf_counter() - begun,
        pids=[member.hello.pid if member.hello else 0 for member in team.members],
        trace=_trace(call, outcome) if call.extras.record else None,
    )
    told.done(run)
    if outcome.interrupted:
        raise _interrupt(evidence)
    if not outcome.went_well:
        error = diagnosis.explain(evidence, timeout_s=outcome.timed_out)
        error.run = run
        raise error from _original(outcome, error.rank)
    if unreadable is not None:
        unreadable.run = run
        raise unreadable
    return run, all(progress.done is not None and progress.done.reusable for progress in outcome.progress)


def _trace(call: Call, outcome: parent.Outcome) -> Trace:
    """Return what all ranks recorded that could still tell."""
    reports = [progress.done or progress.failure for progress in outcome.progress]
    recorded = [report.recorded for report in reports if report is not None]
    return Trace.of_spans(
        (span for one in recorded for span in one.spans),
        world_size=call.options.world_size,
        truth="emulated" if any(one.emulated for one in recorded) else "real",
        backend=call.options.choice.backend if call.group else None,
        device=call.options.choice.device,
        wall_offset_ns=time.time_ns() - time.perf_counter_ns(),
        memory=(sample for one in recorded for sample in one.memory),
    )


def _evidence(team: Team, outcome: parent.Outcome) -> list[diagnosis.Evidence]:
    return [
        diagnosis.Evidence(
            rank=member.rank,
            state=progress.state,
            failure=progress.failure,
            ended=member.how_it_ended() if progress.state == "lost" else "",
            stack=outcome.stacks[member.rank] if outcome.stacks else (),
            calls=tuple(outcome.calls[member.rank]) if outcome.calls else (),
            output=member.output.text if outcome.stacks else "",
        )
        for member, progress in zip(team.members, outcome.progress, strict=True)
    ]


def _interrupt(evidence: list[diagnosis.Evidence]) -> KeyboardInterrupt:
    lines = ["stopped, and the ranks are ended", *diagnosis.doing(evidence)]
    interrupt = KeyboardInterrupt("\n".join(lines))
    # IPython shows this in place of the launcher's frames
    interrupt._render_traceback_ = lambda: [f"KeyboardInterrupt: {interrupt}"]  # type: ignore[attr-defined]
    return interrupt


def _values(evidence: list[diagnosis.Evidence], outcome: parent.Outcome) -> tuple[list[Any], RankFailed | None]:
    """Return each rank's value, and the error for the first one that cannot be rebuilt here."""
    found: list[Any] = []
    error: RankFailed | None = None
    for one, progress in zip(evidence, outcome.progress, strict=True):
        if progress.done is None:
            how = f"raised {progress.failure.kind}" if progress.failure else one.ended or "did not return"
            found.append(values.NoValue(f"rank {one.rank} {how}"))
            continue
        try:
            found.append(values.unpack(progress.done.payload))
        except Exception as reason:
            story = f"rank {one.rank} returned a value that this notebook cannot rebuild"
            found.append(values.NoValue(story))
            error = error or RankFailed(f"{story}: {type(reason).__name__}: {reason}", rank=one.rank)
    return found, error


def _original(outcome: parent.Outcome, rank: int | None) -> BaseException | None:
    failure = outcome.progress[rank].failure if rank is not None else None
    if failure is None or failure.exception is None:
        return None
    try:
        original = values.unpack(failure.exception)
    except Exception:  # its class exists in the rank only; kind, message and traceback are in the error
        return None
    return original if isinstance(original, BaseException) else None
