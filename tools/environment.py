"""Make `.venv` and keep it in step with pyproject.toml and constraints.txt.

    nothing to do ◄── stamp matches ── ready() ── it does not ──► venv ──► announce download ──► pip ──► stamp

The stamp is written last, so an installation that was interrupted is taken up again by the next command.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tools import download
from tools.stop import StopError

# Each of these would send pip or Python elsewhere than into our own environment.
ASTRAY = {
    *("PIP_PREFIX", "PIP_QUIET", "PIP_REQUIRE_VIRTUALENV", "PIP_ROOT", "PIP_TARGET", "PIP_USER"),
    *("PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "PYTHONNOUSERSITE", "PYTHONOPTIMIZE", "PYTHONPATH"),
    *("PYTHONPLATLIBDIR", "PYTHONPYCACHEPREFIX", "PYTHONSAFEPATH", "PYTHONSTARTUP", "PYTHONWARNINGS"),
}
STAMP = Path(".venv", "lablib-installed.json")
# No pop-up that asks about news, and no request to a website behind the learner's back.
LAB_SETTINGS = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}

PIP_FAILED = (
    "pip could not install the packages; its lines above say why. Without a network, try again with one;"
    " after 'No matching distribution', use another Python, such as: make lab PYTHON=python3.11"
)


def ready(root: Path, *, extras: Iterable[str] = (), torch_index: str | None = None) -> Path:
    """Return the Python of `root`/.venv, with the labs' packages and those of `extras` installed.

    Args:
        root: the clone.
        extras: names of optional dependencies in pyproject.toml; those installed earlier stay.
        torch_index: address of a package index to take torch from, such as the one with CPU builds.

    Raises:
        StopError: something is missing on this machine, or pip failed.
    """
    venv = root / ".venv"
    python = venv / "bin" / "python"
    wanted = set(extras)
    if _works(python):
        fingerprint, installed = _read(root / STAMP)
        if fingerprint == _fingerprint(root) and wanted <= installed:
            return python
        wanted |= installed
    else:
        _make(venv)
    (root / STAMP).unlink(missing_ok=True)
    _install(root, python, wanted, torch_index)
    settings = venv / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(json.dumps(LAB_SETTINGS))
    note_installed(root, wanted)
    return python


def note_installed(root: Path, extras: Iterable[str]) -> None:
    """Write down that `root`/.venv has what pyproject.toml, constraints.txt and `extras` ask for."""
    (root / STAMP).write_text(json.dumps({"fingerprint": _fingerprint(root), "extras": sorted(extras)}))


def variables(venv: Path) -> dict[str, str]:
    """Return the environment for programs of `venv`: first on the path, and nothing that leads astray."""
    kept = {name: value for name, value in os.environ.items() if name not in ASTRAY}
    kept["VIRTUAL_ENV"] = str(venv)
    kept["PATH"] = os.pathsep.join([str(venv / "bin"), os.environ.get("PATH", os.defpath)])
    return kept


def _works(python: Path) -> bool:
    return python.exists() and _run([str(python), "-c", "import pip"], python.parent, {}, quiet=True)


def _fingerprint(root: Path) -> str:
    content = [
        str(root).encode(),
        *((root / name).read_bytes() for name in ("pyproject.toml", "constraints.txt")),
    ]
    return hashlib.sha256(b"\0".join(content)).hexdigest()


def _read(stamp: Path) -> tuple[str, set[str]]:
    try:
        content = json.loads(stamp.read_text())
        return content["fingerprint"], set(content["extras"])
    except (OSError, ValueError, KeyError):
        return "", set()


def _make(venv: Path) -> None:
    if os.name == "nt":
        raise StopError("on Windows the labs run inside WSL2, a Linux beside Windows; README.md has the lines")
    missing = [name for name in ("venv", "ensurepip") if not _importable(name)]
    if missing:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise StopError(
            f"Python {version} on this machine lacks its {missing[0]} module; on Debian and Ubuntu run"
            f" `sudo apt install python{version}-venv`, then try again"
        )
    again = " again, since the old one no longer runs" if venv.exists() else ""
    print(f"Making .venv{again}: once, some minutes. No compiler is needed.", flush=True)
    if not _run([sys.executable, "-m", "venv", "--clear", str(venv)], venv.parent, variables(venv)):
        raise StopError("python -m venv failed; its lines above say why")


def _importable(name: str) -> bool:
    found = importlib.util.find_spec(name)
    return found is not None and found.origin is not None


def _install(root: Path, python: Path, extras: set[str], torch_index: str | None) -> None:
    environment = variables(root / ".venv")
    # Only ready-made packages: so nothing is compiled, and what has none for this machine is said at once.
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--only-binary", ":all:"]
    pip += ["--constraint", "constraints.txt"]
    own = ".[" + ",".join(sorted(extras)) + "]" if extras else "."
    steps = [[*pip, "--editable", own]]
    if torch_index:
        steps.insert(0, [*pip, "--index-url", torch_index, "torch"])
    elif not any((root / ".venv").glob("lib/python3*/site-packages/torch")):
        download.announce([*pip, "torch"], root, environment)
    for step in steps:
        if not _run(step, root, environment):
            raise StopError(PIP_FAILED)


def _run(command: list[str], folder: Path, environment: dict[str, str], *, quiet: bool = False) -> bool:
    silence = subprocess.DEVNULL if quiet else None
    done = subprocess.run(command, cwd=folder, env=environment, stdout=silence, stderr=silence, check=False)
    return done.returncode == 0
