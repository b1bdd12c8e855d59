"""The origin of a file of the session's file system: which task of which run made it, as its record keeps it. Pure.

A record that lies with the file, not a log: it says how the content that is there now was made, so it goes when the file is written by
anybody else, and follows a file that is renamed. The task list has the rest (inputs, the whole command), and the journal leads to it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import msgspec

from amfs.vocabulary.messages import RunInfo
from amfs.workflow.workflow import printable

ATTRIBUTE = b"user.amfs.origin"
COMMAND_MAX = 100  # characters: a session has millions of files


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """``run``: see ``run_mark``; ``node``: where the task ran; ``journal``: the file that the run kept, '' if none."""

    run: str
    task: str
    node: int
    command: str = ""
    journal: str = ""


def run_mark(info: RunInfo) -> str:
    """By what the files of a run are known for its own: the mark of its journal, which a resumed run has too, or else its number."""
    return info.journal or info.scope[:-1]


def pack(info: RunInfo, task: str, node: int, argv: Sequence[str]) -> bytes:
    """The record that a task's output is given."""
    command = printable(shlex.join(argv[:COMMAND_MAX]))
    if len(command) > COMMAND_MAX:
        command = command[: COMMAND_MAX - 1] + "…"
    origin = Origin(run_mark(info), printable(task), node, command, printable(info.kept))
    return msgspec.json.encode(origin)


def unpack(value: bytes) -> Origin | None:
    """The origin in a record; None if it cannot be understood."""
    try:
        return msgspec.json.decode(value, type=Origin)
    except msgspec.DecodeError:
        return None
