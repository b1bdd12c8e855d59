"""Faults planted into the file system on purpose, each named for what it does. Used as those of ``planted``."""

from __future__ import annotations

import pytest

from amfs.fs.vfs.calls import Operation, work
from amfs.fs.vfs.direct import Direct
from amfs.fs.vfs.directories import Directories
from amfs.fs.vfs.mover import PartitionMover
from amfs.fs.vfs.open_file import OpenFile
from amfs.fs.vfs.open_files import OpenFiles
from amfs.fs.vfs.opening import Opener
from amfs.fs.vfs.shard import Shard
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import LOCAL, Entry, Facts, Opened


def every_reader_reads_here(patch: pytest.MonkeyPatch) -> None:
    """A node that has a copy of a file opens that, whoever has written since."""
    real = Opener.open

    def open_(self: Opener, file: OpenFile, writing: bool, truncate: bool) -> Operation[Opened]:
        opened = yield from real(self, file, writing, truncate)
        if not writing:
            yield from work(w.MakePart(file.ino))
            return opened._replace(kind=LOCAL, node=self._members.node)
        return opened

    patch.setattr(Opener, "open", open_)


def what_was_written_is_not_reported(patch: pytest.MonkeyPatch) -> None:
    def written(self: OpenFiles, ino: int, said: Facts | None) -> Operation[Facts | None]:
        yield from ()
        return None

    patch.setattr(OpenFiles, "_written", written)


def a_renamed_file_keeps_its_old_name(patch: pytest.MonkeyPatch) -> None:
    def remove(self: Shard, peer: int, call: p.Remove) -> Operation[Entry]:
        yield from ()
        return Entry(call.ino, 0)

    patch.setattr(Shard, "_remove", remove)


def a_directory_is_made_by_the_manager_alone(patch: pytest.MonkeyPatch) -> None:
    def relay(self: Directories, call: p.Spread, mine: list[int]) -> Operation[list[list[int]]]:
        yield from ()
        return [mine]

    patch.setattr(Directories, "_relay", relay)


def a_lost_question_counts_as_unheard(patch: pytest.MonkeyPatch) -> None:
    def is_lost(self: Direct, node: int, number: int, error: OSError) -> Operation[bool]:
        yield from ()
        return False

    patch.setattr(Direct, "_is_lost", is_lost)


def new_nodes_are_not_introduced(patch: pytest.MonkeyPatch) -> None:
    def introduce(self: Directories, node: int) -> Operation[None]:
        yield from ()

    patch.setattr(Directories, "introduce", introduce)


def heirs_take_nothing_over(patch: pytest.MonkeyPatch) -> None:
    """Partitions of a dead node stay where nobody serves them."""

    patch.setattr(PartitionMover, "_take_over", lambda self, ours, lost: None)
