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
            os.close(self._descriptor)
            self._descriptor = -1


def make(session: str, label: str, parent: Path = SHM) -> Marked:
    """Make a private directory ``amfs-UID-SESSION-LABEL-random`` in ``parent``, marked as ``session``'s. Raises OSError."""
    path = Path(tempfile.mkdtemp(prefix=f"amfs-{os.getuid()}-{session}-{label}-", dir=parent))
    return Marked(path, mark(path, session))


def mark(path: Path, session: str) -> int:
    """Mark ``path``; returns the descriptor that holds the lock: keep it open as long as the directory is used. Raises OSError."""
    return life.hold(path / MARK, session)


def sweep(session: str | None = None, parent: Path = SHM) -> list[Path]:
    """Remove the marked directories in ``parent`` that are this user's and whose owner is dead; of ``session`` only, if given.

    Returns what was removed. Everything without a mark, of other users, of embedded runs, or with a living owner is left alone.
    """
    removed = []
    for path in sorted(parent.glob(f"amfs-{os.getuid()}-*")):
        try:
            if is_orphan(path, session) and not path.name.startswith(f"amfs-{os.getuid()}-{EMBEDDED}-"):
                remove_spilled(path)
                hugetmpfs.unmount(path)
                remove_tree(str(path))
                removed.append(path)
        except OSError:
            continue  # vanished meanwhile, or not ours to look into
    return removed


def remove_spilled(store: Path) -> None:
    """Remove the spill directory of a store whose owner is dead, if it has one."""
    try:
        directory = Path((store / SPILL).read_text())
        if directory.name.startswith(f"amfs-{os.getuid()}-") and is_orphan(directory, None):
            remove_tree(str(directory))
    except OSError:  # there is none, or none any more
        return


def adopt_spilled(store: Path, session: str) -> Marked | None:
    """Take over the spill directory of a store that is taken over, if it has one."""
    try:
        directory = Path((store / SPILL).read_text())
        return Marked(directory, mark(directory, session)) if is_orphan(directory, None) else None
    except OSError:
        return None


def sweep_spilled(parent: Path) -> None:
    """Remove the spill directories in ``parent`` whose owner is dead and whose store is gone: shared memory does not survive a restart of
    the machine, a disk does."""
    for path in parent.glob(f"amfs-{os.getuid()}-*"):
        try:
            if not os.path.exists((path / STORE).read_text()) and is_orphan(path, None):
                remove_tree(str(path))
        except OSError:  # no spill directory, or gone meanwhile
            continue


def is_orphan(path: Path, session: str | None) -> bool:
    """Is ``path`` a marked directory of this user (of ``session``, if given) whose owner is dead? Raises OSError."""
    facts = os.lstat(path)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
        return False
    return (session is None or life.text(path / MARK) == session) and life.is_held(path / MARK) is False
