"""Profiles by hand, as torch.profiler writes them, and where real ones lie."""

import json
import os
from pathlib import Path

import pytest

from lablib.trace import kineto

MAIN, AUTOGRAD, GLOO = 100, 101, 102


def real(name):
    """Return the path of a real profile, or skip."""
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "traces"
    path = Path(os.environ.get("LABLIB_TRACES", beside)) / name
    if not path.exists():
        pytest.skip(f"no {name} in {path.parent}; LABLIB_TRACES names another folder")
    return path


def event(cat, name, start, end, thread=MAIN, **args):
    """Return a complete event; times in microseconds."""
    length = round(end - start, 3)
    return {"ph": "X", "cat": cat, "name": name, "pid": 100, "tid": thread, "ts": start, "dur": length, "args": args}


def op(name, start, end, thread=MAIN, **args):
    return event("cpu_op", name, start, end, thread, **args)


def mark(name, start, end, thread=MAIN, **args):
    return event("user_annotation", name, start, end, thread, **args)


def kernel(name, start, end, stream=7, **args):
    return event("kernel", name, start, end, stream, stream=stream, **args) | {"pid": 0}


def launch(correlation, at, thread=MAIN):
    return event("cuda_runtime", "cudaLaunchKernel", at, at + 1, thread, correlation=correlation)


def node(start, end, number=None, thread=MAIN):
    args = {} if number is None else {"Sequence number": number}
    return op("autograd::engine::evaluate_function: MulBackward0", start, end, thread, **args)


def document(*events, rank=0, world_size=2, backend="gloo", **facts):
    told = {"backend": backend, "rank": rank, "world_size": world_size}
    return {
        "schemaVersion": 1,
        "distributedInfo": told,
        "baseTimeNanoseconds": 10**18,
        "traceEvents": list(events),
    } | facts


def decoded(written, name="trace.json", **options):
    """Return the trace of a document, or of text."""
    data = written if isinstance(written, str) else json.dumps(written)
    return kineto.decode(data.encode(), name=name, **options)
