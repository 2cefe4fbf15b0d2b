"""Knobs around predictions and pictures; what runs on ranks is given to them."""

from lablib.widgets.buckets import bucket_explorer
from lablib.widgets.collectives import collectives_explorer
from lablib.widgets.frame import Explorer, Scene
from lablib.widgets.memory import memory_explorer
from lablib.widgets.ranks import RankPicker
from lablib.widgets.sampler import sampler_explorer

__all__ = [
    "Explorer",
    "RankPicker",
    "Scene",
    "bucket_explorer",
    "collectives_explorer",
    "memory_explorer",
    "sampler_explorer",
]
