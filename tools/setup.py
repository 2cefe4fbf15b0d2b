"""Set the labs up: refuse a Python that is too old in one line, then hand over to `tools.commands`.

This file must start under Python 3.6, so it uses nothing newer.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Sequence

OLDEST = (3, 10)
TESTED = (3, 11)
CANDIDATES = [f"python3.{minor}" for minor in (11, 12, 13, 14, 10)]


def refusal(version: Sequence[int], candidates: Sequence[str]) -> str:
    """Return the line that says this Python is too old, and which of the `candidates` to use instead."""
    line = f"Python {_dotted(version)} is too old for the labs: they need {_dotted(OLDEST)} or newer"
    better = next((name for name in candidates if _runs(name)), None)
    if better is None:
        return f"{line}; install one and name it, for example: make lab PYTHON=python{_dotted(TESTED)}"
    return f"{line}; this machine has one: make lab PYTHON={better}"


def _runs(name: str) -> bool:
    # A version manager leaves stand-ins on the path that start nothing: only one that answers counts.
    path = shutil.which(name)
    if path is None:
        return False
    answer = subprocess.run([path, "-V"], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return answer.returncode == 0


def _dotted(numbers: Sequence[int]) -> str:
    return ".".join(str(number) for number in numbers)


def main() -> "int | str":
    """Check the Python version and run the command."""
    if sys.version_info < OLDEST:
        return refusal(sys.version_info[:3], CANDIDATES)
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tools import commands

    return commands.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
