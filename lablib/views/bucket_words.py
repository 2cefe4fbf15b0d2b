"""What the picture of buckets says in words."""

from __future__ import annotations

from html import escape

from lablib.analysis import BucketRow, Buckets

MIB = 1 << 20
COLUMNS = 30


def label(row: BucketRow, *, lines: int) -> str:
    """Return what stands before a bucket's block, in one line or two."""
    head = f"<b>bucket {row.bucket}</b>  {row.nbytes / MIB:,.2f} MiB"
    return f"{head}<br>{escape(named(row.parameters), quote=False)}" if lines == 2 else head


def named(names: tuple[str, ...], columns: int = COLUMNS) -> str:
    """Return names in so many characters: all of them, or the first, the last and how many."""
    if not names:
        return "parameters unknown"
    if len(names) == 1:
        return names[0] if len(names[0]) <= columns else f"…{names[0][1 - columns :]}"
    some = f"{names[0]} … {names[-1]} ({len(names)})", f"{names[0]} … ({len(names)})"
    return next((text for text in (", ".join(names), *some) if len(text) <= columns), f"{len(names)} parameters")


def hover(row: BucketRow, table: Buckets) -> str:
    """Return everything about a bucket on one rank, times in milliseconds since backward began."""
    zero_ns = table.start_ns
    names = ", ".join(row.parameters[:4]) + (f", … {len(row.parameters)} in all" if len(row.parameters) > 4 else "")
    moments = [("filling", row.first_ready_ns, row.full_ns)]
    if row.sent_ns is not None and row.done_ns is not None:
        moments += [("waiting", row.full_ns, row.sent_ns), ("travelling", row.sent_ns, row.done_ns)]
    lines = [
        f"<b>rank {row.rank}, bucket {row.bucket}</b>, iteration {row.iteration} ({table.truth})",
        f"{row.nbytes:,} B: {escape(names, quote=False)}",
        *(
            f"{part}: {(start - zero_ns) / 1e6:.2f} → {(end - zero_ns) / 1e6:.2f} ms ({(end - start) / 1e6:.2f} ms)"
            for part, start, end in moments
        ),
    ]
    return "<br>".join(lines if len(moments) == 3 else [*lines, "never sent"])


def summary(table: Buckets, predicted: Buckets | None) -> str:
    """Return the facts shown, in one line."""
    sizes = {row.bucket: row.nbytes / MIB for row in sorted(table.rows, key=lambda row: row.bucket)}
    mib = ", ".join(f"{size:.2f}" for size in sizes.values())
    if len(sizes) > 8 and len(set(sizes.values())) == 1:
        mib = f"{min(sizes.values()):.2f}"
    elif len(sizes) > 8:
        mib = f"{min(sizes.values()):.2f} to {max(sizes.values()):.2f}"
    ranks = {row.rank for row in table.rows}
    sent = [row for row in table.rows if row.sent_ns is not None and row.done_ns is not None]
    found = f"{many(len(sizes), 'bucket')} of {mib} MiB on {many(len(ranks), 'rank')}"
    parts = [f"iteration {table.rows[0].iteration}, {found}"]
    if sent:
        last = max(sent, key=lambda row: row.waiting_ns or 0)
        parts += [
            f"the first is sent after {_ms(table, min(row.sent_ns or 0 for row in sent))}",
            f"bucket {last.bucket} of rank {last.rank} waits longest, {(last.waiting_ns or 0) / 1e6:.1f} ms"
            if last.waiting_ns
            else "none waits for earlier ones",
            f"the last is done after {_done(table)}" + (f", predicted {_done(predicted)}" if predicted else ""),
        ]
    if unsent := len(table.rows) - len(sent):
        parts.append(f"{many(unsent, 'bucket')} never sent")
    if table.backward:
        parts.append(f"backward ends after {_ms(table, max(span.end_ns for span in table.backward))}")
    return "; ".join(parts)


def many(count: int, what: str) -> str:
    """Return a count and what is counted."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def _done(table: Buckets) -> str:
    return _ms(table, max((row.done_ns for row in table.rows if row.done_ns is not None), default=table.end_ns))


def _ms(table: Buckets, at: int) -> str:
    return f"{(at - table.start_ns) / 1e6:.1f} ms"
