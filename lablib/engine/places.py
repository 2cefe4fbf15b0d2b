"""Where in the learner's code a rank is, or was when it failed: frames sorted into theirs and ours."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from lablib.engine.wire import Frame

_OURS = str(Path(__file__).parents[1])
_LIBRARIES = (_OURS, *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}, "<frozen")
_THREAD = re.compile(r"hread 0x([0-9a-f]+)")
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')


def learners(frames: Iterable[Frame]) -> list[Frame]:
    """Return the frames of code that is neither ours, nor Python's, nor an installed library's."""
    return [frame for frame in frames if not _in_library(frame.file) and not _starts_the_server(frame)]


def _starts_the_server(frame: Frame) -> bool:
    return (frame.file, frame.line, frame.function) == ("<string>", 1, "<module>")


def _in_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or "site-packages" in file or "dist-packages" in file


def say(frame: Frame) -> str:
    """Return ``cell [12], line 3`` or ``train.py, line 3``."""
    name = frame.file if frame.file.startswith("cell [") else Path(frame.file).name
    return f"{name}, line {frame.line}"


def say_with_text(frame: Frame) -> str:
    """Return the place, the function and the line's text."""
    text = f": {frame.text.strip()}" if frame.text.strip() else ""
    return f"{say(frame)}, in {frame.function}{text}"


def parse_stacks(dump: str, *, thread: int, sources: dict[str, str]) -> list[Frame]:
    """Return the frames of one thread in a faulthandler dump, outermost first.

    Args:
        dump: what faulthandler wrote.
        thread: identifier of the thread, the rank's main one.
        sources: label of a cell to its source text.
    """
    frames: list[Frame] = []
    inside = False
    for row in dump.splitlines():
        header = _THREAD.search(row)
        if header:
            inside = int(header[1], 16) == thread
        elif inside and (match := _FRAME.match(row)):
            file, line = match["file"], int(match["line"])
            frames.append(Frame(file, line, match["function"], _text(file, line, sources)))
    return frames[::-1]


def _text(file: str, line: int, sources: dict[str, str]) -> str:
    try:
        text = sources[file] if file in sources else Path(file).read_text(errors="replace")
        return text.splitlines()[line - 1]
    except (OSError, IndexError, ValueError):
        return ""
