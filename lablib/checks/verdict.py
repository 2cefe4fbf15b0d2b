"""What a check answers, and the guard that lets a check take any answer.

A check is a function ``answer -> Verdict`` under ``@check(wants=...)``. It describes only how right answers
differ from wrong ones; the guard deals with the rest:

    ``...`` anywhere in the answer, or left in an answer's function   -> not attempted
    an answer of another kind, or one that raises while it is judged  -> failed, with what is wanted
"""

from __future__ import annotations

import ast
import functools
import html
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, ParamSpec

from lablib.checks.answers import WrongKind

Judge = ParamSpec("Judge")
Status = Literal["not attempted", "passed", "failed"]


@dataclass(frozen=True, repr=False)
class Verdict:
    """Say whether an answer is right, and why not.

    Its text is one plain line, so that a notebook cell can print it and a test can compare it.
    It is true only when the answer passed.
    """

    status: Status
    reason: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", " ".join(self.reason.split()))

    def __bool__(self) -> bool:
        return self.status == "passed"

    def __repr__(self) -> str:
        return f"{self.status}: {self.reason}" if self.reason else self.status

    def _repr_html_(self) -> str:
        reason = f": {html.escape(self.reason)}" if self.reason else ""
        return f"<b>{self.status}</b>{reason}"


NOT_ATTEMPTED = Verdict("not attempted")
PASSED = Verdict("passed")


def failed(reason: str) -> Verdict:
    """Make the verdict on a wrong answer; `reason` names the mistake and never the solution."""
    return Verdict("failed", reason)


def compare(answer: object, right: object, mistakes: Mapping[object, str], otherwise: str) -> Verdict:
    """Judge an answer by equality, and name the mistake when it is a known one.

    answer, right: plain Python values, such as those that `lablib.checks.answers` reads.
    mistakes: wrong answer -> reason; sequences are given as tuples.
    otherwise: the reason for every other wrong answer.
    """
    if answer == right:
        return PASSED
    return failed(next((reason for wrong, reason in mistakes.items() if answer == wrong), otherwise))


def check(wants: str) -> Callable[[Callable[Judge, Verdict]], Callable[Judge, Verdict]]:
    """Guard a check, so that it gives a `Verdict` on any answer whatever and never raises.

    wants: the kind of answer, as in "a list of 4 whole numbers"; told when another kind comes.
    """

    def guard(judge: Callable[Judge, Verdict]) -> Callable[Judge, Verdict]:
        @functools.wraps(judge)
        def judged(*args: Judge.args, **kwargs: Judge.kwargs) -> Verdict:
            # SystemExit too: a learner's function may call sys.exit(), and the kernel must not.
            try:
                if any(is_open(answer) for answer in (*args, *kwargs.values())):
                    return NOT_ATTEMPTED
                return judge(*args, **kwargs)
            except (Exception, SystemExit) as error:
                return failed(f"{_told(error)}; wanted: {wants}")

        return judged

    return guard


def is_open(answer: object) -> bool:
    """Tell whether an answer still holds a ``...``: in a container, or as a statement of its function."""
    return _holds_ellipsis(answer, set())


def _holds_ellipsis(answer: object, seen: set[int]) -> bool:
    if answer is ...:
        return True
    if id(answer) in seen:
        return False
    seen.add(id(answer))
    inside: Iterable[object] = ()
    if isinstance(answer, dict):
        inside = (*answer.keys(), *answer.values())
    elif isinstance(answer, (list, tuple, set, frozenset)):
        inside = answer
    elif inspect.isfunction(answer):
        return _is_unfinished(answer)
    return any(_holds_ellipsis(part, seen) for part in inside)


def _is_unfinished(function: Callable[..., object]) -> bool:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # no source, or a lambda in the middle of a line
        return False
    statements = (node for node in ast.walk(tree) if isinstance(node, (ast.Expr, ast.Assign, ast.Return)))
    return any(isinstance(node.value, ast.Constant) and node.value.value is ... for node in statements)


def _told(error: BaseException) -> str:
    try:
        message = str(error)
    except Exception:  # a learner's own exception class may be broken too
        message = ""
    if isinstance(error, WrongKind):
        return message
    return f"your answer raised {type(error).__name__}" + (f": {message}" if message else "")
