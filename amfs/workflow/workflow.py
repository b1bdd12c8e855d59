"""A workflow: its tasks and files. Pure.

Translators make a ``Workflow``; the submitter walks it. Memory matters: a million tasks must fit well below 1 KiB each, so tasks are
slotted structs without GC tracking, and equal strings are shared (``sys.intern`` is not used: names are interned per workflow).
"""

from __future__ import annotations

import enum
import math
import posixpath
import re
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from amfs.errors import Fault
from amfs.vocabulary.paths import NAMESPACE, in_namespace


class DeclaredState(enum.Enum):
    """State of a file in a file list (AME Fig. 3)."""

    SHARED = "Shared"
    INVALID = "Invalid"


class Task(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One task, as the user wrote it.

    ``argv[0]`` is the program (looked up where the user stands, then on PATH). Input and output names are relative to where the
    user stands. A task that declares nothing and is not ``staged`` runs in that directory itself.

    A ``blind`` task declares no files either. It runs in the session's file system, in the directory ``cwd`` there (absolute; "" is the
    root), and finds and makes its files itself (AMFS Shell, §3.2).
    """

    id: str
    argv: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    env: tuple[str, ...] = ()  # "K=V"
    cwd: str = ""
    cores: int = 1
    memory: int = 0  # bytes
    time_limit: float = 0.0  # seconds, 0: none
    retries: int = -1  # -1: the run's default
    priority: int = 0  # higher first
    label: str = ""  # kind of task, for reports; default the program's name
    node: int = -1  # pinned to this node
    node_soft: bool = False  # a wish, not a demand
    reduce: int = 0  # arity of a reduction tree ({in} and {out} in argv), 0: ordinary
    keep: tuple[str, ...] = ()  # outputs to copy to shared storage although other tasks read them
    scratch: tuple[str, ...] = ()  # outputs not to copy to shared storage although no task reads them
    after: tuple[str, ...] = ()  # ids of tasks that must have finished first, beyond what the files say
    runtime: float | None = None  # seconds that it once took, as the workflow's source recorded them; None: not recorded
    staged: bool = True
    blind: bool = False
    line: int = 0  # where it was written


class Later(Protocol):
    """A workflow of which nothing is known before its document has been made; a task stands for it until then."""

    document: str  # its name, as the task that stands for it has it among its inputs

    def expand(
        self, path: str, task: Task, used: Callable[[str], bool], made: Callable[[str], bool], place: Callable[[str], str]
    ) -> Workflow:
        """The document, which lies at ``path``, as a part of the workflow in which ``task`` stands for it.

        Of canonical names: ``used`` says which are those of files already known; ``made``, which of these a task makes; ``place``, where a
        catalog has the others ('': where their names say). Raises WorkflowError with the faults of the document.
        """


class Workflow(msgspec.Struct):
    """Tasks in the order written, and what the file list (if any) says of files."""

    tasks: list[Task]
    name: str = "workflow"
    source: str = ""  # where it was read from, for messages
    files: dict[str, DeclaredState] = {}
    sizes: dict[str, int] = {}  # bytes of files, where the source says; for replays and reports
    paths: dict[str, str] = {}  # where shared inputs really are, when a catalog says so: name -> path or URL
    remarks: list[Fault] = []  # constructs that have no meaning here, once per kind
    run_faults: list[Fault] = []  # faults that forbid to run it; to look at it, convert it and replay it is allowed
    later: dict[str, Later] = {}  # tasks that stand for workflows whose documents other tasks make: id -> what it stands for
    known_later: dict[str, tuple[range, int]] = {}  # those whose document an earlier run has left -> their tasks, XXH64 of the document
    absent: dict[str, str] = {}  # catalogs that are named and not there: "inputs" or "programs" -> words for those who miss one


def canonical(name: str, base: str) -> str:
    """The one spelling of a file's name, by which tasks that mean the same file find each other.

    Relative names are normalised ("./a", "b/../a" and "a" are "a"). A name that leaves ``base`` (absolute directory) through ".." becomes
    its absolute path. An absolute name stays absolute even inside ``base``: a program that was told an absolute path will not look into
    its sandbox. Purely textual: symbolic links are not followed. The empty name stays empty.
    """
    if not name:
        return name
    if in_namespace(name):
        return NAMESPACE[:-1] + posixpath.normpath("/" + name[len(NAMESPACE) :].lstrip("/"))
    path = posixpath.normpath(name)
    if path[0] == "/":
        return path if path[:2] != "//" else path[1:]  # POSIX lets "//" be special; nobody means that
    if path != ".." and not path.startswith("../"):
        return path
    full = posixpath.normpath(posixpath.join(base, path))
    inside = base if base.endswith("/") else base + "/"
    return full[len(inside) :] if full.startswith(inside) and len(full) > len(inside) else full


#: A directory in which nobody stands, so deep that no honest ".." leads out of it: for looking at a workflow without running it.
NOWHERE = "/a/b/c/d/e/f/g/h"

#: Parts that make a name that is not absolute uncanonical.
UNCANONICAL = re.compile(r"\A\.|//|/\.|/\Z")


class Spelling:
    """``canonical`` for many names: most are as they should be, and the others are remembered."""

    __slots__ = ("_base", "_known")

    def __init__(self, base: str) -> None:
        self._base = base
        self._known: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        if UNCANONICAL.search(name) is None:
            return name
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = canonical(name, self._base)
        return known


def complete(task: Task) -> Task:
    """The task with all its files in ``inputs`` and ``outputs``: stdin is an input, stdout and stderr are outputs, nothing twice.

    Devices (names in /dev) are no files of the workflow. Returns the same object when there is nothing to add.
    """
    inputs, outputs = task.inputs, task.outputs
    if task.stdin and task.stdin not in inputs and not task.stdin.startswith("/dev/"):
        inputs = (*inputs, task.stdin)
    for name in (task.stdout, task.stderr):
        if name and name not in outputs and not name.startswith("/dev/"):
            outputs = (*outputs, name)
    if len(inputs) > 1 and len(set(inputs)) != len(inputs):
        inputs = tuple(dict.fromkeys(inputs))
    if len(outputs) > 1 and len(set(outputs)) != len(outputs):
        outputs = tuple(dict.fromkeys(outputs))
    if inputs is task.inputs and outputs is task.outputs:
        return task
    return msgspec.structs.replace(task, inputs=inputs, outputs=outputs)


def printable(text: str) -> str:
    """``text`` on one line and without control characters, for messages: names may hold anything."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def shortened(text: str, shown: int = 60, *, quoted: bool = True) -> str:
    """``text`` for a message, in quotes; of a long one the beginning."""
    cut = text if len(text) <= shown else text[: shown - 1] + "…"
    return repr(cut) if quoted else cut


def some(names: Sequence[str], shown: int = 4) -> str:
    """``names`` for a message: all of them, or the first with how many more there are."""
    if len(names) > shown:
        return f"{', '.join(names[: shown - 1])} and {len(names) - shown + 1} more"
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


_LIMIT_32 = 1 << 31
_LIMIT_64 = 1 << 63


def value_faults(task: Task) -> list[str]:
    """The faults of the values of one (complete) task by itself, in words; empty if none."""
    faults = []
    if not task.id:
        faults.append("the task id is empty")
    if not task.argv or not task.argv[0]:
        faults.append("no program to run")
    if not 1 <= task.cores < _LIMIT_32:
        faults.append(f"cores must be at least 1, not {task.cores}")
    if not 0 <= task.memory < _LIMIT_64:
        faults.append(f"memory must not be negative or above 8 EiB: {task.memory}")
    if not 0 <= task.time_limit < _LIMIT_32 / 1000 or math.isnan(task.time_limit):
        faults.append(f"the time limit must lie between 0 and {_LIMIT_32 // 1000} seconds, not {task.time_limit}")
    if not -1 <= task.retries < _LIMIT_32:
        faults.append(f"retries must not be negative: {task.retries}")
    if not -_LIMIT_32 <= task.priority < _LIMIT_32:
        faults.append(f"the priority must fit in 32 bits: {task.priority}")
    if not -1 <= task.node < _LIMIT_32:
        faults.append(f"the node must not be negative: {task.node}")
    if task.node_soft and task.node < 0:
        faults.append("node_soft without a node")
    if task.reduce:
        faults.extend(_reduction_faults(task))
    for name in task.keep:
        if name not in task.outputs:
            faults.append(f"keeps {name!r}, which is not among its outputs")
    for name in task.scratch:
        if name not in task.outputs:
            faults.append(f"calls {name!r} scratch, which is not among its outputs")
        elif name in task.keep:
            faults.append(f"output {name!r} cannot be both kept and scratch")
    if "" in task.after:
        faults.append("it is to come after a task whose id is empty")
    elif task.id in task.after:
        faults.append("it is to come after itself")
    for entry in task.env:
        if entry.find("=") < 1:
            faults.append(f"environment entry {entry!r} is not of the form NAME=VALUE")
    if task.blind:
        faults.extend(_blind_faults(task))
    elif task.staged and task.cwd and f"{posixpath.normpath(task.cwd)}/".startswith(("/", "../")):
        faults.append(f"working directory {task.cwd!r} lies outside the sandbox; name a directory below it, or run the task unstaged")
    return faults


def _blind_faults(task: Task) -> list[str]:
    faults = []
    if task.inputs or task.outputs or task.stdin or task.stdout or task.stderr or task.keep or task.scratch or task.reduce:
        faults.append("a blind task declares no files: it finds and makes them itself")
    if task.cwd and not task.cwd.startswith("/"):
        faults.append(f"the working directory of a blind task is an absolute path in the session's file system, not {task.cwd!r}")
    if not task.staged:
        faults.append("a blind task runs in the session's file system, an unstaged one where you stand: it cannot be both")
    return faults


def _reduction_faults(task: Task) -> list[str]:
    faults = []
    if not 2 <= task.reduce < _LIMIT_32:
        faults.append(f"a reduction combines at least 2 files at a time, not {task.reduce}")
    if "{in}" not in task.argv[1:]:
        alone = ", as a word by itself: it becomes several" if any("{in}" in word for word in task.argv[1:]) else ""
        faults.append(f"a reduction needs {{in}} among its arguments{alone}")
    if not any("{out}" in word for word in task.argv[1:]):
        faults.append("a reduction needs {out} among its arguments")
    if not task.inputs:
        faults.append("a reduction needs inputs")
    if len(task.outputs) != 1:
        faults.append(f"a reduction has exactly one output, not {len(task.outputs)}")
    return faults
