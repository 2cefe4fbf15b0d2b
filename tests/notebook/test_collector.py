from __future__ import annotations

import gc
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from IPython.core.events import EventManager, available_events

from lablib.notebook import collector


@pytest.fixture
def shell() -> Iterator[SimpleNamespace]:
    yield SimpleNamespace(events=EventManager(None, available_events))
    gc.unfreeze()
    gc.enable()


def test_the_collector_rests_until_the_cell_is_over_and_leaves_alone_what_there_is(shell) -> None:
    collector.rest_during_this_cell(shell)
    assert not gc.isenabled()
    shell.events.trigger("post_run_cell", None)
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000


def test_only_that_one_cell(shell) -> None:
    collector.rest_during_this_cell(shell)
    shell.events.trigger("post_run_cell", None)
    gc.disable()
    shell.events.trigger("post_run_cell", None)
    assert not gc.isenabled()


def test_a_collector_that_somebody_stopped_stays_stopped(shell) -> None:
    gc.disable()
    collector.rest_during_this_cell(shell)
    shell.events.trigger("post_run_cell", None)
    assert not gc.isenabled()
    assert gc.get_freeze_count() == 0
