"""What the picture of memory over time says in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lablib.trace import Category, MemorySample, Trace
from lablib.views.memory_predicted import Predicted, by_rank
from lablib.views.memory_words import against, amount, change, differences, listed, moment, ranks

_NEVER_HIDDEN = (Category.TEMPORARY, Category.OTHER)


def summary(
    samples: Sequence[MemorySample], *, iteration: int | None, predicted: Predicted | None, limit: int | None
) -> str:
    """Return each rank's peak and what it consists of, what else was there, the limit, and the prediction."""
    by: dict[int, list[MemorySample]] = {}
    for sample in samples:
        by.setdefault(sample.rank, []).append(sample)
    peaks = {rank: max(some, key=lambda one: one.total) for rank, some in sorted(by.items())}
    alike: dict[tuple[int, ...], list[int]] = {}
    for rank, peak in peaks.items():
        alike.setdefault(peak.nbytes, []).append(rank)
    parts = [] if iteration is None else [f"iteration {iteration}"]
    for some in alike.values():
        peak = peaks[some[0]]
        parts.append(
            f"{ranks(some)}: peak {amount(peak.total)} {moment(peak)}: "
            f"{listed(dict(zip(Category, peak.nbytes, strict=True)))}"
        )
    places = {one: list(Category).index(one) for one in _NEVER_HIDDEN}
    most = {one: max(sample.nbytes[place] for sample in samples) for one, place in places.items()}
    if any(most.values()):
        parts.append("at most " + ", ".join(f"{one} {amount(size)}" for one, size in most.items() if size))
    if limit is not None:
        parts.append(f"the highest peak is {against(max(peak.total for peak in peaks.values()), limit)}")
    if predicted is not None:
        parts.append(_compared(peaks, {rank: some[-1] for rank, some in by.items()}, predicted))
    return "; ".join(parts)


def _compared(peaks: Mapping[int, MemorySample], last: Mapping[int, MemorySample], predicted: Predicted) -> str:
    """Return what was predicted, and how far it is from that: peaks with peaks, a closed form with the end."""
    told: dict[str, list[int]] = {}
    if isinstance(predicted, Trace):
        foreseen: dict[int, MemorySample] = {}
        for sample in predicted.memory:
            foreseen[sample.rank] = max(foreseen.get(sample.rank, sample), sample, key=lambda one: one.total)
        for rank in peaks.keys() & foreseen.keys():
            found, wanted = (dict(zip(Category, one[rank].nbytes, strict=True)) for one in (peaks, foreseen))
            by = peaks[rank].total - foreseen[rank].total
            words = f"predicted peak {amount(foreseen[rank].total)}, this is {change(by)}"
            told.setdefault(f"{words} ({differences(found, wanted)})", []).append(rank)
    else:
        for rank, closed in by_rank(predicted, [*last]).items():
            found = {one: last[rank][one] for one in closed}
            words = f"closed form {amount(sum(closed.values()))}, at the end {differences(found, closed)}"
            told.setdefault(words, []).append(rank)
    if len(told) == 1:
        return next(iter(told))
    return (
        "; ".join(f"{ranks(some)}: {words}" for words, some in told.items()) or "nothing is predicted for these ranks"
    )
