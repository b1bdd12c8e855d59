"""Questions between the file systems of nodes about partitions that move. Pure vocabulary, a part of ``peer_requests``."""

from __future__ import annotations

from amfs.vocabulary.peer_calls import PeerCall


class Arrive(PeerCall[list[int]], frozen=True):
    """Partitions with their records come from a node that has the table of ``version``. Answers which of them are there, or are known
    better there; the others are not, and may be sent again."""

    version: int
    #: partition, version of the table since which it leaves, records, nodes that know all of it, and are told of changes until its
    #: backup is in step; nodes that have all its stripes that have copies; and nodes that may believe so, and are to be told to drop them
    records: tuple[tuple[int, int, bytes, tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...]
    copies_wanted: bool


LEAVES, BACKUP, STRIPES = 1, 2, 3


class Have(PeerCall[list[tuple[int, int]]], frozen=True):
    """Which of these have their records there: (partition, LEAVES: and are on their way from there; BACKUP: which was in step with an
    owner; STRIPES: likewise, with its stripes that have copies). Answered when the kernels there have forgotten what they knew of
    partitions of dead nodes."""

    version: int
    partitions: tuple[int, ...]


class SettleDirectories(PeerCall[None], frozen=True):
    """Asked of the manager: answered when all changes of directories that have begun by then are on all nodes, or on none."""


class Losses(PeerCall[int], frozen=True):
    """Of how many partitions there names were lost. ``accept``: a name that is not there never was, from now on."""

    accept: bool


class HandOver(PeerCall[None], frozen=True):
    """Send these, which are there as a backup: their owner has died, and the asker inherits them. ``keepers``: of each, the nodes that
    have said that they are in step with its stripes. The asker may not be the owner any more when the records leave."""

    version: int
    partitions: tuple[int, ...]
    keepers: tuple[tuple[int, ...], ...]


class ForgetBackup(PeerCall[None], frozen=True):
    """These are there as a backup, and the asker, which inherits them, has them from elsewhere."""

    version: int
    partitions: tuple[int, ...]
