"""What lab 04's checks run on the ranks: a learner's function, beside one process that has all the data.

Each `try_` function returns what is wrong on this rank, in words, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lablib.checks.answers import WrongKind, number

_CLOSE = 1e-6
_CUT_OFF = "return a tensor that still hangs on the model: .item() and .detach() cut it off, and so does no return"
_SAMPLES = [3, 1, 4, 2]  # of each rank
_SENTENCES = ([0, 0, 0, 2, 0, 0, 0, 0], [1, 0, 2, 1, 2], [1, 1], [2])  # 16 words
_SHORTER = ([0, 2], [1], [1, 1, 0], [2])
_PADDING = -100
_STEPS = 3


def try_of_the_sum(of_the_sum: Callable[[Any], Any]) -> str:
    """Be one of four ranks with different numbers of samples, whose losses are sums."""
    import torch
    import torch.distributed as dist
    from torch.nn.functional import mse_loss

    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(sum(_SAMPLES), width, generator=generator, dtype=torch.float64) for width in (4, 1))
    mine = slice(sum(_SAMPLES[: dist.get_rank()]), sum(_SAMPLES[: dist.get_rank() + 1]))

    def model() -> torch.nn.Module:
        layer = torch.nn.Linear(4, 1, bias=False, dtype=torch.float64)
        torch.nn.init.zeros_(layer.weight)
        return layer

    def summed(one: torch.nn.Module, part: slice) -> torch.Tensor:
        return mse_loss(one(x[part]), y[part], reduction="sum")

    true = _gradient(model(), lambda one: summed(one, slice(None)))
    found = _under_ddp(model(), lambda one: of_the_sum(summed(one, mine)))
    if found is None:
        return _CUT_OFF
    ratio = _ratio(found, true)
    return _reason(
        ratio,
        {
            1 / 4: "a quarter of it: DDP divides by the number of ranks, and only what backward() starts from changes"
            " a gradient",
            1 / 2: "half of it: there are four ranks here, and a fixed 2 is right for two",
            1 / 16: "a sixteenth of it: DDP divides by the number of ranks already; undo that",
            4.0: "four times as much: DDP divides by the number of ranks once only",
            1 / 10: "that is the gradient of the mean over all samples: the sum was asked",
        },
        "this rank's number of samples plays no part: sums count all samples alike",
    )


def try_word_loss(word_loss: Callable[[Any, Any], Any]) -> str:
    """Be one of four ranks with sentences of different lengths."""
    import torch
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy

    def counter() -> torch.nn.Module:
        """Return a model of how frequent each word is: its three weights are the logits."""
        layer = torch.nn.Linear(1, 3, bias=False)
        torch.nn.init.zeros_(layer.weight)
        return layer

    def losses(model: torch.nn.Module, words: torch.Tensor, reduction: str) -> torch.Tensor:
        return cross_entropy(model(torch.ones(len(words), 1)), words, reduction=reduction, ignore_index=_PADDING)

    def of(words: torch.Tensor) -> Any:
        return _gradient(counter(), lambda model: losses(model, words, "mean"))

    def padded(sentences: Iterable[list[int]]) -> list[torch.Tensor]:
        return [torch.tensor(words + [_PADDING] * (8 - len(words))) for words in sentences]

    def under_ddp(everyones: list[torch.Tensor]) -> Any:
        mine = everyones[dist.get_rank()]
        return _under_ddp(counter(), lambda model: word_loss(losses(model, mine, "none"), mine != _PADDING))

    everyones, shorter = padded(_SENTENCES), padded(_SHORTER)
    found, found_shorter = under_ddp(everyones), under_ddp(shorter)
    if found is None or found_shorter is None:
        return _CUT_OFF
    true, plain = of(torch.cat(everyones)), torch.stack([of(words) for words in everyones]).mean(0)
    if _equal(found, true) and not _equal(found_shorter, of(torch.cat(shorter))):
        return "right for 16 words only: other sentences have another number of words, which the ranks must count"
    if _ratio(found, plain) is not None:
        return "each rank divides by its own number of words: rank 3's one word then weighs as much as rank 0's eight"
    return _reason(
        _ratio(found, true),
        {
            1 / 4: "a quarter of it: DDP divides by the number of ranks on top of your division by all words",
            1 / 2: "half of it: padding was counted, too; there are 32 places and 16 words",
            1 / 8: "an eighth of it: padding was counted, too, and DDP divides by the number of ranks on top",
            4.0: "four times as much: nobody divides by the number of words",
            16.0: "sixteen times as much: nobody divides by the number of words",
        },
        "add up this rank's losses, and divide by what is the same on all ranks",
    )


def try_train_step(train_step: Callable[..., Any]) -> str:
    """Be one of two ranks that take three steps, each with its half of the data."""
    import torch
    import torch.distributed as dist
    from torch.nn.functional import mse_loss
    from torch.nn.parallel import DistributedDataParallel

    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(8, width, generator=generator, dtype=torch.float64) for width in (4, 1))
    mine = [part.chunk(2)[dist.get_rank()] for part in (x, y)]

    def layer() -> torch.nn.Module:
        linear = torch.nn.Linear(4, 1, dtype=torch.float64)
        for weights in linear.parameters():
            torch.nn.init.ones_(weights)
        return linear

    def alone(features: torch.Tensor, labels: torch.Tensor, *, clears: bool = True) -> Any:
        model = layer()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(_STEPS):
            if clears:
                optimizer.zero_grad()
            mse_loss(model(features), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return _vector(model.parameters())

    model = layer()
    before = _vector(model.parameters())
    ddp_model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.1)
    for _ in range(_STEPS):
        train_step(model, ddp_model, optimizer, *mine)
    after = _vector(model.parameters())
    bypassed = (
        "the wrapper is bypassed: each rank has trained on its own half, and the two models differ; call ddp_model"
    )
    uncleared = "gradients of earlier steps are still there: backward adds to them, so clear them first"
    known = [
        (alone(x, y), ""),
        (before, "no weight has changed: go backward, then let the optimizer step"),
        (alone(*mine), bypassed),
        (alone(*mine, clears=False), bypassed),
        (alone(x, y, clears=False), uncleared),
    ]
    for weights, reason in known:
        if _apart(after, weights) < _CLOSE:
            return reason
    return f"after {_STEPS} steps the weights are {_apart(after, known[0][0]):.2g} off those of one process"


def try_accuracy(accuracy: Callable[[int, int], Any]) -> str:
    """Be one of two ranks with different numbers of samples."""
    import torch.distributed as dist

    rank, cases = dist.get_rank(), (((1, 4), (3, 3)), ((0, 5), (2, 4)))
    # every answer before one is judged: a rank that is found wrong would be missed in the next
    answers = [accuracy(*counts[rank]) for counts in cases]
    for counts, answer in zip(cases, answers, strict=True):
        correct, count = counts[rank]
        try:
            found = number(answer)
        except WrongKind as error:
            return f"rank {rank}: {error}, and a number is wanted on each rank"
        right, everything = (sum(both) for both in zip(*counts, strict=True))
        if abs(found - right / everything) < _CLOSE:
            continue
        shares = [one / all_of_it for one, all_of_it in counts]
        mistakes = {
            sum(shares) / 2: "that is the mean of the ranks' accuracies: add up counts, and divide once",
            sum(shares): "that is the sum of the ranks' accuracies: add up counts, and divide once",
            correct / count: "that is this rank's own: the counts of all ranks are needed",
            float(right): "that is how many are right: divide by how many there are",
            right / count: "all that is right, divided by this rank's samples: add those up, too",
            correct / everything: "this rank's right ones among all samples: add those up, too",
            100 * right / everything: "that is per cent; a share is between 0 and 1",
            right / 2 / everything: "the counts are sums, not means: nothing is to be divided by the number of ranks",
        }
        near = next((reason for wrong, reason in mistakes.items() if abs(found - wrong) < _CLOSE * max(1.0, wrong)), "")
        return f"{right} of {everything} are right, got {found:.3f}{'; ' if near else ''}{near}"
    return ""


def _gradient(model: Any, loss_of: Callable[[Any], Any]) -> Any:
    loss_of(model).backward()
    return _vector(weights.grad for weights in model.parameters())


def _under_ddp(model: Any, loss_of: Callable[[Any], Any]) -> Any:
    """Return the gradient that DDP leaves; None where a loss has no gradient."""
    from torch.nn.parallel import DistributedDataParallel

    ddp = DistributedDataParallel(model)
    loss = loss_of(ddp)
    if not getattr(loss, "requires_grad", False):
        return None
    loss.backward()
    return _vector(weights.grad for weights in ddp.parameters())


def _vector(tensors: Iterable[Any]) -> Any:
    """Return a copy of all numbers in a row."""
    from torch.nn.utils import parameters_to_vector

    return parameters_to_vector(tensors).detach().clone()


def _apart(one: Any, other: Any) -> float:
    return float((one - other).abs().max())


def _ratio(found: Any, true: Any) -> float | None:
    """Return the multiple of a gradient that another one is; None where they point elsewhere."""
    ratio = float(found @ true / (true @ true))
    return ratio if float((found - ratio * true).norm()) <= _CLOSE * float(found.norm()) else None


def _equal(found: Any, true: Any) -> bool:
    return float((found - true).norm()) <= _CLOSE * float(true.norm())


def _reason(ratio: float | None, known: dict[float, str], otherwise: str) -> str:
    if ratio is None:
        return f"the gradient points elsewhere: {otherwise}"
    if abs(ratio - 1) < _CLOSE:
        return ""
    near = next((reason for wrong, reason in known.items() if abs(ratio - wrong) < _CLOSE), "")
    return near or f"{ratio:.4g} times the gradient of one process"
