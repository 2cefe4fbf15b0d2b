"""Lay the notebooks out in `work/`, where learners change them, and never write over a file they have.

    labs/00_x.ipynb ────────────► work/00_x.ipynb ──── reset ──► work/backups/00_x.<time>.ipynb
    labs/solutions/00_x.ipynb ──► work/solutions/00_x.ipynb

`work/.copied.json` holds a hash of what was copied: it tells when the course has a newer version.
"""

from __future__ import annotations

import hashlib
import json
import re
from datetime import datetime
from pathlib import Path

from tools.stop import StopError

NOTE = ".copied.json"
BACKUPS = "backups"


def lay_out(root: Path, *, reset: str | None = None, now: datetime | None = None) -> Path:
    """Copy the notebooks that the learner does not have yet, and return the path of the first lab in `work/`.

    Args:
        root: the clone.
        reset: number of a lab, such as "04", to take from the course again; the learner's becomes a backup.
        now: the time that names a backup; the present by default.

    Raises:
        StopError: there are no notebooks, or none with the number `reset`.
    """
    notebooks = _notebooks(root / "labs")
    work = root / "work"
    work.mkdir(exist_ok=True)
    copied = _read(work / NOTE)
    if reset:
        wanted = {name: notebooks[name] for name in _numbered(reset, notebooks)}
        _set_aside(work, wanted, now or datetime.now().astimezone())
    newer = []
    for name, source in notebooks.items():
        target = work / name
        content = source.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        if target.read_bytes() == content:
            copied[name] = digest
        elif copied.setdefault(name, digest) != digest:
            newer.append(name)
    (work / NOTE).write_text(json.dumps(copied, indent=1, sort_keys=True))
    for number in sorted({_number(name) for name in newer}):
        print(f"Lab {number} has a newer version: make lab RESET={number} brings it and keeps yours too.")
    return work / next(iter(notebooks))


def _notebooks(labs: Path) -> dict[str, Path]:
    found = {path.name: path for path in sorted(labs.glob("[0-9][0-9]_*.ipynb"))}
    if not found:
        raise StopError("there are no notebooks in labs/; clone the project again, or build them: labs/build.py")
    solutions = sorted((labs / "solutions").glob("[0-9][0-9]_*.ipynb"))
    return found | {f"solutions/{path.name}": path for path in solutions}


def _numbered(reset: str, notebooks: dict[str, Path]) -> list[str]:
    wanted = [name for name in notebooks if reset.isdecimal() and int(_number(name)) == int(reset)]
    if not wanted:
        have = ", ".join(sorted({_number(name) for name in notebooks}))
        raise StopError(f"RESET={reset} names no lab; there are: {have}")
    return wanted


def _number(name: str) -> str:
    found = re.search(r"(\d\d)_[^/]*$", name)
    assert found is not None
    return found[1]


def _set_aside(work: Path, notebooks: dict[str, Path], now: datetime) -> None:
    for name, source in notebooks.items():
        mine = work / name
        if mine.exists() and mine.read_bytes() != source.read_bytes():
            kept = work / BACKUPS / f"{name.removesuffix('.ipynb')}.{now:%Y-%m-%d_%H%M%S_%f}.ipynb"
            kept.parent.mkdir(parents=True, exist_ok=True)
            mine.rename(kept)
            print(f"Your {name} is kept as work/{kept.relative_to(work).as_posix()}")


def _read(note: Path) -> dict[str, str]:
    try:
        content = json.loads(note.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
