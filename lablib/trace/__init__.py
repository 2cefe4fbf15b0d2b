"""What happened on the ranks: plain facts, on one clock, in integer nanoseconds and bytes."""

from lablib.trace.memory import Category, MemorySample
from lablib.trace.spans import Kind, Span, Trace

__all__ = ["Category", "Kind", "MemorySample", "Span", "Trace"]
