"""A trace as JSON lines: a header, then one span a line, then one sample of memory a line.

    {"schema": "lablib.trace", "version": 1, "world_size": 2, …, "spans": 3, "memory": 1, "crc32": "89abcdef"}
    {"rank": 0, "name": "forward", "kind": "forward", "start_ns": 5, "end_ns": 9}
    …
    {"rank": 0, "time_ns": 7, "nbytes": [4096, 0, 0, 512, 0, 0, 0, 0], "phase": "forward"}

What equals a default of `Span` or `MemorySample` is left out. The checksum covers every line, so that no damage passes
unseen: a file is read whole, or not at all.
"""

from __future__ import annotations

import dataclasses
import json
import re
import reprlib
import zlib
from collections.abc import Callable, Mapping
from typing import Any, get_args

from lablib.errors import TraceError
from lablib.trace.memory import Category, MemorySample
from lablib.trace.spans import Kind, Span, Trace, Truth

SCHEMA = "lablib.trace"
VERSION = 1

_START = re.compile(rb'\s*\{\s*"schema"\s*:\s*"lablib')
_KINDS = tuple(kind.value for kind in Kind)
_TRUTHS = get_args(Truth)
_CATEGORIES = len(Category)
_INT64 = 1 << 63

Rule = tuple[str, Callable[[Any, int], bool]]


def _whole(value: Any, least: int = -_INT64, below: int = _INT64) -> bool:
    return type(value) is int and least <= value < below


def _text(value: Any, _: int = 0) -> bool:
    return type(value) is str


_RANK: Rule = ("a rank below the world size", lambda value, ranks: _whole(value, 0, ranks))
_TIME: Rule = ("a whole number of nanoseconds", lambda value, _: _whole(value))
_COUNT: Rule = ("a whole number from 0", lambda value, _: _whole(value, 0))
_COUNT_OR_NONE: Rule = ("a whole number from 0, or null", lambda value, _: value is None or _whole(value, 0))
_TEXT: Rule = ("a text", _text)

SPAN_RULES: dict[str, Rule] = {
    "rank": _RANK,
    "name": _TEXT,
    "kind": (f"one of {', '.join(_KINDS)}", lambda value, _: value in _KINDS),
    "start_ns": _TIME,
    "end_ns": _TIME,
    "nbytes": _COUNT,
    "iteration": _COUNT_OR_NONE,
    "bucket": _COUNT_OR_NONE,
    "parameters": ("a list of texts", lambda value, _: type(value) is list and all(map(_text, value))),
    "group": _TEXT,
    "ranks": (
        "a list of ranks below the world size",
        lambda value, ranks: type(value) is list and all(_whole(rank, 0, ranks) for rank in value),
    ),
    "sequence": _COUNT,
    "peer": ("a rank below the world size, or null", lambda value, ranks: value is None or _whole(value, 0, ranks)),
    "file": _TEXT,
    "line": _COUNT,
    "lane": _TEXT,
}
SAMPLE_RULES: dict[str, Rule] = {
    "rank": _RANK,
    "time_ns": _TIME,
    "nbytes": (
        f"a list of {_CATEGORIES} whole numbers from 0",
        lambda value, _: type(value) is list and len(value) == _CATEGORIES and all(_whole(one, 0) for one in value),
    ),
    "phase": _TEXT,
    "module": _TEXT,
    "iteration": _COUNT_OR_NONE,
    "allocated": _COUNT_OR_NONE,
    "reserved": _COUNT_OR_NONE,
}
HEADER_RULES: dict[str, Rule] = {
    "schema": (f'"{SCHEMA}"', lambda value, _: value == SCHEMA),
    "version": ("a whole number from 1", lambda value, _: _whole(value, 1)),
    "world_size": ("a number of ranks from 1", lambda value, _: _whole(value, 1)),
    "truth": (f"one of {', '.join(_TRUTHS)}", lambda value, _: value in _TRUTHS),
    "backend": ("a text or null", lambda value, _: value is None or _text(value)),
    "device": _TEXT,
    "wall_offset_ns": _TIME,
    "spans": _COUNT,
    "memory": _COUNT,
    "crc32": _TEXT,
}
_SPAN = {field.name: field.default for field in dataclasses.fields(Span)}
_SAMPLE = {field.name: field.default for field in dataclasses.fields(MemorySample)}
_HEADER = dict.fromkeys(HEADER_RULES, dataclasses.MISSING)


def recognises(data: bytes) -> bool:
    """Return whether a file begins like one that `encode` wrote."""
    return _START.match(data) is not None


def encode(trace: Trace) -> bytes:
    """Return a trace as JSON lines.

    Raises:
        TraceError: a value could not be read back, such as an end before its start; the message names the span.
    """
    rows = [_row(span, SPAN_RULES, trace.world_size, f"span {number}") for number, span in enumerate(trace.spans, 1)]
    rows += [
        _row(sample, SAMPLE_RULES, trace.world_size, f"sample {number}")
        for number, sample in enumerate(trace.memory, 1)
    ]
    header = {
        "schema": SCHEMA,
        "version": VERSION,
        "world_size": trace.world_size,
        "truth": trace.truth,
        "backend": trace.backend,
        "device": trace.device,
        "wall_offset_ns": trace.wall_offset_ns,
        "spans": len(trace.spans),
        "memory": len(trace.memory),
    }
    header["crc32"] = _checksum(header, rows)
    _check(header, HEADER_RULES, trace.world_size, "the trace")
    return b"\n".join([json.dumps(header).encode(), *rows, b""])


def decode(data: bytes) -> Trace:
    """Return the trace that `encode` wrote.

    Raises:
        TraceError: the file is damaged, cut off, or written by a newer version; the message names the line.
    """
    first, *rows = data.strip(b"\n\r").splitlines()
    header = _object(first, "line 1")
    version = header.get("version")
    if _whole(version, VERSION + 1):
        raise TraceError(f"line 1: version {version} of the schema is newer than {VERSION}: update lablib to read it")
    _check(header, HEADER_RULES, 1, "line 1", whole=True)
    ranks, spans = header["world_size"], header["spans"]
    promised = spans + header["memory"]
    facts = [
        _facts(row, SAMPLE_RULES if number > spans + 1 else SPAN_RULES, ranks, f"line {number}")
        for number, row in enumerate(rows[:promised], start=2)
    ]
    if len(rows) < promised:
        raise TraceError(f"line {len(rows) + 2} is missing: {promised} lines were saved, {len(rows)} are here")
    if len(rows) > promised:
        raise TraceError(f"line {promised + 2} is too many: {promised} lines were saved")
    if _checksum(header, rows) != header["crc32"]:
        raise TraceError("line 1: the checksum does not fit: some value was changed after the file was saved")
    return Trace(
        tuple(Span(**one | {"kind": Kind(one["kind"])}) for one in facts[:spans]),
        ranks,
        header["truth"],
        header["backend"],
        header["device"],
        header["wall_offset_ns"],
        tuple(MemorySample(**one) for one in facts[spans:]),
    )


def _row(fact: Span | MemorySample, rules: Mapping[str, Rule], ranks: int, where: str) -> bytes:
    record = {}
    for name, default in _defaults(rules).items():
        value = getattr(fact, name)
        if value != default:
            record[name] = list(value) if isinstance(value, tuple) else value.value if name == "kind" else value
    _check(record, rules, ranks, where)
    return json.dumps(record).encode()


def _facts(row: bytes, rules: Mapping[str, Rule], ranks: int, where: str) -> dict[str, Any]:
    record = _object(row, where)
    _check(record, rules, ranks, where, whole=True)
    return {name: tuple(value) if type(value) is list else value for name, value in record.items()}


def _defaults(rules: Mapping[str, Rule]) -> Mapping[str, Any]:
    """Return what may be left out of a line, and what it means then; `MISSING` for what may not."""
    return _SPAN if rules is SPAN_RULES else _SAMPLE if rules is SAMPLE_RULES else _HEADER


def _object(row: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(row.decode())
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{where} is damaged or cut off: {error}") from None
    if type(record) is not dict:
        raise TraceError(f"{where} is {reprlib.repr(record)}, not an object in braces")
    return record


def _check(
    record: Mapping[str, Any], rules: Mapping[str, Rule], ranks: int, where: str, *, whole: bool = False
) -> None:
    """Refuse values that break a rule; ``whole`` also names that are not in the rules."""
    for name, (meaning, holds) in rules.items():
        if name in record:
            if not holds(record[name], ranks):
                raise TraceError(f"{where}: {name} is {reprlib.repr(record[name])}, not {meaning}")
        elif _defaults(rules)[name] is dataclasses.MISSING:
            raise TraceError(f"{where}: {name} is missing")
    if whole and not record.keys() <= rules.keys():
        raise TraceError(f"{where}: {min(record.keys() - rules.keys())!r} is not a fact that lablib knows")
    if record.get("end_ns", 0) < record.get("start_ns", 0):
        raise TraceError(f"{where}: it ends at {record['end_ns']} ns, before its start at {record['start_ns']} ns")


def _checksum(header: Mapping[str, Any], rows: list[bytes]) -> str:
    covered = json.dumps({name: value for name, value in header.items() if name != "crc32"}).encode()
    return format(zlib.crc32(b"\n".join([covered, *rows])), "08x")
