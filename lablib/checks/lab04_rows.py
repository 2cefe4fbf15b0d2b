"""Lab 04's tables: what people write in place of what the ranks show."""

from __future__ import annotations

from collections.abc import Mapping

Pair = tuple[float, float]

GRADIENTS: dict[str, tuple[Mapping[object, str], str]] = {
    "DDP": (
        {
            (1.0, 3.0): "DDP does not know how many samples a rank has: it divides the sum by the number of ranks",
            (0.0, 7.0): "that is the sum; DDP divides it by the number of ranks",
            (7.0, 0.0): "that is rank 0's own: all ranks get the mean",
            (0.0, 1.0): "that divides by the number of samples: DDP divides by the number of ranks",
        },
        "add the two gradients, divide by the number of ranks",
    ),
    "one process": (
        {
            (0.0, 3.5): "that is the mean of two means: four samples would count as much as three",
            (-1.0, 4.0): "the weights are swapped: the part with more samples counts more",
            (7.0, 21.0): "that is the sum over the samples; the loss is their mean",
            (0.0, 7.0): "a mean over four samples is a quarter of their sum: multiply by 4 and by 3 first",
        },
        "four samples at (7, 0) and three at (-7, 7), divided by seven",
    ),
}
LINEAR: dict[str, str] = {
    "SGD": "the step is the learning rate times the gradient",
    "momentum": "momentum is a weighted sum of gradients, and the mean of sums is the sum of means",
    "Nesterov": "Nesterov's step is a sum of gradients, too",
    "weight decay": "weight decay adds a multiple of the weights, which are the same on both ranks before each step",
}
_ROOT = "its step divides by the root of squared gradients: the mean of quotients is not the quotient of means"
NOT_LINEAR: dict[str, str] = {
    "Adam": _ROOT,
    "AdamW": f"its decay would do no harm, but {_ROOT}",
    "Adagrad": _ROOT,
    "RMSprop": _ROOT,
}
COPIES: dict[str, str] = {
    "weights before DDP": "each rank has made its own random weights, from a seed of its own",
    "weights after DDP": "the constructor gives rank 0's weights to everyone",
    "momentum after DDP": "the optimizer is none of DDP's business: its state is not given to anyone",
    "gradient of the weight": "that is what DDP averages",
    "gradient of the bias": "DDP looks for gradients to average when it is built, and the bias was frozen then",
}
BATCH_NORM: dict[str, str] = {
    "weights on both ranks, after a step": "BatchNorm's weights have gradients, and those are averaged",
    "running mean on both ranks, after a step": "a buffer has no gradient: each rank's comes from its own batch",
    "running mean on both ranks, inside the next forward": "before each forward, rank 0's buffers go to everyone",
    "gradient of DDP and of the big batch": "each rank normalises with the mean and variance of its own batch",
}
FORGOT: dict[object, str] = {
    "b": "gradients are averaged, not added: the mean of equal gradients is that gradient",
    "c": "equal data, equal gradients: nothing is there that could differ",
}
BUG_LINES: dict[object, str] = {
    1: "the model is made as for one process",
    2: "that is how DDP is built on a CPU",
    3: "these are the same parameters, with and without the wrapper",
    4: "epochs are counted as in one process",
    5: "set_epoch is right there: it shuffles anew in each epoch",
    6: "each rank goes through its own part of the data",
    7: "clearing gradients before backward is right",
    9: "a loss of this rank's outputs is right: DDP averages gradients",
    10: "backward is called as it should be; ask why no gradient travels in it",
    11: "the optimizer steps on this rank, as it should",
}
TWO_ACCURACIES: dict[str, tuple[float, Mapping[object, str], str]] = {
    "mean of the ranks": (
        5 / 8,
        {
            4 / 7: "the mean of two shares knows nothing of counts: that is over all samples",
            5 / 4: "that is the sum of the shares; divide by the number of ranks",
        },
        "1/4 and 3/3, added, divided by 2",
    ),
    "all samples": (
        4 / 7,
        {
            5 / 8: "that is the mean of means: the three samples count as much as the four",
            1 / 2: "three right on rank 1 and one on rank 0",
        },
        "count what is right, and what there is",
    ),
}
MORE_RANKS: dict[str, tuple[float, Mapping[object, str], str]] = {
    "global batch": (
        16.0,
        {4.0: "that is the batch of one rank", 64.0: "that is the whole epoch", 8.0: "that is for two ranks"},
        "the batches of all ranks together",
    ),
    "steps": (
        4.0,
        {
            16.0: "that is for one rank: four ranks use four batches in each step",
            64.0: "that would be one sample a step",
            8.0: "that is for two ranks",
        },
        "samples divided by the global batch",
    ),
    "one sample": (
        1 / 16,
        {
            1 / 4: "that is for one rank: the mean over its batch of 4; DDP then divides by the number of ranks",
            1.0: "the loss is a mean: a sample is one of many",
            1 / 64: "no step sees the whole epoch",
            1 / 8: "that is for two ranks",
            16.0: "divided by, not multiplied",
        },
        "the gradient is a mean over the global batch",
    ),
}
SHARES = (5 / 8, 4 / 7, 5 / 4, 1 / 2)
"""Values that are told apart in answers with two digits."""

CLIP: dict[str, tuple[Mapping[object, str], str]] = {
    "clip, then average": (
        {
            (1.0,): "rank 1's gradient is negative: clipped, it is -1",
            (3.0,): "that is the mean without clipping",
            (0.5,): "both are longer than 1, and both are clipped: to 1 and to -1",
        },
        "clip 8 and -2 to length 1 each, keep the signs, take the mean",
    ),
    "average, then clip": (
        {
            (3.0,): "that is the mean, and it is longer than 1",
            (0.0,): "the mean of 8 and -2 is not 0",
            (6.0,): "DDP gives the mean, not the sum; and it is clipped",
        },
        "take the mean of 8 and -2, then clip it to length 1",
    ),
}
RATES: dict[float, str] = {
    1.0: "a mean does not grow with the batch, and there are four times fewer steps: that is too slow",
    2.0: "a square root is a rule for the noise of gradients; here a quarter of the steps must go as far",
    0.25: "the other way round: there are fewer steps, so each must be larger",
}
"""Learning rates as multiples of the one for a quarter of the ranks."""


def wrong_weights(n: int, total: int, ranks: int) -> list[tuple[float, str]]:
    """Return what people multiply the loss of n samples by, and what is wrong with it."""
    return [
        (n / total, "that is the rank's part of the samples; DDP divides by the number of ranks on top"),
        (1.0, "that is DDP's plain mean: a rank with more samples must count more"),
        (total / (ranks * n), "upside down: a rank with more samples must count more"),
        (1 / n, "the loss is a mean over n already: undo that, and divide by all samples"),
        (ranks / n, "the loss is a mean over n already: undo that, and divide by all samples"),
        (ranks / total, "that counts each rank the same: the loss is a mean over n"),
        (n / (ranks * total), "DDP divides by the number of ranks itself: that would be twice"),
        (float(ranks), "that is the same for each rank: a rank with more samples must count more"),
        (1 / ranks, "DDP divides by the number of ranks itself, and a rank with more samples must count more"),
        (n / ranks, "DDP divides by the number of ranks: to undo that, multiply"),
        (float(n), "that makes sums of the means; DDP divides by ranks, and a mean over all samples is wanted"),
        (float(ranks * n), "that is the gradient of the sum over all samples: the mean is wanted"),
    ]


def talking(phase: str, *, buffers: bool, talks: bool) -> str:
    """Say why ranks talk, or do not, in a phase such as "forward 1"."""
    kind = phase.partition(" ")[0]
    if kind == "constructor":
        return "models may differ from rank to rank: DDP compares them, and gives rank 0's weights to everyone"
    if kind == "backward":
        return "gradients are averaged in every backward"
    if talks and buffers:
        return "BatchNorm has buffers, and rank 0's go to everyone before each forward"
    if talks:
        return (
            "once the first backward has shown in which order gradients come, DDP rebuilds its buckets, and tells all"
        )
    return "weights are equal already, and there are no buffers: forward has nothing to say"
