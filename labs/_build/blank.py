"""Take the solutions out of a cell: what a learner gets.

    # solution                                weights = [4 / 7, 3 / 7]  # solution
    total = sum(sizes)
    weights = [n / total for n in sizes]      becomes
    # end solution
                                              weights = ...  # your code
    becomes

    ...  # your code
"""

from __future__ import annotations

import ast
import re

from _build.source import Cell, Lab

GAP = "...  # your code"

_START = re.compile(r"(?P<indent>\s*)# solution")
_END = re.compile(r"\s*# end solution")
_ONE_LINE = re.compile(r"(?P<indent>\s*)(?P<code>[^\s#].*?)\s*# solution")
_ALMOST = re.compile(r"#\s*(end\s*(of\s*)?)?solutions?\b", re.IGNORECASE)


def blanked(lab: Lab, cell: Cell) -> str:
    """Return the cell's source with a gap for each solution. Raises SourceError at markers that do not pair."""
    if cell.kind == "markdown":
        return cell.source
    kept: list[str] = []
    opened = 0  # the line of the marker of the block we are in
    for line, text in enumerate(cell.source.split("\n"), cell.line + 1):
        if match := _START.fullmatch(text):
            if opened:
                lab.wrong(line, f"# solution inside the one of line {opened}")
            opened = line
            kept.append(match["indent"] + GAP)
        elif _END.fullmatch(text):
            if not opened:
                lab.wrong(line, "# end solution without a # solution before it")
            opened = 0
        elif match := _ONE_LINE.fullmatch(text):
            if opened:
                lab.wrong(line, f"a one-line # solution inside the one of line {opened}")
            kept.append(match["indent"] + _without_value(lab, line, match["code"]))
        elif _ALMOST.search(text):
            lab.wrong(line, "a marker is exactly `# solution` or `# end solution`")
        elif not opened:
            kept.append(text)
    if opened:
        lab.wrong(opened, "# solution without # end solution in the same cell")
    source = "\n".join(kept)
    if error := _syntax_error(cell.source):
        lab.wrong(cell.line + (error.lineno or 0), f"not Python: {error.msg}")
    if error := _syntax_error(source):
        lab.wrong(cell.line, f"without its solutions the cell is not Python: {error.msg}")
    return source


def _without_value(lab: Lab, line: int, code: str) -> str:
    try:
        [statement] = ast.parse(code).body
    except (SyntaxError, ValueError):
        lab.wrong(line, "a one-line # solution is one whole statement; else use # solution ... # end solution")
    if isinstance(statement, ast.Return):
        return f"return {GAP}"
    if isinstance(statement, ast.Assign):
        target = statement.targets[-1]
        if isinstance(target, (ast.Tuple, ast.List)):
            lab.wrong(line, "`...` cannot be unpacked; give each name its own line")
        return code.encode()[: target.end_col_offset].decode() + f" = {GAP}"
    return GAP


def _syntax_error(source: str) -> SyntaxError | None:
    try:
        ast.parse(source)
    except SyntaxError as error:
        return error
    return None
