"""Classes of the notebook keep their identity: they travel to the ranks by value, and come back as themselves.

    kernel   class Net  ──value and key──►  rank: Net, also in the rank's __main__, where pickle looks
             class Net  ◄──the key alone──  an instance that the rank returns

Without this an instance that comes back would bring the rank's copy of its class along, and cloudpickle would write
that copy's attributes over the notebook's own class.
"""

from __future__ import annotations

import itertools
import sys
import types
import weakref
from typing import Any

_numbers = itertools.count()
_keys: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()  # in the kernel: its class to the key
_classes: weakref.WeakValueDictionary[str, type] = weakref.WeakValueDictionary()  # in the kernel: the key to its class
_received: dict[type, str] = {}  # in a rank: a class that came from the kernel, to its key


def travels_by_name(obj: Any) -> bool:
    """Return whether another process finds a function or class under its module and name."""
    module = sys.modules.get(getattr(obj, "__module__", None) or "")
    if module is None or module.__name__ == "__main__":
        return False
    found: Any = module
    for name in obj.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is obj


def is_in_main(obj: Any) -> bool:
    """Return whether a function or class is one that the notebook sees under its own name."""
    return obj.__module__ == "__main__" and getattr(sys.modules["__main__"], obj.__qualname__, None) is obj


def key_of(kind: type) -> str:
    """Return the key under which this kernel knows a class of its own."""
    if kind not in _keys:
        _keys[kind] = f"class {next(_numbers)}"
        _classes[_keys[kind]] = kind
    return _keys[kind]


def receive(classes: dict[str, type], main: dict[str, Any]) -> None:
    """In a rank, remember which classes came from the kernel, and put what was in its ``__main__`` into this one's."""
    _received.clear()
    _received.update({kind: key for key, kind in classes.items()})
    for name, obj in main.items():
        setattr(sys.modules["__main__"], name, obj)


def way_back(obj: Any) -> tuple[Any, tuple[str]] | None:
    """In a rank, return pickle's recipe for a class that came from the kernel; None for anything else."""
    if isinstance(obj, type) and obj in _received:
        return _at_home, (_received[obj],)
    return None


def _at_home(key: str) -> type:
    kind = _classes.get(key)
    if kind is None:
        raise LookupError("the class was redefined or deleted in the notebook while the ranks ran")
    return kind


def is_function_or_class(obj: object) -> bool:
    """Return whether an object has a module and a qualified name that pickle goes by."""
    return isinstance(obj, type | types.FunctionType)
