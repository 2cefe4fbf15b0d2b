from __future__ import annotations

import gc
import importlib
import sys
from pathlib import Path

import pytest

from lablib.notebook import collector


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a module that notes whether the collector was on while it was imported."""
    name = "lablib_tests_slow_to_import"
    (tmp_path / f"{name}.py").write_text(
        "import gc, os\nON = gc.isenabled()\nif 'FAILS' in os.environ: raise OSError\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield name
    sys.modules.pop(name, None)
    gc.enable()


def test_the_collector_rests_while_the_module_is_imported_and_works_again(module) -> None:
    before = list(sys.meta_path)
    collector.rest_while_importing(module)
    import json.tool  # noqa: F401  another import changes nothing

    assert gc.isenabled()
    assert not importlib.import_module(module).ON
    assert gc.isenabled()
    assert sys.meta_path == before


def test_it_works_again_after_an_import_that_fails(module, monkeypatch) -> None:
    collector.rest_while_importing(module)
    with monkeypatch.context() as failing:
        failing.setenv("FAILS", "yes")
        with pytest.raises(OSError):  # noqa: PT011  the module's own
            importlib.import_module(module)
    assert gc.isenabled()
    assert importlib.import_module(module).ON


def test_a_collector_that_somebody_stopped_stays_stopped(module) -> None:
    collector.rest_while_importing(module)
    gc.disable()
    importlib.import_module(module)
    assert not gc.isenabled()


def test_a_module_that_is_there_already_or_nowhere_is_left_alone() -> None:
    before = list(sys.meta_path)
    collector.rest_while_importing("gc")
    assert sys.meta_path == before
    collector.rest_while_importing("lablib_tests_no_such_module")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("lablib_tests_no_such_module")
    assert sys.meta_path == before
