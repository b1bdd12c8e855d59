"""From a file to a checked program."""

from __future__ import annotations

import os

from amfs.errors import UsageError
from amfs.swift.tree import Program
from amfs.translate.swift import program_of, source_of

#: The formats that are scripts.
LANGUAGES = ("swift-t", "swift-k")


def read_program(path: str | os.PathLike[str], language: str = "auto") -> Program:
    """Read, parse and check a script. ``language``: "swift-t", "swift-k", or "auto". Raises ``WorkflowError``, ``UsageError``."""
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            data = file.read()
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror or error}") from error
    return program_of(source_of(name, data), language)
