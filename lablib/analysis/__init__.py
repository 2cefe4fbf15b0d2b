"""Numbers and tables from a trace: overlap, waits, buckets, comparison; no colours."""
