"""The state of a tree, in a form in which two trees can be compared: nothing in it depends on the machine or the hour.

Times that were set by hand to before 2010 or after 2090 are told exactly, others as ``now``;
inode numbers only as which names are one file.
Sizes and block counts of directories are left out (every file system has its own), and so are the times of access, unless asked for.
"""

from __future__ import annotations

import hashlib
import os
import stat
from typing import Any

#: Times before and after these were set by the test (2010-01-01, 2090-01-01).
BEFORE_NS, AFTER_NS = 1_262_304_000 * 10**9, 3_786_912_000 * 10**9
#: Files longer than this (they have holes) are compared at both ends only.
WHOLE_MAX = 64 << 20
KINDS = {
    stat.S_IFREG: "reg", stat.S_IFDIR: "dir", stat.S_IFLNK: "lnk", stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "sock", stat.S_IFCHR: "chr", stat.S_IFBLK: "blk",
}  # fmt: skip
#: Attributes that amfs gives to every file.
OF_AMFS = "user.amfs."


def when(ns: int) -> str:
    return f"{ns // 10**9}.{ns % 10**9:09d}" if not BEFORE_NS <= ns <= AFTER_NS else "now"


def told(found: os.stat_result, fields: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields asked for, else all that can be compared."""
    kind = KINDS[stat.S_IFMT(found.st_mode)]
    everything: dict[str, Any] = {
        "type": kind,
        "mode": f"{stat.S_IMODE(found.st_mode):04o}",
        "nlink": found.st_nlink,
        "uid": found.st_uid,
        "gid": found.st_gid,
        "mtime": when(found.st_mtime_ns),
    }
    if kind in ("reg", "lnk"):
        everything["size"] = found.st_size
    if kind in ("chr", "blk"):
        everything["device"] = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    if not fields:
        return everything
    everything["atime"] = when(found.st_atime_ns)
    everything["some_blocks"] = found.st_blocks > 0
    return {field: everything[field] for field in fields if field in everything}


def attributes(path: str) -> list[str]:
    return sorted(name for name in os.listxattr(path, follow_symlinks=False) if not name.startswith(OF_AMFS))


def content(path: str, size: int) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        if size > WHOLE_MAX:
            parts = [os.pread(fd, 4096, 0), os.pread(fd, 4096, size - 4096)]
        else:
            parts = []
            while part := os.read(fd, 1 << 20):
                parts.append(part)
    finally:
        os.close(fd)
    data = b"".join(parts)
    return data.decode("latin-1") if len(data) <= 40 else f"{len(data)} bytes {hashlib.blake2b(data, digest_size=8).hexdigest()}"


def listing(top: str, seen: dict[str, os.stat_result] | None = None) -> dict[str, Any]:
    """Path below ``top`` → what is there; ``seen`` is given what lstat said of each. Raises OSError when something cannot be looked at."""
    found: dict[str, Any] = {}
    first: dict[tuple[int, int], str] = {}

    def visit(path: str, name: str) -> None:
        status = os.lstat(path)
        entry = told(status)
        if entry["type"] == "lnk":
            entry["target"] = os.readlink(path)
        if seen is not None:
            seen[name] = status
        if entry["type"] == "reg":
            entry["content"] = content(path, status.st_size)
        if entry["type"] in ("reg", "dir"):
            try:
                entry["xattrs"] = {each: os.getxattr(path, each).decode("latin-1") for each in attributes(path)}
            except OSError as error:
                entry["xattrs"] = os.strerror(error.errno or 0)
        if entry["type"] != "dir" and status.st_nlink > 1:
            entry["same as"] = first.setdefault((status.st_dev, status.st_ino), name)
        found[name] = entry
        if entry["type"] == "dir":
            with os.scandir(path) as scan:
                children = sorted((child.name, child.is_dir(follow_symlinks=False)) for child in scan)
            entry["entries"] = len(children)
            for child, _ in children:
                visit(f"{path}/{child}", f"{name}/{child}" if name != "." else child)

    visit(top, ".")
    # A difference of the top's own link count and mode is of interest, its time of change is not: cases begin in it.
    found["."].pop("mtime")
    return found


def differences(wanted: dict[str, Any], got: dict[str, Any]) -> list[str]:
    """One line for each thing in which two listings differ."""
    lines = []
    for path in sorted(wanted.keys() | got.keys()):
        if path not in got:
            lines.append(f"{path!r} is missing ({wanted[path]['type']})")
        elif path not in wanted:
            lines.append(f"{path!r} ({got[path]['type']}) should not be there")
        else:
            for field in sorted(wanted[path].keys() | got[path].keys()):
                one, other = wanted[path].get(field), got[path].get(field)
                if one != other:
                    lines.append(f"{path!r}: {field} is {other!r}, should be {one!r}")
    return lines
