"""Reduce the files of a directory to one, with an associative command, by a tree of tasks (``workflow.reducing``)."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from amfs.client.connection import failure
from amfs.client.files import Files, StrPath
from amfs.client.paths import below, clean
from amfs.client.selected import files_at, places
from amfs.errors import UsageError
from amfs.runs.api import RunResult, run
from amfs.workflow.reducing import plan
from amfs.workflow.reduction import IN, OUT
from amfs.workflow.shuffle import name_of

ARITY = 8
_TO_FILE = 'out=$1; shift; exec "$@" > "$out"'


def words_of(command: Sequence[str]) -> tuple[str, ...]:
    """The command of a reduction with ``{in}`` and ``{out}``: without the first the files are its last arguments, without the second its
    standard output is the result."""
    words = tuple(command)
    if not words:
        raise UsageError("reduce: which command? It gets the files as arguments")
    if IN not in words:
        words = (*words, IN)
    if not any(OUT in word for word in words):
        words = ("/bin/sh", "-c", _TO_FILE, "reduce", OUT, *words)
    return words


def reduce(
    files: Files, source: StrPath, target: StrPath, command: Sequence[str], *, arity: int = ARITY, progress: bool = False
) -> RunResult:
    """Combine the files at and below ``source``, in order of their paths, into the file ``target``.

    ``command`` is associative: it combines up to ``arity`` files, or results of its own, that are next to each other (see ``words_of``).
    Steps run where most of their bytes are. Raises UsageError, OSError; of steps that fail the result tells.
    """
    if arity < 2:
        raise UsageError(f"reduce: a step combines at least 2 files, not {arity}")
    there, to = clean(source), clean(target)
    if below(to, there):
        raise UsageError("reduce: the result cannot be one of the files that are reduced")
    chosen = files_at(files.connection, there)
    if not chosen:
        raise failure(errno.ENOENT, (source if isinstance(source, (str, bytes)) else there,), "no files to reduce")
    inputs = [name_of(each.path) for each in chosen]
    sizes = {name: each.attr.size for name, each in zip(inputs, chosen, strict=True)}
    held = dict(zip(inputs, places(files.connection, [each.path for each in chosen]), strict=True))
    workflow = plan(inputs, sizes, held, name_of(to), words_of(command), arity)
    return run(workflow, session=files.connection.reference, progress=progress, source="reduce")
