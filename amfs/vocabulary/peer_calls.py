"""The forms of what nodes ask each other for the file system. Pure vocabulary; the questions themselves are in ``peer_requests``."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, Self, TypeVar

import msgspec

T = TypeVar("T")


class PeerCall(msgspec.Struct, Generic[T], frozen=True, array_like=True, gc=False, tag=True, tag_field="op"):
    """Base; T is the type of the answer."""

    @classmethod
    def by(cls, handler: Callable[[int, Self], T | Generator[Any, Any, T]]) -> PeerHandler:
        """An entry of a table of handlers, which take the node that asks and the call."""
        return cls, handler


PeerHandler = tuple[type[PeerCall[Any]], Callable[[int, Any], Any]]


class NameCall(PeerCall[T], Generic[T], frozen=True):
    """For the shard that has an entry."""

    dir: int
    name: bytes


class InodeCall(PeerCall[T], Generic[T], frozen=True):
    """For the shard that has the record of an inode."""

    ino: int
