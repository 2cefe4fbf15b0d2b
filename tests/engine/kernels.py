"""A real Jupyter kernel for tests: run cells, press stop, restart, shut down, kill."""

from __future__ import annotations

import os
import queue
import time
from dataclasses import dataclass, field
from typing import Any

import psutil
from jupyter_client.manager import KernelManager
from processes import ranks_of


@dataclass
class Cell:
    """What a cell gave: text streams, the displays as they stand at the end, and the error."""

    text: str = ""
    displays: dict[str, str] = field(default_factory=dict)
    updates: int = 0
    result: str = ""
    error: str = ""
    error_text: str = ""
    number: int = 0
    seconds: float = 0.0

    @property
    def shown(self) -> str:
        """Return all text that the cell shows at the end."""
        return "\n".join([self.text, *self.displays.values(), self.result])


class Kernel:
    """One kernel process with lablib imported and its fork server warm."""

    def __init__(self, *, prelude: str = "") -> None:
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel()
        self._connect()
        self.run(
            "import os, sys, time, signal, ctypes, threading\nimport torch, torch.distributed as dist\n"
            "import lablib\nfrom lablib import *\nwarm_up(training=False)\n" + prelude
        )

    def _connect(self) -> None:
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    @property
    def pid(self) -> int:
        """Return the kernel's process id."""
        return self.manager.provisioner.pid

    def start(self, code: str) -> str:
        """Start a cell and return at once."""
        self._begun = time.monotonic()
        return self.client.execute(code)

    def finish(self, message: str, *, timeout: float = 60) -> Cell:
        """Wait until a cell is over."""
        cell = Cell()
        deadline = time.monotonic() + timeout
        while True:
            try:
                got = self.client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"the cell is not over after {timeout} s; so far: {cell}") from None
            if got["parent_header"].get("msg_id") != message:
                continue
            if self._take(cell, got["msg_type"], got["content"]):
                cell.seconds = time.monotonic() - self._begun
                return cell

    @staticmethod
    def _take(cell: Cell, kind: str, content: dict[str, Any]) -> bool:
        if kind == "execute_input":
            cell.number = content["execution_count"]
        elif kind == "stream":
            cell.text += content["text"]
        elif kind in ("display_data", "update_display_data"):
            name = content.get("transient", {}).get("display_id", str(len(cell.displays)))
            cell.updates += kind == "update_display_data"
            cell.displays[name] = content["data"]["text/plain"]
        elif kind == "execute_result":
            cell.result = content["data"]["text/plain"]
        elif kind == "error":
            cell.error, cell.error_text = content["ename"], "\n".join(content["traceback"])
        return kind == "status" and content["execution_state"] == "idle"

    def start_and_wait(self, code: str, pause_s: float) -> str:
        """Start a cell, wait until the kernel executes it, and this long on."""
        message = self.start(code)
        while True:
            got = self.client.get_iopub_msg(timeout=30)
            if got["parent_header"].get("msg_id") == message and got["msg_type"] == "execute_input":
                time.sleep(pause_s)
                return message

    def run(self, code: str, *, timeout: float = 60) -> Cell:
        """Run a cell to its end."""
        return self.finish(self.start(code), timeout=timeout)

    def wait_for_ranks(self, count: int, *, timeout: float = 30) -> list[int]:
        """Wait until this many ranks are there, and return their process ids."""
        deadline = time.monotonic() + timeout
        while len(found := ranks_of(self.pid)) < count:
            assert time.monotonic() < deadline, f"only {len(found)} ranks came"
            time.sleep(0.02)
        return [process.pid for process in found]

    def family(self) -> list[int]:
        """Return the kernel and everything that descends from it, servers included."""
        me = psutil.Process(self.pid)
        return [self.pid, *(process.pid for process in me.children(recursive=True))]

    def stop(self) -> None:
        """Press the stop button."""
        self.manager.interrupt_kernel()

    def restart(self) -> None:
        """Restart as JupyterLab's menu does."""
        self.client.stop_channels()
        self.manager.restart_kernel()
        self._connect()

    def kill(self) -> None:
        """Kill the kernel alone, with SIGKILL."""
        os.kill(self.pid, 9)

    def shut_down(self) -> None:
        """Shut down as closing a notebook does."""
        self.client.stop_channels()
        self.manager.shutdown_kernel()

    def close(self) -> None:
        """End whatever is left."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
