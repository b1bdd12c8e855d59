"""The regular files that a path stands for, with their places: for what works on whole directories."""

from __future__ import annotations

import errno
import stat
import time
from collections.abc import Sequence
from typing import NamedTuple

from amfs.client import tree
from amfs.client.connection import Call, NodeConnection, failure
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.attr import Attr

DEATH_S = 15.0  # by then a node that died is known to have died
_PAUSE_S = 0.5
CLOSING_S = 2.0  # the news that a file was closed may be under way so long, if it was written through another node
PAUSE_S = 0.05


class Selected(NamedTuple):
    """One file."""

    path: bytes
    attr: Attr


def files_at(connection: NodeConnection, path: bytes, known_only: bool = False) -> list[Selected]:
    """The file at ``path``, or all regular files at and below the directory there, by path. Symbolic links in it are not followed.

    Raises OSError: there is nothing, it is no file and no directory, or a directory cannot be listed. ``tree.NamesLost``: there may be
    more files, unless those whose names are known are enough.
    """
    end = time.monotonic() + DEATH_S
    while True:
        try:
            return _files_at(connection, path, known_only)
        except tree.NamesLost:
            raise
        except OSError as error:  # a node may be dying: the next question may go to its heir
            if error.errno != errno.EIO or time.monotonic() >= end:
                raise
        time.sleep(_PAUSE_S)


def _files_at(connection: NodeConnection, path: bytes, known_only: bool) -> list[Selected]:
    top = Attr(*connection.call(q.Walk(path, True), about=(path,))[0])
    if stat.S_ISREG(top.mode):
        return [Selected(path, top)]
    if not stat.S_ISDIR(top.mode):
        raise failure(errno.EINVAL, (path,), "is neither a file nor a directory")

    def stop(error: OSError) -> None:
        if not (known_only and isinstance(error, tree.NamesLost)):
            raise error

    found = [
        Selected(entry.path, entry.attr) for _, entries in tree.walk(connection, path, stop) for entry in entries if entry.is_file()
    ]
    return sorted(found)


def places(connection: NodeConnection, paths: Sequence[bytes]) -> list[tuple[int, ...]]:
    """The nodes that hold the (first) bytes of each file, best first. Raises OSError for the first that cannot be said."""
    held = []
    for answer in connection.call_many(Call(q.Locate(path), (path,)) for path in paths):
        if isinstance(answer, OSError):
            raise answer
        held.append(tuple(answer[0][2]) if answer else ())
    return held
