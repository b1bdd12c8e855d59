"""The spill directory of one node: a directory on a disk for what its memory cannot hold. I/O.

Owns the directory, which is made when the first file is spilled, and a spilled file's place in the store: a symbolic link, so that
a program that opens the file by that name finds it. A file in the directory has the number of the job that copied it for its name.
Must not know: which files are spilled, and when (``engine.room``).
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from amfs._native import Copier
from amfs.config import MemoryLimits
from amfs.errors import SystemSetupError
from amfs.host import memory, orphans
from amfs.host.file_systems import is_in_memory
from amfs.node.store import Store, room
from amfs.vocabulary.events import BringBack, DropSpilled, Evict, Restore, SpillOut

THREADS = 4
NONE = "none"  # in place of a directory: nothing is to be spilled
EXACT = 1 << 31  # for the copier, in place of a mode: the mode and the times of the source


def parent_of(chosen: str, store: str) -> tuple[str, str]:
    """The directory below which to spill, or "" and the reason in words. ``chosen``: by the user; "" is $TMPDIR or the like, if that
    is on a disk, and not where the store is. Raises SystemSetupError when the user's choice cannot be used."""
    if chosen == NONE:
        return "", "spilling is switched off (--spill none)"
    if chosen:
        if not os.path.isdir(chosen) or not os.access(chosen, os.W_OK | os.X_OK):
            raise SystemSetupError(f"cannot spill to {chosen}: it is not a directory that this user may write in; --spill names another")
        return os.path.abspath(chosen), ""
    place = os.path.abspath(tempfile.gettempdir())
    try:
        if is_in_memory(place):
            return "", f"there is no spill directory: {place} is in memory itself"
        if os.stat(place).st_dev == os.stat(store).st_dev:
            return "", f"there is no spill directory: the store is on the disk of {place} already"
    except OSError as error:
        return "", f"there is no spill directory: {place}: {error.strerror}"
    return place, ""


def _limit(store: Store, sharing: int) -> tuple[int, str, bool]:
    """Bytes that a store may take if the user does not say it, what sets that limit, and whether that is a cgroup. 0: there is none."""
    if not store.in_memory:
        return 0, "the store is on a disk", False
    free, why = room(Path(store.root), name="its own tmpfs" if store.own_mount else str(store.path.parent))
    least, name = min(((group.left() // sharing, group.name) for group in memory.groups()), default=(free, ""))
    if least >= free:
        return max(1, free), why, False
    return max(1, least), f"memory cgroup {name}" + (f", shared by {sharing} nodes" if sharing > 1 else ""), True


def memory_limits(
    store: Store, *, limit: int = 0, high_water: float = 0.0, spill: str = "", spill_limit: int = 0, sharing: int = 1
) -> MemoryLimits:
    """The limits by the options of a node. ``sharing``: nodes that are started here together. Raises SystemSetupError."""
    parent, why = parent_of(spill, store.root)
    directory = f"{parent}/{store.path.name}-{os.urandom(4).hex()}" if parent else ""
    usual = MemoryLimits()
    limit, why_limit, firm = (limit, usual.why_limit, True) if limit else _limit(store, sharing)
    return MemoryLimits(
        limit=limit, why_limit=why_limit, sharing=sharing, firm=firm, high_water=high_water or usual.high_water,
        spill=directory, spill_limit=spill_limit, why_no_spill=why or usual.why_no_spill,
    )  # fmt: skip


class SpillDirectory:
    """The spilled files of one node. ``path`` does not exist yet."""

    def __init__(self, store: Store, path: str) -> None:
        """``path`` "": there is none. Raises OSError."""
        self.store = store
        self.path = path
        self._lock = threading.Lock()
        self._marked: orphans.Marked | None = None
        self._copier: Copier | None = None
        self._started: Callable[[], None] = lambda: None
        if path:  # so that it is found when this process was killed; later there may be no room for that
            (store.path / orphans.SPILL).write_text(path)

    def on_start(self, call: Callable[[], None]) -> None:
        """``call`` when there is one more descriptor to watch."""
        self._started = call

    @property
    def fd(self) -> int:
        """Readable when a copy has ended; -1: none was begun yet."""
        return -1 if self._copier is None else self._copier.fd

    def completions(self) -> list[tuple[int, str, int, int]]:
        """(serial, error, bytes, code) of the copies that ended since the last call."""
        return [] if self._copier is None else self._copier.completions()

    def make(self) -> None:
        """The directory, if it is not there yet; in any thread. Raises OSError."""
        with self._lock:
            if self._marked is None:
                path = Path(self.path)
                for left in orphans.find(path.parent):  # shared memory does not survive a restart of the machine, a disk does
                    if (left / orphans.STORE).is_file():
                        orphans.discard(left)
                path.mkdir(mode=0o700, exist_ok=True)
                marked = orphans.Marked(path, orphans.mark(path, self.store.session))
                (path / orphans.STORE).write_text(str(self.store.path))
                self._marked = marked

    def _make(self) -> Copier:
        """Raises OSError."""
        self.make()
        if self._copier is None:
            self._copier = Copier(THREADS)
            self._started()
        return self._copier

    def _path(self, copy: int) -> str:
        return f"{self.path}/{copy:x}"

    def _back(self, serial: int) -> str:
        return f"{self.store.back}/{serial:x}"

    def spill_out(self, effect: SpillOut) -> None:
        """Raises OSError if there is no place for it."""
        self._make().copy(effect.serial, self.store.path_of(effect.name), self._path(effect.serial), EXACT, directories=False)

    def bring_back(self, effect: BringBack) -> None:
        """Raises OSError if there is no place for it."""
        self._make().copy(effect.serial, self._path(effect.copy), self._back(effect.serial), EXACT, directories=False)

    def destination(self, serial: int) -> str:
        """Where a fetch is to put what is too large for memory. Raises OSError."""
        self._make()
        return self._path(serial)

    def evict(self, effect: Evict) -> None:
        """Have the file's name in the store lead here. Raises OSError."""
        link = self._back(effect.copy)
        os.symlink(self._path(effect.copy), link)
        self.store.replace(link, effect.name)

    def restore(self, effect: Restore) -> None:
        """Raises OSError."""
        os.rename(self._back(effect.back), self.store.path_of(effect.name))

    def drop(self, effect: DropSpilled) -> None:
        """Remove what is in the directory, or was brought back from it, under these numbers."""
        if self._marked is None:
            return
        self.store.remove_later([path for number in effect.copies for path in (self._path(number), self._back(number))])

    def close(self) -> None:
        """End the threads, remove everything."""
        if self._copier is not None:
            self._copier.stop()
        if self._marked is not None:
            self._marked.remove()
            self._marked = None
