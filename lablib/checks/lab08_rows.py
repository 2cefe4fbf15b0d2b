"""Lab 08's tables: what people write in place of what a run shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Mistakes = tuple[Mapping[object, str], str]  # known ones, and the reason for the others
Row = tuple[Any, Mapping[object, str], str]  # the right answer before them

_UNAVERAGED = "hooks see the local gradient: DDP reduces the bucket after they ran"
HOOKS: dict[str, Mistakes] = {
    "register_hook": (
        {
            2.0: "that hook runs *before* accumulation: it sees what this backward adds, not the sum",
            1.5: _UNAVERAGED,
            3.0: _UNAVERAGED,
        },
        "this backward brings rank 0's gradient of 1",
    ),
    "post_accumulate": (
        {
            1.0: "that hook runs *after* accumulation: what no_sync left is in it",
            1.5: _UNAVERAGED,
            3.0: _UNAVERAGED,
        },
        "1 from the first backward and 1 from the second",
    ),
    "after backward": (
        {
            1.5: "that is the mean of one backward; two were accumulated",
            2.0: "that is rank 0's own sum: backward ends when the buckets are back",
            6.0: "that is the sum over ranks; DDP divides by their number",
        },
        "rank 0 brings 1 + 1, rank 1 brings 2 + 2; DDP averages",
    ),
}
MEMORY: dict[str, Mistakes] = {
    "default": (
        {
            (1.0, 0.0): "the buckets are memory too: a copy of every gradient",
            (1.0, 1.0): "the buckets are memory too: a copy of every gradient",
            (2.0, 0.0): "zero_grad frees the gradients; the reducer keeps its buckets",
            (2.0, 2.0): "zero_grad sets gradients to None by default, and that frees them",
            (3.0, 1.0): "one copy in the buckets: not two",
        },
        "gradients once, buckets once; zero_grad frees the first",
    ),
    "gradient_as_bucket_view": (
        {
            (1.0, 0.0): "the gradients are views: zero_grad lets go of them, and the reducer keeps the memory",
            (2.0, 1.0): "a gradient that is a view of its bucket takes no memory of its own",
            (2.0, 2.0): "a gradient that is a view of its bucket takes no memory of its own",
            (0.0, 0.0): "no copy does not mean no memory: the buckets hold the gradients",
        },
        "gradients and buckets are the same memory",
    ),
}
FLIPPED: dict[object, str] = {
    "a": "they do fill in this order; but bucket k leaves only after buckets 0 to k - 1, since every rank must make the"
    " same calls in the same order",
    "c": "all ranks have the buckets of rank 0, or they would add up gradients of different layers",
}
SLOWER: dict[object, str] = {
    "a": "DDP does not split data: whoever does, such as DistributedSampler, knows nothing of speed",
    "b": "buckets are rebuilt once, in rank 0's order, and slower layers come in the same order",
    "c": "caps are settings: DDP does not look at how long things take",
}
_WHOLE = "that is iteration 0 by default: with this setting even iteration 0 has several buckets"
SETTINGS: dict[str, Mapping[object, str]] = {
    "bucket_cap_mb=5": {
        (1, 5, 5, 1): "a cap given explicitly is for the first bucket, too: the small one goes",
        (1, 5, 5): "a cap given explicitly is for the first bucket, too: the small one goes",
        (4, 4, 4): "four layers have not reached 5 MiB: a bucket closes once it has, and is larger then",
        (12,): "caps count from iteration 1 on: that is iteration 0",
    },
    "bucket_cap_mb=25": {
        (1, 11): "25 given explicitly is not the default: the small first bucket goes",
        (12, 0): "there is no empty bucket",
    },
    "find_unused_parameters=True": {
        (1, 11): "they are filled in this order, from the first layer on; the one filled *last* leaves first",
        (12,): _WHOLE,
    },
    "bucket_cap_mb_list=[2, 4]": {
        (2, 4): "that is half of the model: the last entry is for all buckets that follow",
        (2, 10): "the last entry of the list is for all buckets that follow",
        (1, 2, 4, 4, 1): "the list takes the place of the small first bucket",
        (12,): _WHOLE,
    },
}
"""What people write for the sizes in MiB of twelve layers of 1 MiB."""
