"""Programs that use the session's file system while a simulation goes on, and what they must find. Seen from outside of the machines.

A user owns a directory, and writes whole files in it that say what they are; users read each other's. So what each reading may find is
known: the content at the last ``close`` that was answered, or one that is being written at that moment (close-to-open). What a node takes
along when it dies may be missing or refused, but never is an older content, or a mixture, taken for the file.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Generator
from typing import Any

import msgspec

from amfs.engine import fs_requests as q
from amfs.engine import messages as m
from amfs.engine.attr import STRIPED, WHOLE
from amfs.engine.events import Event, PeerDown, Received
from amfs.fs.vfs.machine import FileSystem
from amfs.net.link import Limits as LinkLimits
from amfs.sim.cluster import Cluster
from amfs.sim.file_backend import STRIPE
from amfs.sim.process import Process
from amfs.sim.settings import FileLoad

FIRST_USER = m.CLIENT_ID_MIN + 5000
ANSWER_S = 60.0  # for one request, as ``client.connection`` has it
FILES = 4  # of each user
#: What a program may be told when nodes die: what was lost with them, and what nobody can say of what was under way.
LOST = frozenset((errno.EIO, errno.ENOENT, errno.ENOTDIR, errno.EHOSTDOWN, errno.ETIMEDOUT, errno.ESTALE, errno.EBADF, errno.EEXIST))


class Lost(Exception):
    """The node that was asked is gone, or does not answer: whether it was done is not known."""


class File:
    """A file as its owner knows it. None: it is not there."""

    def __init__(self) -> None:
        self.may_be: list[bytes | None] = [None]  # what a reader may find
        self.ever: set[bytes | None] = {None}  # what it ever was
        self.read: list[set[bytes | None]] = []  # by readers at this moment: what they may find
        self.version = 0

    def may(self, *contents: bytes | None) -> None:
        self.may_be = list(contents)
        for could in (self.ever, *self.read):
            could.update(contents)

    def contents(self, name: bytes, rng: random.Random) -> bytes:
        """Another one, of which no part is like one of those before."""
        self.version += 1
        return b"%s is %d\n" % (name, self.version) * rng.choice((1, 3, 200))


Step = Generator[q.Request[Any], Any, None]


class User(Process):
    """A program that makes one request after the other."""

    def __init__(self, files: SimFiles, number: int, links: LinkLimits | None) -> None:
        super().__init__(files.cluster.world, FIRST_USER + number, 1, links=links)
        self.all = files
        self.number = number
        self.rng = random.Random(f"user {files.load.seed} {number}")
        self.home = b"/u%d" % number
        self.own = {self.home + b"/%d" % i: File() for i in range(FILES)}
        self.gateway = -1
        self.left = files.load.steps
        self.done = False
        self._serial = 0
        self._names = FILES
        self._changing: tuple[bytes, ...] = ()  # the files that the step changes
        self._step: Step | None = None
        self._asked: q.Request[Any] | None = None

    # ── asking ─────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        self._resume(None)
        self.transport.flush(self.world.now)

    def _ask(self, request: q.Request[Any]) -> None:
        if self.gateway < 0:
            self.gateway = self.rng.choice([node.id for node in self.all.cluster.alive()])
        self._serial += 1
        self._asked = request
        self.world.note(self.id, "asks", (self.gateway, request))
        self.transport.queue(self.gateway, m.FsRequest(self._serial, request))
        self.set_timer(("answer", self._serial), self.world.now + ANSWER_S)

    def tell(self, event: Event) -> None:
        if type(event) is Received and type(event.message) is m.FsResponse:
            message = event.message
            if message.serial == self._serial and self._asked is not None:
                self.cancel_timer(("answer", self._serial))
                kind, self._asked = type(self._asked), None
                if message.error:
                    self._resume(OSError(message.error, errno.errorcode.get(message.error, "")))
                else:
                    self._resume(msgspec.convert(message.value, q.answer_type(kind)))
        elif (type(event) is PeerDown and event.peer == self.gateway) or getattr(event, "key", None) == ("answer", self._serial):
            self.gateway = -1
            if self._asked is not None:
                self._asked = None
                self._resume(Lost())
        elif getattr(event, "key", None) == "step":
            self._resume(None)

    def _resume(self, value: Any) -> None:
        """Go on with the step, or begin the next one."""
        while True:
            step = self._step
            try:
                if step is None:
                    if self.left <= 0:
                        self.done = True
                        return
                    self.left -= 1
                    step = self._step = self._next()
                    request = next(step)
                else:
                    request = step.throw(value) if isinstance(value, Exception) else step.send(value)
            except StopIteration:
                self._step = None
                self.set_timer("step", self.world.now + self.rng.random() * self.all.load.pause_s)
                return
            except (OSError, Lost) as error:
                self._step = None
                self._refused(error)
                self.set_timer("step", self.world.now + self.rng.random() * self.all.load.pause_s)
                return
            self._ask(request)
            return

    def _refused(self, error: Exception) -> None:
        """A step has ended so. Only what dies with a node may be refused."""
        assert self.all.nodes_may_go and (isinstance(error, Lost) or (isinstance(error, OSError) and error.errno in LOST)), (
            f"user {self.number} is told {error!r}, and no node has died"
        )
        for name in self._changing:  # what was asked may still be done, at any time: nobody can say what that file is from now on
            del self.own[name]
            self._names += 1
            self.own[self.home + b"/%d" % self._names] = File()

    # ── steps ──────────────────────────────────────────────────────────────────────────────────────

    def _next(self) -> Step:
        name, other = self.rng.choice(list(self.own)), self.rng.choice(list(self.own))
        chosen = self.rng.random()
        self._changing = (name,)
        if chosen < 0.4:
            return self._write(name)
        if chosen < 0.8:
            self._changing = ()
            path, file = self.rng.choice([(path, file) for user in self.all.users for path, file in user.own.items()])
            return self._read(path, file)
        if chosen < 0.9:
            self._changing = tuple({name: None, other: None})
            return self._rename(name, other)
        return self._unlink(name)

    def _write(self, name: bytes) -> Step:
        yield q.MkdirPath(self.home, 0o755, True)
        file = self.own[name]
        before = list(file.may_be)
        data = file.contents(name, self.rng)
        file.may(*before, b"", data)
        layout, stripe = (STRIPED, STRIPE) if self.rng.random() < self.all.load.striped else (WHOLE, 0)
        handle = (yield q.OpenPath(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, layout, stripe, -1)).handle
        yield q.Write(handle, 0, data)
        yield q.Close(handle)
        file.may(data)

    def _read(self, path: bytes, file: File) -> Step:
        # A node that is cut off may not have heard of what was written since.
        may_be = set(file.ever if self.all.may_be_cut else file.may_be)
        file.read.append(may_be)
        try:
            yield from self._look(path, may_be)
        finally:
            file.read = [each for each in file.read if each is not may_be]

    def _look(self, path: bytes, may_be: set[bytes | None]) -> Step:
        try:
            handle = (yield q.OpenPath(path, os.O_RDONLY, 0, -1, 0, -1)).handle
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            assert None in may_be or self.all.nodes_may_go, f"{path!r} is not there for user {self.number}"
            return
        found = yield q.Read(handle, 0, 1 << 20)
        could = [each and each[:30] for each in may_be]
        assert found in may_be, f"user {self.number} finds {found[:60]!r} in {path!r}, which can be {could}"
        yield q.Close(handle)

    def _rename(self, name: bytes, to: bytes) -> Step:
        source, target = self.own[name], self.own[to]
        if name == to or source.may_be == [None] or len(source.may_be) > 1:
            return
        moved, before = list(source.may_be), list(target.may_be)
        source.may(*moved, None)
        target.may(*before, *moved)
        yield q.RenamePath(name, to, 0)
        source.may(None)
        target.may(*moved)

    def _unlink(self, name: bytes) -> Step:
        file = self.own[name]
        there = None not in file.may_be
        file.may(*file.may_be, None)
        try:
            yield q.UnlinkPath(name)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            assert not there or self.all.nodes_may_go, f"user {self.number} cannot remove {name!r}: it is not there"
        file.may(None)


class SimFiles:
    """All users of one simulation."""

    def __init__(self, cluster: Cluster, load: FileLoad, *, nodes_may_go: bool, may_be_cut: bool) -> None:
        """``nodes_may_go``: a node may die, or be taken for dead; ``may_be_cut``: or that while it goes on."""
        self.cluster = cluster
        self.load = load
        self.nodes_may_go = nodes_may_go
        self.may_be_cut = may_be_cut
        assert cluster.contents is not None
        cluster.contents.growth = load.growth
        self.users: list[User] = []
        for number in range(load.users):
            self.users.append(User(self, number, cluster.links))

    def start(self) -> None:
        for user in self.users:
            user.start()

    def is_done(self) -> bool:
        return all(user.done for user in self.users)

    def end(self) -> None:
        for user in self.users:
            user.die()

    def check_nothing_left(self) -> None:
        """Long after the last request: nothing is under way, all nodes know the same directories, and the records agree with themselves."""
        directories = set()
        for node in self.cluster.alive():
            fs = node.core.fs
            assert isinstance(fs, FileSystem)
            if len(node.core.live) == len(list(self.cluster.alive())):  # else it was cut off, and does not know it yet
                assert fs.calls.idle(), f"the file system of node {node.id} still waits"
                assert not fs.mover.in_motion() and not fs.mover.is_fetching(), f"partitions of node {node.id} are still on their way"
                directories.add(node.files.meta.counts()["dirs"])
            node.files.meta.check()
        assert len(directories) <= 1, f"nodes know {directories} directories"
