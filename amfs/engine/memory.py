"""The memory of one node as its worker keeps it: which content is in memory, which in the spill directory, and what goes next. Pure.

Owns the account: the bytes of all files of runs in memory, the room promised to what is on its way, the bytes in the spill directory. It
says how much room there is and which file is to go. It does not know tasks, messages or jobs: ``engine.room`` asks it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

from amfs.config import MemoryLimits
from amfs.vocabulary.states import PLACE_NEXT, Place, PlaceEvent, illegal

IN_MEMORY = frozenset((Place.HELD, Place.SPILLING, Place.BOTH, Place.RETURNING))
ON_DISK = frozenset((Place.SPILLING, Place.BOTH, Place.SPILLED, Place.RETURNING))  # or about to be


ORDER_S = 0.25  # after which what is needed when is looked at anew,
TASKS_AT_ONCE = 256  # more of them are seldom with the launcher
FEW = 256  # at once if there are so few files in memory


class Content:
    """The content of one file on this node."""

    __slots__ = ("copy", "fixed", "holes", "job", "name", "place", "room", "size", "spare", "used_at", "users")

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0
        self.holes = 0  # so many of its bytes take no room
        self.place = Place.NOWHERE
        self.copy = 0  # its name in the spill directory, which is the number of the job that made it; 0: none
        self.job = 0  # RETURNING: the number of the job that brings it back
        self.room = 0  # bytes promised while it is on its way here
        self.spare = False  # it came from another node, which has it still
        self.users = 0  # unfinished tasks of this node that read it
        self.fixed = False  # a directory: it is not spilled
        self.used_at = 0.0  # when it came, or was read by a task that has ended

    @property
    def taken(self) -> int:
        """Bytes that it takes."""
        return self.size - self.holes


class Memory:
    """The account of one node. ``limit`` 0: there is none, and nothing but the sum is kept."""

    def __init__(self, limits: MemoryLimits | None = None) -> None:
        self.limits = limits = limits or MemoryLimits()
        self.limit = limits.limit
        self.mark = int(limits.limit * limits.high_water)
        self.used = 0  # bytes of the files in IN_MEMORY
        self.leaving = 0  # those of SPILLING
        self.coming = 0  # promised to files that are on their way here
        self.on_disk = 0  # bytes of the files in ON_DISK
        self.told = (0, 0)  # of these, to what else keeps something within the same limits
        self.away = 0  # bytes of SPILLED and RETURNING
        self.others = 0  # of the limit, taken by what is not a run's,
        self.others_on_disk = 0  # and of what may be spilled
        self.shared = False  # files that are no run's lie here, and may be asked to go
        self.free: float = math.inf  # in the store, as the kernel says
        self.made_mean = 0.0  # bytes that a task makes, as a running mean
        self.files: dict[str, Any] = {}  # Content in memory by key, that which came first first
        self.spills = bool(limits.limit and limits.spill)
        self.fault = "" if limits.spill else limits.why_no_spill  # why nothing can be spilled, in words
        self.failed = False  # the disk gave an error: nothing is spilled any more
        self.easy = -1.0  # as long as no more bytes are in memory nobody need think of it
        self._eased_for = 0.0  # the mean for which that was reckoned
        self._victims: list[Any] = []  # in the order of ``_victims_at``, the last first
        self._victims_at = 0.0
        self._barren = False  # a look for something to go was in vain, and nothing has changed since
        self._ease()

    # ── the account ────────────────────────────────────────────────────────────────────────────────

    def move(self, file: Content, event: PlaceEvent) -> None:
        """Raises InvalidTransition."""
        old = file.place
        if old == Place.NOWHERE and event == PlaceEvent.STORED:  # the two moves that most files make, without detours
            file.place = Place.HELD
            self.used += file.size - file.holes
            self.files[file.name] = file
            self._barren = False
            return
        if old == Place.HELD and event == PlaceEvent.REMOVED:
            file.place = Place.NOWHERE
            self.used -= file.size - file.holes
            self.free += file.taken  # until it is read again
            del self.files[file.name]
            return
        new = PLACE_NEXT[old][event]
        if new is None:
            raise illegal("content", file.name, old, event)
        size = file.taken
        file.place = new
        here, there = old in IN_MEMORY, new in IN_MEMORY
        if here != there:
            if there:
                self.used += size
                self.files[file.name] = file
            else:
                self.used -= size
                self.free += size  # until it is read again
                del self.files[file.name]
        self.on_disk += size * ((new in ON_DISK) - (old in ON_DISK))
        self.leaving += size * ((new == Place.SPILLING) - (old == Place.SPILLING))
        self.away += size * ((new in (Place.SPILLED, Place.RETURNING)) - (old in (Place.SPILLED, Place.RETURNING)))
        self._barren = False
        self._ease()

    def _ease(self) -> None:
        """Reckon ``easy``: room for what TASKS_AT_ONCE tasks make is left, and nothing is to be brought back."""
        self._eased_for = self.made_mean * 1.25
        making = self._eased_for * TASKS_AT_ONCE
        self.easy = -1 if self.away else min(self.mark - self.others, self.used + self.free) - making

    def promise(self, file: Content, size: int) -> None:
        """Keep room for a file that is about to come."""
        self.coming += size - file.room
        file.room = size

    def changed(self) -> None:
        """Tasks began or ended: other files may go now."""
        self._barren = False

    def made(self, size: int) -> None:
        """A task has made so many bytes."""
        self.made_mean += (size - self.made_mean) * (0.2 if self.made_mean else 1.0)
        if self.made_mean > self._eased_for:
            self._ease()

    def put_back(self, file: Content) -> None:
        """The ``victim`` does not go yet."""
        self._victims.append(file)

    def read(self, free: float, others: int, others_on_disk: int = 0, shared: bool = False) -> None:
        self.shared = shared
        if others != self.others or free != self.free or others_on_disk < self.others_on_disk:
            self._barren = False
        self.free, self.others, self.others_on_disk = free, others, others_on_disk
        self._ease()

    # ── how much room ──────────────────────────────────────────────────────────────────────────────

    def room(self, reserved: int = 0) -> float:
        """Bytes that may be taken yet, when so many are reserved for what running tasks make."""
        if not self.limit:
            return math.inf
        return min(self.limit - self.others - self.used, self.free) - self.coming - reserved

    def ample(self, tasks: int) -> bool:
        """Whether so many tasks may run without a thought for memory."""
        if not self.limit:
            return True
        taken = self.used + self.coming + self.others + self.made_mean * tasks
        return not self.away and taken <= self.mark and self.made_mean * tasks <= self.free

    def over(self, wanted: float = 0.0, reserved: int = 0) -> float:
        """Bytes that are to leave memory besides those that leave already, when ``wanted`` are asked for."""
        if not self.limit:
            return 0.0
        spare = self.limit - self.mark
        above = max(self.used + self.coming + self.others - self.mark, spare - self.free)
        return max(above, wanted - self.room(reserved)) - self.leaving

    def may_spill(self, size: int) -> bool:
        full = self.limits.spill_limit and self.on_disk + self.others_on_disk + size > self.limits.spill_limit
        return self.spills and not self.failed and not full

    def may_take(self) -> bool:
        """Whether a task that makes files and comes now could begin here: there is room, or a file leaves memory or may leave it. Only such
        a node asks others for tasks."""
        if self.room() > 0 or not self.made_mean or self.leaving:
            return True
        if not self._barren:
            self._barren = not any(map(self.may_go, self.files.values()))
        return not self._barren

    # ── what goes ──────────────────────────────────────────────────────────────────────────────────

    def victim(self, rank: Callable[[], Callable[[Any], Any]], stay: Collection[str], now: float) -> Any | None:
        """The next file that may leave memory. ``rank()`` gives an order: that for which it is smallest goes first, and of two that which
        came first. ``stay``: names of those that tasks have, or are about to."""
        file: Any
        if now - self._victims_at > ORDER_S or len(self.files) <= FEW:
            self._victims = []
        for attempt in range(2):
            while self._victims:
                file = self._victims.pop()
                if file.name not in stay and self.may_go(file) and self.files.get(file.name) is file:
                    return file
            if self._barren:
                return None
            if attempt == 0:
                order, self._victims_at = rank(), now
                found = [(order(one), number, one) for number, one in enumerate(self.files.values()) if self.may_go(one)]
                found.sort(key=lambda one: one[:2], reverse=True)
                self._victims = [one for _, _, one in found if one.name not in stay]
        self._barren = True
        return None

    def may_go(self, file: Content) -> bool:
        if not file.taken or file.fixed or file.place not in (Place.HELD, Place.BOTH):
            return False
        return file.place == Place.BOTH or (file.spare and not file.users) or self.may_spill(file.taken)

    def spare(self) -> int:
        """Bytes that are counted as used, and that no other node would have to take if this one left: of copies that other nodes have, too,
        and that no task here is going to read; of files in memory that are on the disk, too, once."""
        return sum(file.taken * ((file.spare and not file.users) + (file.place in ON_DISK)) for file in self.files.values())

    def copy_path(self, file: Content) -> str:
        """Where it is in the spill directory."""
        return f"{self.limits.spill}/{file.copy:x}"

    def why_full(self) -> str:
        """The reason why there is no room, and advice; for a person."""
        from amfs.display.progress import size_text

        taken, limit = size_text(self.used + self.coming + self.others), size_text(self.limit)
        fault = self.fault
        if not fault and self.limits.spill_limit:
            fault = "the spill directory holds all that it may (--spill-limit)"
        if self.free < self.limit - self.used - self.coming - self.others:  # somebody else uses the same memory
            return (
                f"of the memory where its store is {size_text(self.free)} are free, and {taken} are taken by files of runs, and "
                f"{fault or 'none of them may leave'}. Use more nodes, another place for the store (--store), or with --spill a directory "
                "on a disk"
            )
        return (
            f"{taken} of {limit} ({self.limits.why_limit}) are taken by files that are still needed, and "
            f"{fault or 'none of them may leave'}. Give a larger --store-limit, more nodes, or with --spill a directory on a disk"
        )

    def check(self, files: Collection[Any]) -> None:
        """Raise AssertionError if the account is not that of ``files``."""
        assert self.used == sum(file.taken for file in files if file.place in IN_MEMORY), "bytes in memory"
        assert self.coming == sum(file.room for file in files), "bytes on their way"
        assert self.on_disk == sum(file.taken for file in files if file.place in ON_DISK), "bytes on the disk"
        assert self.leaving == sum(file.taken for file in files if file.place == Place.SPILLING), "bytes that leave"
        assert self.away == sum(file.taken for file in files if file.place in (Place.SPILLED, Place.RETURNING)), "bytes away"
        assert self.files.keys() == {file.name for file in files if file.place in IN_MEMORY}, "files in memory"
        for file in files:
            assert bool(file.copy) == (file.place in ON_DISK), f"{file.name} is {file.place.name}, with copy {file.copy}"
