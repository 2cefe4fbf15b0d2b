"""Open JupyterLab on the first lab."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from tools.stop import StopError


def command(python: Path, notebook: Path, *, port: int | None, browser: bool, superuser: bool) -> list[str]:
    """Return the command that serves the folder of `notebook` and opens it; JupyterLab makes its own token.

    Args:
        python: the Python of the environment with JupyterLab.
        notebook: the file to open first.
        port: the port to serve on; None lets JupyterLab take the first free one from 8888.
        browser: open a browser; without one JupyterLab prints the address with its token.
        superuser: the user is root, as in many containers, which JupyterLab refuses without being told.
    """
    options = [
        f"--ServerApp.root_dir={notebook.parent}",
        f"--LabApp.default_url=/lab/tree/{quote(notebook.name)}",
        "--Application.log_level=WARN",
    ]
    if port is not None:
        options += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    if not browser:
        options.append("--no-browser")
    if superuser:
        options.append("--allow-root")
    return [str(python), "-m", "jupyterlab", *options]


def port_number(text: str) -> int:
    """Return the port that `text` names, if a server can listen on it now.

    Raises:
        StopError: it is no port number, or it is taken.
    """
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise StopError(f"PORT={text} is no port number; try PORT=8890")
    with socket.socket() as probe:
        # As JupyterLab's own server does: a port is free although an earlier connection is still closing.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", int(text)))
        except OSError as error:
            raise StopError(f"PORT={text} cannot be used ({error.strerror}); try another, or none") from None
    return int(text)


def has_browser(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> bool:
    """Return whether a browser with windows can open here: a text browser would take the terminal away."""
    if platform == "darwin" or environment.get("BROWSER"):
        return True
    screen = environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    opener = any(shutil.which(name, path=environment.get("PATH")) for name in ("xdg-open", "wslview"))
    return bool(screen) and opener
