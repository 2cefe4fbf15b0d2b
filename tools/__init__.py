"""What `make` calls: the standard library only, run by the system's Python before anything is installed."""
