"""A clone to set up, and stand-ins for the programs it meets."""

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def script(path: Path, text: str) -> Path:
    """Write an executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def notebook(path: Path, source: str = "1 + 1") -> Path:
    """Write a notebook with one cell."""
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "source": source, "outputs": []}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    content = {
        "cells": [{**cell, "execution_count": None}],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def make(root: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """Run make in `root`; variables in `environment` replace those of this process."""
    make_path = shutil.which("make")
    assert make_path is not None
    return subprocess.run(
        [make_path, *arguments],
        cwd=root,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
