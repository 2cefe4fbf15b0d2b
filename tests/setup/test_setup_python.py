"""The first line of a machine that cannot run the set-up: no Python, one too old, one without venv."""

import ast
from pathlib import Path

import pytest
from clones import ROOT, make, script

from tools import setup


@pytest.fixture
def path_with(tmp_path: Path, monkeypatch):
    """Return a function that makes a PATH of only the named programs, each with the exit status given."""

    def lay(**programs: int) -> None:
        for name, status in programs.items():
            script(tmp_path / "bin" / name.replace("_", "."), f"exit {status}")
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    return lay


def test_the_entry_starts_under_python_3_6():
    ast.parse((ROOT / "tools" / "setup.py").read_text(), feature_version=(3, 6))


def test_an_old_python_is_told_which_one_to_use(path_with):
    path_with(python3_12=0)
    assert setup.refusal((3, 9, 18), setup.CANDIDATES) == (
        "Python 3.9.18 is too old for the labs: they need 3.10 or newer;"
        " this machine has one: make lab PYTHON=python3.12"
    )


def test_a_stand_in_that_starts_nothing_is_not_recommended(path_with):
    path_with(python3_11=127, python3_13=0)
    assert setup.refusal((3, 8, 1), setup.CANDIDATES).endswith("make lab PYTHON=python3.13")


def test_without_a_newer_python_it_says_what_to_install(path_with):
    path_with()
    line = setup.refusal((3, 6, 15), setup.CANDIDATES)
    assert line.endswith("install one and name it, for example: make lab PYTHON=python3.11")


def test_the_command_stops_under_an_old_python(monkeypatch, path_with):
    path_with()
    monkeypatch.setattr(setup.sys, "version_info", (3, 9, 2, "final", 0))
    assert setup.main().startswith("Python 3.9.2 is too old for the labs")


def test_make_without_any_python_says_so_in_one_line(clone: Path):
    for command in ("lab", "test"):
        done = make(clone, command, PATH=str(clone / "nowhere"))
        assert done.returncode != 0
        lines = [line for line in done.stderr.splitlines() if not line.startswith("make")]
        assert lines == [
            "There is no python3 here; install Python 3.10 or newer, or name one: make lab PYTHON=python3.11"
        ]


def test_make_names_the_python_that_was_asked_for(clone: Path):
    done = make(clone, "lab", "PYTHON=python9")
    assert done.stderr.startswith("There is no python9 here")
