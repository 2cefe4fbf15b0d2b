"""List the contenders, what each needs, and how often each is measured."""

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Series

ROOT = Path(__file__).resolve().parents[1]
SMAPS_ROLLUP = Path("/proc/self/smaps_rollup")


@dataclass(frozen=True)
class Errand:
    """Measure one contender in one process: `calls` counted calls, repeated in each of `rounds` rounds."""

    name: str
    module: str
    needs: tuple[str, ...]
    ranks: int
    calls: int
    rounds: int
    limit_s: float = 300.0

    @property
    def tries(self) -> int:
        """One for ours: a hang is our defect. Others get a second one, so that it does not cost the run."""
        return 1 if "lablib" in self.needs else 2

    @property
    def text(self) -> str:
        return f"{self.name}, {self.ranks} ranks" if self.ranks else self.name


def errands(*, quick: bool) -> list[Errand]:
    """Return everything to measure, in the order of a round.

    Args:
        quick: one round, fewer calls, and only what a target asks for.
    """
    rounds = 1 if quick else 3
    plan = []
    for ranks in (4, 8):
        plan += [
            Errand("fresh", "ours_fresh", ("lablib",), ranks, 20, rounds),
            Errand("accelerate", "accelerate_fork", ("accelerate",), ranks, 6 if quick else 10, rounds, 60),
            Errand("mp_spawn", "mp_spawn", (), ranks, 1, rounds),
        ]
    for ranks in (4,) if quick else (4, 8):
        calls = 50 if quick else 100
        plan += [
            Errand("warm", "ours_warm", ("lablib",), ranks, calls, rounds),
            Errand("ipyparallel", "ipyparallel_warm", ("ipyparallel",), ranks, calls, 1),
        ]
    for ranks in (4, 8):
        plan += [
            Errand("memory", "memory_ours", ("lablib", "psutil"), ranks, 1, 1),
            Errand("memory", "memory_spawn", ("psutil",), ranks, 1, 1),
        ]
    plan.append(Errand("import", "import_time", ("lablib",), 0, 5 if quick else 9, 1))
    return plan


NAMES = tuple(dict.fromkeys(errand.name for errand in errands(quick=True)))


def why_left_out(errand: Errand) -> str | None:
    """Return the reason why this errand cannot be measured here, or None."""
    missing = [name for name in errand.needs if importlib.util.find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} is not installed (pip install -e '.[bench]')"
    if errand.name == "memory" and not SMAPS_ROLLUP.exists():
        return "memory is read from /proc/<pid>/smaps_rollup, which this system does not have"
    return None


class ContenderError(Exception):
    """A contender's process failed: its last lines say why."""


class ContenderHung(ContenderError):
    """A contender's process gave no result in its time; whatever was left of it is gone."""


def measure(errand: Errand) -> list[Series]:
    """Run the errand's process and return what it measured.

    Raises:
        ContenderError: the process failed or printed no result.
        ContenderHung: it took longer than `errand.limit_s`.
    """
    command = [sys.executable, "-m", f"bench.peers.{errand.module}"]
    command += ["--ranks", str(errand.ranks), "--calls", str(errand.calls)]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=errand.limit_s)
        except subprocess.TimeoutExpired as error:
            raise ContenderHung(f"{errand.text}: no result within {errand.limit_s:.0f} s") from error
        finally:
            _end(process)
    if process.returncode != 0:
        raise ContenderError(f"{errand.text}: exit status {process.returncode}\n{_tail(errors or output)}")
    return read_line(output, of=errand.text)


def read_line(output: str, *, of: str) -> list[Series]:
    """Return the series in the last line of a contender's output.

    Args:
        output: everything that it printed; its own messages may come before the line.
        of: whose output this is, for the error.
    """
    lines = output.strip().splitlines()
    try:
        found = json.loads(lines[-1])["series"]
    except (IndexError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ContenderError(f"{of}: the last line is no result\n{_tail(output)}") from error
    return [Series(**{**one, "samples": tuple(one["samples"])}) for one in found]


def _environment() -> dict[str, str]:
    """Return the environment of every contender: this folder importable, gloo on loopback for all of them."""
    environment = dict(os.environ)
    paths = [str(ROOT), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    if loopback is not None:
        environment.setdefault("GLOO_SOCKET_IFNAME", loopback)
    return environment


def _end(process: "subprocess.Popen[str]") -> None:
    """End whatever is left of the contender's own session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(text: str, *, lines: int = 15) -> str:
    return "\n".join("  " + line for line in text.strip().splitlines()[-lines:])
