"""From bytes to a Workflow: finds out which format they are in and reads them, at once or as they arrive.

The format is found by content, never by the file's name. Bytes that are not UTF-8 are kept (surrogateescape), so that any name survives.
"""

from __future__ import annotations

import gc
import io
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

from amfs.engine.check_parts import Place
from amfs.engine.checks import Plan, check
from amfs.engine.workflow import FileState, Task, Workflow, complete
from amfs.errors import Fault, UsageError, WorkflowError
from amfs.translate import commands, filelist, tasklist
from amfs.translate.document import STDIN, DocumentReader
from amfs.translate.reader import Reader

#: Formats of whole documents: nothing can be said of their tasks before the end. Each is read by a module of its own, on demand.
DOCUMENTS = {
    "dax": ("amfs.translate.dax", "DaxReader"),
    "pegasus": ("amfs.translate.pegasus", "PegasusReader"),
    "wfformat": ("amfs.translate.wfformat", "WfFormatReader"),
    "makeflow": ("amfs.translate.makeflow", "MakeflowReader"),
}

#: What ``format`` may be.
FORMATS = ("auto", "tasklist", "jsonl", "commands", "usage", "filelist", *DOCUMENTS)

_CHUNK = 1 << 20
_SAMPLE_LINES = 50

#: Bytes at the beginning of a text by which a document is known.
_HEAD = 1 << 16


class Undetected(ValueError):
    """No format fits; ``str`` says what was looked for."""


def sniff_document(head: bytes) -> str:
    """The format of the whole document that begins with ``head`` (up to 64 KiB of it); '' if it is a list of lines, or nothing known."""
    text = head[:_HEAD].removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").replace("\r", "")
    bare = text.lstrip()
    if bare.startswith("<"):
        return "dax" if re.search(r"<([\w.-]+:)?adag[\s/>]", bare) else ""
    if bare.startswith("{"):
        first = bare.split("\n", 1)[0]
        if re.search(r'"type"\s*:\s*"(task|file|workflow)"', first) and first.rstrip().endswith("}"):
            return ""  # JSON Lines
        if re.search(r'"(schemaVersion|wfcommons)"\s*:|"(workflow|specification)"\s*:\s*\{', bare):
            return "wfformat"
        if re.search(r'"(x-)?pegasus"\s*:', bare):
            return "pegasus"
        return "makeflow" if re.search(r'"rules"\s*:\s*\[', bare) else ""  # in JX, which its reader refuses with a reason
    lines = text.split("\n")
    if any(re.match(r"[\"']?(x-)?pegasus[\"']?\s*:(\s|\Z)|jobs\s*:\s*(#.*)?\Z", line) for line in lines):
        return "pegasus"
    lines = [line for line in lines if line.strip() and line.lstrip()[:1] != "#"]
    for line, following in itertools.pairwise(lines):
        if following[:1] == "\t" and re.match(r"[^\t:]+:(?![=/])", line):
            return "makeflow"
    return ""


def make_document_reader(format: str, source: str) -> DocumentReader:
    """The reader of a format of DOCUMENTS. Raises UsageError if this installation cannot read it."""
    import importlib

    module, name = DOCUMENTS[format]
    try:
        reader: DocumentReader = getattr(importlib.import_module(module), name)(source)
    except ModuleNotFoundError as error:
        raise UsageError(f"{source}: this is {format}, which this version of amfs cannot read ({error})") from None
    return reader


def sniff(text: str) -> str:
    """The format of a text of whole lines, from its first lines. Raises Undetected."""
    lines = [line.strip(" \t\r") for line in text.split("\n", 4 * _SAMPLE_LINES)[: 4 * _SAMPLE_LINES]]
    if any(line.startswith(tasklist.PRAGMA) for line in lines):
        return "tasklist"
    for line in lines:
        if line.startswith("#!"):
            raise Undetected("this is a script; to run each of its lines as a task of its own, say --format commands")
        if line:
            break
    lines = [line for line in lines if line and line[0] != "#"][:_SAMPLE_LINES]
    if not lines:
        return "commands"
    first = lines[0]
    if re.match(r"\{\s*(\"|\}|\Z)", first):
        if first in ("{", "[") or (not first.endswith("}") and len(lines) > 1 and not lines[1].startswith("{")):
            raise _unsure("one JSON document over several lines (JSON Lines has one object a line)")
        return "jsonl"
    if re.match(r"\[\s*[\[{\"]|\[\Z", first):
        raise _unsure("a JSON array (JSON Lines has one object a line)")
    if re.match(r"<(\?xml|!--|!DOCTYPE|adag)", first):
        raise _unsure("XML")
    if first == "---" or re.match(r"(x-)?pegasus:|[A-Za-z_]\w*:\Z", first):
        raise _unsure("YAML")
    words = [line.split() for line in lines]
    if words[0] == ["TaskID", "Binary", "Input", "Output", "Rule"] or [w.lower() for w in words[0]] == tasklist.HEADER:
        return "tasklist"
    if [w.lower() for w in words[0]] == filelist.HEADER or all(len(w) == 3 and tasklist.parse_state(w[2]) for w in words):
        return "filelist"
    # "du -b x" has the shape of a task, too; but a command is repeated while task ids differ, and has no other options of ours.
    shaped = [w for w in words if len(w) > 1 and (w[1] == "-b" or (w[0].isdigit() and w[1][:1] == "-"))]
    distinct = len({w[0] for w in shaped}) > len(shaped) // 2
    if 2 * len(shaped) >= len(words) and (distinct or any({"-i", "-o", "-a"} & set(w) for w in shaped)):
        return "tasklist"
    return "commands"


def _unsure(looks_like: str) -> Undetected:
    return Undetected(
        f'this looks like {looks_like}. Known are: a task list (ID -b PROGRAM …), JSON Lines ({{"type": "task", …}}), command lines'
        " (also with -if … -of …), Pegasus DAX and YAML, WfFormat, Makeflow; name the format with --format if it is one of these"
    )


def make_reader(format: str, source: str) -> Reader:
    """The reader of a format (not "auto")."""
    if format == "tasklist":
        return tasklist.TaskListReader(source)
    if format == "jsonl":
        from amfs.translate.jsonl import JsonLinesReader  # builds its decoder when imported

        return JsonLinesReader(source)
    if format == "filelist":
        return filelist.FileListReader(source)
    if format in ("commands", "usage", "auto-commands"):
        usage = {"commands": False, "usage": True, "auto-commands": None}[format]
        return commands.CommandReader(source, usage)
    raise UsageError(f"unknown format {format!r}; known are {', '.join(FORMATS)}")


class Parser:
    """Takes bytes as they come; gives tasks as soon as their lines are complete. Never waits for more than the first line to
    know the format."""

    def __init__(self, source: str, format: str = "auto") -> None:
        self.source = source
        self.format = format
        self.faults: list[Fault] = []
        self._reader = make_reader(format, source) if format != "auto" else None
        self._parts: list[bytes] = []  # of the line that is not complete yet
        self._waiting: list[str] = []  # text seen before the format was known
        self._waiting_from = 1
        self._next_line = 1
        self._dead = False  # not readable at all; said once

    @property
    def reader(self) -> Reader:
        if self._reader is None:
            self._reader = make_reader("auto-commands", self.source)
        return self._reader

    def feed(self, data: bytes) -> None:
        cut = data.rfind(b"\n")
        if cut < 0:
            if data:
                self._parts.append(data)
            return
        self._parts.append(data[:cut])
        block = b"".join(self._parts)
        self._parts = [data[cut + 1 :]] if cut + 1 < len(data) else []
        self._block(block)

    def finish(self) -> None:
        """The end: a last line without a newline counts, too."""
        if self._parts:
            block = b"".join(self._parts)
            self._parts = []
            self._block(block)
        if self._reader is not None:
            self.faults += self._reader.faults
            self._reader.faults = []

    def take(self) -> list[Task]:
        """The tasks read since the last call."""
        if self._reader is None:
            return []
        self.faults += self._reader.faults
        self._reader.faults = []
        tasks = self._reader.tasks
        self._reader.tasks = []
        return tasks

    def _block(self, block: bytes) -> None:
        first = self._next_line
        self._next_line += block.count(b"\n") + 1
        if self._dead:
            return
        if first == 1:
            if block.startswith((b"\xff\xfe", b"\xfe\xff")):
                self._dead = True
                self.faults.append(Fault(self.source, 1, "this text is UTF-16; save it as UTF-8"))
                return
            block = block.removeprefix(b"\xef\xbb\xbf")
        if b"\0" in block:
            block = self._without_nul(block, first)
        text = block.decode("utf-8", "surrogateescape")
        if "\r" in text:
            text = text.replace("\r\n", "\n").removesuffix("\r")
        if self._reader is None:
            if not self._waiting:
                self._waiting_from = first
            self._waiting.append(text)
            if not _significant(text):
                return
            first, text = self._waiting_from, "\n".join(self._waiting)
            self._waiting = []
            try:
                found = sniff(text)
            except Undetected as error:
                self._dead = True
                self.faults.append(Fault(self.source, 0, str(error)))
                return
            self.format = found
            self._reader = make_reader("auto-commands" if found == "commands" else found, self.source)
        self._reader.text(text, first)

    def _without_nul(self, block: bytes, first: int) -> bytes:
        """Lines with NUL bytes are faults; of a binary file one is enough."""
        if self._next_line > 1 and first == 1 and b"\0" in block[:512]:
            self._dead = True
            self.faults.append(Fault(self.source, 0, "this is a binary file (it contains NUL bytes), not a list of tasks"))
            return b""
        lines = block.split(b"\n")
        for index, line in enumerate(lines):
            if b"\0" in line:
                self.faults.append(Fault(self.source, first + index, "the line contains a NUL byte"))
                lines[index] = b""
        return b"\n".join(lines)


def _significant(text: str) -> bool:
    return any(line.strip(" \t")[:1] not in ("", "#") or line.startswith(("#!", tasklist.PRAGMA)) for line in text.split("\n"))


# ── whole lists ────────────────────────────────────────────────────────────────────────────────────



class Replay(io.RawIOBase):
    """A pipe some of whose bytes have been looked at already."""

    def __init__(self, head: bytes, file: BinaryIO) -> None:
        super().__init__()
        self._head = head
        self._file = file
        self.name = getattr(file, "name", "")

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            head, self._head = self._head, b""
            return head + self._file.read()
        if self._head:
            data, self._head = self._head[:size], self._head[size:]
            return data
        return bytes(getattr(self._file, "read1", self._file.read)(size))

    read1 = read


Source = str | os.PathLike[str] | BinaryIO | Replay


class Loaded(NamedTuple):
    """What was read: the workflow, the faults of the text, and names that those faults may have been about."""

    workflow: Workflow
    faults: list[Fault]
    suspects: set[str]


def load(source: Source, *, format: str = "auto", files: Source | None = None, name: str = "", strict: bool = False) -> Workflow:
    """Read a workflow from a path, "-" (standard input) or a binary file object, to its end.

    ``files``: a file list that goes with it. ``name``: of the workflow, if it does not say itself. ``strict``: constructs that have no
    meaning here are faults, not remarks. Raises WorkflowError with every fault of the text, UsageError if it cannot be read at all.
    Nothing is checked beyond the form; see ``load_checked``.
    """
    workflow, faults, _ = read(source, format=format, files=files, name=name, strict=strict)
    if faults:
        raise WorkflowError(faults)
    return workflow


def load_checked(
    source: Source,
    place: Place,
    *,
    format: str = "auto",
    files: Source | None = None,
    name: str = "",
    strict: bool = False,
    prepare: Callable[[Workflow], None] | None = None,
) -> tuple[Workflow, Plan]:
    """``load`` and ``amfs.engine.checks.check`` in one go: WorkflowError has the faults of both. ``prepare`` is called in between."""
    workflow, faults, suspects = read(source, format=format, files=files, name=name, strict=strict)
    if prepare is not None and not faults:
        prepare(workflow)
    with _quiet_gc():
        return workflow, check(workflow, place, known=faults, excused=suspects)


def read(source: Source, *, format: str = "auto", files: Source | None = None, name: str = "", strict: bool = False) -> Loaded:
    """``load`` without raising for faults."""
    reader, title, found = _read_all(source, format)
    faults = reader.all_faults() if isinstance(reader, DocumentReader) else reader.faults
    if found == "filelist":
        faults.append(Fault(title, 0, "this is a file list; give the task list, and this beside it with --files"))
    states: dict[str, FileState] = dict(reader.files)
    if files is not None:
        listing, _, _ = _read_all(files, "filelist")
        faults += listing.faults
        states.update(listing.files)
    workflow = Workflow(reader.tasks, source=title, files=states, sizes=reader.sizes, paths=reader.paths)
    if isinstance(reader, DocumentReader):
        workflow.remarks, workflow.later, workflow.absent = reader.remarks, dict(reader.later), reader.absent
        if strict:
            faults += workflow.remarks
        if reader.dead:
            workflow.tasks = []  # half a document is no workflow, and its faults are no news
    if title := reader.name or name:
        workflow.name = title
    return Loaded(workflow, faults, reader.suspects)


def _read_all(source: Source, format: str) -> tuple[Reader, str, str]:
    """(reader, title, format found) of a text read to its end."""
    if format not in FORMATS:
        raise UsageError(f"unknown format {format!r}; known are {', '.join(FORMATS)}")
    file, title, ours = _open(source)
    try:
        with _quiet_gc():
            data = file.read(_CHUNK)
            found = format if format in DOCUMENTS else sniff_document(data) if format == "auto" else ""
            if found:
                document = make_document_reader(found, title)
                while data and not document.dead:
                    document.feed(data)
                    data = file.read(_CHUNK)
                document.finish()
                document.check_names()
                return document, title, found
            parser = Parser(title, format)
            while data:
                parser.feed(data)
                data = file.read(_CHUNK)
            parser.finish()
    except OSError as error:
        raise UsageError(f"cannot read {title}: {error.strerror or error}") from error
    finally:
        if ours:
            file.close()
    parser.reader.faults = parser.faults
    return parser.reader, title, parser.format


def peek(file: BinaryIO) -> tuple[str, BinaryIO | Replay]:
    """(format of the document that a pipe brings, or ''; a file that begins where the pipe began).

    Waits for the first line that is no comment; for more only if that begins like a document: the first task of a list may be the only
    one for a long time.
    """
    head = b""
    read = getattr(file, "read1", file.read)
    while len(head) < _HEAD and not sniff_document(head) and (first := _FIRST_LINE.match(head)):
        if first["rest"] and not _LIKE_DOCUMENT.match(first["line"]):
            break
        if not (data := read(_HEAD)):
            break
        head += data
    return sniff_document(head), Replay(head, file)


#: Blank lines and comments, then a line, and whatever ends it.
_FIRST_LINE = re.compile(rb"\A(?:[ \t\r]*(?:#[^\n]*)?\n)*(?P<line>[^\n]*)(?P<rest>\n?)")

#: How documents begin: XML, a brace without its partner, YAML, a rule of a Makeflow.
_LIKE_DOCUMENT = re.compile(rb"\s*<|\s*\{(?!.*\}\s*\Z)|---\s*\Z|%|[\w\"'.-]+[ \w.-]*:(\s|\Z)", re.DOTALL)


def _open(source: Source) -> tuple[BinaryIO, str, bool]:
    """The file, what to call it, and whether it is ours to close."""
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        if path == "-":
            if sys.stdin is None:
                raise UsageError("cannot read the list: standard input is closed")
            return sys.stdin.buffer, STDIN, False
        try:
            return open(path, "rb"), path, True
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    file: Any = getattr(source, "buffer", source)
    title = getattr(file, "name", "")
    return file, title if isinstance(title, str) and title not in ("", "<stdin>") else STDIN, False


@contextmanager
def _quiet_gc() -> Iterator[None]:
    """No collections while millions of objects are made that all stay: each would walk all of them in vain."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# ── lists that are still growing ───────────────────────────────────────────────────────────────────


def read_stream(
    file: BinaryIO,
    *,
    format: str = "auto",
    source: str = "",
    on_fault: Callable[[Fault], None] | None = None,
) -> Iterator[Task]:
    """The tasks of a pipe or file as their lines arrive, complete (``engine.workflow.complete``); ends when the other side closes it.

    Blocks only while no line is complete. A faulty line is given to ``on_fault`` and skipped; without it, it raises WorkflowError.
    A caller with a poll loop of its own drives a ``Parser`` instead.
    """
    binary, title, _ = _open(file)
    parser = Parser(source or title, format)
    read = getattr(binary, "read1", binary.read)
    ended = False
    while not ended:
        data = read(65536)
        if data:
            parser.feed(data)
        elif data is None:
            raise UsageError(f"{parser.source} is in non-blocking mode and has nothing to read now")
        else:
            parser.finish()
            ended = True
        for task in parser.take():
            yield complete(task)
        faults, parser.faults = parser.faults, []
        if faults and on_fault is None:
            raise WorkflowError(faults)
        for fault in faults:
            if on_fault is not None:
                on_fault(fault)
