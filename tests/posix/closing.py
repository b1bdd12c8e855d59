"""Close-to-open under a load of directories: a writer changes files through one node's mount, and as soon as its call has returned a reader
on another node's mount must see it, while processes beside the reader make and remove directories elsewhere on its mount.

``python tests/posix/closing.py --steps 50000 --makers 4`` counts what the reader saw wrong, in a session of two nodes of its own.
``--mount-options '--cache open'`` and ``--layout-options '--layout striped'`` are the other two modes of the promise.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import os
import random
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import mounting

SETTLED_S = 3.0  # a fault that lasts longer is one for good
FILES = 4
SIZES = (0, 1, 100, 4096, 5000, 70_000, 600_000)


def _make_directories(top: Path, number: int, stop: str) -> None:
    """Make and remove directories until the file ``stop`` exists."""
    turn = 0
    while not os.path.exists(stop):
        path = top / f"m{number}-{turn % 3}"
        path.mkdir()
        path.rmdir()
        turn += 1


@contextlib.contextmanager
def making(top: Path, makers: int, stop: Path) -> Iterator[None]:
    """``makers`` processes that make and remove directories in ``top``."""
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_make_directories, args=(top, number, str(stop))) for number in range(makers)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        stop.touch()
        for process in processes:
            process.join(mounting.PATIENCE_S)
            alive = process.is_alive()
            process.kill()
            process.join()
            assert not alive, "a process that makes directories hangs"


@dataclass
class Seen:
    steps: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0
    first: list[str] = field(default_factory=list)


@dataclass
class _File:
    name: str
    content: bytes
    mode: int


class Steps:
    """One writer and one reader. The writer's mount is ``there``, the reader's ``here``; ``model``: the right files."""

    def __init__(self, there: Path, here: Path, seed: int) -> None:
        self.there, self.here = there, here
        self.random = random.Random(seed)
        self.seen = Seen()
        self.files: list[_File] = []
        for _ in range(FILES):
            file = _File(self._fresh(), b"", 0o644)
            (there / file.name).write_bytes(b"")
            os.chmod(there / file.name, 0o644)
            self.files.append(file)

    def _fresh(self) -> str:
        """A name that no file has; names come back, since what a kernel knew of one may show then."""
        used = {file.name for file in self.files}
        return self.random.choice([name for number in range(10 * FILES) if (name := f"f{number}") not in used])

    def _content(self) -> bytes:
        size = self.random.choice(SIZES)
        return bytes([self.random.randrange(1, 256)]) * size

    def step(self) -> None:
        """The writer changes one file; the reader looks at it."""
        file = self.random.choice(self.files)
        what = self.random.choice((self._write, self._append, self._chmod, self._cut, self._rename, self._replace, self._remake))
        gone = what(file)
        self.seen.steps += 1
        looks: list[tuple[str, Callable[[], object], object]] = [
            ("mode", lambda: stat.S_IMODE(os.stat(self.here / file.name).st_mode), file.mode),
            ("size", lambda: os.stat(self.here / file.name).st_size, len(file.content)),
            ("content", lambda: (self.here / file.name).read_bytes(), file.content),
            ("listing", lambda: (file.name in os.listdir(self.here), gone in os.listdir(self.here)), (True, False)),
            ("open size", lambda: _open_size(self.here / file.name), len(file.content)),
        ]
        if gone:
            looks.append(("old name", lambda: os.path.lexists(self.here / gone), False))
        self.random.shuffle(looks)
        for name, look, right in looks:
            self._look(f"{name} after {what.__name__.strip('_')}", look, right)

    def _look(self, name: str, look: Callable[[], object], right: object) -> None:
        begun = time.monotonic()
        first = saw = _try(look)
        while saw != right and time.monotonic() - begun < SETTLED_S:
            time.sleep(0.002)
            saw = _try(look)
        if first == right:
            return
        took = time.monotonic() - begun
        self.seen.wrong[name] += 1
        self.seen.longest_s = max(self.seen.longest_s, took)
        if len(self.seen.first) < 20:
            self.seen.first.append(f"step {self.seen.steps}: {name}: {_short(first)} for {_short(right)}, right after {took:.3f} s")

    # ── what the writer does; answers the name that is gone by it, if any ──

    def _write(self, file: _File) -> str:
        file.content = self._content()
        (self.there / file.name).write_bytes(file.content)
        return ""

    def _append(self, file: _File) -> str:
        more = self._content()[:5000]
        with open(self.there / file.name, "ab", buffering=0) as handle:
            handle.write(more)
        file.content += more
        return ""

    def _chmod(self, file: _File) -> str:
        file.mode = self.random.choice((0o600, 0o640, 0o644, 0o444, 0o755)) | self.random.choice((0, 0o100))
        os.chmod(self.there / file.name, file.mode)
        return ""

    def _cut(self, file: _File) -> str:
        size = self.random.choice(SIZES[:6])
        os.truncate(self.there / file.name, size)
        file.content = file.content[:size].ljust(size, b"\0")
        return ""

    def _rename(self, file: _File) -> str:
        gone, file.name = file.name, self._fresh()
        os.rename(self.there / gone, self.there / file.name)
        return gone

    def _replace(self, file: _File) -> str:
        fresh = self._fresh()
        file.content, file.mode = self._content(), 0o644
        (self.there / fresh).write_bytes(file.content)
        os.chmod(self.there / fresh, file.mode)
        os.rename(self.there / fresh, self.there / file.name)
        return fresh

    def _remake(self, file: _File) -> str:
        gone, file.name = file.name, self._fresh()
        file.content, file.mode = self._content(), 0o640
        os.unlink(self.there / gone)
        with open(os.open(self.there / file.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640), "wb") as handle:
            os.fchmod(handle.fileno(), 0o640)
            handle.write(file.content)
        return gone


def _open_size(path: Path) -> int:
    handle = os.open(path, os.O_RDONLY)
    try:
        return os.lseek(handle, 0, os.SEEK_END) if os.fstat(handle).st_size else 0
    finally:
        os.close(handle)


def _try(look: Callable[[], object]) -> object:
    try:
        return look()
    except OSError as error:
        return error.strerror


def _short(value: object) -> str:
    if not isinstance(value, bytes):
        return repr(value)
    return " + ".join(f"{len(list(same))} bytes of {byte:#x}" for byte, same in itertools.groupby(value)) or "nothing"


def run(
    tops: list[Path], steps: int, makers: int, seed: int, load: str = "load", report: Callable[[Seen], None] = lambda seen: None
) -> Seen:
    """``steps`` changes in a new directory "steps" by the first mount, looked at on the second, beside ``makers`` processes there that
    make directories in ``load``."""
    for name in {"steps", load}:
        (tops[0] / name).mkdir()
    stop = tops[0] / "stop"
    with making(tops[1] / load, makers, stop):
        work = Steps(tops[0] / "steps", tops[1] / "steps", seed)
        for number in range(steps):
            work.step()
            if number % 1000 == 999:
                report(work.seen)
    return work.seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mounting.add_options(parser)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--makers", type=int, default=3, help="processes that make and remove directories on the reader's mount [3]")
    parser.add_argument("--load", default="load", help="where they do: 'steps' is where the files are changed, too [load]")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    mounting.take_options(options)

    def say(seen: Seen) -> None:
        print(f"{seen.steps} steps, {sum(seen.wrong.values())} wrong", flush=True)

    with mounting.mounted(2) as tops:
        seen = run(tops, options.steps, options.makers, options.seed, options.load, say)
    for line in seen.first:
        print(line)
    print(f"{mounting.kind(2)}: {seen.steps} steps beside {options.makers} makers of directories: {dict(seen.wrong) or 'nothing'} wrong, "
          f"at most for {seen.longest_s:.3f} s")
    return 1 if seen.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
