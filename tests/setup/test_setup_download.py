import io
import os
import sys
import time
from pathlib import Path

import pytest
from clones import script

from tools import download
from tools.stop import StopError

FROM_METADATA = """\
Collecting torch
  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl.metadata (31 kB)
Collecting sympy>=1.13.3 (from torch)
  Downloading sympy-1.14.0-py3-none-any.whl.metadata (12 kB)
Collecting nvidia-cudnn-cu13==9.20.0.48 (from torch)
  Downloading nvidia_cudnn_cu13-9.20.0.48-py3-none-manylinux_2_27_x86_64.whl.metadata (1.8 kB)
"""
FROM_THE_FILE = """\
Collecting torch
  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (526.6 MB)
"""
TOOLKIT = "Collecting cuda-toolkit[cublas,cudart]==13.0.3 (from torch)\n"
CPU_FILE = """\
Looking in links: /wheels
Processing /wheels/torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl
Collecting filelock (from torch)
  Downloading filelock-4.3.1-py3-none-any.whl (244 kB)
Would install filelock-4.3.1 torch-2.13.0+cpu
"""
CPU_DOWNLOAD = """\
Collecting torch
  Downloading torch-2.13.0-cp311-none-macosx_11_0_arm64.whl (78.2 MB)
Would install torch-2.13.0
"""


@pytest.mark.parametrize(
    ("lines", "cuda"),
    [
        (FROM_METADATA, True),
        (FROM_THE_FILE, True),
        (FROM_THE_FILE.replace("526.6 MB", "1.2 GB"), True),
        (TOOLKIT, True),
        (CPU_FILE, False),
        (CPU_DOWNLOAD, False),
        ("ERROR: No matching distribution found for torch\n", False),
    ],
)
def test_cuda_is_read_from_what_pip_says(lines, cuda):
    assert download.shows_cuda(io.StringIO(lines)) is cuda


def test_reading_stops_at_the_first_sign():
    lines = iter([*FROM_THE_FILE.splitlines(), "Collecting what would be fetched next"])
    assert download.shows_cuda(lines)
    assert list(lines) == ["Collecting what would be fetched next"]


FETCH = "import pathlib, sys, time; time.sleep(60); pathlib.Path(sys.argv[1]).touch()"


def pip_that_fetches(folder: Path, *, first: str = ":") -> Path:
    """Return a stand-in for pip that runs `first`, speaks, then fetches a big file unless it is stopped."""
    (folder / "said").write_text(FROM_THE_FILE)
    speak = f'echo "$@" > "{folder}/asked"; cat "{folder}/said"'
    fetch = f'exec "{sys.executable}" -S -c "{FETCH}" "{folder}/fetched"'
    return script(folder / "pip", f"{first}; {speak}; {fetch}")


@pytest.mark.parametrize("first", [":", 'trap "" INT'], ids=["listens", "ignores interrupts"])
def test_the_trial_run_is_stopped_before_it_fetches(tmp_path: Path, monkeypatch, first):
    monkeypatch.setattr(download, "PIP_STOPS_WITHIN_S", 1.0)
    start = time.monotonic()
    pip = pip_that_fetches(tmp_path, first=first)
    assert download.brings_cuda([str(pip), "torch"], tmp_path, dict(os.environ))
    assert time.monotonic() - start < 30
    assert (tmp_path / "asked").read_text() == "torch --dry-run --progress-bar off\n"
    assert not (tmp_path / "fetched").exists()


def test_a_trial_run_without_a_sign_runs_to_its_end(tmp_path: Path):
    (tmp_path / "said").write_text(CPU_FILE)
    pip = script(tmp_path / "pip", f'cat "{tmp_path}/said"; touch "{tmp_path}/ended"')
    assert not download.brings_cuda([str(pip)], tmp_path, dict(os.environ))
    assert (tmp_path / "ended").exists()


@pytest.fixture
def cuda(monkeypatch, tmp_path: Path):
    """Make torch come with CUDA onto a machine without a GPU, with 100 GB free and nobody at the keyboard."""
    monkeypatch.setattr(download, "brings_cuda", lambda *_: True)
    monkeypatch.setattr(download, "has_nvidia_gpu", lambda: False)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: _Disk(free=100e9))
    monkeypatch.setattr(sys, "stdin", _Keyboard(present=False))
    return lambda: download.announce([], tmp_path, {})


class _Disk:
    def __init__(self, free):
        self.free = free


class _Keyboard(io.StringIO):
    def __init__(self, *, present):
        super().__init__()
        self.isatty = lambda: present


def test_a_cuda_download_is_announced_in_one_line(cuda, capsys):
    cuda()
    assert capsys.readouterr().out == (
        "This torch comes with CUDA: about 3 GB to download, 6 GB on disk."
        " No NVIDIA GPU was found here: the CPU build (0.2 GB) runs every lab;"
        " stop with Ctrl-C and run: make lab TORCH_INDEX=<address of PyTorch's CPU index> (see README.md)\n"
    )


def test_with_a_gpu_the_line_says_that_it_is_needed():
    assert download.notice(has_gpu=True).endswith("This machine has an NVIDIA GPU, which needs it.")


def test_a_small_download_is_not_announced(cuda, capsys, monkeypatch):
    monkeypatch.setattr(download, "brings_cuda", lambda *_: False)
    cuda()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("comes_with_cuda", "needs"),
    [(True, "about 8 GB with CUDA"), (False, "about 2.5 GB, and 1.0 GB are free")],
)
def test_too_little_room_is_said_before_anything_is_fetched(cuda, monkeypatch, comes_with_cuda, needs):
    monkeypatch.setattr(download, "brings_cuda", lambda *_: comes_with_cuda)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: _Disk(free=1e9))
    with pytest.raises(StopError, match=needs):
        cuda()


def test_somebody_at_the_keyboard_is_asked_and_may_stop(cuda, monkeypatch):
    monkeypatch.setattr(sys, "stdin", _Keyboard(present=True))
    with pytest.raises(StopError, match="nothing was installed"):
        cuda()
    asked = []
    monkeypatch.setattr("builtins.input", asked.append)
    cuda()
    assert asked == ["Press Enter to go on, Ctrl-C to stop: "]


def test_a_gpu_is_seen_by_its_tool_or_its_device(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert not download.has_nvidia_gpu(tmp_path)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    assert download.has_nvidia_gpu(tmp_path)
    (tmp_path / "dev" / "nvidia0").unlink()
    script(tmp_path / "bin" / "nvidia-smi", "exit 0")
    assert download.has_nvidia_gpu(tmp_path)
