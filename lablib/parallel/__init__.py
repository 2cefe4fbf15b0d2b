"""Reference algorithms to read in class: one idea a file, the naive version beside the good one."""
