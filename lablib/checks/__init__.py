"""Judge the exercises, one file per lab, loaded when named: `checks.lab04.weights(answer)` -> `Verdict`."""

from __future__ import annotations

import importlib
import re
from types import ModuleType

from lablib.checks.verdict import NOT_ATTEMPTED, PASSED, Verdict, check, compare, failed, is_open

__all__ = ["NOT_ATTEMPTED", "PASSED", "Verdict", "check", "compare", "failed", "is_open"]


def __getattr__(name: str) -> ModuleType:
    if re.fullmatch(r"lab\d\d", name):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
