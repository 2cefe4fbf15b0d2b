"""Measure how long ranks take to start and what they cost, beside the tools people use today."""
