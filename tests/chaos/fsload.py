"""A program that uses the file system of a session, and writes down outside amfs what was acknowledged.

    python -m chaos.fsload --log FILE --seed N --name W --seconds S [--mount DIR | --client NODE] [--others LOG …]

Each line of the log is flushed before the call is made (``begin``) and after it has returned (``ok`` or ``error``): a call without an end
was under way when the program was killed. A name whose call failed is not touched again: anything may have become of it. Meanwhile files
that any of the programs has finished are read again, and compared.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any, Protocol

SIZES = (0, 1, 100, 4096, 30_000, 30_000, 300_000, 1_500_000)
#: Errors that a file system may tell when a node has died, or this one was taken for dead. ENOENT is not among them.
HONEST = (errno.EIO, errno.ETIMEDOUT, errno.ENOTCONN, errno.ECONNABORTED, errno.EHOSTDOWN, errno.ESTALE)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


class Access(Protocol):
    def write(self, name: str, data: bytes) -> None: ...
    def read(self, name: str) -> bytes: ...
    def rename(self, old: str, new: str) -> None: ...
    def link(self, old: str, new: str) -> None: ...
    def unlink(self, name: str) -> None: ...
    def mkdir(self, name: str) -> None: ...
    def at(self) -> int: ...
    def is_there(self) -> bool: ...


class Mount:
    """Calls of the system below a mount."""

    def __init__(self, root: str, node: int) -> None:
        self.root, self.node = root, node
        self.device = os.stat(root).st_dev

    def is_there(self) -> bool:
        """Dead mounts are taken away by the next ``amfs up`` of anybody on this machine."""
        try:
            return os.stat(self.root).st_dev == self.device
        except OSError as error:
            return error.errno != errno.ENOENT

    def path(self, name: str) -> str:
        return self.root + name

    def write(self, name: str, data: bytes) -> None:
        descriptor = os.open(self.path(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest[: 1 << 17]) :]
        except BaseException:
            with contextlib.suppress(OSError):
                os.close(descriptor)
            raise
        os.close(descriptor)

    def read(self, name: str) -> bytes:
        with open(self.path(name), "rb", buffering=0) as file:
            return file.readall()

    def rename(self, old: str, new: str) -> None:
        os.rename(self.path(old), self.path(new))

    def link(self, old: str, new: str) -> None:
        os.link(self.path(old), self.path(new))

    def unlink(self, name: str) -> None:
        os.unlink(self.path(name))

    def mkdir(self, name: str) -> None:
        os.mkdir(self.path(name))

    def at(self) -> int:
        return self.node


class Client:
    """The Python API, through one node, or another when that has died."""

    def is_there(self) -> bool:
        return True

    def __init__(self, node: int) -> None:
        from amfs.client.files import Files

        self.files = Files(node=node, answer_s=40.0)

    def write(self, name: str, data: bytes) -> None:
        self.files.write_bytes(name, data)

    def read(self, name: str) -> bytes:
        return self.files.read_bytes(name)

    def rename(self, old: str, new: str) -> None:
        self.files.rename(old, new)

    def link(self, old: str, new: str) -> None:
        self.files.link(old, new)

    def unlink(self, name: str) -> None:
        self.files.unlink(name)

    def mkdir(self, name: str) -> None:
        self.files.mkdir(name)

    def at(self) -> int:
        return self.files.gateway


class Writer:
    def __init__(self, access: Access, options: argparse.Namespace) -> None:
        self.access = access
        self.rng = random.Random(options.seed)
        self.name = options.name
        self.log = open(options.log, "w", buffering=1)  # noqa: SIM115  (as long as the process lives)
        self.others: dict[str, Any] = dict.fromkeys(options.others)
        self.halves: dict[str, str] = {}  # of logs: a line of which the end is not there yet
        self.free: dict[str, str] = {}  # names that this program may change -> digest
        self.final: dict[str, str] = {}  # names that nobody changes any more, of all programs
        self.serial = 0
        self.errors = 0

    def say(self, **fact: Any) -> None:
        self.log.write(json.dumps({**fact, "time": round(time.time(), 3)}) + "\n")

    def call(self, op: str, *names: str, data: bytes = b"", **more: Any) -> bool:
        """Make a call, and log it."""
        fact = {"op": op, "names": names, "at": self.access.at(), **more}
        if op == "write":
            fact.update(digest=digest(data), size=len(data))
        self.say(state="begin", **fact)
        try:
            if op == "write":
                self.access.write(names[0], data)
            else:
                getattr(self.access, op)(*names)
        except OSError as error:
            self.errors += 1
            self.say(state="error", errno=error.errno, what=str(error), **fact)
            for name in names:
                self.free.pop(name, None)
            time.sleep(0.05)
            return False
        self.say(state="ok", **{**fact, "at": self.access.at()})
        return True

    def new_name(self) -> str:
        self.serial += 1
        return f"/{self.rng.choice(('flat', 'striped'))}/{self.name}-{self.serial}"

    def step(self) -> None:
        rng = self.rng
        kind = rng.random()
        if kind < 0.45 or not self.free:
            name, data = self.new_name(), self.content()
            if self.call("write", name, data=data):
                self.free[name] = digest(data)
        elif kind < 0.60:
            name, data = rng.choice(sorted(self.free)), self.content()
            if self.call("write", name, data=data):
                self.free[name] = digest(data)
        elif kind < 0.72:
            old, new = rng.choice(sorted(self.free)), self.new_name()
            if rng.random() < 0.4:
                new = rng.choice(sorted(self.free))
            if old != new and self.call("rename", old, new):
                self.free[new] = self.free.pop(old)
        elif kind < 0.80:
            old, new = rng.choice(sorted(self.free)), self.new_name()
            if self.call("link", old, new):
                self.finish(new, self.free[old])
                self.finish(old, self.free.pop(old))
        elif kind < 0.88:
            name = rng.choice(sorted(self.free))
            if self.call("unlink", name):
                del self.free[name]
        else:
            name = rng.choice(sorted(self.free))
            self.finish(name, self.free.pop(name))
        self.look()

    def content(self) -> bytes:
        return self.rng.randbytes(self.rng.choice(SIZES))

    def finish(self, name: str, content: str) -> None:
        self.say(state="final", names=[name], digest=content)
        self.final[name] = content

    def look(self) -> None:
        """Read what some program has finished."""
        for path, file in self.others.items():
            if file is None and os.path.exists(path):
                file = self.others[path] = open(path)  # noqa: SIM115
            for piece in file or ():
                line = self.halves.pop(path, "") + piece
                if not line.endswith("\n"):
                    self.halves[path] = line  # the other program is just writing it
                elif '"final"' in line:
                    fact = json.loads(line)
                    self.final[fact["names"][0]] = fact["digest"]
        if not self.final:
            return
        name = self.rng.choice(sorted(self.final))
        try:
            found = digest(self.access.read(name))
        except OSError as error:
            self.say(state="unread", names=[name], errno=error.errno, what=str(error), at=self.access.at())
            if error.errno not in HONEST and self.access.is_there():
                self.say(state="wrong", names=[name], what=f"read: {error}", at=self.access.at())
            time.sleep(0.02)
            return
        if found != self.final[name]:
            self.say(state="wrong", names=[name], what=f"content {found}, not {self.final[name]}", at=self.access.at())


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--node", type=int, required=True)
    parser.add_argument("--mount", default="")
    parser.add_argument("--others", nargs="*", default=[])
    options = parser.parse_args()
    access: Access = Mount(options.mount, options.node) if options.mount else Client(options.node)
    writer = Writer(access, options)
    stop = Path(options.log + ".stop")
    end = time.monotonic() + options.seconds
    while time.monotonic() < end and not stop.exists() and writer.errors < 40:
        writer.step()
        time.sleep(0.005)
    writer.say(state="end", errors=writer.errors)
    return 0


if __name__ == "__main__":
    sys.exit(main())
