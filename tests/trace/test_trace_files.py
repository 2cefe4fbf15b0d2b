"""Which files are traces, and how they are written."""

import gzip
import json

import pytest

from lablib.errors import TraceError
from lablib.trace import Kind, Span, Trace


def of_rank(rank, *, world_size=2, start_ns=10, wall_offset_ns=1000, **facts):
    spans = [Span(rank, "forward", Kind.FORWARD, start_ns, start_ns + 5)]
    return Trace.of_spans(spans, world_size=world_size, wall_offset_ns=wall_offset_ns, **facts)


def error_of(path):
    with pytest.raises(TraceError) as caught:
        Trace.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"\n\n", "the file is empty"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (b"hello", "line 1, column 1: Expecting value: the file is damaged, cut off, or no trace"),
        (b'{"a": 1,\n "b": [1, ', "line 2, column 11: Expecting value: the file is damaged, cut off, or no trace"),
        (b'{"cells": [], "metadata": {}}', "this is JSON, but neither a trace that lablib saved nor one of torch"),
        (b"[1, 2, 3]", "this is JSON, but neither"),
        (b"null", "this is JSON, but neither"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "line 1: not text (invalid start byte)"),
        (b"{" + b"\n\n" + b"\xff", "line 3: not text"),
        (b"[" * 100_000, "the file is damaged, or no trace: "),
        (b"9" * 5000, "the file is damaged, or no trace: "),
        (b"1e99999999999999999999", "the file is damaged, or no trace: "),
        (gzip.compress(b"x" * 1000, mtime=0)[:-4], "the gzip data is damaged or cut off: "),
        (gzip.compress(b"x" * 1000, mtime=0)[:12], "the gzip data is damaged or cut off: "),
        (b"\x1f\x8b", "the gzip data is damaged or cut off: "),
        (b'{"traceEvents": [{"ph": "X", "cat": "v8", "name": "f"}]}', "it holds no event of torch.profiler"),
    ],
)
def test_what_is_no_trace_says_so(tmp_path, content, said):
    path = tmp_path / "some.file"
    path.write_bytes(content)
    assert error_of(path).startswith(said)


def test_a_missing_file_an_empty_folder_and_an_impossible_name(tmp_path):
    assert error_of(tmp_path / "none.jsonl") == "the file cannot be read: No such file or directory"
    assert error_of(tmp_path).startswith("the folder holds no file that ends with .json")
    assert "null byte" in error_of("a\0b")


def test_a_file_for_viewers_is_no_trace_to_load(tmp_path):
    of_rank(0).to_chrome(tmp_path / "viewer.json")
    assert "to_chrome" in error_of(tmp_path / "viewer.json")


def test_gzip_is_known_by_its_content_not_its_name(tmp_path):
    of_rank(0).save(tmp_path / "a.jsonl.gz")
    assert (tmp_path / "a.jsonl.gz").read_bytes().startswith(b"\x1f\x8b")
    (tmp_path / "a.jsonl.gz").rename(tmp_path / "a.jsonl")
    assert Trace.load(str(tmp_path / "a.jsonl")) == of_rank(0)


def test_the_same_trace_makes_the_same_bytes(tmp_path):
    for name in ("a.jsonl", "a.jsonl.gz"):
        of_rank(0).save(tmp_path / name)
        once = (tmp_path / name).read_bytes()
        of_rank(0).save(tmp_path / name)
        assert (tmp_path / name).read_bytes() == once


def test_a_missing_folder_is_named(tmp_path):
    for write in (of_rank(0).save, of_rank(0).to_chrome):
        with pytest.raises(TraceError, match=r"there is no folder .*none; make it first"):
            write(tmp_path / "none" / "trace.jsonl")


def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "trace.jsonl"
    of_rank(0).save(path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(TraceError, match="the file cannot be written: No space left on device"):
        of_rank(1).save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["trace.jsonl"]
    assert Trace.load(path) == of_rank(0)


def test_a_folder_in_the_place_of_the_file_is_an_error(tmp_path):
    with pytest.raises(TraceError, match="the file cannot be written"):
        of_rank(0).save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_name_with_a_null_byte_is_an_error():
    with pytest.raises(TraceError, match="the file cannot be written: embedded null byte"):
        of_rank(0).save("a\0b")


def test_a_folder_of_ranks_is_one_trace(tmp_path):
    of_rank(1, start_ns=20, wall_offset_ns=900).save(tmp_path / "one.jsonl.gz")
    of_rank(0).save(tmp_path / "two.jsonl")
    (tmp_path / "README.md").write_text("no trace")
    loaded = Trace.load(tmp_path)
    assert [(span.rank, span.start_ns + loaded.wall_offset_ns) for span in loaded] == [(0, 1010), (1, 920)][::-1]


def test_a_broken_file_of_a_folder_is_named(tmp_path):
    of_rank(0).save(tmp_path / "0.jsonl")
    (tmp_path / "1.jsonl").write_text(json.dumps({}))
    with pytest.raises(TraceError, match=r"1\.jsonl: this is JSON, but"):
        Trace.load(tmp_path)


def test_files_of_one_rank_in_a_folder_are_named(tmp_path):
    of_rank(1).save(tmp_path / "a.jsonl")
    of_rank(1).save(tmp_path / "b.jsonl")
    assert error_of(tmp_path) == "rank 1 is in a.jsonl and in b.jsonl; leave one of them out"
