"""Say in one line, before it starts, when torch would come with CUDA: gigabytes, where the CPU build has 0.2.

A trial run of pip resolves torch and what it needs. It is stopped at the first sign of CUDA, which pip prints
before it fetches anything large: a package of NVIDIA's, or the size of torch's own file.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tools.stop import StopError

CUDA_PACKAGE = re.compile(r"^\s*Collecting (nvidia|cuda)-")
TORCH_FILE = re.compile(r"^\s*Downloading \S*torch-\S+\.whl \((?P<size>[\d.]+) (?P<unit>[MG])B\)")
LARGEST_CPU_FILE_MB = 350
PIP_STOPS_WITHIN_S = 3.0
CUDA_DISK_GB = 8
CPU_DISK_GB = 2.5


def announce(pip_install: list[str], root: Path, environment: dict[str, str]) -> None:
    """Announce a download of CUDA size, and wait for the Enter key where somebody is there to press it.

    Args:
        pip_install: the pip command that installs torch.
        root: where `.venv` lies, and the folder to run pip in.
        environment: environment variables for pip.

    Raises:
        StopError: there is too little room on the disk, or the learner chose to stop.
    """
    cuda = brings_cuda(pip_install, root, environment)
    free_gb = shutil.disk_usage(root).free / 1e9
    if free_gb < (needed_gb := CUDA_DISK_GB if cuda else CPU_DISK_GB):
        size = f"{needed_gb:g} GB with CUDA" if cuda else f"{needed_gb:g} GB"
        raise StopError(f"installing needs about {size}, and {free_gb:.1f} GB are free on this disk; make room first")
    if cuda:
        print(notice(has_gpu=has_nvidia_gpu()), flush=True)
        if sys.stdin.isatty():
            _wait_for_enter()


def notice(*, has_gpu: bool) -> str:
    """Return the line that announces a torch with CUDA."""
    size = "This torch comes with CUDA: about 3 GB to download, 6 GB on disk."
    if has_gpu:
        return f"{size} This machine has an NVIDIA GPU, which needs it."
    return (
        f"{size} No NVIDIA GPU was found here: the CPU build (0.2 GB) runs every lab;"
        " stop with Ctrl-C and run: make lab TORCH_INDEX=<address of PyTorch's CPU index> (see README.md)"
    )


def has_nvidia_gpu(root: Path = Path("/")) -> bool:
    """Return whether this machine shows an NVIDIA GPU: its driver's tool or its device file."""
    return shutil.which("nvidia-smi") is not None or (root / "dev" / "nvidia0").exists()


def brings_cuda(pip_install: list[str], root: Path, environment: dict[str, str]) -> bool:
    """Return whether `pip_install` would fetch a torch with CUDA; the trial run installs nothing."""
    command = [*pip_install, "--dry-run", "--progress-bar", "off"]
    with subprocess.Popen(
        command, cwd=root, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as trial:
        assert trial.stdout is not None
        cuda = shows_cuda(trial.stdout)
        if cuda:
            _stop(trial)
        trial.stdout.read()
    return cuda


def _stop(trial: subprocess.Popen[str]) -> None:
    # On an interrupt pip clears its temporary folders; started in the background it may not listen.
    trial.send_signal(signal.SIGINT)
    try:
        trial.wait(PIP_STOPS_WITHIN_S)
    except subprocess.TimeoutExpired:
        trial.kill()


def shows_cuda(lines: Iterable[str]) -> bool:
    """Return whether pip's `lines` show a CUDA build; read no further than the first sign."""
    for line in lines:
        size = TORCH_FILE.match(line)
        if CUDA_PACKAGE.match(line) or (size is not None and _megabytes(size) > LARGEST_CPU_FILE_MB):
            return True
    return False


def _megabytes(size: re.Match[str]) -> float:
    return float(size["size"]) * (1000 if size["unit"] == "G" else 1)


def _wait_for_enter() -> None:
    try:
        input("Press Enter to go on, Ctrl-C to stop: ")
    except (KeyboardInterrupt, EOFError):
        raise StopError("stopped before the download; nothing was installed") from None
