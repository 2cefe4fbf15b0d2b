"""What errors call a value: by its kind, never by all that it holds."""

from __future__ import annotations

import inspect


def kind_of(value: object) -> str:
    """Return a value's kind with its article, such as ``a Tensor`` or ``an int``."""
    if value is None:
        return "None"
    if inspect.isgenerator(value):
        return "a generator"
    name = type(value).__qualname__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
