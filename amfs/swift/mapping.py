"""Mappers: which files stand for the parts of a variable. The interface between ``mappers`` and evaluation."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, TypeAlias

from amfs.swift.requests import Request
from amfs.swift.types import Type

#: Where a file stands in a variable: field names and keys, from the outside; () is the variable itself.
Path: TypeAlias = tuple[str | int, ...]


class Mapped(NamedTuple):
    """A mapped variable. ``name_of``: of a part, for files that are to be made; raises ``builtins.Failure`` if the mapper has no name for
    it. ``existing``: of an input, the parts that are there and their names; the variable is closed with them. None: the variable is an
    output, or the mapper (single_file) cannot say. ``seen``: the mapper has looked, and these files are there. ``parts``: all of them
    and their names, of a mapper that lists them; None: it has a rule."""

    name_of: Callable[[Path], str]
    existing: list[tuple[Path, str]] | None
    seen: bool = False
    parts: list[tuple[Path, str]] | None = None


#: (parameters as plain values, type of the variable, its name, is it an input?) -> requests, then the result. Raises ``builtins.Failure``.
#: The name is unique in the run and fit for a file name. Of an array that an app returns as a whole, the files are found by a second call
#: as for an input, when the task has ended.
Mapper: TypeAlias = Callable[[Mapping[str, Any], Type, str, bool], Generator[Request, Any, Mapped]]
