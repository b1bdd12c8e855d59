"""The common base of the readers of whole documents (XML, YAML, JSON, make-like). Pure but for reading files beside a document.

A ``DocumentReader`` is given the bytes of one document as they come and has its tasks when the document has ended. It never raises for
faulty input: it notes ``Fault`` and goes on, or sets ``dead`` when going on makes no sense. A construct that has no meaning here is a
*remark*: once per kind with the line of the first, and how often it came.
"""

from __future__ import annotations

import os
import posixpath
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from amfs.errors import Fault
from amfs.translate.reader import FAULTS_MAX as FAULTS_MAX
from amfs.translate.reader import Reader
from amfs.workflow.workflow import Later, Task, printable

_T = TypeVar("_T")

STDIN = "standard input"

#: Bytes of one document, and of each file beside it that is read with it (a catalog, a sub-workflow).
DOCUMENT_BYTES_MAX = 1 << 30
BESIDE_BYTES_MAX = 256 << 20

#: Bytes of one element: a job with all that belongs to it, a line, a text.
ELEMENT_BYTES_MAX = 16 << 20

#: How deep elements, lists or sub-workflows may lie in each other.
DEPTH_MAX = 100
NESTED_MAX = 10


class Definitions(NamedTuple):
    """Names that the user defines beside a document in JX (see docs/reference/makeflow.md)."""

    files: tuple[str, ...] = ()  # each an object in JX; of two that define a name the later counts
    expressions: tuple[tuple[str, str], ...] = ()  # name and expression; they go before those of files
    values: Mapping[str, object] = {}  # by a document in which this one is nested
    directory: str = ""  # where relative directories begin that the document lists; "": the current one


NO_DEFINITIONS = Definitions()


class DocumentReader(Reader):
    """Base of the readers of whole documents. ``source`` is a path, or "standard input"; files beside it are looked up in its directory."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.dead = False  # no use in feeding more
        self.arguments: Sequence[str] = ()  # of a script, which a document is not
        self.definitions = NO_DEFINITIONS  # of a document in JX
        self.outer: tuple[str, ...] = ()  # documents in which this one is a sub-workflow, outermost first, as absolute paths
        self.later: Mapping[str, Later] = {}  # jobs that stand for sub-workflows whose documents other jobs make
        self.absent: dict[str, str] = {}  # catalogs that are named and not there: kind -> what to tell those who miss something
        self._remarks: dict[str, tuple[int, str, int]] = {}  # kind -> line, message, further ones
        self._bytes = 0

    # ── to be written by each format ───────────────────────────────────────────────────────────────

    def feed(self, data: bytes) -> None:
        """The next bytes of the document, cut anywhere."""
        raise NotImplementedError

    def finish(self) -> None:
        """The document has ended: afterwards ``tasks``, ``sizes``, ``paths`` and ``name`` are complete."""
        raise NotImplementedError

    # ── for their use ──────────────────────────────────────────────────────────────────────────────

    def text(self, text: str, first: int) -> None:
        self.feed(text.encode("utf-8", "surrogateescape"))

    def end(self, number: int, message: str) -> None:
        """A fault after which there is no going on. The tasks read so far are no workflow."""
        self.fault(number, message)
        self.dead = True

    def count(self, data: bytes) -> bool:
        """Count bytes in; False (and a fault, once) when there are more than any honest document has."""
        self._bytes += len(data)
        if self._bytes > DOCUMENT_BYTES_MAX and not self.dead:
            self.end(0, f"the document is larger than {DOCUMENT_BYTES_MAX >> 20} MiB")
        return not self.dead

    def remark(self, kind: str, line: int, message: str) -> None:
        """Something that has no meaning here, or another one than where it comes from. ``kind``: of the construct; told once each."""
        known = self._remarks.get(kind)
        self._remarks[kind] = (line, message, 0) if known is None else (known[0], known[1], known[2] + 1)

    @property
    def remarks(self) -> list[Fault]:
        """In the order in which they first came."""
        return [
            Fault(self.source, line, printable(message + (f" ({more} more like this)" if more else "")))
            for line, message, more in self._remarks.values()
        ]

    @property
    def directory(self) -> str:
        """Absolute directory of the document; of the user for standard input."""
        return os.path.dirname(os.path.abspath(self.source)) if self.source != STDIN else os.getcwd()

    def beside(self, name: str) -> str:
        """Absolute path of ``name`` as written in the document: a path relative to its directory, or a file: URL. '' if it is elsewhere."""
        path = local_path(name)
        return os.path.normpath(os.path.join(self.directory, path)) if path else ""

    def read_beside(self, path: str, line: int, what: str) -> bytes | None:
        """The bytes of a file that goes with the document; None and a fault if it cannot be read or is too large."""
        try:
            if not os.path.isfile(path):
                self.fault(line, f"{what} {path!r} {'is no regular file' if os.path.exists(path) else 'does not exist'}")
                return None
            if os.path.getsize(path) > BESIDE_BYTES_MAX:
                self.fault(line, f"{what} {path!r} is larger than {BESIDE_BYTES_MAX >> 20} MiB")
                return None
            with open(path, "rb") as file:
                return file.read(BESIDE_BYTES_MAX)
        except (OSError, ValueError) as error:
            self.fault(line, f"{what} {path!r} cannot be read: {getattr(error, 'strerror', None) or error}")
            return None

    def set_size(self, name: str, size: int, line: int) -> None:
        """Note what the document says of a file's size. Uses of one file often disagree: the largest is believed, and none is negative."""
        if size < 0:
            self.remark("negative size", line, f"file {name!r} has the size {size}; taken as 0")
            size = 0
        known = self.sizes.get(name)
        if known is not None and known != size:
            self.remark("sizes disagree", line, f"file {name!r} has {size} bytes here and {known} elsewhere; the larger is taken")
        if known is None or size > known:
            self.sizes[name] = size

    def runtime(self, seconds: float, line: int) -> float:
        """A recorded run time as a task may have it."""
        if not 0 <= seconds < 1e12:
            self.remark("run time", line, f"a run time of {seconds:g} seconds cannot be; taken as 0")
            return 0.0
        return seconds

    #: Whether logical names must stay in the directory of the run; false for formats in which people write paths.
    confined = True

    def names_outside(self) -> list[Fault]:
        """A document from elsewhere must not write where nobody expects it: faults of a run for names that lead out of its directory."""
        if not self.confined:
            return []
        return [
            Fault(self.source, task.line, printable(f"job {task.id}: {what} {name!r} lies outside of the directory of the run"))
            for task in self.tasks
            for what, names in (("output", task.outputs), ("input", task.inputs))
            for name in names
            if (name[:1] == "/" or ".." in name) and _outside(name, what)
        ]

    def read_nested(self, child: DocumentReader, data: bytes, line: int, what: str) -> bool:
        """Read a document that is called at ``line``; its faults and remarks are ours. Whether it is a workflow without fault."""
        child.outer = (*self.outer, os.path.abspath(self.source))
        child.feed(data)
        child.finish()
        for fault in child.all_faults():
            self.fault(line, f"{what} {fault}")
        for remark in child.remarks:
            self.remark(f"in {child.source}: {remark.message}", line, f"{what} {remark}")
        return not (child.dead or child.faults)


class KeptReader(DocumentReader):
    """Base of those that read nothing before they have it all."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> None:
        if self.count(data):
            self._parts.append(data)

    def take(self) -> bytes:
        """The document, without a byte order mark. It is kept here no longer."""
        data = b"".join(self._parts).removeprefix(b"\xef\xbb\xbf")
        self._parts = []
        return data


def in_pieces(data: bytes, size: int) -> list[bytes]:
    """``data`` in order, cut so that each part can be let go when it has been read."""
    return [data[at : at + size] for at in range(0, len(data), size)]


def taken(values: list[_T]) -> Iterator[_T]:
    """The values in turn, each of which leaves the list: it need not be kept beside what is made of it."""
    values.reverse()
    while values:
        yield values.pop()


def _outside(name: str, what: str) -> bool:
    path = posixpath.normpath(name)
    return (path[:1] == "/" and what == "output") or path == ".." or path.startswith("../")


def local_path(name: str) -> str:
    """The path in a physical name: a path itself, or a file: URL. '' for a URL of any other kind."""
    if "://" not in name and not name.startswith("file:"):
        return name
    try:
        parts = urlsplit(name)
    except ValueError:
        return ""
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return ""
    return unquote(parts.path)


def tolerant(task: Task, optional: Iterable[str]) -> Task:
    """The task as one that makes those of its outputs that its program left out, as empty files."""
    missing = " ".join(map(shlex.quote, optional))
    script = f'"$0" "$@" || exit; for f in {missing}; do [ -e "$f" ] || : >"$f"; done'
    return msgspec.structs.replace(task, argv=("/bin/sh", "-c", script, *task.argv))


def last_writers(tasks: Iterable[Task]) -> dict[str, int]:
    """File -> index of the task that writes it; of several the last in the document, as in Pegasus."""
    return {name: index for index, task in enumerate(tasks) for name in task.outputs}


def with_after(tasks: list[Task], parents: Mapping[str, Iterable[str]]) -> list[Task]:
    """The same list, with those of their stated parents in ``after`` whose files the tasks do not read."""
    if not parents:
        return tasks
    writers = last_writers(tasks)
    for index, task in enumerate(tasks):
        stated = parents.get(task.id)
        if stated:
            implied = {tasks[writers[name]].id for name in task.inputs if name in writers}
            after = tuple([parent for parent in dict.fromkeys(stated) if parent not in implied])
            if after:
                tasks[index] = msgspec.structs.replace(task, after=after)
    return tasks
