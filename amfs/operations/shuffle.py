"""Shuffle a directory of a session: looks where its files are, and runs the workflow of ``workflow.shuffle`` there (AMFS Shell §3.4)."""

from __future__ import annotations

import re
from typing import NamedTuple

from amfs.client.connection import Call
from amfs.client.files import Files, StrPath
from amfs.client.paths import below, clean
from amfs.client.selected import files_at, places
from amfs.errors import UsageError
from amfs.libexec import program
from amfs.runs.api import RunResult, run
from amfs.vocabulary import fs_requests as q
from amfs.workflow.shuffle import Input, Rule, plan

_PART = re.compile(rb"part-(\d{5})\Z")


class Shuffled(NamedTuple):
    """How it went. ``run.ok``: every part is there. Sizes in bytes."""

    run: RunResult
    files: int
    size: int
    parts: int


def shuffle(
    files: Files, source: StrPath, target: StrPath, *, key: int = 1, delimiter: str | bytes | None = None, parts: int = 0,
    progress: bool = False,
) -> Shuffled:  # fmt: skip
    """The lines of the files at and below ``source`` into ``target``/part-00000, …: each to the part xxh64(key) mod ``parts``.

    ``key``: the column that is the key, from 1. ``delimiter``: one byte between columns; None: blanks, as awk has it. ``parts`` 0: one for
    each node. A part is made on node number (part mod nodes). Other files in ``target`` stay, but parts of an earlier shuffle beyond these
    go. Raises UsageError, OSError; of tasks that fail the result tells.
    """
    members = files.connection.members()
    mark = delimiter.encode(errors="surrogateescape") if isinstance(delimiter, str) else delimiter
    rule = Rule(parts or len(members), key, mark)
    if fault := rule.fault():
        raise UsageError(f"shuffle: {fault}")
    there, to = clean(source), clean(target)
    if below(to, there) or below(there, to):
        raise UsageError("shuffle: neither directory can be the other one, or lie in it")
    chosen = files_at(files.connection, there)
    inputs = [
        Input(each.path, each.attr.size, nodes)
        for each, nodes in zip(chosen, places(files.connection, [each.path for each in chosen]), strict=True)
    ]
    files.makedirs(to, exist_ok=True)
    _remove_old(files, to, rule.parts)
    slots = {member.node: member.slots for member in members if member.slots and not member.draining}
    workflow = plan(inputs, there, to, slots, rule, program("amfs-partition"))
    done = run(workflow, session=files.connection.reference, progress=progress, source="shuffle")
    return Shuffled(done, len(inputs), sum(each.size for each in inputs), rule.parts)


def _remove_old(files: Files, target: bytes, parts: int) -> None:
    """Parts of an earlier shuffle that this one does not make: with them a key could be in two files."""
    old = [entry.path for entry in files.scandir(target) if (match := _PART.match(entry.name)) and int(match[1]) >= parts]
    for answer in files.call_many(Call(q.UnlinkPath(path), (path,)) for path in old):
        if isinstance(answer, OSError):
            raise answer
