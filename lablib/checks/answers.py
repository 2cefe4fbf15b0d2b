"""Read a learner's answer as plain Python values, whatever numbers and containers it is made of."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import Any


class WrongKind(TypeError):
    """An answer of another kind than the check can judge; its message says what came.

    Args:
        came: what came, as in "got a str".
        wants: what one answer should be, where that is known here; a check that judges several tells it with `told`.
    """

    def __init__(self, came: str, wants: str = "") -> None:
        super().__init__(came)
        self.wants = wants

    @property
    def told(self) -> str:
        """Return what came, and what is wanted."""
        return f"{self}; wanted: {self.wants}" if self.wants else str(self)


def number(answer: Any) -> float:
    """Read one number; whole and real numbers of Python, NumPy and torch are all welcome.

    Raises WrongKind for anything else: texts, truth values, nan.
    """
    if not hasattr(answer, "__float__") or _is_truth_value(answer):
        raise WrongKind(f"got {described(answer)}", "a number")
    try:
        value = float(answer)
    except Exception:
        raise WrongKind(f"got {described(answer)}", "a number") from None
    if math.isnan(value):
        raise WrongKind("got nan", "a number")
    return value


def whole_number(answer: Any) -> int:
    """Read one whole number exactly; 3.0 counts, 2.5 raises WrongKind."""
    if hasattr(answer, "__index__") and not _is_truth_value(answer):
        with suppress(TypeError, ValueError):  # a tensor of real numbers has the method and refuses
            return operator.index(answer)
    value = number(answer)
    if not value.is_integer():
        raise WrongKind(f"got {value}, which is not a whole number")
    return int(value)


def items(answer: Any, count: int | None = None) -> tuple[Any, ...]:
    """Read a list, tuple, sorted set, range, array or tensor of `count` items (None: any number) as a tuple.

    Raises WrongKind for a text, a mapping, an iterator, or another number of items.
    """
    wants = "a list" if count is None else f"a list of {count} items"
    wrong = isinstance(answer, (str, bytes, Mapping)) or not hasattr(answer, "__iter__")
    if wrong or not hasattr(answer, "__len__"):
        raise WrongKind(f"got {described(answer)}", wants)
    try:
        length = len(answer)
        found = list(islice(answer, length))
        if isinstance(answer, (set, frozenset)):
            found.sort()
    except Exception:
        raise WrongKind(f"got {described(answer)}", wants) from None
    if count is not None and length != count:
        raise WrongKind(f"got {length} items", wants)
    return tuple(found)


def whole_numbers(answer: Any, count: int | None = None) -> tuple[int, ...]:
    """Read `count` whole numbers (None: any number of them); see `items` and `whole_number`."""
    return tuple(whole_number(item) for item in items(answer, count))


def text(answer: Any) -> str:
    """Read a text, without the blanks around it."""
    if not isinstance(answer, str):
        raise WrongKind(f"got {described(answer)}", "a text in quotes")
    return answer.strip()


def truth(answer: Any) -> bool:
    """Read True or False, of Python, NumPy or torch; 1 and 0 are numbers."""
    if not _is_truth_value(answer) or getattr(answer, "shape", ()) != ():
        raise WrongKind(f"got {described(answer)}", "True or False")
    return bool(answer)


def described(answer: object) -> str:
    """Say what an answer is without trusting its own repr: that may raise, be long, or hold an address."""
    if answer is None or type(answer) in (bool, int, float):
        return repr(answer)
    name = type(answer).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _is_truth_value(answer: Any) -> bool:
    return isinstance(answer, bool) or "bool" in str(getattr(answer, "dtype", ""))
