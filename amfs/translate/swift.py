"""Swift scripts: read, checked, and, if nothing in them depends on a run, as a workflow."""

from __future__ import annotations

import os
import re

from amfs.errors import WorkflowError
from amfs.swift.check import check
from amfs.swift.library_k import K
from amfs.swift.library_t import T
from amfs.swift.parse import parse
from amfs.swift.parse_k import SYNTAX_K
from amfs.swift.parse_t import SYNTAX
from amfs.swift.source import Source
from amfs.swift.static import tasks_of
from amfs.swift.tree import Program
from amfs.translate.document import DocumentReader
from amfs.translate.swift_host import Host, loader

LIBRARIES = {"swift-t": T, "swift-k": K}

#: What only scripts of Swift/K have.
_ONLY_K = re.compile(
    r"""(?x)\btype\s+\w+\s*(?:\{\s*\}|;)|<\s*(?:\w+_mapper|\w+Mapper|ext)\s*[;>]|<\s*@|\btracef\s*\(|\breadData\s*\(|\bread_data\s*\(
    |(?<!@)\bstd(?:in|out|err)\s*=\s*[@\w]|\bapp\s*\{|@(?:filename|filenames|arg|strcat)\s*\(|\[\s*auto\s*\]|^\s*\#(?!\s*(?:define|undef|include|if|ifdef|ifndef|else|elif
    |endif|pragma|line|error|warning)\b)|<<""",
    re.MULTILINE,
)
#: What only scripts of Swift/T have.
_ONLY_T = re.compile(
    r"""(?x)^\s*import\s+(?:io|string|sys|files|math|stats|assert|unix|python|location|random|blob|R|matrix)\s*;|@std(?:in|out|err)\s*=
    |^\s*main\b|=>|\bpragma\b|@(?:location|par|prio|dispatch)\b""",
    re.MULTILINE,
)
_COMMENTS = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def language_of(text: str) -> str:
    """"swift-t" or "swift-k", by what a script has that the other language has not; Swift/T if nothing says."""
    code = _COMMENTS.sub(" ", text)
    return "swift-k" if _ONLY_K.search(code) and not _ONLY_T.search(code) else "swift-t"


def source_of(name: str, data: bytes) -> Source:
    """The text of a script."""
    return Source(name, data.decode("utf-8", "surrogateescape").removeprefix("\ufeff").replace("\r\n", "\n"))


def program_of(source: Source, language: str = "auto") -> Program:
    """A text, parsed and checked. Raises ``WorkflowError`` with all mistakes."""
    if language == "auto":
        language = language_of(source.text)
    _keep_tables()
    program = parse(language, source, loader(source.name))
    check(program, LIBRARIES[language])
    return program


def _keep_tables() -> None:
    """The tables of the parsers are kept in the user's cache: making them takes ten times as long as reading them."""
    folder = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "amfs")
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        mine = os.stat(folder).st_uid == os.getuid() and os.access(folder, os.W_OK)
    except OSError:
        return
    if mine:  # what is read from there is trusted
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
            self.tasks = tasks_of(program, host.answer)
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
