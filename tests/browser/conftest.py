"""One JupyterLab, one browser and one page for all browser tests; pictures go to `artifacts/browser`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from chromium import FLAGS, find_chromium
from labpage import LabPage
from labserver import ROOT, LabServer
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
WINDOW = {"width": 1280, "height": 1500}

_open = ExitStack()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the browser's tests first: where several processes share the tests, short ones fill the end."""
    items.sort(key=lambda item: HERE not in item.path.parents)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Look for the browser here and not in a fixture: pytest then folds all skips into one line."""
    if item.get_closest_marker("browser"):
        find_chromium()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Close the browser after its last test: it keeps an event loop running, which other rooms' tests cannot have."""
    if nextitem is None or HERE not in nextitem.path.parents:
        _open.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    """Serve the labs; at the end nothing that the server started is left."""
    server = LabServer(tmp_path_factory.mktemp("browser"))
    yield server
    assert server.close() == []


@pytest.fixture(scope="session")
def lab(server: LabServer) -> LabPage:
    """Return the one page, in which a test or module opens its notebook."""
    playwright = _open.enter_context(sync_playwright())
    browser = _open.enter_context(playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS))
    return LabPage(browser.new_page(viewport=WINDOW), server, pictures=ROOT / "artifacts" / "browser")


@pytest.fixture(params=["light", "dark"])
def theme(request: pytest.FixtureRequest, lab: LabPage) -> Iterator[str]:
    """Show the page in one theme, then the other; light stays."""
    lab.theme(request.param)
    yield request.param
    lab.theme("light")
