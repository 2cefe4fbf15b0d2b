"""Keep Python's collector from the objects that an import makes.

torch makes hundreds of thousands of objects that stay. The collector looks through them again and again while they
come, which takes a sixth of the time of the import.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def rest_while_importing(name: str) -> None:
    """Stop the collector for as long as the first import of a module takes.

    Args:
        name: a module; nothing happens where it is there already.
    """
    if name not in sys.modules:
        sys.meta_path.insert(0, _Once(name))


class _Once(MetaPathFinder):
    """Find a module as Python would, once, and have it run without the collector."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = _without_collector(loader.exec_module)
        return spec


def _without_collector(run: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    def rested(module: ModuleType) -> None:
        was_on = gc.isenabled()
        gc.disable()
        try:
            run(module)
        finally:
            if was_on:
                gc.enable()

    return rested
