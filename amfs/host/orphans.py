"""Directories in shared memory (and other shared places) that carry a session's mark, and the sweep of those whose owner died.

Owns the mark, a file that its owner keeps locked as long as it lives (``host.life``). Must not know: the content of the directories.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from amfs.host import hugetmpfs, life
from amfs.host.trees import remove_tree

MARK = ".amfs-session"
EMBEDDED = "_run"  # in place of a session's name: the store of a run without one, which that run's journal may still lead to
SHM = Path("/dev/shm")
SPILL = "spill"  # in a store: the path of its spill directory
STORE = "store"  # in a spill directory: the path of its store


class Marked:
    """A directory that this process owns: marked, locked, and removed by ``remove()``."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def remove(self) -> None:
        """Remove the directory with all it holds and give up the lock. Repeatable."""
        if self._descriptor >= 0:
            hugetmpfs.unmount(self.path)
            remove_tree(str(self.path))
            self.release()

    def release(self) -> None:
        """Give up the lock only: the next one may have the directory."""
        os.close(self._descriptor)
        self._descriptor = -1


def make(session: str, label: str, parent: Path = SHM) -> Marked:
    """Make a private directory ``amfs-UID-SESSION-LABEL-random`` in ``parent``, marked as ``session``'s. Raises OSError."""
    path = Path(tempfile.mkdtemp(prefix=f"amfs-{os.getuid()}-{session}-{label}-", dir=parent))
    return Marked(path, mark(path, session))


def mark(path: Path, session: str) -> int:
    """Mark ``path``; returns the descriptor that holds the lock: keep it open as long as the directory is used. Raises OSError."""
    return life.hold(path / MARK, session)


def find(parent: Path, session: str | None = None) -> list[Path]:
    """The marked directories in ``parent`` that are this user's and whose owner is dead; of ``session`` only, if given.

    Left out are directories without a mark, of another user or of a living owner, and the spill directory of a store that is still there.
    """
    found = []
    for path in sorted(parent.glob(f"amfs-{os.getuid()}-*")):
        try:
            store = path / STORE
            if is_orphan(path, session) and not (store.is_file() and os.path.exists(store.read_text())):
                found.append(path)
        except OSError:
            continue  # no mark, vanished meanwhile, or not ours to look into
    return found


def sweep(session: str | None = None, parent: Path = SHM) -> list[Path]:
    """Remove what ``find`` finds, but for what embedded runs left. Returns it."""
    removed = [path for path in find(parent, session) if not path.name.startswith(f"amfs-{os.getuid()}-{EMBEDDED}-")]
    for path in removed:
        discard(path)
    return removed


def discard(path: Path) -> None:
    """Remove a directory that ``find`` has found, and its spill directory, unless somebody has taken it over meanwhile."""
    if (taken := adopt(path)) is not None:
        if (directory := adopt_spilled(path)) is not None:
            directory.remove()
        taken.remove()


def spilled(store: Path) -> Path | None:
    """The spill directory of a store, if it has one."""
    try:
        directory = Path((store / SPILL).read_text())
    except OSError:
        return None
    return directory if directory.name.startswith(f"amfs-{os.getuid()}-") else None


def adopt_spilled(store: Path) -> Marked | None:
    """Own the spill directory of a store that is taken over, if it has one."""
    directory = spilled(store)
    return adopt(directory) if directory is not None else None


def is_orphan(path: Path, session: str | None) -> bool:
    """Is ``path`` a marked directory of this user (of ``session``, if given) whose owner is dead? Raises OSError."""
    descriptor = _take(path, session)
    if descriptor >= 0:
        os.close(descriptor)
    return descriptor >= 0


def adopt(path: Path) -> Marked | None:
    """Own a marked directory whose owner is dead; None if it is no such thing, or somebody else is quicker."""
    try:
        descriptor = _take(path)
    except OSError:
        return None
    return Marked(path, descriptor) if descriptor >= 0 else None


def _take(path: Path, session: str | None = None) -> int:
    """A descriptor that holds the lock of a marked directory of this user (of ``session``, if given) whose owner is dead; else -1. Raises
    OSError."""
    facts = os.lstat(path)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
        return -1
    if session is not None and life.text(path / MARK) != session:
        return -1
    return life.take(path / MARK)
