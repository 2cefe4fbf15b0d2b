"""A folder for temporary files that only these tests use, so that what is left in it is theirs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_temporary_folder(tmp_path_factory) -> Iterator[None]:
    """Let this process, its kernels and their ranks make temporary files in a folder of their own."""
    os.environ["TMPDIR"] = tempfile.tempdir = str(tmp_path_factory.mktemp("own"))
    yield
    del os.environ["TMPDIR"]
    tempfile.tempdir = None
