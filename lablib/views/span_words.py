"""What a timeline says in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

from lablib.trace import Kind, Span


def label(span: Span, columns: int | None = None) -> str:
    """Return what stands in a span's bar, in so many characters."""
    if span.kind is Kind.COLLECTIVE and span.bucket is not None:
        return f"bucket {span.bucket}"
    return escape(span.name[:columns], quote=False)


def hover(span: Span, zero_ns: int) -> str:
    """Return everything about a span, times in milliseconds since the given moment."""
    start, end = ((at - zero_ns) / 1e6 for at in (span.start_ns, span.end_ns))
    about = [f"<b>rank {span.rank}: {escape(span.name, quote=False)}</b> ({span.kind})"]
    about.append(f"{start:,.3f} → {end:,.3f} ms ({end - start:,.3f} ms)" if end > start else f"at {start:,.3f} ms")
    about.append(", ".join(_place(span)))
    if span.group or span.ranks:
        ranks = str([*span.ranks]) if len(span.ranks) <= 16 else f"{len(span.ranks)} ranks"
        call = f", call {span.sequence}" if span.sequence else ""
        about.append(f"group {escape(span.group, quote=False)} {ranks}{call}")
    if span.parameters:
        more = f", … {len(span.parameters)} in all" if len(span.parameters) > 4 else ""
        about.append(escape(", ".join(span.parameters[:4]), quote=False) + more)
    if span.line:
        about.append(f"{escape(span.file, quote=False)}, line {span.line}")
    return "<br>".join(filter(None, about))


def _place(span: Span) -> list[str]:
    return [
        *([] if span.iteration is None else [f"iteration {span.iteration}"]),
        *([] if span.bucket is None else [f"bucket {span.bucket}"]),
        *([f"{span.nbytes:,} B"] if span.nbytes else []),
        *([] if span.peer is None else [f"peer or root {span.peer}"]),
        *([escape(span.lane, quote=False)] if span.lane else []),
    ]


def summary(spans: Sequence[Span], iteration: int | None) -> str:
    """Return the facts shown, in one line."""
    which = "" if iteration is None else f"iteration {iteration}: "
    if not spans:
        return f"{which}no spans"
    ranks = sorted({span.rank for span in spans})
    who = f"{len(ranks)} ranks" if len(ranks) > 1 else f"rank {ranks[0]}"
    length = max(span.end_ns for span in spans) - min(span.start_ns for span in spans)
    kinds = Counter(span.kind for span in spans)
    counts = ", ".join(f"{kinds[kind]:,} {kind}" for kind in Kind if kinds[kind])
    return f"{which}{who}, {length / 1e6:.1f} ms, spans: {counts}"
