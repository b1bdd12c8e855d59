"""The node's store: real files in tmpfs, published by rename. I/O.

Owns the directory: ``files/`` (what the machines call the store: ``files/<key>``), ``work/sandboxes/``, ``logs/``, ``aside/`` (what is
being deleted). It is marked and locked, so that a directory in use differs from one that a killed process left.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from amfs._native import digest_later, forget_digest
from amfs.display.progress import size_text
from amfs.errors import SystemSetupError
from amfs.host import hugetmpfs, memory, orphans
from amfs.host.file_systems import is_in_memory
from amfs.host.trees import files_below, make_directories, remove_tree
from amfs.vocabulary.events import StoreInline
from amfs.vocabulary.paths import ABSOLUTE, scope_in, store_path

_ROOM_MIN = 128 << 20  # memory with less than this left is no place for a store: Docker gives containers a /dev/shm of half of that
_AT_ONCE_BYTES = 64 << 20  # a file of so much is deleted while the poll loop waits: the kernel frees some GB in a second


def room(path: Path, bounds: Sequence[memory.Group] = (), name: str = "") -> tuple[int, str]:
    """Bytes that files in ``path`` may take yet, and what sets that limit, in words; -1 if we may not write there. Files in memory may take
    no more than the machine has, and than ``bounds`` allow."""
    try:
        facts = os.statvfs(path)
        in_memory = is_in_memory(str(path))
    except OSError as error:
        return -1, error.strerror or str(error)
    if not os.access(path, os.W_OK | os.X_OK):
        return -1, os.strerror(errno.EACCES)
    free, why = facts.f_bavail * facts.f_frsize, f"room in {name or path}"
    return min((free, why), memory.left(bounds)) if in_memory else (free, why)


def default_parent() -> tuple[Path, str]:
    """Where a store is made: /dev/shm; the temporary directory (a disk, usually) where that has too little room to be of use, and then
    also why, in words. Raises SystemSetupError if there is neither."""
    shm, why = room(orphans.SHM, memory.groups())
    if shm >= _ROOM_MIN:
        return orphans.SHM, ""
    why = f"{orphans.SHM}: {why}" if shm < 0 else f"in {orphans.SHM} they would have {size_text(shm)} only ({why})"
    try:
        other = Path(tempfile.gettempdir())
    except FileNotFoundError:
        if shm < 0:
            raise SystemSetupError(f"there is no place for files ({why}, and no temporary directory): name one with --store") from None
        return orphans.SHM, ""
    return (other, why) if room(other)[0] > shm else (orphans.SHM, "")


def _remove(path: str) -> None:
    if os.path.isdir(path):
        remove_tree(path)
    else:
        os.unlink(path)


def _keep_out_of_trees(directory: os.DirEntry[str]) -> bool:
    """Is the directory one of names only? One from or for a URL is removed."""
    if not directory.stat(follow_symlinks=False).st_mode & stat.S_ISVTX:
        return True
    remove_tree(directory.path)
    return False


def _remove_those(paths: list[str]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):  # it never came to be, or is elsewhere by now
            os.unlink(path)


def mode_left(stored: int) -> int:
    """The mode with which a task left a file, from that which the store gave it: csrc/launcher/sandbox.c says how it keeps it."""
    return stored & 0o577 | (0 if stored & stat.S_ISVTX else 0o200)


class Store:
    """One node's store. ``root`` is what the worker calls its store."""

    def __init__(self, session: str, node: int, parent: str = "", adopt: str = "", huge: bool = False) -> None:
        """Make it below ``parent`` ("": the default); ``adopt``: take over the directory of a dead owner; ``huge``: on a tmpfs of its own
        with huge pages if we may. Raises SystemSetupError."""
        self.marked: orphans.Marked | None = None
        why = ""
        if adopt:
            self.marked = orphans.adopt(Path(adopt))
        self.adopted = self.marked is not None
        if self.marked is None:
            place, why = (Path(parent), "") if parent else default_parent()
            try:
                self.marked = orphans.make(session, f"n{node}", place)
            except OSError as error:
                raise SystemSetupError(
                    f"cannot make the store in {place}: {error.strerror}; name another place with --store"
                ) from None
        self.path = self.marked.path
        self._spilled = orphans.adopt_spilled(self.path) if self.adopted else None  # by the dead owner: links lead there
        inside = (hugetmpfs.mount(self.path) if huge else None) or self.path
        self.own_mount = inside != self.path  # a tmpfs of its own
        self.in_memory = is_in_memory(str(inside))
        self.remark = f"files are kept in {self.path.parent}: {why}; --store names another place" if why and not self.own_mount else ""
        self.inside = str(inside)  # for what else lives in this node's memory
        self.root = str(inside / "files")
        # In a directory of their own, so that a task that removes what is around its sandbox does not meet the files of others.
        self.sandboxes = str(inside / "work" / "sandboxes")
        self.logs = str(inside / "logs")
        self.session = session
        self.back = str(inside / "back")  # files coming back from the spill directory, and links into it
        self.aside = str(inside / "aside")  # files to be deleted, which have lost their names already
        self._numbers = itertools.count()
        self.remover = ThreadPoolExecutor(1, "amfs-remove")
        for directory in (self.sandboxes, self.logs, self.aside, self.back):
            remove_tree(directory)
            os.makedirs(directory, 0o700)
        os.makedirs(self.root, 0o700, exist_ok=True)

    def path_of(self, key: str) -> str:
        """Where ``key`` is kept."""
        return store_path(self.root, scope_in(key), key)

    def write(self, effect: StoreInline) -> None:
        """Put small content under its key, whole or not at all. A file that is there already stays: tasks may have been started with it.
        Raises OSError."""
        path = self.path_of(effect.name)
        temporary = f"{path}.amfs-part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            fd = os.open(temporary, flags, 0o600)
        except FileNotFoundError:
            make_directories(os.path.dirname(path))
            fd = os.open(temporary, flags, 0o600)
        try:
            rest = memoryview(effect.data)
            while rest:  # a write may be short, above all where room runs out
                rest = rest[os.write(fd, rest) :]
            os.fchmod(fd, effect.mode)
            if effect.mtime_ns:
                os.utime(fd, ns=(effect.mtime_ns, effect.mtime_ns))
        except OSError:
            os.unlink(temporary)
            raise
        finally:
            os.close(fd)
        try:
            os.link(temporary, path)
            os.unlink(temporary)
        except FileExistsError:
            os.unlink(temporary)
        except OSError:  # no hard links here
            os.rename(temporary, path)
        digest_later(path)

    def delete(self, keys: list[str]) -> None:
        for key in keys:
            with contextlib.suppress(OSError):  # never written, or gone already
                path = self.path_of(key)
                facts = os.lstat(path)
                forget_digest(facts.st_dev, facts.st_ino)
                if facts.st_blocks * 512 > _AT_ONCE_BYTES or stat.S_ISDIR(facts.st_mode):
                    self._delete_later(path)
                else:
                    os.unlink(path)

    def replace(self, by: str, key: str) -> None:
        """Give the name of ``key`` to the file ``by``. The old file goes by a thread if it is large. Raises OSError."""
        path = self.path_of(key)
        with contextlib.suppress(FileNotFoundError):
            if os.lstat(path).st_blocks * 512 > _AT_ONCE_BYTES:
                aside = f"{self.aside}/{next(self._numbers)}"
                os.link(path, aside)  # its name is never without a file: other nodes may be asking for it
                self.remover.submit(_remove, aside)
        try:
            os.rename(by, path)
        except FileNotFoundError:  # it is the first file there
            make_directories(os.path.dirname(path))
            os.rename(by, path)

    def drop_scope(self, scope: str) -> None:
        with contextlib.suppress(OSError):  # nothing of it was ever here
            self._delete_later(f"{self.root}/{scope}")

    def _delete_later(self, path: str) -> None:
        """Its name goes at once, its content by a thread: the poll loop, which deletes, must not be taken for dead. Raises OSError."""
        aside = f"{self.aside}/{next(self._numbers)}"
        os.rename(path, aside)
        self.remover.submit(_remove, aside)

    def remove_later(self, paths: list[str]) -> None:
        """Those that are there, by a thread."""
        self.remover.submit(_remove_those, paths)

    def inventory(self, scope: str) -> Iterator[tuple[str, int, int]]:
        """(key, size, mtime_ns) of every file of a scope that has ended: the truth of which all metadata is only a copy. Directories from
        and for URLs are removed: they are there."""
        top = f"{self.root}/{scope}"
        for directory, name in files_below(top, _keep_out_of_trees):
            if not (name.endswith(".amfs-part") or name.startswith(".amfs-part")):
                path = f"{directory}/{name}"
                try:
                    facts = os.stat(path)  # a spilled file is a link
                except FileNotFoundError:  # and the disk has lost what it led to
                    os.unlink(path)
                    continue
                inner = path[len(top):].lstrip("/")
                if inner.startswith(ABSOLUTE + "/"):
                    inner = inner[len(ABSOLUTE):]
                yield scope + inner, facts.st_size, facts.st_mtime_ns

    def set_aside(self, scope: str, place: Path) -> tuple[int, int]:
        """Copy the files of a scope to ``place`` (a disk), for a later run to ``take_back``; (files, bytes). Raises OSError."""
        files = size = 0
        for key, bytes_, mtime_ns in self.inventory(scope):
            target = Path(store_path(str(place), scope, key))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.path_of(key), target)
            shutil.copymode(self.path_of(key), target)
            os.utime(target, ns=(mtime_ns, mtime_ns))
            files += 1
            size += bytes_
        return files, size

    def take_back(self, place: Path) -> None:
        """Bring in what an interrupted run set aside, as far as there is room, and remove it there."""
        if not place.is_dir():
            return
        for directory, name in files_below(str(place)):
            source = f"{directory}/{name}"
            target = self.root + source[len(str(place)):]
            try:
                make_directories(os.path.dirname(target))
                shutil.copy2(source, target)
            except OSError:  # there is no room for it: it is made again, and so is the rest
                with contextlib.suppress(OSError):
                    os.unlink(target)
                break
        shutil.rmtree(place, ignore_errors=True)
        self.adopted = True

    def close(self) -> None:
        """Remove everything."""
        self.remover.shutdown(wait=False, cancel_futures=True)
        if self._spilled is not None:
            self._spilled.remove()
        if self.marked is not None:
            self.marked.remove()
            self.marked = None
