"""What the file systems of nodes ask each other about copies of stripes. Pure vocabulary, a part of ``peer_requests``."""

from __future__ import annotations

from amfs.engine.peer_calls import PeerCall


class DropCopies(PeerCall[None], frozen=True):
    """Keep no copies of stripes of these any more. META_NOT_MINE: there the asker is not their owner, or the table is another."""

    version: int
    partitions: tuple[int, ...]


class KeepCopies(PeerCall[None], frozen=True):
    """All stripes of these that have copies are there now: that node is in step."""

    version: int
    partitions: tuple[int, ...]


class CopyStripes(PeerCall[None], frozen=True):
    """From now on the stripes of that file have copies; ``push``: those that are there get them."""

    ino: int
    push: bool


class ExpectCopies(PeerCall[None], frozen=True):
    """Somebody asks for copies of files."""
