"""Numbers and tables from a trace: overlap, waits, buckets, comparison; no colours."""

from lablib.analysis.buckets import BucketRow, Buckets, buckets
from lablib.analysis.busy import Busy, busy
from lablib.analysis.differences import Differences, Pair, differences
from lablib.analysis.overlap import Overlap, overlap, textbook_coefficient
from lablib.analysis.waits import Call, Meeting, waits

__all__ = [
    "BucketRow",
    "Buckets",
    "Busy",
    "Call",
    "Differences",
    "Meeting",
    "Overlap",
    "Pair",
    "buckets",
    "busy",
    "differences",
    "overlap",
    "textbook_coefficient",
    "waits",
]
