"""Random reads, writes, truncations and memory maps of a few files, every byte of which is known: no byte may ever be wrong.

    python tests/posix/fsx.py --seconds 3600 --files 3 --nodes 2         starts its own session and mounts
    AMFS_POSIX_DIR=DIR python tests/posix/fsx.py --ops 10000 --seed 7    on a directory given by hand

A file's right content is in memory. With two mounts a file is handed from node to node by closing and opening it: files are coherent
from close to open. Exit code 1, and the last calls, when a byte is wrong. The same seed makes the same calls.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import errno
import mmap
import os
import random
import sys
import time
from pathlib import Path

import mounting
from syscalls import FALLOC, libc

SIZE_MAX = 3 << 20
PIECE_MAX = 200_000
TOLD = 40


class WrongByte(Exception):
    """A file does not hold what was written to it; says where, and which calls came before."""


class File:
    """One file, its right content, and its handles, all on one node at a time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.wanted = bytearray()
        self.view = 0
        self.handles: list[int] = []
        self.appending = -1
        self.map: mmap.mmap | None = None

    def unmap(self) -> None:
        if self.map is not None:
            self.map.close()
            self.map = None


class Exerciser:
    """Owns a fresh directory below the first mount. Close it in any case."""

    def __init__(self, mounts: list[Path], seed: str, files: int = 1, size_max: int = SIZE_MAX) -> None:
        self.rng = random.Random(seed)
        self.size_max = size_max
        self.top = f"fsx-{os.getpid()}-{os.urandom(3).hex()}"
        (mounts[0] / self.top).mkdir()
        self.mounts = mounts
        self.files = [File(f"file{number}") for number in range(files)]
        self.log: collections.deque[str] = collections.deque(maxlen=TOLD)
        self.done = 0
        self.unsupported: set[str] = set()
        self.renamed = 0
        self.steps = [getattr(self, name) for name, weight in WEIGHTS.items() for _ in range(weight)]
        if "fallocate" in mounting.WITHOUT:
            self.steps = [step for step in self.steps if step != self.reserve]
        for file in self.files:
            self.open(file)

    def close(self) -> None:
        for file in self.files:
            self.shut(file)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(file))
        os.rmdir(self.mounts[0] / self.top)

    def run(self, ops: int | None, seconds: float | None) -> int:
        """Go on until so many calls or seconds are over; gives the calls. Raises WrongByte, and OSError for a call that failed."""
        end = None if seconds is None else time.monotonic() + seconds
        while (ops is None or self.done < ops) and (end is None or time.monotonic() < end):
            file = self.rng.choice(self.files)
            step = self.rng.choice(self.steps)
            self.done += 1
            try:
                step(file)
            except (OSError, ValueError) as error:  # ValueError: the file is shorter than the map asked for
                raise WrongByte(self.story(f"{step.__name__} of {file.name} failed: {error}")) from error
        for file in self.files:
            self.look(file)
        return self.done

    # ── what is done ───────────────────────────────────────────────────────────────────────────────

    def read(self, file: File) -> None:
        at, size = self.place(file), self.size()
        self.note(f"pread {file.name} {size} at {at}")
        self.same(file, at, os.pread(self.rng.choice(file.handles), size, at), min(size, max(0, len(file.wanted) - at)))

    def read_in_sequence(self, file: File) -> None:
        fd, at, size = self.rng.choice(file.handles), self.place(file), self.rng.choice((512, 4096, 65536))
        os.lseek(fd, at, os.SEEK_SET)
        for _ in range(8):
            self.note(f"read {file.name} {size} at {at}")
            found = os.read(fd, size)
            self.same(file, at, found, min(size, max(0, len(file.wanted) - at)))
            at += len(found)

    def write(self, file: File) -> None:
        at, data = self.place(file), self.fresh()
        self.note(f"pwrite {file.name} {len(data)} at {at}")
        self.all_written(os.pwrite(self.rng.choice(file.handles), data, at), data)
        self.put(file, at, data)

    def write_in_sequence(self, file: File) -> None:
        fd, at = self.rng.choice(file.handles), self.place(file)
        os.lseek(fd, at, os.SEEK_SET)
        for _ in range(self.rng.randrange(1, 8)):
            data = self.fresh(20_000)
            self.note(f"write {file.name} {len(data)} at {at}")
            self.all_written(os.write(fd, data), data)
            self.put(file, at, data)
            at += len(data)

    def append(self, file: File) -> None:
        data = self.fresh()
        if len(file.wanted) + len(data) > self.size_max:
            return
        self.note(f"append {file.name} {len(data)} at {len(file.wanted)}")
        self.all_written(os.write(file.appending, data), data)
        self.put(file, len(file.wanted), data)

    def truncate(self, file: File) -> None:
        size = self.rng.choice((0, 1, len(file.wanted), self.place(file), self.rng.randrange(self.size_max)))
        by_path = self.rng.random() < 0.5
        self.note(f"{'truncate' if by_path else 'ftruncate'} {file.name} {len(file.wanted)} to {size}")
        file.unmap()
        if by_path:
            os.truncate(self.path(file), size)
        else:
            os.ftruncate(self.rng.choice(file.handles), size)
        del file.wanted[size:]
        file.wanted.extend(bytes(size - len(file.wanted)))

    def rewrite(self, file: File) -> None:
        data = self.fresh(self.size_max // 2)
        self.note(f"rewrite {file.name} {len(data)}")
        file.unmap()
        fd = os.open(self.path(file), os.O_WRONLY | os.O_TRUNC)
        try:
            self.all_written(os.write(fd, data), data)
        finally:
            os.close(fd)
        file.wanted[:] = data

    def map_read(self, file: File) -> None:
        if self.mapped(file) is not None:
            at = self.rng.randrange(len(file.wanted))
            size = min(self.size(), len(file.wanted) - at)
            self.note(f"map read {file.name} {size} at {at}")
            assert file.map is not None
            self.same(file, at, file.map[at : at + size], size)

    def map_write(self, file: File) -> None:
        if (mapped := self.mapped(file)) is not None:
            at = self.rng.randrange(len(file.wanted))
            data = self.fresh()[: len(file.wanted) - at]
            self.note(f"map write {file.name} {len(data)} at {at}")
            mapped[at : at + len(data)] = data
            self.put(file, at, data)
            if self.rng.random() < 0.3:
                mapped.flush()

    def reserve(self, file: File) -> None:
        mode = self.rng.choice(("", "KEEP_SIZE", "PUNCH_HOLE|KEEP_SIZE", "ZERO_RANGE", "ZERO_RANGE|KEEP_SIZE"))
        if mode in self.unsupported:
            return
        at, size = self.place(file), max(1, self.size())
        self.note(f"fallocate {file.name} {mode or 'plain'} {size} at {at}")
        bits = sum(FALLOC[name] for name in mode.split("|")) if mode else 0
        if libc.fallocate(self.rng.choice(file.handles), bits, at, size) != 0:
            code = ctypes.get_errno()
            if code != errno.EOPNOTSUPP or mode == "":
                raise OSError(code, os.strerror(code))
            self.unsupported.add(mode)
            return
        if "KEEP_SIZE" not in mode:
            file.wanted.extend(bytes(max(0, at + size - len(file.wanted))))
        if mode not in ("", "KEEP_SIZE"):
            stop = min(at + size, len(file.wanted))
            file.wanted[at:stop] = bytes(max(0, stop - at))

    def copy(self, file: File) -> None:
        """From one file to another in the kernel; both are on one node then, as each call sees one mount."""
        other = self.rng.choice(self.files)
        if other.view != file.view or not file.wanted:
            return
        at, to = self.rng.randrange(len(file.wanted)), self.place(other)
        size = min(max(1, self.size()), len(file.wanted) - at)
        if other is file and at < to + size and to < at + size:
            return
        self.note(f"copy_file_range {file.name} {size} at {at} to {other.name} at {to}")
        copied = os.copy_file_range(self.rng.choice(file.handles), self.rng.choice(other.handles), size, at, to)
        self.put(other, to, bytes(file.wanted[at : at + copied]))

    def sync(self, file: File) -> None:
        self.note(f"fsync {file.name}")
        os.fsync(self.rng.choice(file.handles))

    def size_told(self, file: File) -> None:
        self.note(f"stat {file.name}")
        for told in (os.stat(self.path(file)).st_size, os.fstat(self.rng.choice(file.handles)).st_size):
            if told != len(file.wanted):
                raise WrongByte(self.story(f"{file.name} has {told} bytes, should have {len(file.wanted)}"))

    def hand_over(self, file: File) -> None:
        """Close it everywhere, and open it on any node."""
        self.shut(file)
        file.view = self.rng.randrange(len(self.mounts))
        self.note(f"close {file.name}, open it on mount {file.view}")
        self.open(file)
        if self.rng.random() < 0.3:
            self.look(file)

    def look(self, file: File) -> None:
        self.note(f"read all of {file.name}")
        with open(self.path(file), "rb") as opened:
            self.same(file, 0, opened.read(), len(file.wanted))

    def rename(self, file: File) -> None:
        self.renamed += 1
        old, name = self.path(file), f"{file.name.split('.')[0]}.{self.renamed}"
        self.note(f"rename {file.name} to {name}")
        view = self.rng.choice(self.mounts)
        os.rename(view / self.top / old.name, view / self.top / name)
        file.name = name

    def relink(self, file: File) -> None:
        """A further name by one mount, and the old one away by another."""
        self.renamed += 1
        old, name = file.name, f"{file.name.split('.')[0]}.{self.renamed}"
        one, other = self.rng.choice(self.mounts) / self.top, self.rng.choice(self.mounts) / self.top
        self.note(f"link {old} to {name} on {one.parent.name}, unlink {old} on {other.parent.name}")
        os.link(one / old, one / name)
        os.unlink(other / old)
        file.name = name

    def replace(self, file: File) -> None:
        """As editors do: another file is written beside it, and renamed to its name."""
        self.shut(file)
        one, other = self.rng.choice(self.mounts) / self.top, self.rng.choice(self.mounts) / self.top
        data = self.rng.randbytes(self.rng.choice((0, 1, 4096, 5000, 150_000)))
        self.note(f"write {len(data)} bytes on {one.parent.name}, rename them to {file.name} on {other.parent.name}")
        (one / "fresh").write_bytes(data)
        os.rename(other / "fresh", other / file.name)
        file.wanted = bytearray(data)
        file.view = self.rng.randrange(len(self.mounts))
        self.open(file)
        self.look(file)

    # ── how ────────────────────────────────────────────────────────────────────────────────────────

    def path(self, file: File) -> Path:
        return self.mounts[file.view] / self.top / file.name

    def open(self, file: File) -> None:
        flags = os.O_RDWR | os.O_CREAT
        file.handles = [os.open(self.path(file), flags, 0o644) for _ in range(self.rng.randrange(1, 4))]
        file.appending = os.open(self.path(file), os.O_WRONLY | os.O_APPEND)

    def shut(self, file: File) -> None:
        file.unmap()
        for fd in (*file.handles, file.appending):
            if fd >= 0:
                os.close(fd)
        file.handles, file.appending = [], -1

    def mapped(self, file: File) -> mmap.mmap | None:
        """A map of all of it, which may be older than the last writes; none of an empty file."""
        if not file.wanted:
            return None
        if file.map is None or len(file.map) < len(file.wanted):
            file.unmap()
            self.note(f"map {file.name}")
            file.map = mmap.mmap(self.rng.choice(file.handles), len(file.wanted), mmap.MAP_SHARED)
        return file.map

    def place(self, file: File) -> int:
        """Anywhere, often at the edges that matter: of pages, of stripes, of the file."""
        near = self.rng.choice((0, 4096, 65536, 1 << 19, 1 << 20, len(file.wanted), self.rng.randrange(self.size_max)))
        at = near + self.rng.choice((0, 0, 0, -1, 1, -100, 3))
        return min(max(0, at), self.size_max - PIECE_MAX)

    def size(self) -> int:
        return self.rng.choice((1, 10, 511, 4096, 4097, 65536, self.rng.randrange(1, PIECE_MAX), 131072))

    def fresh(self, most: int = PIECE_MAX) -> bytes:
        """Another pattern for each call, so that an old byte is not taken for a new one."""
        return self.rng.randbytes(min(self.size(), most))

    def put(self, file: File, at: int, data: bytes) -> None:
        if at > len(file.wanted):
            file.wanted.extend(bytes(at - len(file.wanted)))
        file.wanted[at : at + len(data)] = data

    def note(self, text: str) -> None:
        self.log.append(f"{self.done}: {text}")

    def same(self, file: File, at: int, found: bytes, size: int) -> None:
        wanted = file.wanted[at : at + size]
        if found == wanted:
            return
        if len(found) != size:
            raise WrongByte(self.story(f"{file.name}: {len(found)} bytes at {at}, should be {size}"))
        wrong = [n for n in range(size) if found[n] != wanted[n]]
        first = wrong[0]
        told = f"the first at {at + first}: {found[first]:#04x}, should be {wanted[first]:#04x}"
        raise WrongByte(self.story(f"{file.name}: {len(wrong)} of {size} bytes wrong, {told}"))

    def all_written(self, count: int, data: bytes) -> None:
        if count != len(data):
            raise WrongByte(self.story(f"only {count} of {len(data)} bytes were written"))

    def story(self, text: str) -> str:
        return "\n    ".join(["the last calls were", *self.log]) + f"\n  {text}"


#: How often which.
WEIGHTS = {
    "read": 6, "read_in_sequence": 2, "write": 6, "write_in_sequence": 2, "append": 3, "truncate": 3, "rewrite": 1,
    "map_read": 4, "map_write": 4, "reserve": 3, "copy": 2, "sync": 1, "size_told": 4, "hand_over": 3, "look": 1, "rename": 1, "relink": 1,
    "replace": 1,
}  # fmt: skip


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Random reads and writes of files whose every byte is known.")
    parser.add_argument("--ops", type=int, help="end after so many calls")
    parser.add_argument("--seconds", type=float, help="end after so many seconds [10, unless --ops is given]")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--files", type=int, default=1, help="files in use at a time [1]")
    parser.add_argument("--size", type=int, default=SIZE_MAX, help=f"largest size of a file in bytes [{SIZE_MAX}]")
    mounting.add_options(parser)
    parser.add_argument("--log", type=Path, metavar="FILE", help="append a line that says what was run, and what came of it")
    options = parser.parse_args(arguments)
    if options.size <= PIECE_MAX or options.files < 1 or options.nodes < 1:
        parser.error(f"--size is more than {PIECE_MAX}, --files and --nodes are at least 1")
    mounting.take_options(options)
    seconds = 10.0 if options.ops is None and options.seconds is None else options.seconds
    began = time.monotonic()
    try:
        with mounting.mounted(options.nodes) as mounts:
            it = Exerciser(mounts, options.seed, options.files, options.size)
            try:
                done = it.run(options.ops, seconds)
            except WrongByte as wrong:
                print(f"{wrong}\n  (seed {options.seed}, call {it.done})")
                note(options, it.done, began, "a wrong byte")
                return 1
            finally:
                it.close()
    except mounting.NotHere as missing:
        print(missing, file=sys.stderr)
        return 2
    without = f"; not supported: fallocate {', '.join(sorted(it.unsupported))}" if it.unsupported else ""
    note(options, done, began, f"every byte right{without}")
    print(f"{done:,} calls on {options.files} files, {mounting.kind(options.nodes)}: every byte right (seed {options.seed}){without}")
    return 0


def note(options: argparse.Namespace, done: int, began: float, words: str) -> None:
    if options.log:
        files = f"{options.files} file" + ("s" if options.files > 1 else "")
        what = f"fsx: {mounting.kind(options.nodes)}, {files} of {options.size:,} bytes at most"
        with options.log.open("a", encoding="utf-8") as log:
            log.write(f"{what}: seed {options.seed}, {done:,} calls in {time.monotonic() - began:.0f} s: {words}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
