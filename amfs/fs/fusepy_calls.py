"""What fusepy or mfusepy calls: libfuse's operations, handed to the mount (``fusepy_adapter.Portable``). Knows no file system.

``_operations`` serves with any of the two. With fusepy 3 what is called most is taken over before fusepy turns it into words: it spends
more on a dictionary of attributes than the file system does on finding them.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import operator
import os
import stat
import struct
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from amfs.fs.attr import META_SET_ATIME, META_SET_GID, META_SET_MODE, META_SET_MTIME, META_SET_UID, NAME_MAX, Attr

if TYPE_CHECKING:
    from amfs.fs.fusepy_adapter import Facts, Portable

log = logging.getLogger("amfs.fs")

_COARSE = 5  # CLOCK_REALTIME_COARSE
_NO_ID = 0xFFFFFFFF
_BLOCK = 4096
_TIME_MAX = (1 << 63) - 1
_UTIME_NOW, _UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2  # as nanoseconds
_OVERRIDDEN = ("getattr", "fgetattr", "open", "create", "read", "write", "flush", "release", "unlink", "getxattr", "readdir", "utimens")


def serve(face: Portable, binding: Any, path: str, **options: Any) -> None:
    """Mount at ``path`` and serve until it is unmounted. Raises RuntimeError when libfuse fails."""
    mount = _quick(face, binding) if binding.__name__ == "fuse" and _is_known(binding.FUSE) else binding.FUSE
    mount(_operations(face, binding), path, **options)


def _is_known(fuse: type) -> bool:
    return all(hasattr(fuse, name) for name in ("_wrapper", *_OVERRIDDEN))


def now() -> int:
    """In nanoseconds, as the kernel stamps files."""
    return time.clock_gettime_ns(_COARSE)


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


def _operations(face: Portable, binding: Any) -> Any:
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
            face.handle(fh).flush()
            return 0

        #: Without it closing is one question less, and only that of its last descriptor ends the use of a file.
        flush = None if face.writes_through else _flush

        def fsync(self, path: str | None, datasync: int, fh: int) -> int:
            face.handle(fh).flush()
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
            face.ask("mkdir", *face.place(_raw(path)), stat.S_IFDIR | mode)
            return 0

        def rmdir(self, path: str) -> int:
            face.ask("rmdir", *face.place(_raw(path)))
            face.forget()
            return 0

        def mknod(self, path: str, mode: int, dev: int) -> int:
            face.ask("mknod", *face.place(_raw(path)), mode, dev)
            return 0

        def symlink(self, target: str, source: str) -> int:
            face.ask("symlink", *face.place(_raw(target)), _raw(source))
            return 0

        def readlink(self, path: str) -> str:
            return bytes(face.ask("readlink", face.look(_raw(path))[0])).decode("latin-1")

        def link(self, target: str, source: str) -> int:
            face.ask("link", face.look(_raw(source))[0], *face.place(_raw(target)))
            return 0

        def rename(self, old: str, new: str) -> int:
            face.ask("rename", *face.place(_raw(old)), *face.place(_raw(new)), 0)
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
            bsize, blocks, bfree, bavail, files, ffree = face.ask("statfs")
            return {
                "f_bsize": bsize, "f_frsize": bsize, "f_blocks": blocks, "f_bfree": bfree, "f_bavail": bavail, "f_files": files,
                "f_ffree": ffree, "f_namemax": NAME_MAX,
            }  # fmt: skip

        def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
            return get_xattr(face, _raw(path), _raw(name))

        def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
            if not name.startswith(("user.", "trusted.", "security.")):
                raise OSError(errno.EOPNOTSUPP, name)
            if name.endswith(".") and name.count(".") == 1:
                raise OSError(errno.EINVAL, name)
            face.ask("set_xattr", face.look(_raw(path))[0], _raw(name), bytes(value), options)
            return 0

        def listxattr(self, path: str) -> list[str]:
            names = bytes(face.ask("list_xattr", face.look(_raw(path))[0])).split(b"\0")
            hidden = b"trusted." if binding.fuse_get_context()[0] else b"\0"
            return [name.decode("latin-1") for name in names if name and not name.startswith(hidden)]

        def removexattr(self, path: str, name: str) -> int:
            face.ask("remove_xattr", face.look(_raw(path))[0], _raw(name))
            return 0

    return Operations()


def get_xattr(face: Portable, path: bytes, name: bytes) -> bytes:
    if name.startswith(b"system."):
        raise OSError(errno.EOPNOTSUPP, "no such attributes")
    return face.xattr(path, name)


def set_times(face: Portable, path: bytes, *times: tuple[int, int]) -> None:
    """(seconds, nanoseconds) of access and modification; nanoseconds may be UTIME_NOW and UTIME_OMIT."""
    mask, wanted = 0, {}
    for (seconds, ns), name, bit in zip(times, ("atime", "mtime"), (META_SET_ATIME, META_SET_MTIME), strict=True):
        if seconds or ns != _UTIME_OMIT:
            mask |= bit
            wanted[name] = now() if not seconds and ns == _UTIME_NOW else _time(seconds, ns)
    if mask:
        face.change(path, mask, **wanted)


# ── fusepy, without the words ──────────────────────────────────────────────────────────────────────


def _packer(kind: Any) -> Callable[[Facts], bytes]:
    """Makes a ``struct stat`` of an attribute tuple, whatever its order is on this machine."""
    names = {
        "st_ino": "ino", "st_mode": "mode", "st_nlink": "nlink", "st_uid": "uid", "st_gid": "gid", "st_rdev": "rdev", "st_size": "size",
        "st_blocks": "blocks", "st_atimespec": "atime", "st_mtimespec": "mtime", "st_ctimespec": "ctime",
    }  # fmt: skip
    letters = {1: "B", 2: "H", 4: "I", 8: "Q"}
    # What is packed is chosen out of: the attributes, two numbers for each time, and the block size.
    first = len(Attr._fields)
    times = {"atime": first, "mtime": first + 2, "ctime": first + 4}
    form, chosen, at = "=", [], 0
    for name, _ in kind._fields_:
        field = getattr(kind, name)
        form += f"{field.offset - at}x"
        at = field.offset + field.size
        if name.endswith("spec") and name in names and field.size == 16:
            form += "qq"
            chosen += [times[names[name]], times[names[name]] + 1]
        elif name == "st_blksize" or name in names:
            form += letters[field.size]
            chosen.append(first + 6 if name == "st_blksize" else Attr._fields.index(names[name]))
        else:
            form += f"{field.size}x"
    pack, pick = struct.Struct(f"{form}{ctypes.sizeof(kind) - at}x").pack, operator.itemgetter(*chosen)
    atime, mtime, ctime = (Attr._fields.index(name) for name in times)

    def packed(attr: Facts) -> bytes:
        a, m, c = divmod(attr[atime], 10**9), divmod(attr[mtime], 10**9), divmod(attr[ctime], 10**9)
        return pack(*pick((*attr, *a, *m, *c, _BLOCK)))

    return packed


def _quick(face: Portable, binding: Any) -> Any:
    """fusepy's FUSE with the calls of OVERRIDDEN replaced: arguments as ctypes has them."""
    pack, size = _packer(binding.c_stat), ctypes.sizeof(binding.c_stat)
    move, string_at = ctypes.memmove, ctypes.string_at
    entry = binding.c_stat()

    class Quick(binding.FUSE):  # type: ignore[misc]
        @staticmethod
        def _wrapper(call: Callable[..., int | None], *args: Any) -> int:
            try:
                return call(*args) or 0
            except OSError as error:
                return -(error.errno or errno.EIO)
            except Exception:
                log.exception("a call of libfuse")
                return -errno.EIO

        def getattr(self, path: bytes, buf: Any) -> None:
            face.served += 1
            move(buf, pack(face.look(path)), size)

        def fgetattr(self, path: bytes | None, buf: Any, fip: Any) -> None:
            face.served += 1
            move(buf, pack(face.about_open(fip.contents.fh)), size)

        def readdir(self, path: bytes | None, buf: Any, filler: Any, offset: int, fip: Any) -> None:
            for name, entry.st_ino, entry.st_mode in face.list(fip.contents.fh):
                if filler(buf, name, entry, 0) != 0:
                    break

        def open(self, path: bytes, fip: Any) -> None:
            face.served += 1
            info = fip.contents
            info.fh = face.open(path, info.flags)

        def create(self, path: bytes, mode: int, fip: Any) -> None:
            face.served += 1
            fip.contents.fh = face.create(path, mode)

        def read(self, path: bytes | None, buf: Any, count: int, offset: int, fip: Any) -> int:
            data = face.handle(fip.contents.fh).read(count, offset)
            move(buf, data, len(data))
            return len(data)

        def write(self, path: bytes | None, buf: Any, count: int, offset: int, fip: Any) -> int:
            face.write(fip.contents.fh, string_at(buf, count), offset)
            return count

        def flush(self, path: bytes | None, fip: Any) -> None:
            face.handle(fip.contents.fh).flush()

        def release(self, path: bytes | None, fip: Any) -> None:
            face.release(fip.contents.fh)

        def unlink(self, path: bytes) -> None:
            face.unlink(path)

        def getxattr(self, path: bytes, name: bytes, value: Any, room: int, *_: Any) -> int:
            found = get_xattr(face, path, name)
            if not value:
                return len(found)
            if len(found) > room:
                return -errno.ERANGE
            move(value, found, len(found))
            return len(found)

        def utimens(self, path: bytes, buf: Any) -> None:
            times = (buf.contents.actime, buf.contents.modtime) if buf else ()
            set_times(face, path, *(((each.tv_sec, each.tv_nsec) for each in times) if times else ((0, _UTIME_NOW),) * 2))

    return Quick
