"""One client of ``chaos.mixed``: the same calls on a file of a mount and on one of a tmpfs.

    python -m chaos.mixed_client BASE SEED SECONDS MOUNT …      BASE.call: when the call under way began, and which; .calls: all; .result
    python -m chaos.mixed_client --check BASE MOUNT …           compares all files; a line for each that differs
"""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

BIG = 1 << 20
SIZES = (0, 1, 4096, 70_000, 512 << 10, 3 * BIG, 9 * BIG)
CUTS = (0, 1, 4095, 70_000, 512 << 10, (512 << 10) + 1, 5 * BIG, 40 * BIG, 1 << 30, 999_999_999_999_999)
FILES = 24
SHADOWS = Path("/dev/shm")
#: Errors that are right when there is no room, or a node has died. Wrong content is not.
HONEST = (
    errno.ENOSPC, errno.EIO, errno.ETIMEDOUT, errno.ENOTCONN, errno.ECONNABORTED, errno.EHOSTDOWN, errno.ESTALE, errno.EFBIG, errno.EBUSY,
)  # fmt: skip


def shadow_of(base: str) -> Path:
    return SHADOWS / f"amfs-{'-'.join(base.split('/')[-2:])}"


class Client:
    def __init__(self, base: str, seed: str, mounts: list[str]) -> None:
        self.base, self.rng, self.mounts = base, random.Random(seed), mounts
        self.devices = {mount: os.stat(mount).st_dev for mount in mounts}
        self.name = base.rpartition("/")[2]
        self.shadow = shadow_of(base)
        self.shadow.mkdir()
        self.files: set[str] = set()
        self.serial = self.calls = 0
        self.slowest = 0.0
        self.wrong: list[str] = []
        self.eio: list[str] = []  # honest only when nodes were killed

    def pair(self, name: str) -> tuple[str, str]:
        return f"{self.rng.choice(self.mounts)}/files/{name}", str(self.shadow / name)

    def timed(self, words: str, do: Callable[[], object]) -> bool:
        """False: it failed, as it may."""
        Path(f"{self.base}.call").write_text(f"{time.time()} {self.name}: {words}")
        began = time.monotonic()
        said = "fine"
        try:
            do()
        except OSError as error:
            said = str(error.strerror)
            dead = self.drop_dead_mounts()
            if error.errno == errno.EIO:
                self.eio.append(f"{words}: {error}")
            if error.errno not in HONEST and not dead:
                self.wrong.append(f"{words}: {error}")
            return False
        finally:
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.calls += 1
            Path(f"{self.base}.call").write_text("")
            with open(f"{self.base}.calls", "a") as calls:
                print(f"{time.time():.3f} {words}: {said}", file=calls)
        return True

    def drop_dead_mounts(self) -> bool:
        """Whether there was one. The next ``amfs up`` of anybody on this machine takes them away: then the directory below is there."""

        def lives(mount: str) -> bool:
            try:
                return os.stat(mount).st_dev == self.devices[mount]
            except OSError as error:
                return error.errno != errno.ENOTCONN

        before = len(self.mounts)
        self.mounts = [mount for mount in self.mounts if lives(mount)] or self.mounts
        return len(self.mounts) < before

    def both(self, words: str, name: str, act: Callable[[str], object]) -> None:
        """On the mount, then on the shadow; one that fails is not known any more, and not touched again."""
        there, shadow = self.pair(name)
        if self.timed(f"{words} at {there}", lambda: act(there)):
            act(shadow)
            self.files.add(name)
        else:
            self.files.discard(name)
            Path(shadow).unlink(missing_ok=True)

    def step(self) -> None:
        rng = self.rng
        if len(self.files) < 4 or (len(self.files) < FILES and rng.random() < 0.25):
            self.serial += 1
            name, data = f"{self.name}-{self.serial}", rng.randbytes(rng.choice(SIZES))
            self.both(f"write {len(data)}", name, lambda path: write(path, data))
            return
        name = rng.choice(sorted(self.files))
        kind = rng.choice(("cut", "cut", "cut open", "append", "write at", "map", "punch", "unlink", "rename", "read", "read", "read"))
        size, at = rng.choice(CUTS), rng.choice(CUTS)
        data = rng.randbytes(rng.choice((1, 100, 4096, 300_000)))
        if kind == "cut":
            self.both(f"truncate to {size}", name, lambda path: os.truncate(path, size))
        elif kind == "cut open":
            self.both(f"ftruncate to {size}", name, lambda path: opened(path, os.O_RDWR, lambda file: os.ftruncate(file, size)))
        elif kind == "append":
            self.both("append", name, lambda path: opened(path, os.O_WRONLY | os.O_APPEND, lambda file: put(file, data)))
        elif kind == "write at":
            self.both(f"write at {at}", name, lambda path: opened(path, os.O_WRONLY, lambda file: put_at(file, data, at)))
        elif kind == "map":
            self.both("map", name, lambda path: opened(path, os.O_RDWR, lambda file: through_map(file, data)))
        elif kind == "punch":
            self.both(f"punch {at}+{size}", name, lambda path: opened(path, os.O_RDWR, lambda file: punch(file, at, size)))
        elif kind == "unlink":
            self.both("unlink", name, os.unlink)
            self.files.discard(name)
        elif kind == "rename":
            self.rename(name)
        else:
            there, shadow = self.pair(name)
            found: list[str] = []
            self.timed(f"read {there}", lambda: found.append(differs(there, shadow)))
            self.wrong += [f"{there}: {what}" for what in found if what]

    def rename(self, name: str) -> None:
        self.serial += 1
        new = self.rng.choice([f"{self.name}-{self.serial}", self.rng.choice(sorted(self.files))])
        mount = self.rng.choice(self.mounts)
        if new == name:
            return
        if self.timed(f"rename {name} to {new} at {mount}", lambda: os.rename(f"{mount}/files/{name}", f"{mount}/files/{new}")):
            os.rename(self.shadow / name, self.shadow / new)
            self.files.add(new)
        else:
            for one in (name, new):
                (self.shadow / one).unlink(missing_ok=True)
            self.files.discard(new)
        self.files.discard(name)


def opened(path: str, flags: int, do: Callable[[int], object]) -> None:
    file = os.open(path, flags)
    try:
        do(file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(file)
        raise
    os.close(file)


def put(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def put_at(file: int, data: bytes, at: int) -> None:
    while data:
        done = os.pwrite(file, data, at)
        data, at = data[done:], at + done


def write(path: str, data: bytes) -> None:
    opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, lambda file: put(file, data))


def through_map(file: int, data: bytes) -> None:
    """Four bytes, here and there among the first 9 MiB. By another process, which gets SIGBUS if the node of the file is killed."""
    size = min(os.fstat(file).st_size, 9 * BIG)
    if not size:
        return
    if not (process := os.fork()):
        error = errno.EIO
        try:
            with mmap.mmap(file, size) as view:
                for at in {0, size // 2, size - 1}:
                    some = data[: min(4, size - at)]
                    view[at : at + len(some)] = some
                view.flush()
            error = 0
        except OSError as failed:
            error = failed.errno or errno.EIO
        finally:
            os._exit(error)
    _, status = os.waitpid(process, 0)
    if error := errno.EIO if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGBUS else os.waitstatus_to_exitcode(status):
        raise OSError(error, f"through a mapping: {os.strerror(abs(error))}")


def punch(file: int, at: int, count: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if count and libc.fallocate(file, 3, ctypes.c_long(at), ctypes.c_long(count)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def extents(file: int, size: int) -> list[tuple[int, int]]:
    found, at = [], 0
    while at < size:
        try:
            start = os.lseek(file, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break
            raise
        at = min(os.lseek(file, start, os.SEEK_HOLE), size)
        found.append((start, at))
    return found


def all_of(file: int, count: int, at: int) -> bytes:
    """A read may be cut short, by the death of a node say, before it fails."""
    data = b""
    while len(data) < count and (more := os.pread(file, count - len(data), at + len(data))):
        data += more
    return data


def differs(there: str, shadow: str) -> str:
    """How the file on the mount differs from what it must be: in its size, where that has data, and where this says that it has some."""
    with open(there, "rb", buffering=0) as file, open(shadow, "rb", buffering=0) as right:
        size, expected = os.fstat(file.fileno()).st_size, os.fstat(right.fileno()).st_size
        if size != expected:
            return f"{size} bytes, not {expected}"
        for start, end in extents(right.fileno(), size) + extents(file.fileno(), size):
            for at in range(start, end, BIG):
                count = min(BIG, end - at)
                data, good = all_of(file.fileno(), count, at), all_of(right.fileno(), count, at)
                if data != good:
                    first = next((n for n, (one, other) in enumerate(zip(data, good, strict=False)) if one != other), len(data))
                    return (
                        f"at byte {at + first} of {size} it is not what was written ({len(data)} of {len(good)} bytes read); "
                        f"of pages: {pages(file.fileno(), right.fileno(), size)}"
                    )
    return ""


def pages(there: int, right: int, size: int) -> str:
    """Runs of pages of the first 16 MiB: as written (=), zeros instead (0), data instead of zeros (+), other data (x)."""
    runs: list[tuple[str, int, int]] = []
    for at in range(0, min(size, 16 * BIG), 4096):
        data, good = all_of(there, 4096, at), os.pread(right, 4096, at)
        kind = "=" if data == good else "0" if not any(data) else "+" if not any(good) else "x"
        if runs and runs[-1][0] == kind:
            runs[-1] = (kind, runs[-1][1], at + 4096)
        else:
            runs.append((kind, at, at + 4096))
    return " ".join(f"{kind}{start}-{end}" for kind, start, end in runs[:40])


def check(base: str, mounts: list[str]) -> int:
    shadow = shadow_of(base)
    for name in sorted(os.listdir(shadow)):
        for mount in mounts:
            try:
                what = differs(f"{mount}/files/{name}", str(shadow / name))
            except OSError as error:
                what = f"cannot be read: {error.strerror}"
            if what:
                print(f"{mount}/files/{name}: {what}")
    shutil.rmtree(shadow)
    return 0


def main() -> int:
    if sys.argv[1] == "--check":
        return check(sys.argv[2], sys.argv[3:])
    base, seed, seconds, *mounts = sys.argv[1:]
    client = Client(base, seed, mounts)
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end and not client.wrong:
        client.step()
    result = {"calls": client.calls, "slowest": client.slowest, "wrong": client.wrong, "eio": client.eio}
    Path(f"{base}.result").write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
