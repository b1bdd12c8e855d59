"""System calls on a tree by name: the language of all suites of the file system.

A ``Tree`` is a directory, seen through one mount or through several (its views), with numbered or named open files. ``run(["mkdir", "d",
0o755])`` makes the call in the tree, relative to its top, and gives back something that can be compared with what another tree said and
written as JSON: a value, or ``"!ENOENT"`` for an error. Nothing of a machine's state (device and inode numbers, today's date) is in it.

Paths are given as text, bytes that are no UTF-8 as surrogate escapes; data as Latin-1 text.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import mmap
import os
import re
import resource
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import treestate

libc = ctypes.CDLL(None, use_errno=True)
libc.opendir.restype = ctypes.c_void_p
libc.readdir.restype = ctypes.c_void_p
libc.telldir.restype = ctypes.c_long
for _name, _types in {
    "readdir": [ctypes.c_void_p],
    "closedir": [ctypes.c_void_p],
    "rewinddir": [ctypes.c_void_p],
    "telldir": [ctypes.c_void_p],
    "seekdir": [ctypes.c_void_p, ctypes.c_long],
    "opendir": [ctypes.c_char_p],
    "fallocate": [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64],
    "linkat": [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_int],
    "renameat2": [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint],
    "utimensat": [ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int],
    "futimens": [ctypes.c_int, ctypes.c_void_p],
    "faccessat": [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_int],
}.items():
    getattr(libc, _name).argtypes = _types

AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
AT_EACCESS = 0x200
AT_SYMLINK_FOLLOW = 0x400
UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
RENAME = {"NOREPLACE": 1, "EXCHANGE": 2, "WHITEOUT": 4}
FALLOC = {"KEEP_SIZE": 1, "PUNCH_HOLE": 2, "COLLAPSE_RANGE": 8, "ZERO_RANGE": 16, "INSERT_RANGE": 32}
TYPES = {"fifo": stat.S_IFIFO, "sock": stat.S_IFSOCK, "chr": stat.S_IFCHR, "blk": stat.S_IFBLK, "reg": stat.S_IFREG, "dir": stat.S_IFDIR}
#: Data longer than this is compared by digest.
SHOWN = 80
#: Long enough for a clock that ticks at 100 Hz to have moved.
TICK_S = 0.012
HEARD_S = 0.2  # in which mounts hear of what others have changed


class Killed(Exception):
    """A call was ended by a signal, which is its result."""


def shown(data: bytes) -> str:
    return data.decode("latin-1") if len(data) <= SHOWN else f"{len(data)} bytes {hashlib.blake2b(data, digest_size=8).hexdigest()}"


def raw(text: object) -> bytes:
    return str(text).encode("latin-1")


def named(value: str | int, prefix: str, table: dict[str, int] | None = None) -> int:
    """A number, or names joined by ``|`` that the os module (with a prefix) or a table knows: ``O_RDWR|O_CREAT``."""
    if isinstance(value, int):
        return value
    bits = 0
    for name in value.split("|"):
        bits |= table[name] if table is not None else getattr(os, name if name.startswith(prefix) else prefix + name)
    return bits


class Tree:
    """One tree; the process's working directory belongs to the tree that ran last. Close it when done."""

    #: Whose working directory it is: a tree and a view of it.
    at: tuple[Tree | None, int] = (None, 0)

    def __init__(self, *roots: str) -> None:
        self.views = [os.open(root, os.O_RDONLY | os.O_DIRECTORY) for root in roots]
        self.files: dict[Any, int] = {}
        self.directories: dict[Any, int] = {}
        self.marks: dict[Any, int] = {}
        self.view = 0
        self.below = "."

    def close(self) -> None:
        self.close_files()
        for fd in self.views:
            os.close(fd)
        self.views = []
        os.chdir("/")
        Tree.at = (None, 0)

    def close_files(self) -> None:
        for fd in self.files.values():
            with contextlib.suppress(OSError):
                os.close(fd)
        self.files.clear()
        for handle in self.directories.values():
            libc.closedir(handle)
        self.directories.clear()

    def enter(self, view: int) -> None:
        self.view = view % len(self.views)
        if Tree.at != (self, self.view):
            os.fchdir(self.views[self.view])
            Tree.at = (self, self.view)
            if self.below != ".":
                os.chdir(self.below)

    def run(self, op: list[Any], view: int | None = None) -> Any:
        """The result of the call; ``!ENOENT`` and the like if it failed, ``!SIGBUS`` if it was killed."""
        self.enter(self.view if view is None else view)
        call: Callable[..., Any] = getattr(self, "do_" + op[0])
        try:
            return call(*op[1:])
        except OSError as error:
            return "!" + ("EOPNOTSUPP" if error.errno == errno.EOPNOTSUPP else errno.errorcode[error.errno or 0])
        except ValueError as error:  # Python refuses a map that the file's size, as it was told, does not allow
            return f"!{error}"
        except Killed as killed:
            return f"!{killed}"

    def fd(self, name: Any) -> int:
        if name not in self.files:
            raise OSError(errno.EBADF, "no such open file in this tree")
        return self.files[name]

    def check(self, result: int) -> int:
        if result < 0:
            raise OSError(ctypes.get_errno(), "")
        return result

    # ── names ──────────────────────────────────────────────────────────────────────────────────────

    def do_mkdir(self, path: str, mode: int = 0o777) -> None:
        os.mkdir(path, mode)

    def do_rmdir(self, path: str) -> None:
        os.rmdir(path)

    def do_unlink(self, path: str) -> None:
        os.unlink(path)

    def do_symlink(self, target: str, path: str) -> None:
        os.symlink(target, path)

    def do_readlink(self, path: str) -> str:
        return os.readlink(path)

    def do_link(self, old: str, new: str, follow: str = "") -> None:
        flags = AT_SYMLINK_FOLLOW if follow == "follow" else 0
        self.check(libc.linkat(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags))

    def do_flink(self, file: Any, new: str) -> None:
        self.check(libc.linkat(AT_FDCWD, f"/proc/self/fd/{self.fd(file)}".encode(), AT_FDCWD, os.fsencode(new), AT_SYMLINK_FOLLOW))

    def do_rename(self, old: str, new: str, flags: str | int = 0) -> None:
        bits = named(flags, "", RENAME)
        self.check(libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), bits))

    def do_mknod(self, path: str, kind: str, mode: int = 0o644, major: int = 0, minor: int = 0) -> None:
        os.mknod(path, TYPES[kind] | mode, os.makedev(major, minor))

    def do_bind(self, path: str) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)

    def do_write_file(self, path: str, data: object = "", mode: int = 0o644) -> None:
        """Make or replace a file as an ordinary program does; a fifo that nobody reads is not waited for."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, mode)
        try:
            os.write(fd, raw(data))
        finally:
            os.close(fd)

    def do_append_file(self, path: str, data: object) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
        try:
            os.write(fd, raw(data))
        finally:
            os.close(fd)

    def do_read_file(self, path: str) -> str:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            data = b""
            while part := os.read(fd, 1 << 20):
                data += part
            return shown(data)
        finally:
            os.close(fd)

    def do_listdir(self, path: str = ".") -> list[str]:
        return sorted(os.listdir(path))

    def do_cd(self, path: str) -> None:
        os.chdir(path)
        self.below = os.path.normpath(os.path.join(self.below, path))

    def do_descend(self, name: str, depth: int) -> None:
        """Make a directory in a directory, as often as asked, and stay in the last: how paths longer than PATH_MAX come about."""
        for _ in range(depth):
            os.mkdir(name)
            os.chdir(name)

    # ── attributes ─────────────────────────────────────────────────────────────────────────────────

    def do_stat(self, path: str, *fields: str) -> Any:
        return treestate.told(os.stat(path), fields)

    def do_lstat(self, path: str, *fields: str) -> Any:
        return treestate.told(os.lstat(path), fields)

    def do_same(self, one: str, other: str) -> bool:
        return os.path.samestat(os.lstat(one), os.lstat(other))

    def do_chmod(self, path: str, mode: int) -> None:
        os.chmod(path, mode)

    def do_chown(self, path: str, uid: int, gid: int) -> None:
        os.chown(path, uid, gid)

    def do_lchown(self, path: str, uid: int, gid: int) -> None:
        os.lchown(path, uid, gid)

    def do_access(self, path: str, mode: str) -> bool:
        return os.access(path, named(mode, ""))

    def do_eaccess(self, path: str, mode: str) -> None:
        self.check(libc.faccessat(AT_FDCWD, os.fsencode(path), named(mode, ""), AT_EACCESS))

    def do_truncate(self, path: str, size: int) -> None:
        os.truncate(path, size)

    def do_utimens(self, path: str, atime: str | int, mtime: str | int, nofollow: str = "") -> None:
        flags = AT_SYMLINK_NOFOLLOW if nofollow else 0
        self.check(libc.utimensat(AT_FDCWD, os.fsencode(path), times(atime, mtime), flags))

    def do_utimens_null(self, path: str) -> None:
        self.check(libc.utimensat(AT_FDCWD, os.fsencode(path), None, 0))

    def do_setxattr(self, path: str, name: str, value: object, flags: str | int = 0) -> None:
        os.setxattr(path, name, raw(value), named(flags, "XATTR_"), follow_symlinks=False)

    def do_getxattr(self, path: str, name: str) -> str:
        return shown(os.getxattr(path, name, follow_symlinks=False))

    def do_removexattr(self, path: str, name: str) -> None:
        os.removexattr(path, name, follow_symlinks=False)

    def do_listxattr(self, path: str) -> list[str]:
        return treestate.attributes(path)

    def do_statvfs(self, path: str, *fields: str) -> list[int]:
        told = os.statvfs(path)
        return [getattr(told, "f_" + field) for field in fields]

    def do_pathconf(self, path: str, name: str) -> int:
        return os.pathconf(path, name)

    # ── open files ─────────────────────────────────────────────────────────────────────────────────

    def do_open(self, file: Any, path: str, flags: str | int, mode: int = 0o644) -> None:
        if file in self.files:
            os.close(self.files.pop(file))
        self.files[file] = os.open(path, named(flags, "O_"), mode)

    def do_close(self, file: Any) -> None:
        fd = self.fd(file)
        del self.files[file]
        os.close(fd)

    def do_dup(self, file: Any, new: Any) -> None:
        fd = os.dup(self.fd(file))
        if new in self.files:
            os.close(self.files[new])
        self.files[new] = fd

    def do_read(self, file: Any, size: int) -> str:
        return shown(os.read(self.fd(file), size))

    def do_write(self, file: Any, data: object) -> int:
        return os.write(self.fd(file), raw(data))

    def do_pread(self, file: Any, size: int, offset: int) -> str:
        return shown(os.pread(self.fd(file), size, offset))

    def do_pwrite(self, file: Any, data: object, offset: int) -> int:
        return os.pwrite(self.fd(file), raw(data), offset)

    def do_pwrite_appending(self, file: Any, data: object, offset: int) -> int:
        return os.pwritev(self.fd(file), [raw(data)], offset, os.RWF_APPEND)

    def do_writev(self, file: Any, *data: object) -> int:
        return os.writev(self.fd(file), [raw(part) for part in data])

    def do_readv(self, file: Any, *sizes: int) -> list[str]:
        parts = [bytearray(size) for size in sizes]
        left = os.readv(self.fd(file), parts)
        return [str(left), *(shown(bytes(part)) for part in parts)]

    def do_lseek(self, file: Any, offset: int, whence: str = "SEEK_SET") -> int:
        return os.lseek(self.fd(file), offset, getattr(os, whence))

    def do_ftruncate(self, file: Any, size: int) -> None:
        os.ftruncate(self.fd(file), size)

    def do_fallocate(self, file: Any, mode: str | int, offset: int, size: int) -> None:
        self.check(libc.fallocate(self.fd(file), named(mode, "", FALLOC), offset, size))

    def do_fstat(self, file: Any, *fields: str) -> Any:
        return treestate.told(os.fstat(self.fd(file)), fields)

    def do_fchmod(self, file: Any, mode: int) -> None:
        os.fchmod(self.fd(file), mode)

    def do_fchown(self, file: Any, uid: int, gid: int) -> None:
        os.fchown(self.fd(file), uid, gid)

    def do_futimens(self, file: Any, atime: str | int, mtime: str | int) -> None:
        self.check(libc.futimens(self.fd(file), times(atime, mtime)))

    def do_fsync(self, file: Any) -> None:
        os.fsync(self.fd(file))

    def do_fdatasync(self, file: Any) -> None:
        os.fdatasync(self.fd(file))

    def do_getfl(self, file: Any, *flags: str) -> list[str]:
        bits = fcntl.fcntl(self.fd(file), fcntl.F_GETFL)
        return [flag for flag in flags if bits & getattr(os, "O_" + flag)]

    def do_setfl(self, file: Any, flags: str | int) -> None:
        fcntl.fcntl(self.fd(file), fcntl.F_SETFL, named(flags, "O_"))

    def do_fsetxattr(self, file: Any, name: str, value: object, flags: str | int = 0) -> None:
        os.setxattr(self.fd(file), name, raw(value), named(flags, "XATTR_"))

    def do_fgetxattr(self, file: Any, name: str) -> str:
        return shown(os.getxattr(self.fd(file), name))

    def do_copy_range(self, source: Any, target: Any, size: int, from_: int | None = None, to: int | None = None) -> int:
        """copy_file_range until all is copied or the source ends: how much one call copies is the kernel's business."""
        done = 0
        while done < size:
            at = (None if from_ is None else from_ + done, None if to is None else to + done)
            copied = os.copy_file_range(self.fd(source), self.fd(target), size - done, *at)
            if copied == 0:
                break
            done += copied
        return done

    def do_sendfile(self, source: Any, target: Any, size: int, offset: int) -> int:
        return os.sendfile(self.fd(target), self.fd(source), offset, size)

    def do_flock(self, file: Any, kind: str) -> None:
        fcntl.flock(self.fd(file), sum({getattr(fcntl, "LOCK_" + each) for each in kind.split("|")}))

    def do_lock(self, file: Any, command: str, kind: str, start: int, length: int) -> Any:
        """fcntl's locks: GETLK (gives the kind that is in the way), SETLK, SETLKW, and their OFD_ kin."""
        record = struct.pack("hhqqi4x", getattr(fcntl, "F_" + kind), os.SEEK_SET, start, length, 0)
        # Python names F_OFD_* from 3.9 on where the C library has them.
        told = fcntl.fcntl(self.fd(file), getattr(fcntl, "F_" + command), record)
        if "GETLK" not in command:
            return None
        found, _, at, count, _ = struct.unpack("hhqqi4x", told)
        kinds = {fcntl.F_RDLCK: "RDLCK", fcntl.F_WRLCK: "WRLCK", fcntl.F_UNLCK: "UNLCK"}
        return [kinds[found], *([at, count] if found != fcntl.F_UNLCK else [])]

    # ── memory maps ────────────────────────────────────────────────────────────────────────────────

    def do_mread(self, file: Any, size: int, offset: int, kind: str = "shared") -> str:
        flags = mmap.MAP_SHARED if kind == "shared" else mmap.MAP_PRIVATE
        page = offset // mmap.PAGESIZE * mmap.PAGESIZE
        with mmap.mmap(self.fd(file), offset - page + size, flags, mmap.PROT_READ, offset=page) as mapped:
            return shown(mapped[offset - page :])

    def do_mwrite(self, file: Any, data: object, offset: int, kind: str = "shared") -> None:
        flags = mmap.MAP_SHARED if kind == "shared" else mmap.MAP_PRIVATE
        page = offset // mmap.PAGESIZE * mmap.PAGESIZE
        with mmap.mmap(self.fd(file), offset - page + len(raw(data)), flags, mmap.PROT_READ | mmap.PROT_WRITE, offset=page) as mapped:
            mapped[offset - page :] = raw(data)
            mapped.flush()

    def do_mbeyond(self, file: Any, pages: int, at: int) -> str:
        """A byte of a map that reaches beyond the end of the file; in a child, as the answer may be SIGBUS."""
        fd = self.fd(file)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGBUS, signal.SIG_DFL)
            address = ctypes.CDLL(None).mmap
            address.restype = ctypes.c_void_p
            address.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
            start = address(None, pages * mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
            os._exit(ctypes.string_at(start + at, 1)[0])
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            raise Killed(signal.Signals(os.WTERMSIG(status)).name)
        return chr(os.waitstatus_to_exitcode(status))

    # ── directories that are being read ────────────────────────────────────────────────────────────

    def do_opendir(self, handle: Any, path: str) -> None:
        found = libc.opendir(os.fsencode(path))
        if not found:
            raise OSError(ctypes.get_errno(), "")
        self.directories[handle] = found

    def do_closedir(self, handle: Any) -> None:
        libc.closedir(self.directories.pop(handle))

    def do_rewinddir(self, handle: Any) -> None:
        libc.rewinddir(self.directories[handle])

    def do_readdir(self, handle: Any, count: int = -1) -> list[str]:
        """The next entries, sorted, with a letter for their kind; without a count, all that are left."""
        return sorted(self.entries(handle, count))

    def do_readdir_count(self, handle: Any, count: int = -1) -> int:
        return len(list(self.entries(handle, count)))

    def do_readdir_unlinking(self, handle: Any, path: str) -> list[int]:
        """Remove every file as it is met, as rm does: how many were met, and how many are left."""
        met = 0
        for entry in self.entries(handle, -1):
            name = entry.split(" ", 1)[1]
            if name not in (".", ".."):
                os.unlink(f"{path}/{name}")
                met += 1
        return [met, len(os.listdir(path))]

    def do_readdir_seeking(self, handle: Any, count: int) -> bool:
        """Whether what followed a remembered place follows again after going back there."""
        list(self.entries(handle, count))
        place = libc.telldir(self.directories[handle])
        first = list(self.entries(handle, -1))
        libc.seekdir(self.directories[handle], place)
        return first == list(self.entries(handle, -1))

    def entries(self, handle: Any, count: int) -> Iterator[str]:
        letters = {0: "unknown", 1: "fifo", 2: "chr", 4: "dir", 6: "blk", 8: "reg", 10: "lnk", 12: "sock"}
        while count != 0:
            address = libc.readdir(self.directories[handle])
            if not address:
                return
            kind = ctypes.string_at(address + 18, 1)[0]
            yield f"{letters[kind]} {os.fsdecode(ctypes.string_at(address + 19))}"
            count -= 1

    def do_make_files(self, path: str, count: int, name: str = "f") -> None:
        for number in range(count):
            os.close(os.open(f"{path}/{name}{number:05d}", os.O_CREAT | os.O_WRONLY, 0o644))

    # ── the process ────────────────────────────────────────────────────────────────────────────────

    def do_as(self, uid: int, gid: int | None = None, *groups: int) -> None:
        """Go on as another user; ``as 0`` comes back. The saved user stays root, which no permission check looks at."""
        os.setresuid(0, 0, 0)
        os.setgroups(groups)
        os.setresgid(gid or uid, gid or uid, 0)
        os.setresuid(uid, uid, 0)

    def do_umask(self, mask: int) -> None:
        os.umask(mask)

    def do_sleep(self, seconds: str | int) -> None:
        time.sleep(float(seconds))

    def do_limit_fsize(self, size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def do_exec(self, path: str, *arguments: str) -> int:
        """Run a program of the tree and wait for it: its exit code."""
        child = os.posix_spawn(path, [path, *map(str, arguments)], os.environ)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def do_copy_in(self, source: str, path: str, mode: int) -> None:
        """A copy of a program from outside of the tree."""
        with open(source, "rb") as program:
            data = program.read()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        os.write(fd, data)
        os.close(fd)

    def do_write_while_running(self, path: str, *flags: str) -> None:
        """Open a program for writing while it runs."""
        child = os.posix_spawn(path, [path, "20"], os.environ)
        try:
            end = time.monotonic() + 10
            while os.readlink(f"/proc/{child}/exe") == os.path.realpath(sys.executable) and time.monotonic() < end:
                time.sleep(0.002)
            os.close(os.open(path, named(flags[0] if flags else "WRONLY", "O_")))
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    # ── looking on ─────────────────────────────────────────────────────────────────────────────────

    def do_state(self, path: str = ".") -> dict[str, Any]:
        """All that is below a path from the top, as root sees it."""
        os.fchdir(self.views[self.view])
        Tree.at = (None, 0)
        user, group, groups = os.getresuid()[0], os.getresgid()[0], os.getgroups()
        if user:
            os.setresuid(0, 0, 0)
        try:
            return treestate.listing(path)
        finally:
            if user:
                self.do_as(user, group, *groups)

    def do_changing(self, watched: str, *op: Any) -> Any:
        """Make a call and tell, for each path watched (separated by commas), which of its times moved: ``{"d": "cm"}``.

        The times of access are left out: whether reading moves them is a matter of mount options. Those of a directory that another mount
        has changed may come later (docs/promises.md): they are to have come before.
        """
        paths = watched.split(",")
        time.sleep(TICK_S if len(self.views) == 1 else HEARD_S)
        before = {path: os.lstat(path) for path in paths if os.path.lexists(path)}
        time.sleep(TICK_S)
        result = self.run(list(op))
        moved = {}
        for path, old in before.items():
            with contextlib.suppress(FileNotFoundError):
                new = os.lstat(path)
                if new.st_ino != old.st_ino:
                    moved[path] = "another file"
                    continue
                moved[path] = ("c" if new.st_ctime_ns > old.st_ctime_ns else "") + ("m" if new.st_mtime_ns > old.st_mtime_ns else "")
                if new.st_ctime_ns < old.st_ctime_ns:
                    moved[path] += " ctime went back"
        return [result, moved]

    def do_fresh_times(self, path: str) -> list[str]:
        """Which of the times are those of now."""
        now, found = time.time(), os.lstat(path)
        return [name for name in ("atime", "mtime", "ctime") if abs(getattr(found, "st_" + name) - now) < 30]


def times(atime: str | int, mtime: str | int) -> ctypes.Array[ctypes.c_int64]:
    """The argument of utimensat: each ``now``, ``omit``, seconds, or seconds with nanoseconds, ``7.000000001``; below zero ``-3.5``."""
    values: list[int] = []
    for each in (atime, mtime):
        if each in ("now", "omit"):
            values += [0, UTIME_NOW if each == "now" else UTIME_OMIT]
            continue
        match = re.fullmatch(r"(-?\d+)(?:\.(\d{1,9}))?", str(each))
        assert match, each
        values += [int(match[1]), int((match[2] or "0").ljust(9, "0"))]
    return (ctypes.c_int64 * 4)(*values)
