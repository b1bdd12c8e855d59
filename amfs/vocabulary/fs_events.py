"""News that the data of a node tells its file system unasked; part of ``events``. Pure vocabulary."""

from __future__ import annotations

from msgspec import Struct


class FsStriped(Struct, frozen=True):
    """A file outgrew this node while it was written: its content lies in stripes of ``stripe`` bytes now."""

    ino: int
    stripe: int


class FsHandlesClosed(Struct, frozen=True):
    """The last handle through which other nodes wrote a file of this node was closed."""

    ino: int


class FsAwaited(Struct, frozen=True):
    """Somebody waits for stripes of ``partition``, which are on their way here. Told once until they are here."""

    partition: int


class FsDamaged(Struct, frozen=True):
    """The whole content of a file that lies on this node, or (``index``) a stripe of it, is not what was written."""

    ino: int
    index: int = -1


class FsSpilled(Struct, frozen=True):
    """So many bytes of files of the file system are in this node's spill directory by now."""

    size: int


class FsFull(Struct, frozen=True):
    """``wanted`` bytes of what lies on this node must go, or a write is refused; answered by the work ``RoomMade`` with ``serial``. 0: no
    write waits, but the high-water mark was passed by so much."""

    serial: int
    wanted: int
