"""Files of runs in messages: where a file is, the offers of its node, and its record at a shard of the File Location Service.

Pure vocabulary, a part of ``messages``: imports nothing of amfs.
"""

from __future__ import annotations

import msgspec

#: ``retention`` of an output: ``readers << 1 | final``; KEEP readers means: do not drop until the run is settled.
KEEP = 1 << 20
FINAL = 1


def retention(readers: int, final: bool = False) -> int:
    """Pack what happens to an output: dropped after ``readers`` releases; copied to shared storage first if ``final``."""
    return readers << 1 | (FINAL if final else 0)


class Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of these parts of messages."""


class FileAt(Part, frozen=True):
    """Where a VALID file is."""

    name: str
    size: int
    holders: tuple[int, ...]
    listing: int = 0  # see Published


class Published(Part, frozen=True):
    """A file that its node offers."""

    name: str
    size: int
    retention: int = KEEP << 1
    listing: int = 0  # of a directory at a URL, where other nodes read it: stands for its names and sizes (``records.listing_of``)


class Blob(Part, frozen=True):
    """Answer to a fetch: content inline when small, else it is to be read from the holder's data server."""

    name: str
    size: int
    data: bytes | None = None
    mode: int = 0o444
    missing: bool = False
    mtime_ns: int = 0  # 0: not known


class FileFacts(Part, frozen=True):
    """All that a shard knows of one file: the fields of ``engine.fls.FileRecord``, for the shard that has its partition from now on."""

    name: str
    state: int  # a ``vocabulary.states.LookupState``
    size: int
    holders: tuple[int, ...]
    waiters: tuple[int, ...]
    readers: int
    released: int
    settler: int
    listing: int
    made: bool
    final: bool
    shared: bool
    lost: bool
    gone: bool
    cause: str


class RunFacts(Part, frozen=True):
    """One run, as a shard knows it, of the partitions that it hands over."""

    run: int
    client: int  # its submitter; -1: not known
    keeping: bool  # nodes were lost while it went on
    files: tuple[FileFacts, ...] = ()
    dropped: tuple[str, ...] = ()  # files that the submitter let go, and of which nothing else is known
