"""The same calls made in two trees at the same time, in one process, and compared. Random sequences run on them.

A tree that is seen through the mounts of two nodes is coherent for an open file from close to open only. So while a file is open on one
node, calls that have to do with its data, size and times go through that node too; all others go through any. The times of a directory that
another node has just changed may be as old as the messages under way (docs/promises.md): they are looked at again, for a second at most.
A node sees its own changes at once. Files that a kernel judges by its last look are looked at before the call. Set-id bits, which have no
effect and go earlier where another node has the record, are not used between two nodes.
"""

# ruff: noqa: E501  (the tables at the end)

from __future__ import annotations

import contextlib
import functools
import os
import random
import shlex
import shutil
import stat
import time
from pathlib import Path
from typing import Any

import treestate
from mounting import WITHOUT
from syscalls import Tree

#: Calls on a path that touch or tell what an open file may have changed.
OF_DATA = {"open", "truncate", "read_file", "write_file", "append_file", "stat", "lstat", "utimens", "getxattr", "setxattr"}
#: Compared of a file that is open on a node, when it is looked at from another.
WHEREVER = {"type", "mode", "uid", "gid", "nlink", "same as"}

#: Calls that change nothing but times of access.
LOOKS = {"stat", "lstat", "fstat", "read", "pread", "mread", "read_file", "listdir", "listxattr", "getxattr", "readlink", "eaccess", "lseek", "as"}
#: Calls that a kernel judges by the owner, or carries out at the place, that it saw last.
JUDGED = {"chmod", "chown", "lchown", "utimens", "setxattr", "removexattr", "unlink", "rmdir", "rename", "link"}
#: How long news of a changed directory may be under way.
LATE_S = 1.0
#: Calls that when they succeed have changed a directory, that of the name in this place; of others it is not known.
NAMES_AT = {"mkdir": 1, "rmdir": 1, "unlink": 1, "mknod": 1, "symlink": 2, "link": 2, "flink": 2}

Op = list[Any]
#: A call and the mount it is meant to go through.
Turn = tuple[int, Op]


class Difference(Exception):
    """The two trees do not agree any more; says in what."""


def _is_of_rights(op: Op) -> bool:
    """Changes by which a kernel judges an open file, and of which it learns from another node only when it looks up the name again."""
    return op[0] in ("chown", "lchown") or (op[0] == "chmod" and bool(op[2] & 0o6000))


class Twins:
    """A fresh directory in both trees. Raises Difference from ``run`` and ``check``; close it in any case."""

    #: How the tested tree is called; the suites' own tests plant faults here.
    tested_tree = Tree

    def __init__(self, oracle: Path, mounts: list[Path]) -> None:
        name = f"twins-{os.getpid()}-{os.urandom(4).hex()}"
        self.tops = (oracle / name, mounts[0] / name)
        for top in self.tops:
            # A directory between, so that a link to .. leads to the same nothing in both.
            for directory, mode in ((top, 0o755), (top / "in", 0o777)):
                directory.mkdir()
                os.chown(directory, 0, 0)
                os.chmod(directory, mode)
        self.good = Tree(*[str(self.tops[0] / "in")] * len(mounts))
        self.tested = self.tested_tree(*[str(mount / name / "in") for mount in mounts])
        self.views = len(mounts)
        #: Slot → (mount, inode in the oracle) of open files.
        self.opened: dict[Any, tuple[int, int]] = {}
        #: Inode of a directory in the oracle → the mount through which its entries were changed last, where that is known for sure.
        self.touched: dict[int, int | None] = {}

    def close(self) -> str:
        """Remove all; gives what could not be removed, in words, else nothing."""
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups([])
        self.good.close()
        self.tested.close()
        errors: list[str] = []
        for top in self.tops:
            shutil.rmtree(top, onerror=lambda _, path, info: errors.append(f"{path}: {info[1]}"))
        return f"what was made cannot be removed: {errors[0]}" if errors else ""

    def node_of(self, view: int, op: Op) -> int:
        """The mount that a call has to go through."""
        if self.views == 1:
            return 0
        view %= self.views
        if len(op) > 1 and op[1] in self.opened and op[0] not in ("open", "opendir"):
            return self.opened[op[1]][0]
        if (op[0] in OF_DATA or _is_of_rights(op)) and self.opened:
            path = op[2] if op[0] == "open" else op[1]
            self.good.enter(0)
            try:
                inode = os.stat(path).st_ino
            except (OSError, ValueError):
                return view
            for node, opened in self.opened.values():
                if opened == inode:
                    return node
        return view

    def run(self, turn: Turn) -> Any:
        view, op = turn
        if self.views > 1:
            op = [each & 0o1777 if each in SET_ID_MODES else each for each in op]
        # Places in a directory are each file system's own, and so is whether a pipe's write moves the time of its name.
        if self.views > 1 and op[0] != "open" and self._is_ghost(op):
            return None
        if op[0] in ("lseek", "write") and op[1] in self.good.files:
            mode = os.fstat(self.good.files[op[1]]).st_mode
            if stat.S_ISDIR(mode) or stat.S_ISFIFO(mode):
                return None
        # Where opening is not told (--cache open), cutting an empty file to nothing is taken for O_TRUNC, which changes its time.
        if op[0] == "truncate" and op[2] == 0:
            self.good.enter(0)
            with contextlib.suppress(OSError):
                if os.stat(op[1]).st_size == 0:
                    return None
        # The kernel asks in the same words as before a write whether to change nothing of a set-id file (docs/reference/mount.md).
        if op[0] in ("chown", "lchown") and op[2:4] == [-1, -1] and self.opened:
            self.good.enter(0)
            with contextlib.suppress(OSError):
                if (os.stat if op[0] == "chown" else os.lstat)(op[1]).st_mode & 0o6000:
                    return None
        # libfuse gives a removed file that is open a hidden name, and knows nothing of a removed directory.
        if "removed-open" in WITHOUT and op[0] in ("unlink", "rmdir", "rename"):
            self.good.enter(0)
            with contextlib.suppress(OSError):
                if os.lstat(op[2] if op[0] == "rename" else op[1]).st_ino in {inode for _, inode in self.opened.values()}:
                    return None
        if op[0] in ("write_file", "append_file"):
            self.good.enter(0)
            with contextlib.suppress(OSError):
                if stat.S_ISFIFO(os.stat(op[1]).st_mode):
                    return None
        node = self.node_of(view, op)
        if self.views > 1 and op[0] in JUDGED:
            for path in filter(lambda each: isinstance(each, str), op[1:3]):
                self.tested.run(["lstat", path], node)
        good = self.good.run(op, node)
        found = self.tested.run(op, node)
        end = time.monotonic() + LATE_S
        while good != found and self._may_be_late(node, {"": good}, {"": found}, {"": self._inode(op)}) and time.monotonic() < end:
            time.sleep(LATE_S / 50)
            found = self.tested.run(op, node)
        if op[0] not in LOOKS and not str(good).startswith("!"):
            self._note_touched(node, op)
        if good != found:
            raise Difference(f"gave {found!r}, should give {good!r}")
        if op[0] == "open":
            self.opened.pop(op[1], None)
            if op[1] in self.good.files:
                self.opened[op[1]] = (node, os.fstat(self.good.files[op[1]]).st_ino)
        elif op[0] == "dup" and good is None:
            self.opened[op[2]] = self.opened[op[1]]
        elif op[0] == "close":
            self.opened.pop(op[1], None)
        return good

    def _inode(self, op: Op) -> int:
        """Of what a call is about, in the oracle; 0: it is not there."""
        if len(op) > 1 and op[1] in self.opened:
            return self.opened[op[1]][1]
        self.good.enter(0)
        with contextlib.suppress(OSError, ValueError, TypeError):
            return (os.lstat if op[0] == "lstat" else os.stat)(op[1]).st_ino
        return 0

    def _note_touched(self, node: int, op: Op) -> None:
        self.good.enter(0)
        for place, path in enumerate(op[1:3], 1):
            # A path itself may lead to a directory as well, that somebody else has changed.
            for each, sure in ((path, False), (os.path.dirname(path) or ".", NAMES_AT.get(op[0]) == place)) if isinstance(path, str) else ():
                with contextlib.suppress(OSError, ValueError):
                    inode = os.stat(each).st_ino
                    self.touched[inode] = node if sure or self.touched.get(inode) == node else None

    def _may_be_late(self, view: int, good: dict[str, Any], found: dict[str, Any], inodes: dict[str, int]) -> bool:
        """Is all that differs the times of directories that this node has not changed last itself?"""
        if self.views == 1 or good.keys() != found.keys():
            return False
        pairs = [(good[name], found[name], inodes[name]) for name in good if good[name] != found[name]]
        return all(
            isinstance(a, dict)
            and isinstance(b, dict)
            and a.get("type") == "dir"
            and {**a, "mtime": ""} == {**b, "mtime": ""}
            and self.touched.get(inode) != view
            for a, b, inode in pairs
        )

    def _is_ghost(self, op: Op) -> bool:
        """Is it about something open that is no file, and has been removed? If another node has done that it is ESTALE (docs/promises.md)."""
        slots = [each for each in op[1:3] if each in self.opened and each in self.good.files]
        found = [os.fstat(self.good.files[slot]) for slot in slots]
        return any(each.st_nlink == 0 and not stat.S_ISREG(each.st_mode) for each in found) and op[0] not in ("close", "closedir")

    def hints(self) -> Hints:
        """The present tree, as the oracle has it."""
        self.good.enter(0)
        paths: list[str] = []
        below: list[str] = []
        for top, directories, files in os.walk("."):
            paths += [f"{top}/{name}"[2:] for name in (*directories, *files)]
            below += [f"{top}/{name}"[2:] for name in directories if top.count("/") < 2]
        return Hints(sorted(paths), sorted(below), sorted(self.opened))

    def check(self, view: int = 0) -> None:
        """Compare the whole trees, the tested one seen through one of its mounts."""
        view %= self.views
        end = time.monotonic() + LATE_S
        good, found, inodes = self._listings(view)
        while good != found and self._may_be_late(view, good, found, inodes) and time.monotonic() < end:
            time.sleep(LATE_S / 50)
            good, found, inodes = self._listings(view)
        if lines := treestate.differences(good, found):
            raise Difference("\n    ".join([f"the tree (mount {view}):", *lines]))

    def _listings(self, view: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
        """Of the oracle and of what is tested, and inodes in the oracle."""
        user = os.getresuid()[0]
        os.setresuid(0, 0, 0)
        listings = []
        seen: tuple[dict[str, os.stat_result], dict[str, os.stat_result]] = ({}, {})
        for tree, stats in zip((self.good, self.tested), seen, strict=True):
            tree.enter(view)
            try:
                listings.append(treestate.listing(".", stats))
            except OSError as error:
                raise Difference(f"the tree cannot be looked at through mount {view}: {error}") from error
        os.setresuid(user, user, 0)
        good, found = listings
        elsewhere = {inode for node, inode in self.opened.values() if node != view}
        inodes = {name: status.st_ino for name, status in seen[0].items()}
        for name, inode in inodes.items():
            if inode in elsewhere and name in found:
                for listing in listings:
                    listing[name] = {field: told for field, told in listing[name].items() if field in WHEREVER}
        return good, found, inodes


# ── random sequences ───────────────────────────────────────────────────────────────────────────────

NAMES = "abcd"
SLOTS = 6
MODES = (0o644, 0o600, 0o755, 0o777, 0o400, 0o4755, 0o2775, 0o1777, 0)
SET_ID_MODES = (0o4755, 0o2775)
USERS = (0, 0, 0, 0, 2001, 2002)
PLACES = (0, 0, 1, 7, 100, 4095, 4096, 4097, 65536, 131072, 524287, 524288, 524300, 1_200_000)
LENGTHS = (0, 1, 2, 10, 100, 4095, 4096, 4097, 70000, 131073)
FLAGS = ("RDONLY", "WRONLY", "RDWR", "RDWR", "RDWR|CREAT", "RDWR|CREAT", "RDWR|CREAT", "RDWR|CREAT|EXCL", "WRONLY|CREAT|TRUNC", "RDWR|TRUNC", "WRONLY|CREAT|APPEND", "RDWR|APPEND", "RDONLY|DIRECTORY", "RDWR|NOFOLLOW")  # fmt: skip


class Hints:
    """The present things, so that most calls find something: names, directories, slots of open files. Without, calls are made blindly."""

    def __init__(self, paths: list[str], directories: list[str], slots: list[Any]) -> None:
        self.paths, self.directories, self.slots = paths, directories, slots


NO_HINTS = Hints([], [], [])


def path(rng: random.Random, hints: Hints = NO_HINTS) -> str:
    """Mostly of what is there."""
    return rng.choice(hints.paths) if hints.paths and rng.random() < 0.8 else new_path(rng, hints)


def new_path(rng: random.Random, hints: Hints) -> str:
    """Mostly in a directory that is there."""
    if hints.paths and rng.random() < 0.8:
        directory = rng.choice([".", ".", *hints.directories])
        return rng.choice(NAMES) if directory == "." else f"{directory}/{rng.choice(NAMES)}"
    return "/".join(rng.choice(NAMES) for _ in range(rng.choice((1, 1, 1, 2, 2, 2, 3))))


def data(rng: random.Random) -> str:
    """Told apart at every byte, so that bytes of the wrong place or the wrong write are seen."""
    length = rng.choice(LENGTHS)
    return pattern(rng.randrange(256), length)


@functools.cache
def pattern(seed: int, length: int) -> str:
    return bytes((seed + n * 7 + (n >> 8) * 13) & 255 for n in range(min(length, 4200))).decode("latin-1") * max(1, length // 4200)


def time_of(rng: random.Random) -> str:
    seconds = rng.choice((-(10**9), 0, 4 * 10**9)) + rng.randrange(10**9)
    return rng.choice(("now", "omit", f"{seconds}.{rng.randrange(10**9):09d}"))


def random_op(rng: random.Random, hints: Hints = NO_HINTS) -> Op:
    while WITHOUT.intersection("|".join(map(str, op := any_op(rng, hints))).split("|")):
        pass
    return op


def any_op(rng: random.Random, hints: Hints) -> Op:
    kind = rng.choice(KINDS)
    slot = rng.choice(hints.slots) if hints.slots and rng.random() < 0.9 else rng.randrange(SLOTS)
    where, size = rng.choice(PLACES), rng.choice(LENGTHS)
    match kind:
        case "mkdir":
            return [kind, new_path(rng, hints), rng.choice(MODES) | 0o700]
        case "rmdir" | "unlink" | "read_file" | "lstat" | "stat" | "readlink" | "listdir" | "listxattr":
            return [kind, path(rng, hints)]
        case "symlink":
            return [kind, rng.choice((path(rng, hints), "../" + path(rng, hints), "nowhere", "b")), new_path(rng, hints)]
        case "link":
            return [kind, path(rng, hints), new_path(rng, hints)]
        case "rename":
            return [kind, path(rng, hints), rng.choice((path(rng, hints), new_path(rng, hints))), *rng.choice(((), (), (), ("NOREPLACE",), ("EXCHANGE",)))]
        case "mknod":
            return [kind, new_path(rng, hints), rng.choice(("fifo", "sock", "reg")), rng.choice(MODES), 1, 3]
        case "write_file":
            return [kind, rng.choice((path(rng, hints), new_path(rng, hints))), data(rng), rng.choice(MODES)]
        case "append_file":
            return [kind, path(rng, hints), data(rng)]
        case "truncate":
            return [kind, path(rng, hints), where]
        case "chmod":
            return [kind, path(rng, hints), rng.choice(MODES)]
        case "chown" | "lchown":
            return [kind, path(rng, hints), rng.choice((-1, 0, 2001, 2002)), rng.choice((-1, 0, 2001, 2005))]
        case "utimens":
            return [kind, path(rng, hints), time_of(rng), time_of(rng), *rng.choice(((), ("nofollow",)))]
        case "setxattr":
            return [kind, path(rng, hints), rng.choice(("user.a", "user.b")), data(rng)[:300], *rng.choice(((), ("CREATE",), ("REPLACE",)))]
        case "getxattr" | "removexattr":
            return [kind, path(rng, hints), rng.choice(("user.a", "user.b"))]
        case "eaccess":
            return [kind, path(rng, hints), rng.choice(("F_OK", "R_OK", "W_OK", "X_OK"))]
        case "as":
            return [kind, rng.choice(USERS)]
        case "open":
            return [kind, rng.randrange(SLOTS), rng.choice((path(rng, hints), new_path(rng, hints))), rng.choice(FLAGS) + "|NONBLOCK", rng.choice(MODES)]
        case "close" | "fsync" | "fstat":
            return [kind, slot]
        case "write":
            return [kind, slot, data(rng)]
        case "pwrite":
            return [kind, slot, data(rng), where]
        case "read":
            return [kind, slot, size]
        case "pread" | "mread":
            return [kind, slot, max(1, size), where]
        case "mwrite":
            return [kind, slot, data(rng) or "x", where]
        case "lseek":
            return [kind, slot, where, rng.choice(("SEEK_SET", "SEEK_SET", "SEEK_END"))]
        case "ftruncate":
            return [kind, slot, where]
        case "fchmod":
            return [kind, slot, rng.choice(MODES)]
        case "futimens":
            return [kind, slot, time_of(rng), time_of(rng)]
        case "fallocate":
            return [kind, slot, rng.choice((0, "KEEP_SIZE", "PUNCH_HOLE|KEEP_SIZE")), where, max(1, size)]
        case "copy_range":
            return [kind, slot, rng.randrange(SLOTS), size, where, rng.choice(PLACES)]
        case "flink":
            return [kind, slot, new_path(rng, hints)]
        case "dup":
            return [kind, slot, rng.randrange(SLOTS, 2 * SLOTS)]
    raise AssertionError(kind)


#: How often which call is made.
KINDS = [
    name
    for name, weight in {
        "mkdir": 5, "rmdir": 2, "unlink": 4, "read_file": 4, "lstat": 2, "stat": 1, "readlink": 1, "listdir": 2, "listxattr": 1, "symlink": 2, "link": 3,
        "rename": 8, "mknod": 1, "write_file": 7, "append_file": 3, "truncate": 3, "chmod": 2, "chown": 1, "lchown": 1, "utimens": 2, "setxattr": 1,
        "getxattr": 1, "removexattr": 1, "eaccess": 1, "as": 1, "open": 9, "close": 2, "fsync": 1, "fstat": 2, "write": 5, "pwrite": 5, "read": 3, "pread": 4,
        "mread": 2, "mwrite": 2, "lseek": 2, "ftruncate": 3, "fchmod": 1, "futimens": 1, "fallocate": 2, "copy_range": 1, "flink": 1, "dup": 1,
    }.items()
    for _ in range(weight)
]  # fmt: skip


def as_lines(turns: list[Turn], most: int = 60) -> str:
    """As a case of a table (tables.py) would be written; long data is only told by its length, and of many calls only the last."""
    lines = [f"    ({len(turns) - most} calls before)"] if len(turns) > most else []
    for view, op in turns[-most:]:
        words = [each if not isinstance(each, str) or len(each) < 40 else f"<x*{len(each)}>" for each in op]
        lines.append(f"    @{view} " + " ".join(shlex.quote(str(each)) for each in words))
    return "\n".join(lines)
