"""Whole files between nodes and storage at URLs: the orders to move them, and the outcomes. Pure vocabulary."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from amfs.vocabulary.peer_calls import PeerCall

LOAD, DUMP, DIGEST = range(3)  # ways of objects: into the session, out of it, only read

#: Of ``UrlEnd.kind`` beside the names of ``remote.place.Kind``: it went well, the storage is gone, an errno says what was wrong.
WELL, GONE, NUMBER = "", "GONE", "NUMBER"


class Secret(msgspec.Struct, frozen=True, array_like=True):
    """How storage is reached, keys included. No log or traceback shows it."""

    packed: bytes  # ``remote.settings``
    sources: tuple[str, ...]  # URLs as they were given, of which each names a storage; there may be passwords in them

    def __repr__(self) -> str:
        return "<storage settings>"


class UrlFile(NamedTuple):
    """One object, and one file."""

    number: int  # by which its end is told
    source: int  # of ``Secret.sources``
    key: str  # of the object in that storage
    path: bytes = b""  # of the file to be made
    ino: int = 0  # of the file to be read
    size: int = 0  # of the object, as it was seen; -1: it is not there
    identity: str = ""  # likewise
    mtime: int = 0  # likewise
    mode: int = 0


class UrlEnd(NamedTuple):
    """How it went with one."""

    number: int
    size: int = 0
    same: bool = False  # it was there already
    kind: str = WELL
    words: str = ""  # of the storage; with NUMBER: none
    error: int = 0  # errno
    digest: bytes = b""


class UrlsMoved(NamedTuple):
    known: bool  # False: the node has heard of nothing that was given before, and must be given it again
    ends: list[UrlEnd]
    moved: int  # bytes so far, those under way too


class MoveUrls(PeerCall[UrlsMoved], frozen=True):
    """Begin with these, and tell what has ended. ``heard``: how many ends the client knows. ``over``: leave what has not ended."""

    move: str
    what: int
    storage: Secret
    files: tuple[UrlFile, ...]
    heard: int
    over: bool
    uid: int
    gid: int
