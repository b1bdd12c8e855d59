"""An input at a URL as a run saw it when it looked. Nodes read that version, or fail. Pure vocabulary."""

from __future__ import annotations

from typing import NamedTuple


class ObjectVersion(NamedTuple):
    """``identity``: of the content, in the words of the storage; of a directory that of all below it."""

    size: int
    identity: str
    mtime: int = 0  # nanoseconds since 1970; 0: not known
    directory: bool = False
    conditional: bool = False  # the storage, asked for the content under this identity, gives that or none
