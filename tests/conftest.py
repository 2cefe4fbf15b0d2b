"""Fixtures that several rooms' tests share."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest
from processes import ranks_of, wait_until_gone


@pytest.fixture
def no_orphans() -> Iterator[None]:
    """Fail a test that leaves ranks, or their children, behind."""
    me = psutil.Process().pid
    before = {process.pid for process in ranks_of(me)}
    yield
    new = [process.pid for process in ranks_of(me) if process.pid not in before]
    assert wait_until_gone(new, 5.0) == []
