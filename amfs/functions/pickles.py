"""Pickling functions and their arguments for workers, no more often than need be.

Owns the judgement when a function pickled before is still the same: a function that is not a module's own travels by value, with the
globals and closures that it uses, and these may have changed. Must not know: workers, connections.
"""

from __future__ import annotations

import hashlib
import itertools
import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle

KEPT = 256  # functions whose pickles are remembered
_ATOMS = frozenset({int, float, complex, str, bytes, bool, type(None)})
_numbers = itertools.count(1)


class Pickled:
    """A function as bytes. ``number`` names it to workers."""

    __slots__ = ("data", "number")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.number = next(_numbers)


class Pickles:
    """Remembers the pickles of functions. Not thread-safe: each thread may make a pickle twice, nothing worse."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, tuple[Any, tuple[Any, ...], Pickled]] = OrderedDict()  # by id, which the reference keeps valid
        self._by_content: OrderedDict[bytes, Pickled] = OrderedDict()

    def of(self, function: Callable[..., Any]) -> Pickled:
        """The function as bytes, as it is now. Raises what pickling it raises."""
        parts = parts_of(function)
        known = self._known.get(id(function))
        if known is not None and parts is not None and len(parts) == len(known[1]) and all(map(_is, parts, known[1])):
            return known[2]
        pickled = self._numbered(cloudpickle.dumps(function, 5))
        if parts is not None:
            self._known[id(function)] = function, parts, pickled
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        return pickled


    def _numbered(self, data: bytes) -> Pickled:
        """Equal bytes are one function to a worker, which loads it once: its globals keep their values until the next call."""
        digest = hashlib.blake2b(data, digest_size=20).digest()
        pickled = self._by_content.get(digest)
        if pickled is None:
            pickled = self._by_content[digest] = Pickled(data)
            if len(self._by_content) > KEPT:
                self._by_content.popitem(last=False)
        return pickled


def _is(one: Any, other: Any) -> bool:
    return one is other


def parts_of(function: Any) -> tuple[Any, ...] | None:
    """Everything that the pickle of ``function`` is made of, if none of it can change unseen; None: pickle it anew each time."""
    parts: list[Any] = []
    return tuple(parts) if _gather(function, parts, set()) else None


def _gather(value: Any, parts: list[Any], seen: set[int]) -> bool:
    if id(value) in seen:
        return True
    parts.append(value)
    kind = type(value)
    if kind in _ATOMS or kind is ModuleType:
        return True
    if kind is tuple:
        return all(_gather(each, parts, seen) for each in value)
    if _by_name(value):
        return True
    if kind is not FunctionType or value.__dict__:
        return False
    seen.add(id(value))
    for cell in value.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:
            return False
        if not _gather(content, parts, seen):
            return False
    parts.append(value.__code__)
    used = (value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__)
    others = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
    return all(_gather(each, parts, seen) for each in (*others, *used))


def _by_name(value: Any) -> bool:
    """Is it a part of a module that workers import?"""
    if not isinstance(value, (FunctionType, BuiltinFunctionType, type)):
        return False
    module = sys.modules.get(value.__module__ or "")
    if module is None or value.__module__ == "__main__":
        return False
    found: Any = module
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def _names(code: CodeType) -> list[str]:
    """Names of globals that the code may use (and of attributes, which does no harm)."""
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names += _names(constant)
    return names


def dumps_call(arguments: Any, named: dict[str, Any]) -> bytes:
    """The arguments of a call; of plain values in the quick way."""
    if not named and all(type(each) in _ATOMS for each in arguments):
        return pickle.dumps((arguments, named), 5)
    return cloudpickle.dumps((arguments, named), 5)  # type: ignore[no-any-return]


def dumps_chunk(rows: list[tuple[Any, ...]]) -> bytes:
    """The arguments of several calls of one function."""
    if all(type(each) in _ATOMS for row in rows for each in row):
        return pickle.dumps(rows, 5)
    return cloudpickle.dumps(rows, 5)  # type: ignore[no-any-return]
