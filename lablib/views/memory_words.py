"""What the pictures of memory say in words: bytes with units, moments, peaks, differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from lablib.trace import Category, MemorySample
from lablib.views.palette import CATEGORIES

_STACKED = [(one.value, list(Category).index(one)) for one in CATEGORIES]
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def amount(nbytes: float) -> str:
    """Return a number of bytes with a unit, to three digits: ``1.50 MiB``; below 1 KiB exact: ``840 B``."""
    size = abs(nbytes)
    for unit, factor in _UNITS:
        if size >= factor:
            value = nbytes / factor
            return f"{value:,.{2 if size < 9.995 * factor else 1 if size < 99.95 * factor else 0}f} {unit}"
    return f"{nbytes:,.0f} B"


def change(nbytes: float) -> str:
    """Return a difference: ``8 B more``, ``1.50 MiB less``, ``the same``."""
    return "the same" if nbytes == 0 else f"{amount(abs(nbytes))} {'more' if nbytes > 0 else 'less'}"


def moment(sample: MemorySample) -> str:
    """Return where in the step it was: ``in backward of layer3``, ``between the phases``."""
    module = escape(sample.module, quote=False)
    if not sample.phase:
        return f"between the phases, in {module}" if module else "between the phases"
    where = {"optimizer": "the optimizer's step"}.get(sample.phase, sample.phase)
    return f"in {where} of {module}" if module else f"in {where}"


def listed(nbytes: Mapping[Category, int]) -> str:
    """Return the categories that hold something: ``parameters 4.00 MiB, gradients 4.00 MiB``."""
    return ", ".join(f"{one} {amount(nbytes[one])}" for one in CATEGORIES if nbytes.get(one)) or "nothing"


def differences(measured: Mapping[Category, int], predicted: Mapping[Category, int]) -> str:
    """Return where two rooms of memory differ, in bytes by category."""
    apart = {one: measured.get(one, 0) - predicted.get(one, 0) for one in CATEGORIES}
    told = [f"{one} {abs(by):,} B {'more' if by > 0 else 'less'}" for one, by in apart.items() if by]
    return ", ".join(told) or "every category to the byte"


def ranks(numbers: Iterable[int]) -> str:
    """Return ranks as a list in words: ``rank 0``, ``ranks 0 to 3``, ``ranks 0, 2``."""
    some = sorted(numbers)
    if len(some) == 1:
        return f"rank {some[0]}"
    if len(some) > 2 and some == list(range(some[0], some[-1] + 1)):
        return f"ranks {some[0]} to {some[-1]}"
    return f"ranks {', '.join(map(str, some))}"


def against(nbytes: int, limit: int) -> str:
    """Return how a number of bytes stands to a device's limit."""
    if nbytes > limit:
        return f"{amount(nbytes - limit)} over the limit of {amount(limit)}"
    return f"{amount(limit - nbytes)} below the limit of {amount(limit)}"


def hovers(sample: MemorySample, zero_ns: int | None) -> list[str]:
    """Return what each category is that holds something, and where in the step; with a clock from `zero_ns`, when.

    They come in the order in which they are stacked.
    """
    total = sample.total
    iteration = "" if sample.iteration is None else f", iteration {sample.iteration}"
    since = "" if zero_ns is None else f", from {(sample.time_ns - zero_ns) / 1e6:.2f} ms on"
    share, rest = (
        100 / (total or 1),
        f" % of {amount(total)}<br>rank {sample.rank}{iteration}{since}<br>{moment(sample)}",
    )
    return [
        f"<b>{name}: {amount(size)}</b> ({size:,} B), {share * size:.0f}{rest}"
        for name, place in _STACKED
        if (size := sample.nbytes[place])
    ]
