"""Lab 13's tables: what people write in place of what is measured, and why it is wrong."""

from __future__ import annotations

from lablib.checks.tables import Mistakes, Row

_PARAMETERS_ONLY = "that is the parameters alone: their gradients are there until zero_grad"
EACH: dict[str, tuple[Mistakes, str]] = {
    "SGD": (
        {4: _PARAMETERS_ONLY, 12: "plain SGD keeps nothing from step to step", 16: "that is Adam"},
        "4 for the parameter, 4 for its gradient",
    ),
    "SGD with momentum": (
        {8: "momentum is kept: one more number", 4: _PARAMETERS_ONLY, 16: "momentum is one number, not two"},
        "what SGD has, and one number more",
    ),
    "Adam": (
        {
            12: "Adam keeps two numbers: the means of the gradient and of its square",
            8: "that is Adam's own part: parameters and gradients are there, too, before zero_grad",
            4: _PARAMETERS_ONLY,
            18: "18 is a recipe of mixed precision; all is float32 here",
        },
        "parameter, gradient, and two numbers of Adam's",
    ),
    "Adam, all in bfloat16": (
        {
            16: "every number has 2 bytes here, Adam's as well",
            12: "Adam makes its state in the type of the parameters: bfloat16",
            4: "2 bytes each: parameter, gradient, and two of Adam's",
        },
        "as many numbers as in float32, with 2 bytes each",
    ),
    "Adam under DDP": (
        {
            16: "DDP has buckets, too: a copy of the gradients that it sends",
            8: "DDP shards nothing: each rank has all of it",
            10: "DDP shards nothing: each rank has all of it",
            24: "the buckets are one copy of the gradients, not two",
            32: "the other rank's memory is the other rank's",
        },
        "what Adam has, and DDP's buckets",
    ),
    "Adam under DDP, gradient_as_bucket_view=True": (
        {
            20: "the gradients are views of the buckets: the same memory, counted once",
            12: "one of the two is still there: the buckets that are the gradients",
        },
        "what Adam has; the buckets are the gradients",
    ),
}

RECIPE: dict[str, Row] = {
    "parameters": (2, {4: "they are in bfloat16 here"}, "a bfloat16 has 2 bytes"),
    "gradients": (2, {4: "bfloat16 here; recipes that keep them in float32 come to 18"}, "a bfloat16 has 2 bytes"),
    "master copy": (
        4,
        {2: "the copy is there because bfloat16 is too coarse: float32", 8: "one number"},
        "one number in float32",
    ),
    "Adam's two": (
        8,
        {4: "two numbers, in float32 each", 12: "the master copy has its own line"},
        "two numbers in float32",
    ),
}

PHASES: dict[str, Mistakes] = {
    "batch of 32": {
        "forward": "with a small batch activations are little; when is all that stays there, and work to do?",
        "backward": "close: all gradients are there at its end; but Adam then needs room to compute",
    },
    "batch of 512": {
        "forward": "at its end all activations are there; one moment later their gradients come on top",
        "optimizer": "that is so while activations are little; they are gone when the optimizer steps",
    },
}

SHRINKS = {
    "parameters": "the model is the same, whatever the batch",
    "gradients": "they are added up in place: one for each parameter, until the step",
    "optimizer state": "it depends on the parameters only",
    "activations": "each part is forward and backward on its own: only one part's activations are there at a time",
}

FREED: dict[str, tuple[Mistakes, str]] = {
    "DDP": (
        {
            8: "the buckets stay: they are DDP's",
            0: "the gradients are tensors of their own here, and go",
        },
        "a gradient has 4 bytes",
    ),
    "gradient_as_bucket_view=True": (
        {
            4: "a view goes, the bucket that it looked at stays",
            8: "a view goes, the bucket that it looked at stays",
        },
        "the memory is the bucket's",
    ),
}
