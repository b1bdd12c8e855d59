"""Whole files between a node and places that are no part of the session, and their digests: the works that take long. I/O.

Runs in threads of ``FileBackend``. A file that they write appears under its name when it is whole and has been read back.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable

from amfs._native import IoHandle, check_file, digest, digest_later
from amfs.host.digests import Digest, of_file
from amfs.host.extents import PIECE, Handle, extents, pieces
from amfs.host.replacing import put_in_place
from amfs.host.trees import files_below
from amfs.vocabulary.attr import Facts
from amfs.vocabulary.fs_requests import CheckedStore
from amfs.vocabulary.fs_works import PART_DAMAGED

CHECKED_FILES, CHECKED_BYTES = 10_000, 1 << 30  # of a store at a time


def seen(path: bytes) -> tuple[int, int, int]:
    """(inode, size, modification time) of what lies at a local path. Raises OSError."""
    facts = os.stat(path)
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def digest_of(path: str | bytes, handle: Handle | None) -> tuple[bytes, int]:
    """(digest, size) of a local file, or of what is open."""
    if handle is None:
        return of_file(path)
    found = Digest()
    for at, data in pieces(handle):
        found.add_zeros(at - found.size)
        found.add(data)
    return found.value(), found.size


def copy_in(source: bytes, target: bytes) -> Facts:
    """A local file into a scratch file of this node; the facts of that. EILSEQ: the bytes written are not the bytes read."""
    descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        facts = os.fstat(descriptor)
        with open(target, "r+b", buffering=0) as file:
            found, size = digest(descriptor, file.fileno())
            os.utime(file.fileno(), ns=(facts.st_mtime_ns, facts.st_mtime_ns))
            made = os.fstat(file.fileno())
        if os.fstat(descriptor).st_mtime_ns != facts.st_mtime_ns:
            raise OSError(errno.EBUSY, "it changes while it is copied")
    finally:
        os.close(descriptor)
    if of_file(target) != (found, size):
        raise OSError(errno.EILSEQ, "it was not copied right")
    return Facts(made.st_size, made.st_blocks, facts.st_mtime_ns, made.st_mtime_ns)


def copy_out(path: str, handle: Handle | None, target: bytes, mode: int, mtime: int, check: Callable[[], None]) -> tuple[int, bytes]:
    """Copy a file of this node, or an open one, to a local path; (size, digest). EILSEQ: the copy differs from the bytes that were read.
    ``check``: raises OSError if the bytes read are not the file's content."""
    above, name = os.path.split(target)
    temporary = os.path.join(above, b".amfs-" + os.urandom(6).hex().encode() + b"-" + name[:100])
    made = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            found, size = _pour(path, handle, made)
            os.lseek(made, 0, os.SEEK_SET)
            if digest(made) != (found, size):
                raise OSError(errno.EILSEQ, "it was not copied right")
            check()
            os.fchmod(made, mode)
            os.utime(made, ns=(mtime, mtime))
        finally:
            os.close(made)  # some file systems say only now what went wrong
        put_in_place(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return size, found


def _pour(path: str, handle: Handle | None, made: int) -> tuple[bytes, int]:
    if handle is None:
        source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return digest(source, made)
        finally:
            os.close(source)
    return pour(handle, made)


def pour(handle: Handle, made: int) -> tuple[bytes, int]:
    """Copy an open file into an empty local one; (digest, size)."""
    found = Digest()
    for at, data in pieces(handle):
        found.add_zeros(at - found.size)
        found.add(data)
        view = memoryview(data)
        while view:
            done = os.pwrite(made, view, at)
            view, at = view[done:], at + done
    os.ftruncate(made, found.size)
    return found.value(), found.size


def fill(handle: IoHandle, path: str) -> None:
    """Copy a local file into an open one, in place of its content."""
    handle.truncate(0)
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        for start, end in extents(file.fileno(), size):
            at = start
            while at < end and (data := os.pread(file.fileno(), min(PIECE, end - at), at)):
                handle.write(data, at)
                at += len(data)
    if handle.stat()[0] != size:
        handle.truncate(size)


def check_store(root: str, after: str) -> tuple[CheckedStore, list[str]]:
    """Look at files below ``root``, by name from ``after`` on, whether they are what was written; and the paths of the damaged ones."""
    top = len(root) + 1
    names = sorted(f"{directory}/{name}"[top:] for directory, name in files_below(root) if "amfs-part" not in name)
    files = size = unknown = 0
    damaged: list[str] = []
    for name in names:
        if name <= after:
            continue
        if files >= CHECKED_FILES or size >= CHECKED_BYTES:
            break
        after = name
        with contextlib.suppress(OSError):  # it has gone meanwhile
            descriptor = os.open(f"{root}/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                verdict, length = check_file(descriptor), os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
            files, size = files + 1, size + length
            if verdict == PART_DAMAGED:
                damaged.append(name)
            elif not verdict:
                unknown += 1
                digest_later(f"{root}/{name}")
    else:
        after = ""
    return CheckedStore(files, size, unknown, damaged, after), damaged
