"""Events between files of runs and files of ``amfs:/`` on one node when memory is full; part of ``events``. Pure vocabulary."""

from __future__ import annotations

from msgspec import Struct


class GiveWay(Struct, frozen=True):
    """Files of runs are to make room, as ``fs_works.RunsGiveWay`` says; answered by ``GaveWay``."""

    serial: int
    wanted: int
    idle_s: float


class GaveWay(Struct, frozen=True):
    """So many bytes are free now."""

    serial: int
    freed: int


class RoomWanted(Struct, frozen=True):
    """For files of runs: copies that others have of files of ``amfs:/`` go, then files used last ``idle_s`` ago or earlier."""

    wanted: int
    idle_s: float


class RoomGiven(Struct, frozen=True):
    """The answer to ``RoomWanted``: so many bytes are free now."""

    freed: int
