import os
import subprocess
import sys
from pathlib import Path

import pytest

from lablib.engine import cores


@pytest.fixture
def mounted(tmp_path: Path):
    """Return a function that lays out a fake cgroup mount and returns the quota read from it."""

    def lay(membership: str, files: dict[str, str]) -> float | None:
        root = tmp_path / "cgroup"
        root.mkdir()
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        (tmp_path / "self").write_text(membership)
        return cores.cgroup_cores(root, membership=tmp_path / "self")

    return lay


def v1(quota_us: int, period_us: int, *, folder: str) -> dict[str, str]:
    return {f"{folder}/cpu.cfs_quota_us": f"{quota_us}\n", f"{folder}/cpu.cfs_period_us": f"{period_us}\n"}


def test_v2_quota_in_our_own_cgroup(mounted):
    assert mounted("0::/user/lab\n", {"user/lab/cpu.max": "150000 100000\n"}) == 1.5


def test_v2_without_a_limit(mounted):
    assert mounted("0::/lab\n", {"lab/cpu.max": "max 100000\n"}) is None


def test_v2_an_ancestor_is_tighter(mounted):
    files = {"pod/cpu.max": "200000 100000\n", "pod/box/cpu.max": "400000 100000\n"}
    assert mounted("0::/pod/box\n", files) == 2.0


def test_v2_we_are_tighter_than_our_ancestor(mounted):
    files = {"pod/cpu.max": "800000 100000\n", "pod/box/cpu.max": "300000 100000\n"}
    assert mounted("0::/pod/box\n", files) == 3.0


def test_v2_a_container_sees_only_its_own_cgroup_under_the_hosts_path(mounted):
    assert mounted("0::/docker/0123abcd\n", {"cpu.max": "100000 50000\n"}) == 2.0


def test_v2_a_path_above_the_namespace_root_stays_inside_the_mount(mounted):
    assert mounted("0::/../../other\n", {"cpu.max": "50000 100000\n"}) == 0.5


def test_v1_quota_with_joined_controllers(mounted):
    files = v1(250000, 100000, folder="cpu,cpuacct/lab")
    assert mounted("5:cpu,cpuacct:/lab\n4:memory:/else\n0::/\n", files) == 2.5


def test_v1_mounted_under_the_plain_name(mounted):
    assert mounted("5:cpu,cpuacct:/lab\n", v1(200000, 100000, folder="cpu/lab")) == 2.0


def test_v1_ancestor_quota(mounted):
    files = v1(-1, 100000, folder="cpu/pod/box") | v1(400000, 100000, folder="cpu/pod")
    assert mounted("1:cpu:/pod/box\n", files) == 4.0


def test_v1_without_a_limit(mounted):
    assert mounted("1:cpu:/\n", v1(-1, 100000, folder="cpu")) is None


def test_v1_cpuset_is_not_mistaken_for_cpu(mounted):
    assert mounted("1:cpuset:/lab\n", v1(100000, 100000, folder="cpuset/lab")) is None


def test_v1_for_cpu_beside_an_empty_v2(mounted):
    files = {"unified/cgroup.procs": "", **v1(300000, 100000, folder="cpu")}
    assert mounted("1:cpu:/\n0::/\n", files) == 3.0


def test_no_cgroups_at_all(tmp_path: Path):
    assert cores.cgroup_cores(tmp_path / "none", membership=tmp_path / "missing") is None


@pytest.mark.parametrize(
    ("affinity", "quota", "usable"), [(8, None, 8), (8, 2.0, 2), (2, 6.0, 2), (8, 2.9, 2), (4, 0.5, 1)]
)
def test_usable_cores_is_the_smaller_and_at_least_one(monkeypatch, affinity, quota, usable):
    monkeypatch.setattr(cores, "affinity_cores", lambda: affinity)
    monkeypatch.setattr(cores, "cgroup_cores", lambda: quota)
    assert cores.usable_cores() == usable


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no CPU affinity")
def test_affinity_of_this_process_is_obeyed():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert cores.affinity_cores() == 1
        assert cores.usable_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


_TELLS_ITS_POLICY = """
import sys, lablib, psutil
tell = lambda: psutil.Process().environ()["OMP_WAIT_POLICY"]
print(lablib.run(tell, world_size=1, start_method=sys.argv[1])[0])
"""


@pytest.mark.slow
@pytest.mark.parametrize(("start_method", "set_by_user"), [("forkserver", None), ("spawn", None), ("spawn", "ACTIVE")])
def test_idle_threads_of_ranks_sleep_unless_the_user_has_them_spin(start_method, set_by_user):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if set_by_user:
        environment["OMP_WAIT_POLICY"] = set_by_user
    words = [sys.executable, "-c", _TELLS_ITS_POLICY, start_method]
    told = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=100).stdout
    assert told.splitlines()[-1] == (set_by_user or "PASSIVE")
