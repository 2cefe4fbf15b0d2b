"""Draw what happened: each view turns plain data into a plotly figure with a badge and a one-line summary."""

import sys

from lablib.views.buckets import buckets
from lablib.views.distances import distances
from lablib.views.frame import Badge, summary
from lablib.views.gradients import gradients
from lablib.views.hosts import hosts
from lablib.views.memory import memory
from lablib.views.memory_bars import memory_bars
from lablib.views.memory_bars_told import MemoryBars
from lablib.views.moved import moved
from lablib.views.overlap import overlap
from lablib.views.places import RankPlace
from lablib.views.shards import shards
from lablib.views.timeline import timeline

__all__ = [
    "Badge",
    "MemoryBars",
    "RankPlace",
    "buckets",
    "distances",
    "gradients",
    "hosts",
    "memory",
    "memory_bars",
    "moved",
    "overlap",
    "shards",
    "summary",
    "timeline",
]

if "IPython" in sys.modules:
    # plotly loads its parts when they are first used, half a second in all: in a notebook better now, while the fork
    # server still imports torch, so that the first figure comes at once
    import plotly.graph_objects as go
    import plotly.io

    go.Figure(go.Scatter())
    plotly.io.renderers  # noqa: B018
