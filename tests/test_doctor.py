import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import lablib.__main__
from lablib import doctor
from lablib.doctor import facts as machine
from lablib.doctor.facts import Cores, Facts, Launch, Loopback, Memory, Package, SharedMemory, Torch
from lablib.doctor.findings import GIB, MIB, findings
from lablib.engine.forking import PARENT_VARIABLE

GOOD = Facts(
    python="3.11.7",
    cores=Cores(affinity=8, quota=None, usable=8),
    memory=Memory(16 * GIB, None),
    torch=Torch(cuda=None, backends=("gloo",), gpus=0),
    loopback=Loopback("lo", up=True, error=None),
    shared_memory=SharedMemory(8 * GIB, None),
    packages=(Package("torch", "2.13.0", ">=2.13", fits=True),),
    orphans=(),
    launch=Launch(2.5, None),
)


def one(topic: str, **changes):
    """Return the only finding on `topic` for the good machine with `changes`."""
    found = [finding for finding in findings(replace(GOOD, **changes)) if finding.topic == topic]
    assert len(found) == 1, found
    return found[0]


def test_a_good_machine_has_nothing_but_ok():
    assert {finding.status for finding in findings(GOOD)} == {"ok"}
    assert [finding.topic for finding in findings(GOOD)] == [
        *(
            "cores",
            "memory",
            "GPUs",
            "backends",
            "loopback",
            "/dev/shm",
            "packages",
            "left behind",
            "two ranks",
        )
    ]


@pytest.mark.parametrize(
    ("topic", "status", "says", "changes"),
    [
        (
            "cores",
            "ok",
            "2 usable (this process may run on 8, a quota allows 2.5)",
            {"cores": Cores(8, 2.5, 2)},
        ),
        ("cores", "warn", "1 usable", {"cores": Cores(1, None, 1)}),
        ("memory", "warn", "enough for 2 ranks", {"memory": Memory(GIB, 2 * GIB)}),
        ("memory", "warn", "of the 2.0 GiB this container may have", {"memory": Memory(GIB, 2 * GIB)}),
        ("memory", "fail", "two ranks need 0.7 GiB", {"memory": Memory(GIB // 2, None)}),
        ("torch", "fail", "libcudart.so", {"torch": Torch(error="OSError: libcudart.so: no such file")}),
        ("backends", "fail", "no gloo", {"torch": Torch(backends=("nccl",), gpus=2)}),
        ("backends", "warn", "no NCCL", {"torch": Torch(backends=("gloo",), gpus=2)}),
        ("backends", "ok", "not needed here: mpi", {"torch": Torch(backends=("gloo", "nccl"), gpus=2)}),
        ("loopback", "fail", "refused", {"loopback": Loopback("lo", up=True, error="Connection refused")}),
        (
            "loopback",
            "fail",
            "no interface has 127.0.0.1",
            {"loopback": Loopback(None, up=False, error=None)},
        ),
        ("loopback", "warn", "lo says it is down", {"loopback": Loopback("lo", up=False, error=None)}),
        ("/dev/shm", "warn", "--shm-size=1g", {"shared_memory": SharedMemory(64 * MIB, None)}),
        ("/dev/shm", "fail", "Permission denied", {"shared_memory": SharedMemory(0, "Permission denied")}),
        ("packages", "fail", "pip install -e .", {"packages": ()}),
        ("left behind", "warn", "kill -9 71 72", {"orphans": (71, 72)}),
        (
            "two ranks",
            "fail",
            "RunTimeout: rank 1",
            {"launch": Launch(60.0, "RunTimeout: rank 1 never came")},
        ),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(topic, status, says, changes):
    finding = one(topic, **changes)
    assert finding.status == status
    assert says in finding.text


@pytest.mark.parametrize(
    ("gpus", "says"),
    [
        (0, "none: ranks run on the CPU with gloo"),
        (1, "1 found, one for each rank: 2 or 4 or 8 ranks run on the CPU with gloo"),
        (4, "4 found, one for each rank: 2 or 4 ranks run on GPUs with NCCL, 8 ranks run on the CPU with"),
        (8, "8 found, one for each rank: 2 or 4 or 8 ranks run on GPUs with NCCL"),
    ],
)
def test_gpus_are_set_against_ranks(gpus, says):
    assert says in one("GPUs", torch=Torch(backends=("gloo", "nccl"), gpus=gpus)).text


def test_a_missing_package_fails_and_one_out_of_range_warns():
    packages = (
        Package("torch", None, ">=2.13", fits=False),
        Package("plotly", "5.1", ">=6.5", fits=False),
        Package("numpy", "2.4", ">=2.0", fits=True),
    )
    found = [finding for finding in findings(replace(GOOD, packages=packages)) if finding.topic == "packages"]
    assert [(finding.status, finding.text.split(";")[0]) for finding in found] == [
        ("fail", "torch is missing"),
        ("warn", "plotly 5.1 is outside >=6.5, what the labs are made for"),
        ("ok", "Python 3.11.7, numpy 2.4"),
    ]


def test_a_system_without_dev_shm_has_no_line_about_it():
    topics = [finding.topic for finding in findings(replace(GOOD, shared_memory=None))]
    assert "/dev/shm" not in topics


@pytest.mark.parametrize(("facts", "status"), [(GOOD, 0), (replace(GOOD, launch=Launch(1.0, "RankLost: rank 0")), 1)])
def test_the_exit_status_tells_whether_the_labs_would_run(monkeypatch, capsys, facts, status):
    monkeypatch.setattr(machine, "gather", lambda: facts)
    assert lablib.__main__.main(["doctor"]) == status
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == ("The labs run here." if status == 0 else "The labs would not run: see two ranks.")


def test_a_warning_alone_does_not_fail(monkeypatch):
    monkeypatch.setattr(machine, "gather", lambda: replace(GOOD, orphans=(71,)))
    assert doctor.main() == 0


@pytest.fixture
def cgroup(tmp_path: Path):
    """Return a function that reads the memory facts with these files mounted as our cgroup."""

    def read(membership: str, files: dict[str, int | str]) -> Memory:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"{text}\n")
        (tmp_path / "self").write_text(membership)
        return machine.memory(tmp_path, membership=tmp_path / "self")

    return read


def test_memory_is_limited_by_a_v2_cgroup(cgroup):
    found = cgroup("0::/lab\n", {"lab/memory.max": 64 * MIB, "lab/memory.current": 24 * MIB})
    assert found == Memory(available_nbytes=40 * MIB, limit_nbytes=64 * MIB)


def test_memory_is_limited_by_a_v1_cgroup(cgroup):
    files = {"memory/memory.limit_in_bytes": 64 * MIB, "memory/memory.usage_in_bytes": 80 * MIB}
    assert cgroup("4:memory:/\n", files) == Memory(available_nbytes=0, limit_nbytes=64 * MIB)


@pytest.mark.parametrize(
    ("membership", "files"),
    [
        ("0::/lab\n", {"lab/memory.max": "max"}),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": 9223372036854771712}),
    ],
)
def test_memory_without_a_limit_is_the_machines(cgroup, membership, files):
    found = cgroup(membership, files)
    assert found.limit_nbytes is None
    assert found.available_nbytes > 64 * MIB


def test_shared_memory_that_cannot_be_written_is_reported(tmp_path: Path):
    assert machine.shared_memory(tmp_path / "missing").error == "No such file or directory"
    assert machine.shared_memory(tmp_path).error is None
    assert list(tmp_path.iterdir()) == []


def test_loopback_without_a_way_to_connect_is_reported(monkeypatch):
    def refuse(*_, **__):
        raise ConnectionRefusedError("Connection refused")

    monkeypatch.setattr(machine.socket, "create_connection", refuse)
    assert machine.loopback().error == "Connection refused"


def test_packages_are_those_of_our_own_metadata():
    found = {package.name: package for package in machine.packages()}
    assert {"torch", "jupyterlab", "ipywidgets", "plotly", "anywidget", "ipykernel"} <= found.keys()
    assert "pytest" not in found
    assert all(package.version and package.fits for package in found.values())
    assert machine.packages("lablib-that-is-not-there") == ()


def test_a_launch_that_cannot_work_is_reported(monkeypatch):
    monkeypatch.setenv("LABLIB_MAX_RANKS", "1")
    assert machine.launch().error.startswith("UsageError: ")


@pytest.fixture
def lookalike():
    """Return a function that starts a process which looks like a fork server of ours, until the test ends."""
    started = []

    def start(kernel: int) -> int:
        code = "import sys, time; print(flush=True); time.sleep(60)"
        command = [sys.executable, "-S", "-c", code, "lablib.engine.server"]
        environment = {**os.environ, PARENT_VARIABLE: str(kernel)}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
        started.append(process)
        process.stdout.readline()
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_server_whose_kernel_is_gone_is_an_orphan(lookalike):
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    orphan, kept = lookalike(ended.pid), lookalike(os.getpid())
    processes = [psutil.Process(orphan), psutil.Process(kept), psutil.Process()]
    assert machine.orphans(processes) == (orphan,)


class Marked:
    """A process in a list of processes, as psutil shows it."""

    def __init__(self, pid: int, parent: int, kernel: int) -> None:
        self.pid, self.parent, self.kernel = pid, parent, kernel

    def cmdline(self):
        return ["python", "-c", "main(3, 4, ['lablib.engine.server'])"]

    def environ(self):
        return {PARENT_VARIABLE: str(self.kernel)}

    def ppid(self):
        return self.parent


def test_ranks_and_their_children_are_judged_by_their_server():
    kernel, server, rank, loader = 10, 11, 12, 13
    family = [Marked(server, kernel, kernel), Marked(rank, server, kernel), Marked(loader, rank, kernel)]
    assert machine.orphans(family) == ()
    assert machine.orphans([Marked(server, 1, kernel), *family[1:]]) == (server, rank, loader)
    assert machine.orphans([Marked(rank, 1, kernel), family[2]]) == (rank, loader)


@pytest.mark.slow
def test_the_doctor_finds_this_machine_fit():
    command = [sys.executable, "-m", "lablib", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines[-1] == "The labs run here."
    assert any(line.startswith("ok    two ranks") for line in lines)
