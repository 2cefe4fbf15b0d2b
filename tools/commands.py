"""The commands behind `make`: each makes sure of `.venv` first, then becomes the program it starts."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tools import desk, environment, jupyter
from tools.stop import StopError

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Carry out the command in `arguments`; a StopError becomes one line and exit status 1."""
    parser = argparse.ArgumentParser(prog="tools/setup.py", description="Set the labs up and open them.")
    commands = parser.add_subparsers(dest="command", required=True)
    lab = commands.add_parser("lab", help="copy the notebooks to work/ and open JupyterLab on the first lab")
    lab.add_argument("--port", default="", help="port of JupyterLab; the first free one from 8888 by default")
    lab.add_argument("--reset", default="", help="number of a lab to take anew; your version becomes a backup")
    install = commands.add_parser("install", help="make .venv, or bring it up to date")
    run = commands.add_parser("run", help="run a module, or a file named *.py, in .venv")
    for command in (lab, install, run):
        command.add_argument("--extra", action="append", default=[], help="optional dependencies: test, bench")
        command.add_argument("--torch-index", default="", help="address of a package index to take torch from")
    run.add_argument("program", help="the module or file")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="what the program is given")
    chosen = parser.parse_args(arguments)
    try:
        port = jupyter.port_number(chosen.port) if chosen.command == "lab" and chosen.port else None
        python = environment.ready(root, extras=chosen.extra, torch_index=chosen.torch_index or None)
        if chosen.command == "lab":
            first = desk.lay_out(root, reset=chosen.reset or None)
            superuser = os.geteuid() == 0
            line = jupyter.command(python, first, port=port, browser=jupyter.has_browser(), superuser=superuser)
            _become(line, root)
        elif chosen.command == "run":
            how = [] if chosen.program.endswith(".py") else ["-m"]
            _become([str(python), *how, chosen.program, *chosen.arguments], root)
    except StopError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped; the same command takes it up again.", file=sys.stderr)
        return 130
    return 0


def _become(line: list[str], root: Path) -> None:
    # exec and not a child: Ctrl-C, the exit status and the terminal then belong to the program alone.
    os.chdir(root)
    sys.stdout.flush()
    os.execve(line[0], line, environment.variables(root / ".venv"))
