"""Swift scripts: read, checked, and, if nothing in them depends on a run, as a workflow."""

from __future__ import annotations

import os

from amfs.errors import SystemSetupError, WorkflowError
from amfs.host import folders
from amfs.swift.builtins import Library
from amfs.swift.check import check
from amfs.swift.dialect import functions, signs
from amfs.swift.parse import parse
from amfs.swift.parse_k import SYNTAX_K
from amfs.swift.parse_t import SYNTAX
from amfs.swift.source import Source
from amfs.swift.static import tasks_of
from amfs.swift.tree import Program
from amfs.translate.document import DocumentReader
from amfs.translate.swift_host import Host, loader


def source_of(name: str, data: bytes) -> Source:
    """The text of a script."""
    return Source(name, data.decode("utf-8", "surrogateescape").removeprefix("\ufeff").replace("\r\n", "\n"))


LANGUAGES = {"swift-t": "Swift/T", "swift-k": "Swift/K"}


def program_of(source: Source, language: str = "auto") -> Program:
    """A text, parsed and checked. Raises ``WorkflowError`` with all mistakes.

    "auto": the language by what only one of them has. If that does not decide: the one in which the script has no mistakes, Swift/T first.
    """
    _keep_tables()
    if language != "auto":
        return _checked(language, source)
    of_t, of_k = signs(source.text)
    likely = "swift-k" if of_k > of_t else "swift-t"
    errors: dict[str, WorkflowError] = {}
    try:
        return _checked(likely, source)  # mostly right, and then the library of the other one need not be read
    except WorkflowError as error:
        errors[likely] = error
    for one in languages_of(source.text):
        if one != likely:
            try:
                return _checked(one, source)
            except WorkflowError as error:
                errors[one] = error
    raise errors[language_of(source.text)]


def _checked(language: str, source: Source) -> Program:
    program = parse(language, source, loader(source.name))
    check(program, library(language))
    return program


def library(language: str) -> Library:
    """The library functions of a language."""
    if language == "swift-k":
        from amfs.swift.library_k import K

        return K
    from amfs.swift.library_t import T

    return T


def language_of(text: str) -> str:
    """Of a script that is wrong in both: the likelier."""
    return languages_of(text)[0]


def languages_of(text: str) -> list[str]:
    """Those that a script may be written in, the likelier first."""
    of_t, of_k = map(sum, zip(signs(text), functions(text, library("swift-t"), library("swift-k")), strict=True))
    if of_k and not of_t:
        return ["swift-k"]
    if of_t and not of_k:
        return ["swift-t"]
    return ["swift-k", "swift-t"] if of_k > of_t else ["swift-t", "swift-k"]


def _keep_tables() -> None:
    """The tables of the parsers are kept in the user's cache: making them takes ten times as long as reading them."""
    try:
        folder = folders.cache()
        os.makedirs(folder, 0o700, exist_ok=True)
        mine = os.stat(folder).st_uid == os.getuid() and os.access(folder, os.W_OK)
    except (OSError, SystemSetupError):
        return
    if mine:  # tables read from there are trusted
        SYNTAX.cache = os.path.join(folder, "swift-t.tables")
        SYNTAX_K.cache = os.path.join(folder, "swift-k.tables")


class SwiftReader(DocumentReader):
    """A script whose tasks are known without a run."""

    language = "auto"

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> None:
        if self.count(data):
            self._parts.append(data)

    def finish(self) -> None:
        if self.dead:
            return
        try:
            program = program_of(source_of(self.source, b"".join(self._parts)), self.language)
            host = Host(os.getcwd(), self.arguments)
            self.tasks = host.placed(tasks_of(program, host.answer))
        except WorkflowError as error:
            self.faults += error.faults
            self.dead = True
            return
        for at, words in program.remarks:
            self.remark(words, at.line, words)


class SwiftTReader(SwiftReader):
    """A script of Swift/T."""

    language = "swift-t"


class SwiftKReader(SwiftReader):
    """A script of Swift/K."""

    language = "swift-k"
