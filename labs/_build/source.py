"""Read a lab's source: a percent-format Python file, line by line, so that every error can name its line.

    # ---
    # jupyter:
    #   lab:
    #     title: Ranks and launch
    #     minutes: 40
    #     question: Who am I, and who told me?
    #     measures: the environment and PID of each rank
    # ---

    # %% [markdown] claims="R1 R4"
    # Text, as Markdown.

    # %% id="launch" claims="R1" tags=["nbval-check-output"]
    print("code")
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NoReturn

import yaml

CHECKED = "nbval-check-output"
FIELDS = {"title": str, "minutes": int, "question": str, "measures": str}

_FILE = re.compile(r"(\d\d)_[a-z0-9_]+")
_CELL = re.compile(r"\s*#\s*%%(?:\s+(?P<options>.*))?$")
_OPTION = re.compile(r'(?P<key>\w+)=(?P<value>"[^"]*"|\[[^\]]*\])\s*')
_CLAIMS = re.compile(r"[A-Z]\d+(?: [A-Z]\d+)*")
_ID = re.compile(r"(?!cell-)[a-z][a-z0-9-]{0,59}")  # cell- is for the ids made here
_MAGIC = re.compile(r"\s*#?\s*[%!]\S")


class SourceError(Exception):
    """A lab that cannot be built; the text names the file and line and says what to do."""


@dataclass(frozen=True)
class Cell:
    kind: Literal["code", "markdown"]
    source: str
    line: int
    id: str = ""
    claims: str = ""
    checked: bool = False


@dataclass(frozen=True)
class Lab:
    path: Path
    title: str
    minutes: int
    question: str
    measures: str
    cells: tuple[Cell, ...]

    @property
    def number(self) -> str:
        return self.path.stem[:2]

    def wrong(self, line: int, message: str) -> NoReturn:
        """Raise a SourceError about one line of the source."""
        raise SourceError(f"{self.path.parent.parent.name}/src/{self.path.name}:{line}: {message}")


def read(path: Path) -> Lab:
    """Read one source file. Raises SourceError with file and line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    draft = Lab(path, "", 0, "", "", ())
    if not _FILE.fullmatch(path.stem):
        draft.wrong(1, "name the file like 04_gradient_averaging.py: two digits, then lower case")
    facts, first = _header(draft, lines)
    cells = [_cell(draft, *block) for block in _blocks(draft, lines, first)]
    lab = Lab(path=path, **facts, cells=(_opening(path.stem[:2], facts), *cells))
    return Lab(path=path, **facts, cells=_with_ids(lab))


def _header(lab: Lab, lines: list[str]) -> tuple[dict[str, Any], int]:
    """Return the lab's facts and the index of the line after the header."""
    if not lines or lines[0] != "# ---" or "# ---" not in lines[1:]:
        lab.wrong(1, "start with a header: # ---, # jupyter:, #   lab:, ... # ---")
    end = lines.index("# ---", 1)
    try:
        header = yaml.safe_load("\n".join(line.removeprefix("#")[1:] for line in lines[1:end]))
        facts = dict(header["jupyter"]["lab"])
    except (yaml.YAMLError, KeyError, TypeError, ValueError):
        lab.wrong(1, "the header is not YAML with jupyter: lab: and its fields")
    for name, kind in FIELDS.items():
        if type(facts.get(name)) is not kind or not facts[name]:
            lab.wrong(1, f"the header needs lab: {name}: ({kind.__name__})")
    if unknown := sorted(set(facts) - set(FIELDS)):
        lab.wrong(1, f"unknown in the header: {', '.join(unknown)}; a lab has {', '.join(FIELDS)}")
    return facts, end + 1


def _blocks(lab: Lab, lines: list[str], first: int) -> Iterator[tuple[int, str, list[str]]]:
    """Yield line number, options and body of each cell."""
    starts = [i for i in range(first, len(lines)) if _CELL.match(lines[i])]
    for i in range(first, starts[0] if starts else len(lines)):
        if lines[i].strip():
            lab.wrong(i + 1, "text before the first cell; start it with # %% or # %% [markdown]")
    if not starts:
        lab.wrong(first, "no cells after the header")
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        if lines[start][:1].isspace():
            lab.wrong(start + 1, "a cell starts at the left margin")
        match = _CELL.match(lines[start])
        yield start + 1, (match and match["options"]) or "", lines[start + 1 : end]


def _cell(lab: Lab, line: int, options: str, body: list[str]) -> Cell:
    is_text = options.startswith("[markdown]")
    given = _options(lab, line, options.removeprefix("[markdown]").strip())
    while body and not body[-1].strip():
        body = body[:-1]
    while body and not body[0].strip():
        body, line = body[1:], line + 1
    if not body:
        lab.wrong(line, "an empty cell; remove it")
    if not is_text:
        for i, text in enumerate(body):
            if _MAGIC.match(text):
                lab.wrong(line + 1 + i, "labs are plain Python: no % or ! lines")
            if "NBVAL_" in text:
                lab.wrong(line + 1 + i, f'mark a compared cell in its header: tags=["{CHECKED}"]')
        return Cell("code", "\n".join(body), line, **given)
    if given.get("checked"):
        lab.wrong(line, f"{CHECKED} is for code cells")
    for i, text in enumerate(body):
        if text != "#" and not text.startswith("# "):
            lab.wrong(line + 1 + i, "each line of a Markdown cell starts with # and a space")
        if text.startswith("# # "):
            lab.wrong(line + 1 + i, "the title is made from the header; start with ##")
    return Cell("markdown", "\n".join(text[2:] for text in body), line, **given)


def _options(lab: Lab, line: int, text: str) -> dict[str, Any]:
    given: dict[str, Any] = {}
    while text:
        match = _OPTION.match(text)
        if not match:
            lab.wrong(line, f'cannot read {text!r}; write key="value", as in claims="R1 R4"')
        text = text[match.end() :]
        key = match["key"]
        try:
            value = json.loads(match["value"])
        except ValueError:
            lab.wrong(line, f"cannot read {match['value']}; write it as JSON")
        if key == "tags" and value == [CHECKED]:
            given["checked"] = True
        elif key == "tags" and "raises-exception" in value:
            lab.wrong(line, "raises-exception also passes when nothing is raised; use `with expect(...)`")
        elif key == "tags":
            lab.wrong(line, f'the only tag of a lab is tags=["{CHECKED}"]')
        elif key == "claims" and isinstance(value, str) and _CLAIMS.fullmatch(value):
            given["claims"] = value
        elif key == "id" and isinstance(value, str) and _ID.fullmatch(value):
            given["id"] = value
        elif key in ("claims", "id"):
            lab.wrong(line, f'{key} is like {"R1 R4" if key == "claims" else "first-launch"}, not {value!r}')
        else:
            lab.wrong(line, f"unknown in a cell header: {key}; a cell has id, claims, tags")
    return given


def _opening(number: str, facts: dict[str, Any]) -> Cell:
    source = (
        f"# {number} · {facts['title']}\n\n"
        f"**{facts['question']}**\n\n"
        f"About {facts['minutes']} minutes. You measure {facts['measures']}."
    )
    return Cell("markdown", source, 1, id="opening")


def _with_ids(lab: Lab) -> tuple[Cell, ...]:
    """Give each cell without an id one made from its own source, so that an edit changes no other cell's id."""
    seen: Counter[str] = Counter()
    cells = []
    for cell in lab.cells:
        digest = hashlib.sha256(f"{cell.kind}\n{cell.source}".encode()).hexdigest()
        name = cell.id or f"cell-{digest[:8]}"
        seen[name] += 1
        if seen[name] > 1 and cell.id:
            lab.wrong(cell.line, f"the id {name} is taken by an earlier cell")
        cells.append(replace(cell, id=name if seen[name] == 1 else f"{name}-{seen[name]}"))
    return tuple(cells)
