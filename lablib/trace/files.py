"""Traces from files and to files: what kind of file it is, gzip or not, one or a folder of them."""

from __future__ import annotations

import contextlib
import gzip
import os
import secrets
import zlib
from pathlib import Path

from lablib.errors import TraceError
from lablib.trace import kineto, lines
from lablib.trace.merge import merge
from lablib.trace.spans import Trace

_GZIP = b"\x1f\x8b"
_ENDINGS = (".json", ".jsonl", ".json.gz", ".jsonl.gz")


def load(path: str | os.PathLike[str]) -> Trace:
    """Read a trace that `save` or torch.profiler wrote.

    Args:
        path: a file, with gzip or without; or a folder with one file for each rank.

    Raises:
        TraceError: it is missing, empty, damaged, cut off, of a newer version, or no trace at all.
    """
    path = Path(path)
    if not path.is_dir():
        return _load(path)
    try:
        found = sorted(file for file in path.iterdir() if file.name.endswith(_ENDINGS))
    except OSError as error:
        raise TraceError(f"{path}: the folder cannot be read: {error.strerror}") from error
    if not found:
        raise TraceError(f"{path}: the folder holds no file that ends with {', '.join(_ENDINGS)}")
    world_size = max(kineto.rank_in_name(file.name) or 0 for file in found) + 1
    traces = [_load(file, world_size=world_size) for file in found]
    try:
        return merge(traces, names=[file.name for file in found])
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from None


def save(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace as JSON lines, whole or not at all.

    Args:
        trace: what to write.
        path: the file, replaced where it exists; ``.gz`` at its end compresses.

    Raises:
        TraceError: the folder is missing, the file cannot be written, or a span holds what could not be read back.
    """
    try:
        data = lines.encode(trace)
    except TraceError as error:
        raise TraceError(f"{os.fspath(path)}: {error}") from None
    write(data, path)


def write(data: bytes, path: str | os.PathLike[str]) -> None:
    """Write a file whole or not at all; ``.gz`` at the end of its name compresses.

    Raises:
        TraceError: the folder is missing, or the file cannot be written.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise TraceError(f"{path}: there is no folder {path.parent}; make it first")
    if path.name.endswith(".gz"):
        data = gzip.compress(data, mtime=0)  # the same trace, the same bytes
    beside = path.with_name(f".{secrets.token_hex(4)}.part")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: the file cannot be written: {_reason(error)}") from error
    finally:
        with contextlib.suppress(OSError, ValueError):
            beside.unlink()


def _load(path: Path, *, world_size: int = 1) -> Trace:
    try:
        data = _unzipped(path.read_bytes())
        if not data.strip():
            raise TraceError("the file is empty")
        if lines.recognises(data):
            return lines.decode(data)
        return kineto.decode(data, name=path.name, world_size=world_size)
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from None
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: the file cannot be read: {_reason(error)}") from error


def _reason(error: OSError | ValueError) -> str:
    """Return what went wrong; a name with a null byte is a ValueError."""
    return getattr(error, "strerror", None) or str(error)


def _unzipped(data: bytes) -> bytes:
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"the gzip data is damaged or cut off: {error}") from None
