"""Judge lab 05's functions by what they gave: on the ranks, or for samplers of all ranks in one process."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lablib.checks.answers import WrongKind, whole_number
from lablib.checks.lab05_on_ranks import CASES, Data, Evaluated
from lablib.checks.verdict import PASSED, Verdict, failed


def judge_exact(found: Sequence[Sequence[Evaluated]]) -> Verdict:
    """Judge the accuracies of all ranks, one list of them a rank."""
    for number, (samples, wrong) in enumerate(CASES):
        ranks = [one[number] for one in found]
        right = [index not in wrong for index in range(samples)]
        exact = sum(right) / samples
        asked = Counter(index for one in ranks for index in one.asked)
        results = [one.result for one in ranks]
        if all(abs(result - exact) < 1e-6 for result in results):
            if max(asked.values(), default=0) >= len(ranks):
                return failed("exact, but the long way: every rank evaluated every sample")
            continue
        if reason := _how_it_is_off(results, right, len(ranks)):
            return failed(f"{samples} samples: {reason}")
        if missing := [index for index in range(samples) if index not in asked]:
            return failed(f"{samples} samples: nobody evaluated sample {missing[0]}")
        return failed(f"{samples} samples: rank 0 says {results[0]:.4g}, exact is {exact:.4g}")
    return PASSED


def _how_it_is_off(results: Sequence[float], right: Sequence[bool], ranks: int) -> str:
    """Name the usual ways to be wrong by the numbers that they give."""
    samples = len(right)
    shares = [right[rank::ranks] for rank in range(ranks)]
    full = [right[index % samples] for index in range(-(-samples // ranks) * ranks)]
    means = [sum(share) / len(share) if share else float("nan") for share in shares]
    padded = [sum(full[rank::ranks]) / len(full[rank::ranks]) for rank in range(ranks)]
    cut = right[: samples - samples % ranks]

    def all_are(value: float) -> bool:
        return all(abs(result - value) < 1e-6 for result in results)

    if any(result != result for result in results):
        return "nan: a rank may have no sample, and the mean of nothing is no number; add sums and counts"
    if all_are(sum(full) / len(full)):
        return "the repeats are still counted: leave out what was seen before"
    if len(set(results)) > 1 and (_close(results, means) or _close(results, padded)):
        return "each rank returns its own accuracy: add up over the ranks"
    if all(means[rank] == means[rank] for rank in range(ranks)) and all_are(sum(means) / ranks):
        return "that is the mean of the ranks' means: ranks have unequally many samples, so add sums and counts"
    if cut and all_are(sum(cut) / len(cut)):
        return "samples are left out: drop_last leaves out the end of the list"
    if all_are(float(sum(right))) or all_are(float(sum(full))):
        return "that is the number of right answers; divide it by the number of samples"
    return ""


def _close(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(abs(mine - theirs) < 1e-6 for mine, theirs in zip(one, other, strict=True))


def judge_data(found: Sequence[Data]) -> Verdict:
    """Judge the data sets that all ranks made."""
    for rank, one in enumerate(found):
        if one.trouble:
            return failed(f"rank {rank} {one.trouble}")
    if len({one.rows for one in found}) > 1:
        if all(one.rows == one.rows_again for one in found):
            return failed("each rank seeds with another number: the ranks must draw the same ones")
        return failed("sample 0 is another one on each rank: nothing makes them draw the same numbers")
    if len(set(found[0].rows)) == 1:
        return failed("all samples are the same: draw different ones, on each rank the same")
    return PASSED


def judge_resume(answer: Callable[..., Any]) -> Verdict:
    """Judge what each rank still loads after some steps of an epoch, for many numbers of samples, ranks and steps."""
    choose = random.Random(1)
    settings = [(24, 2, 3, 2, 5)]
    for _ in range(20):
        ranks, batch, steps = choose.randint(1, 5), choose.randint(1, 4), choose.randint(0, 3)
        settings.append((ranks * batch * choose.randint(steps + 1, 6), ranks, batch, steps, choose.randint(1, 9)))
    for samples, ranks, batch, steps, epoch in settings:
        before, after = Counter[int](), Counter[int]()
        for rank in range(ranks):
            order, order_of_0 = (list(_sampler(samples, ranks, rank, epoch=told)) for told in (epoch, 0))
            done = steps * batch
            given = _indices(answer(_sampler(samples, ranks, rank), epoch, steps, batch))
            if given != order[done:] and (reason := _how_it_resumes(given, order, order_of_0, steps, batch, ranks)):
                return failed(reason)
            before.update(order[:done])
            after.update(given)
        seen = before + after
        if again := [index for index in range(samples) if seen[index] > 1]:
            return failed(f"after {steps} steps of {batch} on {ranks} ranks, {len(again)} of {samples} are seen again")
        if lost := [index for index in range(samples) if not seen[index]]:
            return failed(f"after {steps} steps of {batch} on {ranks} ranks, {len(lost)} of {samples} are never seen")
    return PASSED


def _sampler(samples: int, ranks: int, rank: int, *, epoch: int = 0) -> Any:
    from torch.utils.data import DistributedSampler

    sampler: Any = DistributedSampler(range(samples), ranks, rank, seed=3)  # type: ignore[arg-type]
    sampler.set_epoch(epoch)
    return sampler


def _indices(given: Any) -> list[int]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise WrongKind("got no list of indices")
    return [whole_number(index) for index in given]


def _how_it_resumes(
    given: list[int], order: list[int], order_of_0: list[int], steps: int, batch: int, ranks: int
) -> str:
    """Name the usual ways to resume wrongly."""
    done = steps * batch
    if given == order_of_0[done:]:
        return "that is the order of epoch 0: a new sampler must be told the epoch too"
    known = {
        "the epoch begins anew: leave out what was seen": 0,
        "steps are batches: leave out batch_size samples for each": steps,
        "that leaves out what all ranks saw: this sampler gives one rank's share only": done * ranks,
    }
    for reason, skipped in known.items():
        if skipped != done and given in (order[skipped:], order_of_0[skipped:]):
            return reason
    if given == order[:done]:
        return "that is what was seen already"
    return ""
