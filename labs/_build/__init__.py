"""The steps of the course build: read a source, take the solutions out, write notebooks, run them, draw the map."""
