"""Write a lab as a notebook, byte for byte the same each time.

Only checked cells keep an output, and only what they printed: it is what nbval compares.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

from _build.blank import blanked
from _build.source import CHECKED, Cell, Lab, SourceError

Printed = dict[str, deque[str]]  # source of a checked cell -> what it printed, in order of its copies

METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"},
}


def notebook(lab: Lab, *, solved: bool, printed: Printed) -> tuple[dict[str, Any], list[Cell]]:
    """Return the notebook and its checked cells that have no output for their present source.

    solved: keep the solutions, or leave a gap for each.
    printed: the outputs to store; each is used once.
    """
    left = {source: deque(texts) for source, texts in printed.items()}
    cells: list[dict[str, Any]] = []
    missing = []
    count = 0
    for cell in lab.cells:
        source = cell.source if solved else blanked(lab, cell)
        built: dict[str, Any] = {"cell_type": cell.kind, "id": cell.id, "metadata": {}}
        if cell.claims:
            built["metadata"]["claims"] = cell.claims
        built["source"] = source.splitlines(keepends=True)
        if cell.kind == "code":
            count += 1
            built |= {"execution_count": None, "outputs": []}
        if cell.checked:
            built["metadata"]["tags"] = [CHECKED]
            if left.get(source):
                # nbval compares only cells that have a count: the one of a run from top to bottom.
                built["execution_count"] = count
                built["outputs"] = [_stdout(left[source].popleft())]
            else:
                missing.append(cell)
        cells.append(built)
    return {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}, missing


def encoded(built: dict[str, Any]) -> bytes:
    """Return the bytes of a notebook's file."""
    return (json.dumps(built, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def stored(path: Path) -> Printed:
    """Read what the checked cells of a notebook file printed; empty where there is no file.

    Raises SourceError for a file that is no notebook, and for a checked cell that shows more than text.
    """
    if not path.exists():
        return {}
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return printed(cells)
    except (ValueError, KeyError, TypeError):
        raise SourceError(f"{path.name}: not a notebook; remove it and build again") from None
    except OnlyPrints as error:
        raise SourceError(f"{path.parent.name}/{path.name}: {error}") from None


class OnlyPrints(Exception):
    """A checked cell with an output that nbval cannot compare."""


def printed(cells: list[Any]) -> Printed:
    """Collect what the checked cells printed. Raises OnlyPrints for any other kind of output."""
    found: Printed = defaultdict(deque)
    for cell in cells:
        if CHECKED not in cell["metadata"].get("tags", []):
            continue
        source, outputs = "".join(cell["source"]), cell["outputs"]
        for output in outputs:
            kind = output.get("name", output["output_type"])
            if kind != "stdout":
                first = source.splitlines()[0]
                raise OnlyPrints(f"a checked cell only prints, and `{first}` ... gives {kind}: use print(...)")
        if text := "".join("".join(output["text"]) for output in outputs):
            found[source].append(text)
    return found


def _stdout(text: str) -> dict[str, Any]:
    return {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}
