"""Build the course: labs/src/NN_name.py -> labs/NN_name.ipynb, labs/solutions/NN_name.ipynb, labs/README.md.

python labs/build.py             write what differs; executes nothing, keeps stored outputs
python labs/build.py --run 04    execute lab 04, both notebooks, and store what its checked cells print
python labs/build.py --check     write nothing; exit 1 if anything differs or has no stored output
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from _build.course_map import course_map
from _build.execute import outputs_of
from _build.notebook import Printed, encoded, notebook, stored
from _build.source import Lab, SourceError, read

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Built:
    """A derived file as it should be, and what is still missing in it."""

    path: Path
    content: bytes
    missing: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        return not self.path.exists() or self.path.read_bytes() != self.content


def main(arguments: list[str], labs: Path = HERE) -> int:
    """Run the command line on the course in `labs`; return the exit status."""
    parser = argparse.ArgumentParser(prog="labs/build.py", description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--run", nargs="+", default=[], metavar="NN", help="execute these labs")
    mode.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    options = parser.parse_args(arguments)
    try:
        course = [read(path) for path in sorted((labs / "src").glob("*.py"))]
        if repeated := [number for number, times in Counter(lab.number for lab in course).items() if times > 1]:
            raise SourceError(f"two labs have the number {', '.join(repeated)}")
        if unknown := set(options.run) - {lab.number for lab in course}:
            raise SourceError(f"no lab {', '.join(sorted(unknown))} in labs/src")
        files = list(build(course, labs, run=set(options.run)))
    except SourceError as error:
        print(error, file=sys.stderr)
        return 1
    problems = [message for file in files for message in file.missing]
    if options.check:
        problems += [f"{_name(file.path, labs)}: differs; run python labs/build.py" for file in files if file.differs]
    else:
        for file in files:
            if file.differs:
                file.path.parent.mkdir(exist_ok=True)
                file.path.write_bytes(file.content)
                print(f"wrote {_name(file.path, labs)}")
    expected = {file.path for file in files}
    strays = {*labs.glob("*.ipynb"), *labs.glob("solutions/*.ipynb")} - expected
    problems += [f"{_name(path, labs)}: has no source; remove it" for path in sorted(strays)]
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    return 1 if problems and options.check else 0


def build(course: list[Lab], labs: Path, *, run: set[str]) -> Iterator[Built]:
    """Yield each derived file of the course; the labs numbered in `run` are executed."""
    for lab in course:
        for folder, solved in ((labs, False), (labs / "solutions", True)):
            path = folder / f"{lab.path.stem}.ipynb"
            printed: Printed = {}
            if lab.number in run:
                printed = outputs_of(lab, notebook(lab, solved=solved, printed={})[0])
            else:
                printed = stored(path)
            made, bare = notebook(lab, solved=solved, printed=printed)
            command = f"run python labs/build.py --run {lab.number}"
            missing = tuple(
                f"labs/src/{lab.path.name}:{cell.line}: no output stored in {_name(path, labs)}; {command}"
                for cell in bare
            )
            yield Built(path, encoded(made), missing)
    yield Built(labs / "README.md", course_map(course).encode())


def _name(path: Path, labs: Path) -> str:
    return f"labs/{path.relative_to(labs).as_posix()}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
