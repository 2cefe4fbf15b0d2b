"""`python -m lablib doctor` looks at this machine and says whether the labs would run."""

from __future__ import annotations

import argparse
import sys

from lablib import doctor


def main(arguments: list[str] | None = None) -> int:
    """Carry out the command and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lablib", description=__doc__)
    parser.add_argument("command", choices=["doctor"], help="say whether the labs would run on this machine")
    parser.parse_args(arguments)
    return doctor.main()


if __name__ == "__main__":
    sys.exit(main())
