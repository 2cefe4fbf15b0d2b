"""What a figure looks like as data: its texts, lines and colours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def sizes_of_text(fig: Any) -> list[float]:
    """Return every font size that the figure sets, in pixels."""
    return [value for path, value in _facts(fig.to_plotly_json()) if path[-2:] == ("font", "size")]


def widths_of_lines(fig: Any) -> list[float]:
    """Return every line width that the figure sets, in pixels."""
    return [value for path, value in _facts(fig.to_plotly_json()) if path[-2:] == ("line", "width")]


def texts(fig: Any) -> list[str]:
    """Return the text of every annotation."""
    return [str(one.text) for one in fig.layout.annotations]


def _facts(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(node, dict):
        for name, value in node.items():
            if name != "template":
                yield from _facts(value, (*path, name))
    elif isinstance(node, (list, tuple)):
        for value in node:
            yield from _facts(value, path)
    else:
        yield path, node
