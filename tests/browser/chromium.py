"""Where the browser is, and how it is started."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

import pytest

REQUIRE_VARIABLE = "LABLIB_REQUIRE_BROWSER"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def find_chromium(environment: Mapping[str, str] = os.environ) -> str:
    """Return the path of Chromium; without one, skip the test, or fail it where LABLIB_REQUIRE_BROWSER is 1."""
    if path := shutil.which("chromium", path=environment.get("PATH")):
        return path
    say = pytest.fail if environment.get(REQUIRE_VARIABLE) == "1" else pytest.skip
    return say("the browser tests need the program chromium, which is not on the path")
