"""From a file to a checked program."""

from __future__ import annotations

import os

from amfs.errors import UsageError
from amfs.swift.check import check
from amfs.swift.parse import detect, parse
from amfs.swift.source import Source
from amfs.swift.tree import Program
from amfs.translate.swift_host import loader

#: The formats that are scripts.
LANGUAGES = ("swift-t", "swift-k")


def read_program(path: str | os.PathLike[str], language: str = "auto") -> Program:
    """Read, parse and check a script. ``language``: "swift-t", "swift-k", or "auto". Raises ``WorkflowError``, ``UsageError``."""
    name = os.fspath(path)
    try:
        with open(name, encoding="utf-8", errors="surrogateescape", newline="") as file:
            text = file.read()
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror or error}") from error
    return program_of(Source(name, text.replace("\r\n", "\n")), language)


def program_of(source: Source, language: str = "auto") -> Program:
    """The same of a text."""
    if language == "auto":
        language = detect(source.text) or "swift-t"
    program = parse(language, source, loader(source.name))
    check(program)
    return program
