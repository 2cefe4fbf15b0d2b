"""Deliberate failures: show the error, and fail when it does not come."""

from __future__ import annotations

from types import TracebackType


class expect:  # noqa: N801  (read as a verb: with expect(RankFailed))
    """Expect an error in a ``with`` block: it is shown and not raised; a block without it fails.

    Args:
        kind: the error's class.

    After the block ``error`` is the error and ``summary`` its first line, the same each time.

    Raises:
        AssertionError: the block ended without an error. An error of another kind passes through.
    """

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind
        self.error: BaseException | None = None
        self.summary = ""

    def __enter__(self) -> expect:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is None:
            raise AssertionError(f"{self.kind.__name__} was expected, and nothing was raised")
        if not isinstance(error, self.kind):
            return False
        self.error = error
        self.summary = getattr(error, "summary", None) or str(error).partition("\n")[0]
        print(f"{type(error).__name__}: {error}")
        return True
