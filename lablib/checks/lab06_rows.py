"""Lab 06's tables: what people write in place of what is measured, and why it is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Mistakes = Mapping[object, str]

LISTING = 15  # lines of the lab's listing of DataParallel's step
_REPLICATED = "each replica computes its own part there: nothing crosses"
LINES: dict[str, tuple[int, Mistakes]] = {
    "parameters are sent anew": (
        3,
        {
            10: "that call does it; look inside forward for the line",
            15: "the optimizer changes the parameters on replica 0 only; they are sent in the next forward",
            2: "that is the batch: its parts are sent, too",
            5: _REPLICATED,
        },
    ),
    "outputs come to one device": (
        6,
        {
            11: "they are on one device by then: look for the line that joins them",
            5: _REPLICATED,
            10: "that call does it; look inside forward for the line",
        },
    ),
    "one device computes the loss of the whole batch": (
        11,
        {
            14: "that is backward: the loss is there already",
            6: "there the outputs are joined; the loss comes behind it",
            13: "that line looks at the loss, and computes nothing",
        },
    ),
    "gradients come back and are added up": (
        14,
        {
            15: "they are added up by then: the optimizer uses them",
            9: "that line clears gradients",
            11: "that is the loss: gradients come with backward",
        },
    ),
    "one device updates the parameters": (
        15,
        {
            3: "copies are made there; the others never change theirs, they get new ones",
            9: "that line clears gradients",
            14: "backward makes gradients, and the optimizer uses them",
        },
    ),
}

BYTES: dict[str, tuple[Mistakes, str]] = {
    "DataParallel, parameters": (
        {
            0.0: "each forward begins with new copies: the optimizer has changed the parameters on replica 0 only",
            1.0: "to each of the three other replicas",
            4.0: "replica 0 has them already",
        },
        "count copies to other replicas",
    ),
    "DataParallel, gradients": (
        {
            0.0: "backward goes through the copies: each one's gradients come back",
            1.0: "from each of the three other replicas",
            4.0: "replica 0's own do not travel",
        },
        "as many as there were copies",
    ),
    "DDP, parameters": (
        {
            1.0: "only when DDP is built; then equal gradients keep them equal",
            3.0: "that is DataParallel: DDP's ranks have their own parameters, and keep them",
        },
        "look at the second step, not at the first",
    ),
    "DDP, gradients": (
        {
            3.0: "that is DataParallel: a rank brings its gradients once, to an all_reduce",
            4.0: "that is all ranks together: here is asked what one rank brings",
            2.0: "the means come back in the same call: what the rank brings is asked",
            0.25: "each rank brings all of its gradients: they are its own, and not a quarter of some",
        },
        "what one rank brings to its all_reduce calls",
    ),
}
"""In multiples of the model, for four replicas or ranks in one step."""

LOOPS: dict[str, tuple[float, Mistakes, str]] = {
    "Python loop, two threads": (
        2.0,
        {
            1.0: "the two take turns: only the thread that holds the GIL runs Python",
            0.5: "nothing is faster than one half alone",
            4.0: "they take turns, and both halves are done when two have passed",
        },
        "a thread needs the GIL for every line of Python, and there is one",
    ),
    "matrix products, two threads": (
        1.0,
        {
            2.0: "torch lets go of the GIL while it multiplies: both run at once",
            0.5: "nothing is faster than one half alone",
        },
        "torch lets go of the GIL while it multiplies",
    ),
    "Python loop, two processes": (
        1.0,
        {
            2.0: "each process has a GIL of its own",
            0.5: "nothing is faster than one half alone",
        },
        "each process has a GIL of its own",
    ),
}
"""Times of two halves at once, in multiples of one half alone."""

HELD: dict[str, tuple[Mistakes, str]] = {
    "rows of outputs, replica 0": (
        {
            8.0: "that is its own part: the outputs of all replicas are gathered there",
            24.0: "its own part is there, too",
        },
        "all outputs are gathered on replica 0",
    ),
    "rows of outputs, a rank of DDP": (
        {
            32.0: "DDP gathers nothing: a rank has the outputs of what it was given",
            0.0: "a rank has the outputs of its own part",
        },
        "a rank has the outputs of its own part",
    ),
    "optimizer state, replica 0": (
        {
            0.0: "Adam keeps two numbers for each parameter, and the parameters that it knows are here",
            1.0: "Adam keeps two numbers for each parameter",
            0.5: "nothing is shared out: replica 0 keeps all of it",
        },
        "Adam keeps two numbers for each parameter",
    ),
    "optimizer state, another replica": (
        {
            2.0: "replicas are copies for one step: the optimizer does not know them",
            1.0: "replicas are copies for one step: the optimizer does not know them",
            0.5: "nothing is shared out: replica 0 keeps all of it",
        },
        "the optimizer knows only the module that you gave it",
    ),
    "optimizer state, a rank of DDP": (
        {
            0.0: "each rank has an optimizer of its own, and steps itself",
            0.5: "DDP shares nothing out: each rank has all of it",
            1.0: "Adam keeps two numbers for each parameter",
        },
        "each rank has an optimizer of its own",
    ),
}
"""For a batch of 32 on four devices; state in multiples of the model."""

UNEVEN: Mapping[str, Any] = {
    "DataParallel": "the outputs are joined before the loss: it is one mean over all seven rows",
    "DDP": "each rank takes the mean over its own rows, and DDP the plain mean of both gradients (lab 04)",
}
