"""The rooms and what they may know, the public surface, and what importing costs."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from importlinter import cli

import lablib

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "plotly", "ipywidgets", "IPython", "anywidget")


def loaded_after(code: str) -> set[str]:
    """Return which heavy packages a fresh interpreter has loaded after this code."""
    report = f"{code}\nimport sys; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


def test_rooms_import_downwards_only(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    assert cli.lint_imports(no_cache=True) == cli.EXIT_STATUS_SUCCESS


def test_importing_lablib_loads_nothing_heavy_and_starts_nothing() -> None:
    assert loaded_after("import lablib, threading; assert threading.active_count() == 1") == set()


def test_a_rank_draws_nothing() -> None:
    def loaded() -> list[str]:
        return [name for name in HEAVY if name in sys.modules]

    loaded.__module__ = "__main__"  # travel by value, as a cell's function does
    assert lablib.run(loaded).values == [["torch"]] * 2


@pytest.mark.parametrize("name", ["analysis", "errors", "links", "sim", "trace", "views", "widgets"])
def test_rooms_without_torch(name) -> None:
    code = f"import importlib, pkgutil, lablib.{name} as room\n"
    code += "for module in pkgutil.walk_packages(getattr(room, '__path__', []), room.__name__ + '.'):\n"
    code += "    importlib.import_module(module.name)"
    assert "torch" not in loaded_after(code)


def test_checks_load_torch_only_for_the_lab_that_needs_it() -> None:
    assert "torch" not in loaded_after("import lablib.checks")


def test_the_public_surface_is_all_there_and_documented() -> None:
    assert lablib.__all__ == sorted(lablib.__all__)
    for name in lablib.__all__:
        assert getattr(lablib, name).__doc__, name
    public = {name for name in vars(lablib) if not name.startswith("_") and name not in ("sys", "activate")}
    modules = {module.name for module in pkgutil.iter_modules(lablib.__path__)}
    assert public - modules == set(lablib.__all__)


def test_every_module_imports_alone_and_says_what_it_is_for() -> None:
    for module in pkgutil.walk_packages(lablib.__path__, "lablib."):
        if not module.name.endswith("__main__"):
            assert importlib.import_module(module.name).__doc__, module.name


def test_private_torch_names_have_one_home() -> None:
    homes = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "lablib").rglob("*.py")
        if any(mark in path.read_text() for mark in ("torch._C", "c10d._world", "default._handle"))
    ]
    assert homes == ["lablib/torch_private.py"]


def test_files_are_short_enough_to_read_in_class() -> None:
    long = {
        path.relative_to(ROOT).as_posix(): count
        for path in (ROOT / "lablib").rglob("*.py")
        if (count := len(path.read_text().splitlines())) > 350
    }
    assert long == {}


def test_test_files_have_names_of_their_own() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))  # pytest imports them by these names
