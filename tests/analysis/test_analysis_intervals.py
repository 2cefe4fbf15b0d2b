"""Sets of moments against sets of integers."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lablib.analysis.intervals import NONE, common, length_ns, union, without

PAIRS = st.lists(st.tuples(st.integers(-20, 60), st.integers(0, 15)).map(lambda one: (one[0], one[0] + one[1])))


def moments(pairs):
    return {at for start, end in pairs for at in range(start, end)}


def is_tidy(intervals):
    """Return whether no interval is empty, and a gap lies between each two."""
    flat = intervals.ravel().tolist()
    return all(one < other for one, other in pairwise(flat))


@given(PAIRS, PAIRS)
def test_they_are_sets(one, other):
    first, second = union(one), union(other)
    for found, wanted in (
        (first, moments(one)),
        (common(first, second), moments(one) & moments(other)),
        (without(first, second), moments(one) - moments(other)),
    ):
        assert is_tidy(found)
        assert moments(found.tolist()) == wanted
        assert length_ns(found) == len(wanted)


def test_nothing_is_a_set_too():
    assert length_ns(NONE) == length_ns(union([])) == length_ns(common(NONE, union([(1, 2)]))) == 0
