"""How ranks' output and a `Run` look in a cell: text for saved notebooks and screen readers, HTML beside it."""

from __future__ import annotations

import html
from collections.abc import Sequence

from lablib.engine.result import Run

_SHOWN_LINES = 200  # a rank; the rest stays in `r.output`
_SHOWN_CHARS = 2000  # a line
_VALUE_CHARS = 300
_PRE = (
    "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;margin:0;"
    "font-size:var(--jp-code-font-size,13px);line-height:var(--jp-code-line-height,1.3)"
)


def lines_of(text: str, rank: int, *, last: int | None = None) -> list[str]:
    """Return the lines of a rank's output that are shown.

    Args:
        text: the output.
        rank: the rank, for the line that says where the rest is.
        last: show this many of the last lines only.
    """
    rows = [_overwritten(row)[:_SHOWN_CHARS] for row in text.removesuffix("\n").split("\n")] if text else []
    if last is not None:
        return rows[-last:]
    if len(rows) <= _SHOWN_LINES:
        return rows
    half = _SHOWN_LINES // 2
    gap = f"… {len(rows) - 2 * half:,} lines left out; output[{rank}] has them …"
    return [*rows[:half], gap, *rows[-half:]]


def _overwritten(row: str) -> str:
    """Return what a terminal shows of a line that carriage returns rewrote, as progress bars do."""
    return row.rstrip("\r").rpartition("\r")[2]


def output_text(rows: Sequence[Sequence[str]]) -> str:
    """Return every rank's lines, rank order, each with its rank in front."""
    return "\n".join(f"[rank {rank}] {row}" for rank, own in enumerate(rows) for row in own)


def output_html(rows: Sequence[Sequence[str]], *, note: str = "") -> str:
    """Return the same as HTML, ranks in their colours.

    Args:
        rows: the lines of each rank.
        note: a last line about the run itself.
    """
    lines = [f"{_mark(rank)} <b>[rank {rank}]</b> {html.escape(row)}" for rank, own in enumerate(rows) for row in own]
    if note:
        lines.append(f'<span style="opacity:.7">{html.escape(note)}</span>')
    return f'<pre style="{_PRE}">{chr(10).join(lines)}</pre>' if lines else ""


def run_html(run: Run) -> str:
    """Return a table of a run's values, one row a rank, under what it ran on."""
    rows = "".join(
        f'<tr><td style="text-align:left">{_mark(rank)} <b>rank {rank}</b></td>'
        f'<td style="text-align:left"><code>{html.escape(_short(value))}</code></td></tr>'
        for rank, value in enumerate(run.values)
    )
    made = run.backend or "no group"
    head = f"real · {run.world_size} ranks · {made} on {run.device} ({run.reason}) · {run.seconds:.2f} s"
    return f"<div>{html.escape(head)}</div><table>{rows}</table>"


def _mark(rank: int) -> str:
    # the colour stands beside the text, which keeps the page's own ink in both themes
    from lablib.views import palette  # brings plotly, for which the fork server should not have to wait

    return f'<span style="color:{palette.rank_colour(rank)}">■</span>'


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _VALUE_CHARS else f"{text[:_VALUE_CHARS]}…"
