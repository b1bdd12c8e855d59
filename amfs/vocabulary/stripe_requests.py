"""Questions between the file systems of nodes about stripes. Pure vocabulary, a part of ``peer_requests``."""

from __future__ import annotations

from typing import NamedTuple

from amfs.vocabulary.peer_calls import PeerCall


class StripesThere(NamedTuple):
    stripes: list[tuple[int, int]]
    coming: list[int]  # partitions of which some are still on their way there: none of theirs are listed


class StripesOf(PeerCall[StripesThere], frozen=True):
    """Stripes of these partitions that lie there still. The asker has taken their records with the table ``since``. ``copied``: those that
    have copies, or are some, in order, behind ``after``."""

    partitions: tuple[int, ...]
    copied: bool
    since: int
    after: tuple[int, int] = (0, -1)


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


class CheckStripes(PeerCall[tuple[int, int]], frozen=True):
    """Look at the stripes of a file that lie there, and mend those that are damaged: how many, and the judgement on all
    (``fs_requests.UNKNOWN`` and so on)."""

    ino: int


class SendStripe(PeerCall[None], frozen=True):
    """The asker's copy of a stripe of there is damaged: it gets one anew."""

    ino: int
    index: int


class StillComing(PeerCall[bool], frozen=True):
    """Are records or stripes on their way to the asked node, or has it an older table than ``version``?"""

    version: int = 0


class Lose(PeerCall[None], frozen=True):
    """Stripes of these were lost on their way; ``copies``: of files that have copies, else of the others. ``number``: the asker's, the same
    however often it tells of it."""

    version: int  # of the table; refused by a node that has another
    number: int
    partitions: tuple[int, ...]
    copies: bool
