"""Requests of library functions and mappers to the world. Evaluation yields them as effects and gives back the answers; pure data.

Answers: see each request. A request that cannot be fulfilled is answered by raising ``Refused`` in the generator.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from msgspec import Struct


class Refused(Exception):
    """The world could not do it; ``str`` is a sentence for people ("no such file: x")."""


class FileValue(NamedTuple):
    """A file that is there (of an input of a library function), or that is to be made (of an output). ``name``: as programs see it.
    ``unreachable``: of a ``TemporaryFile`` only."""

    name: str
    unreachable: list[str] | None = None

    @property
    def temporary(self) -> bool:
        """No program has named it."""
        return self.unreachable is not None


class TemporaryFile(FileValue):
    """A file that no program has named. ``unreachable`` gets its name when no variable, statement or task refers to it any more."""

    __slots__ = ()

    def __del__(self) -> None:
        assert self.unreachable is not None
        self.unreachable.append(self.name)


class ReadFile(Struct, frozen=True):
    """Answer: bytes. The file may be one that a task has made."""

    name: str


class WriteFile(Struct, frozen=True):
    """Answer: None, when the file is there for tasks. ``append``: to what is in it."""

    name: str
    data: bytes
    append: bool = False


class Copy(Struct, frozen=True):
    """Answer: None, when ``target`` has the content of ``source`` for tasks."""

    source: str
    target: str


class Status(Struct, frozen=True):
    size: int
    modified: float  # seconds since 1970
    kind: str  # "file", "directory", "other"


class Stat(Struct, frozen=True):
    """Answer: Status, or None: there is nothing."""

    name: str


class Present(Struct, frozen=True):
    """Answer: those of the names that are regular files where the user stands."""

    names: tuple[str, ...]


class Glob(Struct, frozen=True):
    """Answer: sorted names that fit; ``**`` crosses directories."""

    pattern: str


class Remove(Struct, frozen=True):
    """Answer: None, when there is no file of that name any more."""

    name: str


class Execute(Struct, frozen=True):
    """Run a program here and now, not as a task (``system``, the ``ext`` mapper). Answer: Executed. ``inputs``: files that it reads, which
    tasks may have made."""

    words: tuple[str, ...]
    stdin: bytes = b""
    inputs: tuple[str, ...] = ()


class Executed(Struct, frozen=True):
    stdout: bytes
    stderr: bytes
    status: int


class CallPython(Struct, frozen=True):
    """Answer: str, the expression's value after the code has run. ``persistent``: in a worker that keeps its globals. ``worker``: the
    name of a process that only calls with this name use, one after the other; "" is any."""

    code: str
    expression: str
    persistent: bool
    worker: str = ""


class Print(Struct, frozen=True):
    """Text as it is, usually whole lines with their newline. Answer: None, at once."""

    text: str
    error: bool = False


class Pause(Struct, frozen=True):
    """Answer: None, after so many seconds."""

    seconds: float


class Clock(Struct, frozen=True):
    """Answer: float, seconds since 1970."""


class Environment(Struct, frozen=True):
    """Answer: str, or None: not set."""

    name: str


class Arguments(Struct, frozen=True):
    """Of the command line. Answer: (list of plain arguments, dict of -name=value)."""


class Nodes(Struct, frozen=True):
    """Answer: list of host names, one for each node; a rank is an index into it."""


class Place(Struct, frozen=True):
    """The file of this name shall be on that node: ``Locate`` answers with it until the file is elsewhere. Answer: None."""

    name: str
    rank: int


class Locate(Struct, frozen=True):
    """Answer: list of the ranks that hold the file; of a file that is not there that of its ``Place``, or none."""

    name: str


class Random(Struct, frozen=True):
    """Answer: float, 0 <= x < 1."""


Request: TypeAlias = (
    ReadFile
    | WriteFile
    | Copy
    | Remove
    | Stat
    | Present
    | Glob
    | Execute
    | CallPython
    | Print
    | Pause
    | Clock
    | Environment
    | Arguments
    | Nodes
    | Place
    | Locate
    | Random
)
