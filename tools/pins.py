"""Print the installed packages as constraints; run it with the Python of a tested environment."""

from __future__ import annotations

import importlib.metadata
import re
import sys

HEADER = "# Written by `make pins` from an environment that passed `make test`. Do not edit."
OLDEST = (3, 10)
NOT_OURS = {"lablib", "pip"}


def constraint(name: str, version: str, requires_python: str | None) -> str:
    """Return one pin without its local part (`+cpu`); a marker frees the older Pythons that it refuses."""
    pin = f"{name}=={version.partition('+')[0]}"
    oldest = re.search(r">=\s*(3\.(\d+)(\.\d+)?)", requires_python or "")
    if oldest is None or (3, int(oldest[2])) <= OLDEST:
        return pin
    variable = "python_full_version" if oldest[3] else "python_version"
    return f'{pin}; {variable} >= "{oldest[1]}"'


def main() -> None:
    """Print the constraints file for this environment."""
    found = {_normal(package.name): package for package in importlib.metadata.distributions()}
    lines = [
        constraint(name, found[name].version, found[name].metadata["Requires-Python"])
        for name in sorted(found.keys() - NOT_OURS)
    ]
    sys.stdout.write("\n".join([HEADER, *lines, ""]))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
