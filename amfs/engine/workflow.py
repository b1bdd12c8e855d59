"""What a workflow is: tasks and files, and the checks that must pass before anything runs. Pure.

Translators make a ``Workflow``; the submitter walks it. Memory matters: a million tasks must fit well below 1 KiB each, so tasks are
slotted structs without GC tracking, and equal strings are shared (``sys.intern`` is not used: names are interned per workflow).
"""

from __future__ import annotations

import enum

import msgspec


class FileState(enum.Enum):
    """State of a file in a file list (AME Fig. 3)."""

    SHARED = "Shared"
    INVALID = "Invalid"


class Task(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One task, as the user wrote it.

    ``argv[0]`` is the program (looked up where the user stands, then on PATH). Input and output names are relative to where the
    user stands. A task that declares nothing and is not ``staged`` runs in that directory itself.
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
    staged: bool = True
    line: int = 0  # where it was written


class Workflow(msgspec.Struct):
    """Tasks in the order written, and what the file list (if any) says of files."""

    tasks: list[Task]
    name: str = "workflow"
    source: str = ""  # where it was read from, for messages
    files: dict[str, FileState] = {}
