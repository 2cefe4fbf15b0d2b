"""A tiny course in a temporary folder: one lab, the real build."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [
    str(HERE),
    str(HERE.parents[1] / "labs"),
]  # build.py is a script: it finds its steps beside itself

from tiny_course import TINY  # noqa: E402


@pytest.fixture
def labs(tmp_path):
    """The folder of a course with the one lab 00_tiny."""
    folder = tmp_path / "labs"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "00_tiny.py").write_text(TINY, encoding="utf-8")
    return folder


@pytest.fixture
def source(labs):
    return labs / "src" / "00_tiny.py"
