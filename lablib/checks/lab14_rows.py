"""Lab 14's tables: what people write in place of what is measured, and why it is wrong."""

from __future__ import annotations

from lablib.checks.tables import Mistakes, Row

PER_PARAMETER: dict[str, Row] = {
    "on one process": (
        16,
        {
            4: "those are the parameters alone",
            8: "parameters and gradients; the optimizer has a state, too",
            12: "Adam keeps two numbers for each parameter: the means of gradients and of their squares",
            18: "that is with 16-bit parameters beside 32-bit ones; here all is 32-bit",
        },
        "4 bytes for each of: parameter, gradient, and the two numbers that Adam keeps",
    ),
    "on each of four ranks": (
        16,
        {
            4: "DDP divides the batch; parameters, gradients and state are whole on each rank",
            8: "DDP divides the batch; parameters, gradients and state are whole on each rank",
            64: "that is on all ranks together",
            20: "the buckets are a copy of the gradients, right; but they are not counted here",
        },
        "what does DDP divide?",
    ),
}

_ALL_REDUCE = "an all_reduce sends 2: sums go round, then results go round"
FIRST_SENT: dict[str, tuple[Mistakes, str]] = {
    "DDP": ({1.0: _ALL_REDUCE, 3.0: "the parameters do not travel"}, _ALL_REDUCE),
    "first try": (
        {
            1.0: "gradients are averaged as ever, and new slices come on top",
            2.0: "that is the all_reduce; the new slices come on top",
            4.0: "an all_gather sends each slice to the n - 1 others: 1",
        },
        "one all_reduce, and one all_gather",
    ),
}
SENT: dict[str, tuple[Mistakes, str]] = {
    "stage 1": (
        {
            3.0: "that was with an all_reduce: half of it is enough",
            1.0: "the reduce_scatter is 1; the new slices must get to the others, too",
        },
        "one reduce_scatter, and one all_gather",
    ),
    "stage 2": (
        {
            1.0: "what is let go was never sent; the same two calls are left",
            3.0: "it makes the same calls as stage 1",
        },
        "it makes the same calls as stage 1",
    ),
    "stage 3": (
        {
            2.0: "parameters are let go after forward, and backward reads them, too",
            4.0: "step need not gather: the next forward does",
            1.0: "count the all_gathers, too",
        },
        "which calls are made in forward, in backward, in reduce?",
    ),
}

_ROWS = "activations belong to rows of the batch, not to parameters: each rank keeps its own rows'"
DIVIDED: dict[str, tuple[Mistakes, str]] = {
    "activations, beside DDP": ({0.25: f"sharding divides no activations: {_ROWS}"}, _ROWS),
    "multiplications, beside DDP": (
        {0.25: "ZeRO is no model parallelism: each rank multiplies its rows by whole weights, gathered before"},
        "each rank runs the whole model on its own rows, as ever",
    ),
    "activations, beside one process": (
        {1.0: "the batch is divided, as under DDP: a quarter of the rows, a quarter of their activations"},
        "a quarter of the rows",
    ),
}

NAMES: dict[str, str] = {
    "ZeroRedundancyOptimizer": "you have just used it",
    "fully_shard": "that is FSDP's newer interface, which shards parameters, gradients and state",
    "fsdp_checkpointing": "no file of torch has that name in it",
}

BUDGET: dict[str, Row] = {
    "smallest stage, 64 ranks of 40 GiB": (
        2,
        {
            1: "parameters and gradients are whole in stage 1: 57.6 GiB, before any state",
            3: "it fits, and stage 2 does, too: 28.8 GiB of parameters, and 1/64 of 86.4 GiB",
            0: "that is 115.2 GiB on each rank",
        },
        "take 16 bytes a parameter apart: 4 + 4 + 8",
    ),
    "ranks of 40 GiB, stage 2": (
        8,
        {
            3: "stage 2 keeps all parameters on each rank: 11.2 GiB are left for slices",
            7: "7 ranks need 41.1 GiB each: round up",
            2: "stage 2 keeps all parameters on each rank: 11.2 GiB are left for slices",
        },
        "28.8 GiB of parameters are on each rank; the other 86.4 GiB are cut into slices",
    ),
    "ranks of 24 GiB, stage 3": (
        5,
        {
            4: "4 ranks need 28.8 GiB each: round up",
            8: "that leaves room for activations; here they take none",
            6: "one fewer is enough",
        },
        "115.2 GiB, cut into slices",
    ),
    "the same, and 8 GiB of activations on each rank": (
        8,
        {
            5: "activations are there on each rank, on top: 16 GiB are left for slices",
            6: "that divides the activations, too: each rank has all 8 GiB of its own",
            7: "7 ranks need 16.5 GiB each beside the activations: round up",
        },
        "16 GiB are left for slices",
    ),
    "GiB in stage 1 on a million ranks": (
        57.6,
        {
            0.0: "only the state is cut: parameters and gradients stay",
            28.8: "gradients stay, too",
            115.2: "the state is cut into a million slices",
            86.4: "8 bytes a parameter stay: 4 and 4",
        },
        "what does stage 1 not cut?",
    ),
}
"""Of 28.8 GiB of parameters in 32 bits, with Adam."""
