"""From a file to a checked program."""

from __future__ import annotations

import os
from collections.abc import Callable

from amfs.errors import Fault, UsageError
from amfs.swift.source import Mistake
from amfs.swift.tree import Literal, Program
from amfs.translate.swift import program_of, source_of

#: The formats that are scripts.
LANGUAGES = ("swift-t", "swift-k")


def unknown_programs(program: Program, find: Callable[[str], str]) -> list[Fault]:
    """Programs of apps that surely run, and that are not there. ``find``: the fault of a program's name, or "". A program with a
    directory in its name may be made by a task, and one that is a file of the script, too."""
    scopes = [scope for scope in (program.body.scope, *(one.scope for one in program.functions)) if scope is not None]
    mappings = [symbol.mapping for scope in scopes for symbol in scope.symbols if symbol.mapping is not None]
    mapped = {str(one.name.value) for one in mappings if isinstance(one.name, Literal)}
    faults = []
    for function in program.functions:
        word = function.app.words[0] if function.app is not None and function.called else None
        name = str(word.expression.value) if word is not None and isinstance(word.expression, Literal) else ""
        if word is not None and name and "/" not in name and name not in mapped and (why := find(name)):
            faults.append(Mistake(word.at, f"the program {name!r} of the app {function.name} {why}").fault())
    return faults


def read_program(path: str | os.PathLike[str], language: str = "auto") -> Program:
    """Read, parse and check a script. ``language``: "swift-t", "swift-k", or "auto". Raises ``WorkflowError``, ``UsageError``."""
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            data = file.read()
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror or error}") from error
    return program_of(source_of(name, data), language)
