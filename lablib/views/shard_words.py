"""What the picture of shards says in words."""

from __future__ import annotations

from collections.abc import Sequence

from lablib.sim.shards import Accuracy, Shards
from lablib.views.shard_boxes import some
from lablib.views.shard_grid import Grid

_LEGEND_CHARS = 110


def news(table: Shards, epoch: int) -> tuple[str, str]:
    """Return what an epoch does to the samples, in two short lines."""
    again, never = len(table.again(epoch=epoch)), len(table.never(epoch=epoch))
    if not again and not never:
        return ("each sample once" if table.samples else "no samples"), ""
    return f"{again:,} more than once", f"{never:,} never"


def verdict(predicted: Shards | None, table: Shards, epoch: int) -> tuple[str, str]:
    """Return the style and the words that tell how what ranks loaded compares with what was predicted."""
    if predicted is None:
        return "small", ""
    wrong = sum(one[0] == epoch for one in table.differences(predicted))
    if wrong:
        return "wrong", f"<b>{many(wrong, 'batch')} not as predicted</b>"
    total = sum(table.lengths(epoch=epoch))
    return "right", f"{'all ' if total > 1 else ''}{many(total, 'batch')} as predicted"


def amount(table: Shards, predicted: Shards | None, epoch: int, rank: int) -> tuple[str, str]:
    """Return the style and the words that tell how much a rank loads; loud where that is nothing, or another amount."""
    batches = table.batches[epoch][rank]
    differs = predicted is not None and predicted.batches[epoch][rank] != batches
    words = f"{sum(map(len, batches)):,} in {many(len(batches), 'batch')}" if batches else "no batch"
    return ("small" if batches and not differs else "wrong"), words


def share(right: int, counted: int, value: float | None) -> str:
    """Return a count of right answers and what share it is."""
    return "nothing counted" if value is None else f"{right:,} of {counted:,}: {100 * value:.1f} %"


def bias(found: Accuracy) -> str:
    """Return how far the counted accuracy is off."""
    if found.bias is None:
        return ""
    if not found.bias:
        return "exact"
    points = 100 * found.bias
    return f"off by {points:+.{1 if abs(points) >= 0.05 else 3}f} points".replace("-", "−")


def legend(grid: Grid) -> list[str]:
    """Return the lines that explain the signs in the picture."""
    kinds = {(box.kind, box.many) for box in (*grid.strip.boxes, *grid.rows.boxes)}
    parts = ["A sample has the colour of the rank that sees it"]
    if grid.strip.level == "bins":
        parts.append("upper bars: neighbouring samples")
    parts.append(
        {"batches": "lower bars: a batch each", "ranks": "lower bars: all batches"}.get(
            grid.rows.level, "frame: a batch"
        )
    )
    cues = (("again", False), "thick edge"), (("again", True), "chequered")
    if again := [cue for kind, cue in cues if kind in kinds]:
        parts.append(f"{' or '.join(again)}: seen more than once")
    if {("never", False), ("never", True)} & kinds:
        parts.append("hatched: seen by no rank")
    if {("different", False), ("different", True)} & kinds:
        parts.append("cross: not as predicted")
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) < _LEGEND_CHARS:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    return lines


def summary(table: Shards, predicted: Shards | None, accuracies: Sequence[Accuracy]) -> str:
    """Return the facts of the picture in one line."""
    facts = [f"{table.samples} samples on {many(table.world_size, 'rank')}"]
    for epoch in range(table.epochs):
        again, never = table.again(epoch=epoch), table.never(epoch=epoch)
        lengths = sorted(set(table.lengths(epoch=epoch)))
        batches = many(lengths[-1], "batch") if len(lengths) == 1 else f"{lengths[0]} to {many(lengths[-1], 'batch')}"
        words = [f"epoch {epoch}: {batches} a rank"]
        words.append(f"{len(again)} more than once" + (f" ({some(again, 4)})" if again else ""))
        words.append(f"{len(never)} never seen" + (f" ({some(never, 4)})" if never else ""))
        if accuracies and accuracies[epoch].exact is not None:
            one = accuracies[epoch]
            words.append(
                f"accuracy as counted {share(one.counted_right, one.counted, one.as_counted)}, "
                f"exact {share(one.right, one.samples, one.exact)}"
            )
        facts.append(", ".join(words))
    if predicted is not None:
        wrong = len(table.differences(predicted))
        total = sum(sum(table.lengths(epoch=epoch)) for epoch in range(table.epochs))
        facts.append(f"measured: {many(total, 'batch')}, {wrong} not as predicted")
    return "; ".join(facts)


def many(count: int, what: str) -> str:
    """Return a count and what is counted."""
    ending = "" if count == 1 else "es" if what.endswith("ch") else "s"
    return f"{count:,} {what}{ending}"
