"""The neighbours of a node's files: where other members are reached for data, and the kernel caches of its mounts."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class Address(NamedTuple):
    """Where a member is reached for data."""

    host: str
    port: int
    incarnation: int


class Caches(Protocol):
    """The kernel caches of this node's mounts."""

    def forget(self, inodes: tuple[int, ...], entries: tuple[tuple[int, bytes], ...], but: object = None, gone: int = 0) -> Any: ...
    def await_forgotten(self, begun: Any) -> None: ...
    def keep(self, ino: int) -> bool: ...
    def defer(self) -> int: ...
