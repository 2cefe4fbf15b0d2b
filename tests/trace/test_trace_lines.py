"""A saved trace comes back as it was, or not at all."""

import contextlib
import dataclasses
import gzip
import json
import re

import pytest
from any_traces import damaged, traces
from hypothesis import given, settings
from hypothesis import strategies as st

from lablib.errors import TraceError
from lablib.trace import Category, Kind, MemorySample, Span, Trace
from lablib.trace.lines import HEADER_RULES, SAMPLE_RULES, SPAN_RULES, encode

SPAN = Span(1, "all_reduce", Kind.COLLECTIVE, 5, 9, nbytes=64, group="0", ranks=(0, 1), sequence=3)
SAMPLE = MemorySample.of(0, 7, {Category.PARAMETERS: 4096, Category.ACTIVATIONS: 512}, phase="forward")
TRACE = Trace.of_spans(
    [Span(0, "forward", Kind.FORWARD, 1, 4, iteration=0), SPAN], world_size=2, backend="gloo", memory=[SAMPLE]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("traces")


def lines_of(trace):
    return encode(trace).decode().splitlines()


def refused(folder, text):
    """Return what the error says about a file with this text."""
    path = folder / "broken.jsonl"
    path.write_text(text)
    with pytest.raises(TraceError) as caught:
        Trace.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value).removeprefix(f"{path}: ")


def with_fact(number, **facts):
    """Return the file of TRACE with other facts in one line."""
    lines = lines_of(TRACE)
    lines[number - 1] = json.dumps(json.loads(lines[number - 1]) | facts)
    return "\n".join(lines)


@settings(deadline=None)
@given(traces(), st.sampled_from(["trace.jsonl", "trace.jsonl.gz"]))
def test_a_trace_comes_back_as_it_was(folder, trace, name):
    trace.save(folder / name)
    assert Trace.load(folder / name) == trace


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_damaged_file_is_refused_or_read_whole(folder, data):
    trace = data.draw(traces(max_size=4))
    whole = encode(trace)
    if data.draw(st.booleans()):
        whole = gzip.compress(whole, mtime=0)
    path = folder / "damaged"
    path.write_bytes(data.draw(damaged(whole)))
    try:
        assert Trace.load(path) == trace
    except TraceError as error:
        said = str(error)
        assert said.startswith(f"{path}: ")
        assert re.search(r"line \d|the gzip data|is empty|damaged|this is JSON", said.removeprefix(f"{path}: "))


@settings(deadline=None)
@given(st.integers(0, 2**32), traces(max_size=4))
def test_a_file_cut_anywhere_loses_no_span_in_silence(folder, at, trace):
    whole = encode(trace)
    path = folder / "cut.jsonl"
    path.write_bytes(whole[: at % len(whole)])
    with contextlib.suppress(TraceError):
        assert Trace.load(path) == trace


def test_every_fact_of_a_span_and_of_a_trace_has_a_rule():
    assert list(SPAN_RULES) == [field.name for field in dataclasses.fields(Span)]
    assert list(SAMPLE_RULES) == [field.name for field in dataclasses.fields(MemorySample)]
    kept_elsewhere = {"schema", "version", "crc32"}
    assert set(HEADER_RULES) - kept_elsewhere == {field.name for field in dataclasses.fields(Trace)}


def test_the_format_is_readable_lines_without_defaults():
    header, *spans, sample = map(json.loads, lines_of(TRACE))
    assert header.pop("crc32")
    assert header == {
        "schema": "lablib.trace",
        "version": 1,
        "world_size": 2,
        "truth": "real",
        "backend": "gloo",
        "device": "cpu",
        "wall_offset_ns": 0,
        "spans": 2,
        "memory": 1,
    }
    assert spans[0] == {"rank": 0, "name": "forward", "kind": "forward", "start_ns": 1, "end_ns": 4, "iteration": 0}
    assert "iteration" not in spans[1]
    assert sample == {"rank": 0, "time_ns": 7, "nbytes": [4096, 0, 0, 512, 0, 0, 0, 0], "phase": "forward"}


@pytest.mark.parametrize(
    ("fact", "value", "said"),
    [
        ("rank", 2, "line 3: rank is 2, not a rank below the world size"),
        ("rank", True, "line 3: rank is True, not a rank"),
        ("kind", "party", "line 3: kind is 'party', not one of region, forward"),
        ("kind", ["forward"], "line 3: kind is ['forward'], not one of"),
        ("start_ns", 1.5, "line 3: start_ns is 1.5, not a whole number"),
        ("start_ns", None, "line 3: start_ns is None, not a whole number"),
        ("start_ns", 2**63, "line 3: start_ns is 9223372036854775808, not a whole number"),
        ("end_ns", 4, "line 3: it ends at 4 ns, before its start at 5 ns"),
        ("nbytes", -1, "line 3: nbytes is -1, not a whole number from 0"),
        ("ranks", [0, 2], "line 3: ranks is [0, 2], not a list of ranks"),
        ("parameters", "weight", "line 3: parameters is 'weight', not a list of texts"),
        ("peer", 2, "line 3: peer is 2, not a rank"),
        ("name", None, "line 3: name is None, not a text"),
        ("colour", "red", "line 3: 'colour' is not a fact that lablib knows"),
        ("nbytes", 65, "line 1: the checksum does not fit"),
    ],
)
def test_a_bad_value_is_named_with_its_line(folder, fact, value, said):
    assert refused(folder, with_fact(3, **{fact: value})).startswith(said)


@pytest.mark.parametrize(
    ("fact", "value", "said"),
    [
        ("nbytes", [1] * 7, "line 4: nbytes is [1, 1, 1, 1, 1, 1, ...], not a list of 8 whole numbers from 0"),
        ("nbytes", [1] * 7 + [-1], "line 4: nbytes is"),
        ("rank", 2, "line 4: rank is 2, not a rank below the world size"),
        ("phase", None, "line 4: phase is None, not a text"),
        ("reserved", -1, "line 4: reserved is -1, not a whole number from 0, or null"),
        ("kind", "forward", "line 4: 'kind' is not a fact that lablib knows"),
        ("time_ns", 8, "line 1: the checksum does not fit"),
    ],
)
def test_a_bad_sample_is_named_with_its_line(folder, fact, value, said):
    assert refused(folder, with_fact(4, **{fact: value})).startswith(said)


@pytest.mark.parametrize(
    ("fact", "value", "said"),
    [
        ("version", 2, "line 1: version 2 of the schema is newer than 1: update lablib"),
        ("version", "1", "line 1: version is '1', not a whole number"),
        ("world_size", 0, "line 1: world_size is 0, not a number of ranks from 1"),
        ("world_size", 4, "line 1: the checksum does not fit"),
        ("truth", "guessed", "line 1: truth is 'guessed', not one of real, emulated, simulated"),
        ("memory", 2, "line 5 is missing: 4 lines were saved, 3 are here"),
        ("memory", 0, "line 4 is too many: 2 lines were saved"),
        ("spans", 3, "line 4: name is missing"),
        ("spans", 1, "line 3: time_ns is missing"),
        ("future", 1, "line 1: 'future' is not a fact"),
    ],
)
def test_a_bad_header_is_named(folder, fact, value, said):
    assert refused(folder, with_fact(1, **{fact: value})).startswith(said)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[:-1], "line 4 is missing: 3 lines were saved, 2 are here"),
        (lambda lines: [*lines, lines[-1]], "line 5 is too many: 3 lines were saved"),
        (lambda lines: [lines[0], lines[2], lines[1], lines[3]], "line 1: the checksum does not fit"),
        (lambda lines: [*lines[:-1], lines[-1][:-4]], "line 4 is damaged or cut off: "),
        (lambda lines: [lines[0], "[1, 2]", *lines[2:]], "line 2 is [1, 2], not an object"),
        (lambda lines: [lines[0], "", *lines[2:]], "line 2 is damaged or cut off: "),
        (lambda lines: [lines[0], "[" * 100_000, *lines[2:]], "line 2 is damaged or cut off: "),
        (lambda lines: [lines[0][:-9], *lines[1:]], "line 1 is damaged or cut off: "),
    ],
)
def test_lines_that_are_lost_doubled_swapped_or_cut(folder, change, said):
    assert refused(folder, "\n".join(change(lines_of(TRACE)))).startswith(said)


def test_line_ends_of_another_system_do_no_harm(folder):
    path = folder / "windows.jsonl"
    path.write_bytes(encode(TRACE).replace(b"\n", b"\r\n"))
    assert Trace.load(path) == TRACE


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (dataclasses.replace(SPAN, end_ns=4), "span 1: it ends at 4 ns, before its start at 5 ns"),
        (dataclasses.replace(SPAN, rank=2), "span 1: rank is 2, not a rank below the world size"),
        (dataclasses.replace(SPAN, start_ns=0.5), "span 1: start_ns is 0.5, not a whole number"),
    ],
)
def test_what_could_not_be_read_back_is_not_saved(folder, changed, said):
    path = folder / "refused.jsonl"
    with pytest.raises(TraceError) as caught:
        Trace((changed,), 2).save(path)
    assert said in str(caught.value)
    assert not path.exists()
