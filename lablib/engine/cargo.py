"""How a function travels to the ranks: by value with cloudpickle, modules by name, cells with their source.

    pack(fn, args) ──► Parcel(payload, sources) ──wire──► unpack(parcel) ──► fn, args

What cannot travel is named before anything starts. Tensors travel without the rest of a storage they are a view of.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import io
import linecache
import pickle
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

from lablib.engine import homes, tensors
from lablib.engine.kinds import kind_of
from lablib.errors import UsageError

_LARGE_NBYTES = 10 * 1024**2


@dataclass(frozen=True)
class Parcel:
    """A call on its way to the ranks.

    Args:
        payload: the pickled function and arguments.
        sources: label of a notebook cell, such as ``cell [12]``, to its source text, for tracebacks in the ranks.
    """

    payload: bytes
    sources: dict[str, str]


def check_callable(fn: object, verb: str) -> None:
    """Raise UsageError unless ``fn`` is something that a rank can call and that returns a value."""
    if not callable(fn):
        hint = f"; write {verb}(fn, {_short(fn)}) and give the function first" if not inspect.isgenerator(fn) else ""
        raise UsageError(f"{verb} needs a function to run on each rank, not {kind_of(fn)}{hint}")
    inner = _inner(fn)
    if inspect.isgeneratorfunction(inner):
        raise UsageError(
            f"{_name(fn)} is a generator (it uses yield), so calling it runs nothing; build a list and return it"
        )
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        raise UsageError(f"{_name(fn)} is async, so calling it runs nothing; write it with plain def")


def pack(fn: Callable[..., Any], args: tuple[Any, ...], *, label_of: Callable[[str], str]) -> Parcel:
    """Pickle a call for the ranks.

    Args:
        fn: the function; a notebook function travels by value, with what it uses.
        args: its arguments.
        label_of: a code object's file name to the name that tracebacks should show, such as ``cell [12]``.

    Raises:
        UsageError: something that the function uses, or an argument, cannot leave this process; it is named.
    """
    buffer = io.BytesIO()
    pickler = _CallPickler(buffer, label_of)
    try:
        with _quick_submodules():
            pickler.dump((fn, args))
            # the same pickler goes on: these are references to what the function took along
            pickler.dump((dict(pickler.classes), dict(pickler.main)))
    except Exception as error:
        raise UsageError(_what_cannot_travel(fn, args, error)) from error
    payload = buffer.getvalue()
    if len(payload) > _LARGE_NBYTES:
        _warn_of_large(fn, args)
    return Parcel(payload, pickler.sources)


def unpack(parcel: Parcel) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the function and arguments of a parcel, and teach tracebacks the source of its cells."""
    for label, source in parcel.sources.items():
        linecache.cache[label] = (len(source), None, source.splitlines(keepends=True), label)
    unpickler = pickle.Unpickler(io.BytesIO(parcel.payload))
    fn, args = unpickler.load()
    homes.receive(*unpickler.load())
    return fn, args


class _CallPickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, buffer: io.BytesIO, label_of: Callable[[str], str]) -> None:
        super().__init__(buffer)
        self._label_of = label_of
        self.sources: dict[str, str] = {}
        self.classes: dict[str, type] = {}
        self.main: dict[str, Any] = {}

    def reducer_override(self, obj: Any) -> Any:
        if homes.is_function_or_class(obj) and not homes.travels_by_name(obj):
            if isinstance(obj, type):
                self.classes[homes.key_of(obj)] = obj
            if homes.is_in_main(obj):
                self.main[obj.__name__] = obj
        if isinstance(obj, types.CodeType):
            return _restore_code, (
                self._label(obj.co_filename),
                *cloudpickle.Pickler.dispatch_table[types.CodeType](obj),
            )
        if isinstance(obj, types.ModuleType) and sys.modules.get(obj.__name__) is obj and obj.__name__ != "__main__":
            return importlib.import_module, (obj.__name__,)
        refused = _refusal(obj)
        if refused:
            raise TypeError(refused)
        if tensors.is_tensor(obj):
            return tensors.reduce(obj, detach=False)
        return super().reducer_override(obj)

    def _label(self, filename: str) -> str:
        label = self._label_of(filename)
        if label != filename and label not in self.sources:
            self.sources[label] = "".join(linecache.getlines(filename))
        return label


@contextlib.contextmanager
def _quick_submodules() -> Iterator[None]:
    """Let cloudpickle find the submodules that a function mentions by name, where it would split every module's name.

    With torch imported that is 2,000 names for each function, 4 ms of a warm call's 12; the answer is the same.
    """
    slow = cloudpickle.cloudpickle._find_imported_submodules
    cloudpickle.cloudpickle._find_imported_submodules = mentioned_submodules
    try:
        yield
    finally:
        cloudpickle.cloudpickle._find_imported_submodules = slow


def mentioned_submodules(code: types.CodeType, dependencies: Iterable[object]) -> list[types.ModuleType]:
    """Return the imported submodules of packages that a function's code mentions.

    Args:
        code: the function's code.
        dependencies: what the function uses; packages among them are looked into.
    """
    found: list[types.ModuleType] = []
    for package in dependencies:
        if isinstance(package, types.ModuleType) and getattr(package, "__package__", None):
            parents = [package.__name__]
            while parents:
                parent = parents.pop()
                below = [f"{parent}.{name}" for name in code.co_names if f"{parent}.{name}" in sys.modules]
                found += [sys.modules[name] for name in below]
                parents += below
    return found


def _restore_code(label: str, build: Callable[..., types.CodeType], args: tuple[Any, ...]) -> types.CodeType:
    return build(*args).replace(co_filename=label)


def _refusal(obj: object) -> str | None:
    modules = [kind.__module__.partition(".")[0] for kind in type(obj).__mro__]
    if "ipywidgets" in modules:
        return "a widget belongs to this notebook's page"
    if isinstance(obj, io.IOBase) and obj not in (sys.stdout, sys.stderr):
        return "an open file belongs to this process"
    return None


def _what_cannot_travel(fn: Callable[..., Any], args: tuple[Any, ...], error: Exception) -> str:
    for owner, name, value in _used(fn):
        reason = _why_not(value)
        if reason is not None:
            return (
                f"{owner} uses the variable `{name}` ({kind_of(value)}), which cannot be sent to the ranks: {reason}; "
                f"create it inside {owner}, or pass what it holds as plain values"
            )
    for index, value in enumerate(args):
        reason = _why_not(value)
        if reason is not None:
            return f"argument {index + 1} of {_name(fn)} ({kind_of(value)}) cannot be sent to the ranks: {reason}"
    return f"{_name(fn)} cannot be sent to the ranks: {_one_line(error)}"


def _why_not(value: object) -> str | None:
    try:
        _CallPickler(io.BytesIO(), lambda filename: filename).dump(value)
    except Exception as error:
        return _one_line(error)
    return None


def _warn_of_large(fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    named = [(f"`{name}`, used by {owner}", value) for owner, name, value in _used(fn)]
    named += [(f"argument {index + 1}", value) for index, value in enumerate(args)]
    for name, value in named:
        buffer = io.BytesIO()
        _CallPickler(buffer, lambda filename: filename).dump(value)
        nbytes = buffer.tell()
        if nbytes > _LARGE_NBYTES:
            warnings.warn(
                f"{name}, is {nbytes / 1024**2:.0f} MiB and is copied to every rank at each call; "
                "make it inside the function, or load it there from a file",
                stacklevel=_depth_of_caller(),
            )


def _depth_of_caller() -> int:
    """Return how many frames up the code outside lablib is that made the call."""
    ours = str(Path(__file__).parents[1])
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((ours, contextlib.__file__)):
        depth, frame = depth + 1, frame.f_back
    return depth


def _used(fn: Callable[..., Any]) -> Iterator[tuple[str, str, object]]:
    """Yield (function, name, value) for each variable that ``fn``, or a notebook function it calls, takes along."""
    waiting: list[Any] = [_inner(fn)]
    seen: set[int] = set()
    while waiting:
        function = waiting.pop()
        if not isinstance(function, types.FunctionType) or id(function) in seen:
            continue
        seen.add(id(function))
        for name, value in _captured(function):
            if isinstance(value, types.FunctionType):
                if not homes.travels_by_name(value):
                    waiting.append(value)
            elif not isinstance(value, types.ModuleType | type):
                yield function.__name__, name, value


def _captured(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    codes = [function.__code__]
    names: list[str] = []
    while codes:
        code = codes.pop()
        names += code.co_names
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    for name in dict.fromkeys(names):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # a cell that is not filled yet
            continue


def _inner(fn: Any) -> Any:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.unwrap(fn) if inspect.isfunction(fn) else fn


def _name(fn: Any) -> str:
    return getattr(_inner(fn), "__name__", type(fn).__name__)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 30 else "…"


def _one_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
