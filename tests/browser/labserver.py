"""A JupyterLab of one's own for the browser tests: the course copied to a temporary `work/`, served as `make lab` does.

labs/*.ipynb ── tools.desk ──► <temporary>/work/ ◄── root folder ── JupyterLab, a token, a free port of 127.0.0.1
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil

from tools import desk, environment, jupyter

ROOT = Path(__file__).resolve().parents[2]
STARTS_WITHIN_S = 60.0
ENDS_WITHIN_S = 20.0
KEEPER = ["/bin/sh", "-c", "read _; kill -s TERM $1", "keeper"]


class LabServer:
    """One running JupyterLab; `close` ends it, its kernels and their ranks.

    Args:
        folder: an empty folder for the copy of the course and for JupyterLab's own files.
    """

    def __init__(self, folder: Path) -> None:
        self.work = self._lay_out(folder)
        self._log = folder / "jupyterlab.txt"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = jupyter.command(
            Path(sys.executable),
            next(self.work.glob("00_*.ipynb")),
            port=port,
            browser=False,
            superuser=os.geteuid() == 0,
        )
        # The page then holds the application object, where tests read the notebook's cells and outputs.
        command.append("--LabApp.expose_app_in_browser=True")
        with open(self._log, "w") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.work,
                env=self._variables(folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        # It waits for the end of the process that runs the tests, however that comes, and ends the server.
        self._keeper = subprocess.Popen(
            [*KEEPER, str(self._process.pid)], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self.origin = f"http://127.0.0.1:{port}"
        self._token = self._read_token()

    @staticmethod
    def _lay_out(folder: Path) -> Path:
        (folder / "labs").symlink_to(ROOT / "labs")
        return desk.lay_out(folder).parent

    @staticmethod
    def _variables(folder: Path) -> dict[str, str]:
        # Only the settings that `make` wrote beside JupyterLab count: none of this user's, and none is left to them.
        own = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
        own += ("JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")
        return environment.variables(Path(sys.prefix)) | {name: str(folder / name.lower()) for name in own}

    def _read_token(self) -> str:
        deadline = time.monotonic() + STARTS_WITHIN_S
        while time.monotonic() < deadline and self._process.poll() is None:
            if found := re.search(rf"{re.escape(self.origin)}\S*[?&]token=(\w+)", self.said):
                return found[1]
            time.sleep(0.05)
        self.close()
        raise AssertionError(f"JupyterLab gave no address:\n{self.said}")

    @property
    def said(self) -> str:
        """Return what the server has printed."""
        return self._log.read_text(errors="replace")

    @property
    def pid(self) -> int:
        """Return the server's process id."""
        return self._process.pid

    def address(self, name: str) -> str:
        """Return the address that opens the notebook `name` alone, whatever was open before."""
        return f"{self.origin}/lab/tree/{name}?reset&token={self._token}"

    def write(self, name: str, *cells: str) -> None:
        """Write a notebook with these code cells into `work/`."""
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, self.work / name)

    def close(self) -> list[int]:
        """End the server, and return the process ids of what outlived it."""
        family = psutil.Process(self.pid).children(recursive=True) if self._process.poll() is None else []
        self._keeper.kill()
        self._keeper.communicate()
        self._process.terminate()
        try:
            self._process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _, alive = psutil.wait_procs(family, timeout=5.0)
        for process in alive:
            process.kill()
        return [process.pid for process in alive]
