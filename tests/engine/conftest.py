"""Every engine test runs real ranks and must leave none behind."""

from __future__ import annotations

import pytest

import lablib

lablib.warm_up()


@pytest.fixture(autouse=True)
def _clean(no_orphans: None) -> None:
    """Count processes around each test."""
