"""Code of torch that runs on a rank, or alone."""
