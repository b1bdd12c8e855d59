"""Things that dead processes have left on this host: stores, spill directories, scratch directories. Removed when a run or session begins.

Owns the decision what is kept: the files of a killed run that ``--resume`` can go on with. Whether an owner is dead ``host.orphans`` tells.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from amfs.display.progress import size_text
from amfs.errors import UsageError
from amfs.host import orphans
from amfs.host.trees import files_below, remove_tree
from amfs.runs.journal import read

WORK = "work"  # in a store: the sandboxes
JOURNAL = "journal"  # in a store: the journal that can make use of it


class Leftover(NamedTuple):
    """A store without an owner. ``file``: the workflow that can be resumed with it, ``journal``: that of its run; "" and None: none."""

    path: Path
    journal: Path | None = None
    file: str = ""

    def size(self) -> int:
        """Bytes that it takes, with its spill directory."""
        blocks: dict[tuple[int, int], int] = {}  # a sandbox has more names of the same files
        for top in (self.path, orphans.spilled(self.path)):
            for directory, name in files_below(str(top)) if top is not None else ():
                with suppress(OSError):
                    facts = os.lstat(f"{directory}/{name}")
                    blocks[facts.st_dev, facts.st_ino] = facts.st_blocks
        return sum(blocks.values()) * 512


def places(further: Iterable[str | Path] = ()) -> list[Path]:
    """Where stores and spill directories are made, unless somebody says otherwise; and ``further``."""
    usual = [orphans.SHM, Path("/tmp")]
    with suppress(FileNotFoundError):
        usual.append(Path(tempfile.gettempdir()))
    return list(dict.fromkeys(Path(os.path.realpath(place)) for place in (*usual, *further)))


def find(where: Iterable[Path]) -> list[Leftover]:
    """All stores and the like in these directories whose owner is dead."""
    return [_wanted(path) for place in where for path in orphans.find(place)]


def _wanted(path: Path) -> Leftover:
    with suppress(OSError, UsageError):
        journal = Path((path / JOURNAL).read_text())
        past = read(journal)
        if past is not None and past.done and os.path.realpath(past.header.store) == str(path):
            return Leftover(path, journal, past.header.file or past.header.source)
    return Leftover(path)


def free(left: Iterable[Leftover]) -> None:
    """Remove them, and their spilled files."""
    for one in left:
        orphans.discard(one.path)


def sweep(place: str = "", spare: str = "", anew: Path | None = None) -> list[Leftover]:
    """Remove what dead processes left in the usual places and in ``place``, but for ``spare`` and what can be resumed with; that is
    returned. ``anew``: the journal of a run that begins from the beginning, and so has no use for what it led to."""
    spare = os.path.realpath(spare) if spare else ""
    kept = []
    for one in find(places([place] if place else [])):
        if one.journal is not None and not (anew is not None and os.path.realpath(anew) == os.path.realpath(one.journal)):
            kept.append(one)
        elif str(one.path) != spare:
            free([one])
    kept = [one for one in kept if str(one.path) != spare]
    for one in kept:
        if (taken := orphans.adopt(one.path)) is not None:
            remove_tree(str(one.path / WORK))  # half-done files of its tasks are of use to nobody
            taken.release()
    return kept


def in_words(left: Iterable[Leftover]) -> list[str]:
    """A line for each that can be resumed with; for a person."""
    return [
        f"a killed run of {one.file} has left {size_text(one.size())} in {one.path.parent}: "
        f"'amfs run --resume {one.file}' goes on with it, 'amfs clean' frees it"
        for one in left
        if one.journal is not None
    ]
