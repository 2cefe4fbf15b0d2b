"""Judge a letter, or a dict of answers row after row: the first wrong one decides, and is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lablib.checks.answers import WrongKind, text, truth
from lablib.checks.verdict import PASSED, Verdict, compare, failed

Mistakes = Mapping[Any, str]
Row = tuple[Any, Mistakes, str]
"""What is right, known wrong answers with their reasons, and the reason for every other wrong answer."""


def judge_letter(answer: Any, right: str, mistakes: Mapping[Any, str]) -> Verdict:
    """Judge a choice; each letter but the right one has its reason."""
    letter = text(answer).lower().strip("().:")
    if letter != right and letter not in mistakes:
        raise WrongKind("got another text")
    return compare(letter, right, mistakes, "")


def judge_rows(answer: Any, rows: Mapping[str, Row], read: Callable[[Any], Any]) -> Verdict:
    """Judge each row by equality.

    Args:
        answer: the learner's dict.
        rows: by the names that the dict must have.
        read: makes a plain value of an answer, or raises `WrongKind`; see `lablib.checks.answers`.
    """
    if not isinstance(answer, Mapping):
        raise WrongKind("got no dict")
    for name, row in rows.items():
        if name not in answer:
            return failed(f"{name} is missing")
        try:
            given = read(answer[name])
        except WrongKind as error:
            return failed(f"{name}: {error.told}")
        if not (verdict := compare(given, *row)):
            return failed(f"{name}: {verdict.reason}")
    return PASSED


def judge_truths(answer: Any, measured: Mapping[str, bool], reasons: Mapping[str, str]) -> Verdict:
    """Judge a dict of True and False; ``reasons`` says why the other answer is wrong."""
    if not isinstance(answer, Mapping):
        raise WrongKind("got no dict")
    for name, right in measured.items():
        if name not in answer:
            return failed(f"{name} is missing")
        try:
            given = truth(answer[name])
        except WrongKind as error:
            return failed(f"{name}: {error.told}")
        if given is not right:
            return failed(f"{name}: {reasons[name]}")
    return PASSED
