"""The arithmetic of the bench: pooling, medians, ratios and verdicts."""

import pytest

from bench.figures import ACCELERATE, OURS, SPAWN, TARGETS, Key, Series, Target, judge, pool


def fresh(contender: str, ranks: int, *samples: float) -> Series:
    return Series("fresh", contender, ranks, "s", samples)


def test_median_ignores_one_slow_call():
    assert fresh(OURS, 4, 0.1, 0.2, 9.0).median == 0.2
    assert fresh(OURS, 4, 0.1, 0.2).median == pytest.approx(0.15)


def test_pool_joins_rounds_of_the_same_quantity_only():
    pooled = pool([fresh(OURS, 4, 0.1), fresh(SPAWN, 4, 9.0), fresh(OURS, 4, 0.3), fresh(OURS, 8, 0.5)])
    assert pooled == [fresh(OURS, 4, 0.1, 0.3), fresh(SPAWN, 4, 9.0), fresh(OURS, 8, 0.5)]


def test_pool_refuses_what_has_no_median():
    with pytest.raises(ValueError, match="no sample of fresh with 4 ranks"):
        pool([fresh(OURS, 4)])
    with pytest.raises(ValueError, match="in s and in MiB"):
        pool([fresh(OURS, 4, 1.0), Series("fresh", OURS, 4, "MiB", (1.0,))])


FASTER = Target(Key("fresh", OURS, 4), Key("fresh", SPAWN, 4), "faster", 80)
FRACTION = Target(Key("memory", OURS, 4), Key("memory", SPAWN, 4), "fraction", 0.5)


@pytest.mark.parametrize(
    ("ours", "theirs", "ratio", "passed"),
    [(0.125, 10.0, 80.0, True), (0.125, 9.875, 79.0, False), (1, 1, 1, False)],
)
def test_faster_divides_their_median_by_ours(ours, theirs, ratio, passed):
    (verdict,) = judge([fresh(OURS, 4, ours), fresh(SPAWN, 4, theirs)], targets=[FASTER])
    assert (verdict.ratio, verdict.passed) == (ratio, passed)


@pytest.mark.parametrize(("ours", "ratio", "passed"), [(64.0, 0.5, True), (65.0, 0.5078125, False)])
def test_fraction_divides_our_median_by_theirs(ours, ratio, passed):
    memory = [Series("memory", OURS, 4, "MiB", (ours,)), Series("memory", SPAWN, 4, "MiB", (128.0,))]
    (verdict,) = judge(memory, targets=[FRACTION])
    assert (verdict.ratio, verdict.passed) == (ratio, passed)


def test_a_side_that_was_not_measured_is_neither_met_nor_missed():
    (verdict,) = judge([fresh(OURS, 4, 0.1), fresh(SPAWN, 8, 20.0)], targets=[FASTER])
    assert (verdict.ratio, verdict.passed) == (None, None)


def test_each_target_compares_ours_with_the_same_quantity_of_another():
    for target in TARGETS:
        assert target.ours.contender == OURS != target.theirs.contender
        assert (target.ours.measure, target.ours.ranks) == (target.theirs.measure, target.theirs.ranks)
    assert len({(target.ours, target.theirs) for target in TARGETS}) == len(TARGETS)


def test_target_says_what_it_promises():
    assert FASTER.text == f"fresh, 4 ranks: ≥ 80 × faster than {SPAWN}"
    assert FRACTION.text == f"memory, 4 ranks: ≤ 0.5 of {SPAWN}"
    assert Target(Key("fresh", OURS, 8), Key("fresh", ACCELERATE, 8), "faster", 1).text.endswith(ACCELERATE)
