"""A verdict is one plain line, and a guarded check gives one on any answer whatever."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lablib.checks import NOT_ATTEMPTED, PASSED, Verdict, check, compare, failed
from lablib.checks.answers import WrongKind, items, number, text, whole_number, whole_numbers

WANTS = "a list of 3 whole numbers"


@check(wants=WANTS)
def ranks(answer):
    return compare(whole_numbers(answer, 3), (0, 1, 2), {(1, 2, 3): "ranks start at 0"}, "these are not the ranks")


@check(wants="a function of one number")
def doubler(answer):
    return PASSED if answer(2) == 4 else failed("it does not double")


class Hostile:
    def __getattr__(self, name):
        raise RuntimeError("no")

    def __eq__(self, other):
        raise RuntimeError("no")

    __hash__ = None
    __repr__ = __str__ = __len__ = __iter__ = __float__ = __index__ = __bool__ = __eq__


class Unspeakable(Exception):
    def __str__(self):
        raise ValueError("no")


def loop():
    inner = []
    inner.append(inner)
    return inner


def deep():
    nested = []
    for _ in range(5000):
        nested = [nested]
    return nested


def raising(error):
    def answer(_):
        raise error

    return answer


def test_a_verdict_is_one_plain_line():
    assert repr(PASSED) == str(PASSED) == "passed"
    assert repr(NOT_ATTEMPTED) == "not attempted"
    assert repr(failed("two\nlines  here")) == "failed: two lines here"


def test_a_verdict_is_frozen_and_true_only_when_passed():
    assert PASSED and not NOT_ATTEMPTED and not failed("x")
    assert failed("x") == Verdict("failed", "x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        PASSED.status = "failed"


def test_html_escapes_the_reason():
    assert failed("a < b")._repr_html_() == "<b>failed</b>: a &lt; b"


@pytest.mark.parametrize(
    "answer",
    [
        [0, 1, 2],
        (0, 1, 2),
        range(3),
        {2, 1, 0},
        np.arange(3),
        torch.arange(3),
        [0.0, np.int64(1), torch.tensor(2.0)],
    ],
    ids=str,
)
def test_the_solution_passes_in_every_container(answer):
    assert ranks(answer) == PASSED


@pytest.mark.parametrize("answer", [..., [0, ..., 2], (0, [..., 1]), {0: ...}, {...: 1}, {...}], ids=str)
def test_an_ellipsis_anywhere_is_not_attempted(answer):
    assert ranks(answer) == NOT_ATTEMPTED


def test_wrong_answers_are_told_by_name():
    assert ranks([1, 2, 3]) == failed("ranks start at 0")
    assert ranks([5, 5, 5]) == failed("these are not the ranks")


@pytest.mark.parametrize(
    ("answer", "came"),
    [
        (None, "got None"),
        ("012", "got a str"),
        (5, "got 5"),
        ([0, 1], "got 2 items"),
        (["0", "1", "2"], "got a str"),
        ([True, 1, 2], "got True"),
        (np.array([True, True, True]), "got a bool"),
        (torch.tensor([True, True, True]), "got a Tensor"),
        ([0, 1, 2.5], "got 2.5, which is not a whole number"),
        ([0, 1, float("nan")], "got nan"),
        ([0, 1, float("inf")], "got inf, which is not a whole number"),
        ([0, 1, 2j], "got a complex"),
        ({0: 0, 1: 1, 2: 2}, "got a dict"),
        (itertools.count(), "got a count"),
        (np.zeros((3, 2)), "got a ndarray"),
        pytest.param({0, "1", 2}, "got a set", id="a set of several kinds"),  # its repr has another order each time
        (print, "got a builtin_function_or_method"),
    ],
    ids=repr,
)
def test_another_kind_of_answer_is_told_what_is_wanted(answer, came):
    assert str(ranks(answer)) == f"failed: {came}; wanted: {WANTS}"


@pytest.mark.parametrize("answer", [Hostile(), loop(), deep(), [Hostile()] * 3, Hostile, object()], ids=lambda _: "")
def test_a_hostile_answer_fails_and_does_not_raise(answer):
    assert ranks(answer).status == "failed"


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(...), st.lists))
def test_any_answer_gets_a_verdict_of_one_line(answer):
    verdict = ranks(answer)
    assert verdict.status in ("not attempted", "passed", "failed")
    assert "\n" not in str(verdict)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KeyError("port"), "your answer raised KeyError: 'port'"),
        (SystemExit(3), "your answer raised SystemExit: 3"),
        (Unspeakable(), "your answer raised Unspeakable"),
    ],
    ids=["key", "exit", "unspeakable"],
)
def test_an_answer_that_raises_fails_with_its_error(error, told):
    assert str(doubler(raising(error))) == f"failed: {told}; wanted: a function of one number"


def test_the_stop_button_passes_through_a_check():
    with pytest.raises(KeyboardInterrupt):
        doubler(raising(KeyboardInterrupt()))


def unfinished(x): ...  # your code


def half_finished(x):
    if x:
        return ...
    return x


def finished(x):
    return np.array([0, x * 2])[..., -1]


def test_a_function_with_its_gap_is_not_attempted():
    assert doubler(unfinished) == NOT_ATTEMPTED
    assert doubler(half_finished) == NOT_ATTEMPTED
    assert doubler(finished) == PASSED
    assert doubler(lambda x: x * 2) == PASSED


def test_a_function_without_source_is_judged():
    namespace = {}
    exec("def answer(x): return x + 1", namespace)
    assert doubler(namespace["answer"]) == failed("it does not double")


def test_keyword_answers_are_read_too():
    assert ranks(answer=...) == NOT_ATTEMPTED
    assert ranks.__name__ == "ranks"


def test_whole_numbers_are_exact():
    assert whole_number(2**60 + 1) == 2**60 + 1
    assert whole_number(torch.tensor(2**60 + 1)) == 2**60 + 1
    assert whole_number(np.float32(8)) == 8


def test_readers():
    assert number(np.float64(2.5)) == number(torch.tensor(2.5)) == 2.5
    assert text("  gloo\n") == "gloo"
    assert items([1, "a"]) == (1, "a")
    for reader in (number, text, items, whole_number):
        with pytest.raises(WrongKind):
            reader(None)


def test_a_lab_is_loaded_when_named():
    import lablib.checks as checks

    with pytest.raises(AttributeError, match="no attribute 'lab99x'"):
        checks.__getattr__("lab99x")
    with pytest.raises(ModuleNotFoundError):
        checks.__getattr__("lab99")
