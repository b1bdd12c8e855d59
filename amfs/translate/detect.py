"""From bytes to a Workflow: finds out which format they are in and reads them, at once or as they arrive.

The format is found by content (``amfs.translate.sniff``). Bytes that are not UTF-8 are kept (surrogateescape), so that any name survives.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

from amfs.errors import Fault, UsageError, WorkflowError
from amfs.translate import commands, filelist, tasklist
from amfs.translate.document import (
    DOCUMENT_BYTES_MAX,
    ELEMENT_BYTES_MAX,
    NO_DEFINITIONS,
    STDIN,
    Definitions,
    DocumentReader,
    in_pieces,
    taken,
)
from amfs.translate.reader import FAULTS_MAX, Reader
from amfs.translate.sniff import HEAD, Undetected, format_of_name, may_be_document, refuse_name, sniff, sniff_document
from amfs.workflow.check_parts import Place
from amfs.workflow.check_texts import whole_faults
from amfs.workflow.checks import Plan, check
from amfs.workflow.workflow import DeclaredState, Task, Workflow, complete

#: Formats of whole documents: nothing can be said of their tasks before the end. Each is read by a module of its own, on demand.
DOCUMENTS = {
    "dax": ("amfs.translate.dax", "DaxReader"),
    "pegasus": ("amfs.translate.pegasus", "PegasusReader"),
    "wfformat": ("amfs.translate.wfformat", "WfFormatReader"),
    "makeflow": ("amfs.translate.makeflow", "MakeflowReader"),
    "swift": ("amfs.translate.swift", "SwiftReader"),
    "swift-t": ("amfs.translate.swift", "SwiftTReader"),
    "swift-k": ("amfs.translate.swift", "SwiftKReader"),
}

#: Those of them that are programs: a run may make more of them than reading.
SCRIPTS = ("swift", "swift-t", "swift-k")

#: Values of ``format``.
FORMATS = ("auto", "tasklist", "jsonl", "commands", "usage", "filelist", *DOCUMENTS)

_CHUNK = 1 << 20


#: Lists of command lines, and whether -if and -of declare files in them (None: it shows).
COMMANDS = {"commands": False, "usage": True, "auto-commands": None}


def make_document_reader(format: str, source: str) -> DocumentReader:
    """The reader of a format of DOCUMENTS. Raises UsageError if this installation cannot read it."""
    import importlib

    module, name = DOCUMENTS[format]
    try:
        reader: DocumentReader = getattr(importlib.import_module(module), name)(source)
    except ModuleNotFoundError as error:
        raise UsageError(f"{source}: this is {format}, which this version of amfs cannot read ({error})") from None
    return reader


def real_sh() -> str:
    """The name of the program that /bin/sh is here."""
    return os.path.basename(os.path.realpath(commands.SHELL))


def make_reader(format: str, source: str, shell: str = "") -> Reader:
    """The reader of a format (not "auto"). ``shell``: for lists of command lines, as ``CommandReader`` has it."""
    if shell and format not in COMMANDS:
        raise UsageError(f"--shell is for lists of command lines, and {source} is none ({format})")
    if format == "tasklist":
        return tasklist.TaskListReader(source)
    if format == "jsonl":
        from amfs.translate.jsonl import JsonLinesReader  # builds its decoder when imported

        return JsonLinesReader(source)
    if format == "filelist":
        return filelist.FileListReader(source)
    if format in COMMANDS:
        return commands.CommandReader(source, COMMANDS[format], shell, real_sh())
    raise UsageError(f"unknown format {format!r}; known are {', '.join(FORMATS)}")


class Parser:
    """Takes bytes as they come; gives tasks as soon as their lines are complete. Never waits for more than the first line to
    know the format."""

    def __init__(self, source: str, format: str = "auto", shell: str = "") -> None:
        self.source = source
        self.format = format
        self.shell = shell
        self.faults: list[Fault] = []
        self._reader = make_reader(format, source, shell) if format != "auto" else None
        self._parts: list[bytes] = []  # of the line that is not complete yet
        self._part_bytes = 0
        self._waiting: list[str] = []  # text seen before the format was known
        self._waiting_from = 1
        self._next_line = 1
        self._dead = False  # not readable at all; said once

    @property
    def reader(self) -> Reader:
        if self._reader is None:
            self._reader = make_reader("auto-commands", self.source, self.shell)
        return self._reader

    def feed(self, data: bytes) -> None:
        cut = data.rfind(b"\n")
        if cut < 0:
            self._keep(data)
            return
        block = b"".join([*self._parts, data[:cut]])
        self._parts, self._part_bytes = [], 0
        self._block(block)
        self._keep(data[cut + 1 :])

    def _keep(self, data: bytes) -> None:
        """A part of the line that is not complete yet."""
        self._part_bytes += len(data)
        if self._part_bytes > ELEMENT_BYTES_MAX and not self._dead:
            self._dead = True
            self.faults.append(Fault(self.source, self._next_line, f"this line is longer than {ELEMENT_BYTES_MAX >> 20} MiB"))
        if self._dead:
            self._parts = []
        elif data:
            self._parts.append(data)

    def finish(self) -> None:
        """The end: a last line without a newline counts, too."""
        if self._parts:
            block = b"".join(self._parts)
            self._parts = []
            self._block(block)
        if self._reader is not None:
            self.faults += self._reader.faults
            self._reader.faults = []
        elif not self._dead:
            try:
                refuse_name(self.source)  # there is nothing in it
            except Undetected as error:
                self.faults.append(Fault(self.source, 0, str(error)))

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
            try:
                found = sniff("\n".join(self._waiting), self.source)
            except Undetected as error:
                self._dead = True
                self.faults = [Fault(self.source, 0, str(error))]  # faults of its single lines are no news
                return
            self.format = found
            self._reader = make_reader("auto-commands" if found == "commands" else found, self.source, self.shell)
            first = self._waiting_from
            for text in taken(self._waiting):
                self._reader.text(text, first)
                first += text.count("\n") + 1
            return
        self._reader.text(text, first)

    def _without_nul(self, block: bytes, first: int) -> bytes:
        """Lines with NUL bytes are faults; of a binary file one is enough."""
        if self._next_line > 1 and first == 1 and b"\0" in block[:512]:
            self._dead = True
            self.faults.append(Fault(self.source, 0, "this is a binary file (it contains NUL bytes), not a list of tasks"))
            return b""
        lines = block.split(b"\n")
        for index, line in enumerate(lines):
            if b"\0" in line and len(self.faults) < FAULTS_MAX:
                self.faults.append(Fault(self.source, first + index, "the line contains a NUL byte"))
            lines[index] = line if b"\0" not in line else b""
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
    """The result of reading: the workflow, the faults of the text, and names that those faults may have been about."""

    workflow: Workflow
    faults: list[Fault]
    suspects: set[str]


def load(
    source: Source,
    *,
    format: str = "auto",
    files: Source | None = None,
    name: str = "",
    strict: bool = False,
    arguments: Sequence[str] = (),
    definitions: Definitions = NO_DEFINITIONS,
) -> Workflow:
    """Read a workflow from a path, "-" (standard input) or a binary file object, to its end.

    ``files``: a file list that goes with it. ``name``: of the workflow, if it does not say itself. ``strict``: constructs that have no
    meaning here are faults, not remarks. ``arguments``: of a script. ``definitions``: for a document in JX. Raises
    WorkflowError with every fault of the text, UsageError if it cannot be read at all. Checked are form, ids and texts, so that it can be
    written down again in any format; for the rest see ``load_checked``.
    """
    workflow, faults, _ = read(source, format=format, files=files, name=name, strict=strict, arguments=arguments, definitions=definitions)
    faults = faults or whole_faults(workflow)
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
    arguments: Sequence[str] = (),
    shell: str = "",
    definitions: Definitions = NO_DEFINITIONS,
) -> tuple[Workflow, Plan]:
    """``load`` and ``amfs.workflow.checks.check`` in one go: WorkflowError has the faults of both. ``prepare`` is called in between."""
    loaded = read(source, format=format, files=files, name=name, strict=strict, arguments=arguments, shell=shell, definitions=definitions)
    return loaded.workflow, checked(loaded, place, prepare)


def checked(loaded: Loaded, place: Place, prepare: Callable[[Workflow], None] | None = None) -> Plan:
    """The plan of what was read. Raises WorkflowError with all faults."""
    workflow, faults, suspects = loaded
    if prepare is not None and not faults:
        prepare(workflow)
    with _quiet_gc():
        return check(workflow, place, known=faults, excused=suspects)


def read(
    source: Source,
    *,
    format: str = "auto",
    files: Source | None = None,
    name: str = "",
    strict: bool = False,
    arguments: Sequence[str] = (),
    shell: str = "",
    definitions: Definitions = NO_DEFINITIONS,
) -> Loaded:
    """``load`` without raising for faults."""
    reader, title, found = _read_all(source, format, arguments, shell, definitions)
    faults = reader.all_faults()
    if found == "filelist":
        faults.append(Fault(title, 0, "this is a file list; give the task list, and this beside it with --files"))
    states: dict[str, DeclaredState] = dict(reader.files)
    if files is not None:
        listing, _, _ = _read_all(files, "filelist")
        faults += listing.faults
        states.update(listing.files)
    workflow = Workflow(reader.tasks, source=title, files=states, sizes=reader.sizes, paths=reader.paths)
    if isinstance(reader, DocumentReader):
        workflow.remarks, workflow.later, workflow.absent = reader.remarks, dict(reader.later), reader.absent
        if strict:
            faults += workflow.remarks
        if outside := reader.names_outside():
            workflow.run_faults = outside
            more = f" ({len(outside) - 1} more like this)" if len(outside) > 1 else ""
            words = f"{outside[0].message}: no run of it is possible, only a replay (amfs run --synthetic){more}"
            workflow.remarks = [*workflow.remarks, outside[0]._replace(message=words)]
        if reader.dead:
            workflow.tasks = []  # half a document is no workflow, and its faults are no news
    if title := reader.name or name:
        workflow.name = title
    return Loaded(workflow, faults, reader.suspects)


def _read_all(
    source: Source, format: str, arguments: Sequence[str] = (), shell: str = "", definitions: Definitions = NO_DEFINITIONS
) -> tuple[Reader, str, str]:
    """(reader, title, format found) of a text read to its end."""
    if format not in FORMATS:
        raise UsageError(f"unknown format {format!r}; known are {', '.join(FORMATS)}")
    file, title, ours = _open(source)
    try:
        with _quiet_gc():
            found, head = (format, b"") if format in DOCUMENTS else _look(file.read, title) if format == "auto" else ("", b"")
            pieces = in_pieces(head, _CHUNK)  # a reader takes some times the memory of what it is given at once
            del head
            data = chain(taken(pieces), _chunks(file))
            if any(definitions[:3]) and found != "makeflow":
                raise UsageError(f"--jx-define and --jx-args are for Makeflows in JX, and {title} is none")
            if found:
                if shell:
                    raise UsageError(f"--shell is for lists of command lines, and {title} is none ({found})")
                document = make_document_reader(found, title)
                document.arguments = arguments
                document.definitions = definitions
                for piece in data:
                    document.feed(piece)
                    if document.dead:
                        break
                document.finish()
                return document, title, found
            if arguments:
                raise UsageError(f"{title} is no script, so it takes no arguments")
            parser = Parser(title, format, shell)
            for piece in data:
                parser.feed(piece)
            parser.finish()
    except OSError as error:
        raise UsageError(f"cannot read {title}: {error.strerror or error}") from error
    finally:
        if ours:
            file.close()
    parser.reader.faults = parser.faults
    return parser.reader, title, parser.format


def _chunks(file: BinaryIO | Replay) -> Iterator[bytes]:
    while data := file.read(_CHUNK):
        yield data


def _look(read: Callable[[int], bytes], title: str = "") -> tuple[str, bytes]:
    """(format of the document that is read, or ''; the bytes read to know it)."""
    parts: list[bytes] = []
    size, looked = 0, 0  # bytes read, bytes looked at
    found, head = "", b""
    while not found and size <= DOCUMENT_BYTES_MAX:
        data = read(_CHUNK)
        if data:
            parts.append(data)
            size += len(data)
            if looked > HEAD and size < 2 * looked:
                continue  # a long one is looked at a few times only
        head, looked = b"".join(parts), size
        parts = [head]
        likely = may_be_document(head)
        found = sniff_document(head if likely else head[:HEAD], whole=not data)
        if not data or not likely:
            break
    return found or format_of_name(title), b"".join(parts)


def peek(file: BinaryIO, title: str = "") -> tuple[str, BinaryIO | Replay]:
    """(format of the document that a pipe brings, or ''; a file that begins where the pipe began).

    Waits for the first line that is no comment; for more only if that begins like a document: the first task of a list may be the only
    one for a long time.
    """
    found, head = _look(getattr(file, "read1", file.read), title)
    return found, Replay(head, file)


def standard_input() -> BinaryIO:
    """Standard input, for a thread that may still read when the process ends: the interpreter closes ``sys.stdin`` then, and aborts if
    somebody reads it."""
    buffer: BinaryIO = sys.stdin.buffer
    try:
        return open(buffer.fileno(), "rb", closefd=False)
    except OSError:  # no file of the system
        return buffer


def _open(source: Source) -> tuple[BinaryIO, str, bool]:
    """The file, its name for people, and whether it is ours to close."""
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
    shell: str = "",
) -> Iterator[Task]:
    """The tasks of a pipe or file as their lines arrive, complete (``workflow.workflow.complete``); ends when the other side closes it.

    Blocks only while no line is complete. A faulty line is given to ``on_fault`` and skipped; without it, it raises WorkflowError.
    A caller with a poll loop of its own drives a ``Parser`` instead.
    """
    binary, title, _ = _open(file)
    parser = Parser(source or title, format, shell)
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
