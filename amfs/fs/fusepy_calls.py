"""libfuse's operations, as fusepy or mfusepy calls them, handed to the mount (``fusepy_adapter.FusepyAdapter``). Knows no file system."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import Any

from amfs.fs.fusepy_adapter import Facts, FusepyAdapter, now
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.attr import META_SET_ATIME, META_SET_GID, META_SET_MODE, META_SET_MTIME, META_SET_UID, NAME_MAX, Attr

_NO_ID = 0xFFFFFFFF
_BLOCK = 4096
_TIME_MAX = (1 << 63) - 1
_CAPABILITY = "security.capability"  # as csrc/fuse/fuse_xattr.c has it
_UTIME_NOW, _UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2  # as nanoseconds


def serve(face: FusepyAdapter, binding: Any, path: str, **options: Any) -> None:
    """Mount at ``path`` and serve until it is unmounted. Raises RuntimeError when libfuse fails."""
    binding.FUSE(_operations(face, binding), path, **options)


def _time(seconds: int, ns: int) -> int:
    return max(-_TIME_MAX - 1, min(seconds * 10**9 + ns, _TIME_MAX))


def _facts(attr: Facts) -> dict[str, int]:
    it = Attr._make(attr)
    return {
        "st_ino": it.ino, "st_mode": it.mode, "st_nlink": it.nlink, "st_uid": it.uid, "st_gid": it.gid, "st_rdev": it.rdev,
        "st_size": it.size, "st_blocks": it.blocks, "st_blksize": _BLOCK, "st_atime": it.atime, "st_mtime": it.mtime, "st_ctime": it.ctime,
    }  # fmt: skip


def _raw(path: str) -> bytes:
    return path.encode("latin-1")


def _operations(face: FusepyAdapter, binding: Any) -> Any:
    """libfuse's calls, by path."""

    class Operations(binding.Operations):  # type: ignore[misc]
        use_ns = True
        #: libfuse 2: paths are not needed where a number is, nor all times at once.
        flag_nullpath_ok = flag_nopath = flag_utime_omit_ok = 1

        def init(self, path: str) -> None:
            face.started = True
            os.eventfd_write(face.fd, 1)

        def getattr(self, path: str | None, fh: int | None = None) -> dict[str, int]:
            face.served += 1
            return _facts(face.look(_raw(path)) if fh is None and path is not None else face.about_open(fh or 0))

        def opendir(self, path: str) -> int:
            return face.directory(_raw(path))

        def readdir(self, path: str | None, fh: int) -> Iterator[tuple[str, dict[str, int], int]]:
            for name, ino, kind in face.list(fh):
                yield name.decode("latin-1"), {"st_ino": ino, "st_mode": kind}, 0

        def open(self, path: str, flags: int) -> int:
            face.served += 1
            return face.open(_raw(path), flags)

        def create(self, path: str, mode: int, fi: Any = None) -> int:
            face.served += 1
            return face.create(_raw(path), mode)

        def read(self, path: str | None, size: int, offset: int, fh: int) -> bytes:
            return face.handle(fh).read(size, offset)

        def write(self, path: str | None, data: bytes, offset: int, fh: int) -> int:
            face.write(fh, data, offset)
            return len(data)

        def _flush(self, path: str | None, fh: int) -> int:
            face.flush(fh)
            return 0

        #: Without it closing is one question less, and only that of its last descriptor ends the use of a file.
        flush = None if face.writes_through and not face.meta.copies_wanted() else _flush

        def fsync(self, path: str | None, datasync: int, fh: int) -> int:
            face.flush(fh)
            return 0

        def release(self, path: str | None, fh: int) -> int:
            face.release(fh)
            return 0

        def truncate(self, path: str | None, length: int, fh: int | None = None) -> int:
            face.truncate(None if path is None else _raw(path), length, fh)
            return 0

        def unlink(self, path: str) -> int:
            face.unlink(_raw(path))
            return 0

        def mkdir(self, path: str, mode: int) -> int:
            face.ask(q.Mkdir(*face.place(_raw(path)), stat.S_IFDIR | mode))
            return 0

        def rmdir(self, path: str) -> int:
            face.ask(q.Rmdir(*face.place(_raw(path))))
            face.forget()
            return 0

        def mknod(self, path: str, mode: int, dev: int) -> int:
            face.ask(q.Mknod(*face.place(_raw(path)), mode, dev))
            return 0

        def symlink(self, target: str, source: str) -> int:
            face.ask(q.Symlink(*face.place(_raw(target)), _raw(source)))
            return 0

        def readlink(self, path: str) -> str:
            return bytes(face.ask(q.Readlink(face.look(_raw(path))[0]))).decode("latin-1")

        def link(self, target: str, source: str) -> int:
            face.ask(q.Link(face.look(_raw(source))[0], *face.place(_raw(target))))
            return 0

        def rename(self, old: str, new: str) -> int:
            face.ask(q.Rename(*face.place(_raw(old)), *face.place(_raw(new)), 0))
            face.forget()
            return 0

        def chmod(self, path: str, mode: int) -> int:
            face.change(_raw(path), META_SET_MODE, mode=stat.S_IMODE(mode))
            return 0

        def chown(self, path: str, uid: int, gid: int) -> int:
            mask = (META_SET_UID if uid & _NO_ID != _NO_ID else 0) | (META_SET_GID if gid & _NO_ID != _NO_ID else 0)
            face.change(_raw(path), mask, uid=uid & _NO_ID, gid=gid & _NO_ID)
            return 0

        def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
            set_times(face, _raw(path), *((0, each) for each in times or (_UTIME_NOW, _UTIME_NOW)))
            return 0

        def statfs(self, path: str) -> dict[str, int]:
            bsize, blocks, bfree, bavail, files, ffree = face.ask(q.Statfs())
            return {
                "f_bsize": bsize, "f_frsize": bsize, "f_blocks": blocks, "f_bfree": bfree, "f_bavail": bavail, "f_files": files,
                "f_ffree": ffree, "f_namemax": NAME_MAX,
            }  # fmt: skip

        def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
            if name.startswith("system."):
                raise OSError(errno.EOPNOTSUPP, "no such attributes")
            if name == _CAPABILITY:
                raise OSError(errno.ENODATA, name)
            return face.xattr(_raw(path), _raw(name))

        def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
            if not name.startswith(("user.", "trusted.", "security.")) or name == _CAPABILITY:
                raise OSError(errno.EOPNOTSUPP, name)
            if name.endswith(".") and name.count(".") == 1:
                raise OSError(errno.EINVAL, name)
            face.ask(q.SetXattr(face.look(_raw(path))[0], _raw(name), bytes(value), options))
            return 0

        def listxattr(self, path: str) -> list[str]:
            names = bytes(face.ask(q.ListXattr(face.look(_raw(path))[0]))).split(b"\0")
            hidden = b"trusted." if binding.fuse_get_context()[0] else b"\0"
            return [name.decode("latin-1") for name in names if name and not name.startswith(hidden)]

        def removexattr(self, path: str, name: str) -> int:
            face.ask(q.RemoveXattr(face.look(_raw(path))[0], _raw(name)))
            return 0

    return Operations()


def set_times(face: FusepyAdapter, path: bytes, *times: tuple[int, int]) -> None:
    """(seconds, nanoseconds) of access and modification; nanoseconds may be UTIME_NOW and UTIME_OMIT."""
    mask, wanted = 0, {}
    for (seconds, ns), name, bit in zip(times, ("atime", "mtime"), (META_SET_ATIME, META_SET_MTIME), strict=True):
        if seconds or ns != _UTIME_OMIT:
            mask |= bit
            wanted[name] = now() if not seconds and ns == _UTIME_NOW else _time(seconds, ns)
    if mask:
        face.change(path, mask, **wanted)
