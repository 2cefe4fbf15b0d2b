"""One JupyterLab, one browser and one page for all browser tests; pictures go to `artifacts/browser`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import FLAGS, find_chromium
from labpage import LabPage
from labserver import ROOT, LabServer
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
WINDOW = {"width": 1280, "height": 1500}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the browser's tests last: Playwright keeps an event loop running, which other rooms' tests cannot have."""
    items.sort(key=lambda item: HERE in item.path.parents)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Look for the browser here and not in a fixture: pytest then folds all skips into one line."""
    if item.get_closest_marker("browser"):
        find_chromium()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    """Serve the labs; at the end nothing that the server started is left."""
    server = LabServer(tmp_path_factory.mktemp("browser"))
    yield server
    assert server.close() == []


@pytest.fixture(scope="session")
def lab(server: LabServer) -> Iterator[LabPage]:
    """Return the one page, in which a test or module opens its notebook."""
    pictures = ROOT / "artifacts" / "browser"
    shutil.rmtree(pictures, ignore_errors=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        yield LabPage(browser.new_page(viewport=WINDOW), server, pictures)
        browser.close()


@pytest.fixture(params=["light", "dark"])
def theme(request: pytest.FixtureRequest, lab: LabPage) -> Iterator[str]:
    """Show the page in one theme, then the other; light stays."""
    lab.theme(request.param)
    yield request.param
    lab.theme("light")
