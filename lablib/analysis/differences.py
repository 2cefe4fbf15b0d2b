"""Two traces side by side: a prediction and what happened, or two runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

from lablib.errors import UsageError
from lablib.trace import Kind, Span, Trace

_Key = tuple[int, Kind, int | None, str, int | None]
_Lanes = dict[tuple[int, Kind], list[Span]]


@dataclass(frozen=True)
class Pair:
    """Hold the same span of both traces."""

    one: Span
    other: Span

    @property
    def ratio(self) -> float | None:
        """Return the other's length ÷ this one's; None where this one takes no time."""
        return self.other.length_ns / self.one.length_ns if self.one.length_ns else None


@dataclass(frozen=True)
class Differences:
    """Say how two traces differ.

    Args:
        pairs: spans that both have, in the order of the first trace.
        missing: spans that only the first trace has.
        extra: spans that only the other has.
        first: the first difference in words, of spans, order or bytes; empty where there is none.
        left_out: kinds of spans that only one of them records, which are not compared.
    """

    pairs: tuple[Pair, ...]
    missing: tuple[Span, ...]
    extra: tuple[Span, ...]
    first: str
    left_out: tuple[Kind, ...]

    @property
    def same(self) -> bool:
        """Return whether both have the same spans, with the same bytes, in the same order on every rank."""
        return not self.first

    def ratio(self, *kinds: Kind | str) -> float | None:
        """Return the other's length ÷ the first's over all pairs of these kinds; None where they take no time."""
        wanted = {Kind(kind) for kind in kinds} or set(Kind)
        pairs = [pair for pair in self.pairs if pair.one.kind in wanted]
        length = sum(pair.one.length_ns for pair in pairs)
        return sum(pair.other.length_ns for pair in pairs) / length if length else None


def differences(
    one: Trace, other: Trace, *, kinds: Iterable[Kind | str] | None = None, iteration: int | None = None
) -> Differences:
    """Compare two traces span by span.

    Spans are the same when rank, kind, iteration, name and bucket are; where several are, the first goes with the
    first. Order is compared among the spans of one kind on one rank, by their start.

    Args:
        one: what should happen, say a simulation.
        other: what did, say a real run.
        kinds: which spans; left out, the kinds that both traces have.
        iteration: which one; left out, everything.

    Raises:
        UsageError: the traces have no kind of span in common.
    """
    both = [{span.kind for span in trace} for trace in (one, other)]
    wanted = {Kind(kind) for kind in kinds} if kinds is not None else both[0] & both[1]
    if not wanted:
        raise UsageError(f"nothing to compare: one trace has {_kinds(both[0])} spans, the other {_kinds(both[1])}")
    lanes = [_lanes(trace, wanted, iteration) for trace in (one, other)]
    pairs, missing, extra = _matched(*lanes)
    return Differences(
        tuple(pairs),
        tuple(missing),
        tuple(extra),
        _first(*lanes, names=_names(one, other), starts=(one.start_ns, other.start_ns)),
        tuple(kind for kind in Kind if kinds is None and kind in both[0] ^ both[1]),
    )


def _lanes(trace: Trace, kinds: set[Kind], iteration: int | None) -> _Lanes:
    lanes: _Lanes = defaultdict(list)
    for span in trace:
        if span.kind in kinds and iteration in (None, span.iteration):
            lanes[span.rank, span.kind].append(span)
    return lanes


def _matched(one: _Lanes, other: _Lanes) -> tuple[list[Pair], list[Span], list[Span]]:
    waiting: dict[_Key, list[Span]] = defaultdict(list)
    for span in _in_order(other):
        waiting[_key(span)].append(span)
    pairs, missing = [], []
    for span in _in_order(one):
        if candidates := waiting[_key(span)]:
            pairs.append(Pair(span, candidates.pop(0)))
        else:
            missing.append(span)
    left = {id(span) for candidates in waiting.values() for span in candidates}
    return pairs, missing, [span for span in _in_order(other) if id(span) in left]


def _in_order(lanes: _Lanes) -> list[Span]:
    return sorted((span for lane in lanes.values() for span in lane), key=lambda span: (span.start_ns, span.rank))


def _key(span: Span) -> _Key:
    return span.rank, span.kind, span.iteration, span.name, span.bucket


def _first(one: _Lanes, other: _Lanes, *, names: tuple[str, str], starts: tuple[int, int]) -> str:
    """Return the earliest of the first differences of all lanes, in words."""
    found = []
    for rank, kind in one.keys() | other.keys():
        for mine, theirs in zip_longest(one.get((rank, kind), []), other.get((rank, kind), [])):
            spans = [span for span in (mine, theirs) if span is not None]
            if len(spans) < 2 or _key(mine) != _key(theirs) or mine.nbytes != theirs.nbytes:
                when = [span.start_ns - start for span, start in zip((mine, theirs), starts, strict=True) if span]
                words = [
                    f"{'no more' if span is None else _words(span)} {name}"
                    for span, name in zip((mine, theirs), names, strict=True)
                ]
                found.append((min(when), rank, f"rank {rank}, {kind}{_when(spans[0])}: {words[0]}, {words[1]}"))
                break
    return min(found)[2] if found else ""


def _words(span: Span) -> str:
    of_bucket = f" of bucket {span.bucket}" if span.kind is Kind.COLLECTIVE and span.bucket is not None else ""
    return f"{span.name}{of_bucket}{f' ({span.nbytes:,} B)' if span.nbytes else ''}"


def _when(span: Span) -> str:
    return "" if span.iteration is None else f" in iteration {span.iteration}"


def _names(one: Trace, other: Trace) -> tuple[str, str]:
    if one.truth == other.truth:
        return "in the first trace", "in the other"
    return f"in the {one.truth} trace", f"in the {other.truth} one"


def _kinds(kinds: set[Kind]) -> str:
    return ", ".join(kind for kind in Kind if kind in kinds) or "no"
