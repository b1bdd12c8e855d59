"""Programs that use the session's file system while a simulation goes on, and what they must find. Seen from outside of the machines.

A user owns a directory, and writes whole files in it that say what they are; users read each other's. So what each reading may find is
known: the content at the last ``close`` that was answered, or one that is being written at that moment (close-to-open). Content that a dead
node takes along may be missing or refused, but never is an older content, or a mixture, taken for the file. Nor is a copy in which a bit
has flipped (``bit_flips``), but by programs of the node that keeps it.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Generator
from typing import Any

import msgspec

from amfs.fs.vfs.machine import FileSystem
from amfs.net.link import Limits as LinkLimits
from amfs.sim.cluster import Cluster
from amfs.sim.file_backend import STRIPE
from amfs.sim.node import SimNode
from amfs.sim.process import Process
from amfs.sim.settings import FileLoad
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary import messages as m
from amfs.vocabulary.attr import STRIPED, WHOLE, Attr
from amfs.vocabulary.events import Event, PeerDown, Received
from amfs.vocabulary.partition import PartitionTable

FIRST_USER = m.CLIENT_ID_MIN + 5000
ANSWER_S = 60.0  # for one request, as ``client.connection`` has it
FILES = 4  # of each user
#: Errors that a program may get when nodes die: files were lost with them, or nobody can say how a call under way ended.
LOST = frozenset((errno.EIO, errno.ENOENT, errno.ENOTDIR, errno.EHOSTDOWN, errno.ETIMEDOUT, errno.ESTALE, errno.EBADF, errno.EEXIST))


IN_STEP = 2  # of Meta.shadow_state


class Lost(Exception):
    """The node that was asked is gone, or does not answer: whether it was done is not known."""


class File:
    """A file as its owner knows it. None: it is not there."""

    def __init__(self) -> None:
        self.may_be: list[bytes | None] = [None]  # contents that a reader may find
        self.ever: set[bytes | None] = {None}  # all its contents so far
        self.read: list[set[bytes | None]] = []  # by readers at this moment: contents that they may find
        self.version = 0
        self.secured = False  # as many nodes have it as shall

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
        self._lost: set[int] = set()  # nodes to which it has no connection any more
        self.left = files.load.steps
        self._ahead: list[tuple[bytes, File]] = []  # files that it still looks at, at the end
        self.done = False
        self._serial = 0
        self._names = FILES
        self._changing: tuple[bytes, ...] = ()  # the files that the step changes
        self._step: Step | None = None
        self._asked: q.Request[Any] | None = None

    def inspect(self) -> None:
        """Look at all files that it has made, once more."""
        if self.alive:
            self._ahead = list(self.own.items())
            self.done = False
            self.start()

    # ── asking ─────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        self._resume(None)
        self.transport.flush(self.world.now)

    def _ask(self, request: q.Request[Any]) -> None:
        if self.gateway < 0:
            living = [node.id for node in self.all.cluster.alive() if node.id not in self._lost]
            if not living:  # no side of a cut had the majority, or it was cut off from all for too long
                self._step, self.done = None, True
                return
            self.gateway = self.rng.choice(living)
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
            if type(event) is PeerDown:
                self._lost.add(event.peer)  # its connection is gone for good; a real client would be a new one by now
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
                    if self.left <= 0 and not self._ahead:
                        self.done = True
                        return
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
        """A step has ended so. Only what dies with a node may be refused, and copies for which there is no room."""
        full = isinstance(error, OSError) and error.errno == errno.ENOSPC and self.all.load.fullness
        damaged = isinstance(error, OSError) and error.errno == errno.EIO and self.all.contents.flips.hits
        gone = isinstance(error, Lost) or (isinstance(error, OSError) and error.errno in LOST)
        # A gateway that drains takes the connections of its clients along, and nothing else.
        left = isinstance(error, Lost) and self.all.cluster.draining
        assert full or damaged or left or ((self.all.nodes_may_go or self.all.contents.gone) and gone), (
            f"user {self.number} is told {error!r}, and no node has died"
        )
        for name in self._changing:  # the change may still be made, at any time: nobody can say what that file is from now on
            del self.own[name]
            self._names += 1
            self.own[self.home + b"/%d" % self._names] = File()

    def is_changing(self, path: bytes) -> bool:
        return self._step is not None and path in self._changing

    # ── steps ──────────────────────────────────────────────────────────────────────────────────────

    def _next(self) -> Step:
        if self._ahead:
            self._changing = ()
            return self._read(*self._ahead.pop())
        self.left -= 1
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
        handle, attr = yield q.OpenPath(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, layout, stripe, -1)
        yield q.Write(handle, 0, data)
        if self.all.load.copies > 1 and layout == WHOLE and self.rng.random() < 0.4:
            yield q.Secure(attr.ino)  # as a mount does when a program closes its descriptor, before it says that the file is closed
            file.may(data)
            file.secured = True
            if self.rng.random() < 0.5:
                flushed, data = data, file.contents(name, self.rng)
                file.may(flushed, b"", data)
                yield q.Truncate(handle, 0)
                yield q.Write(handle, 0, data)
        yield q.Close(handle)
        file.may(data)
        file.secured = self.all.load.copies > 1

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
            handle, attr = yield q.OpenPath(path, os.O_RDONLY, 0, -1, 0, -1)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            assert None in may_be, f"{path!r} is not there for user {self.number}"
            return
        found = yield q.Read(handle, 0, 1 << 20)
        could = [each and each[:30] for each in may_be]
        flipped = self.all.contents.flips.may_be_read(found, self.gateway)
        assert flipped or found in may_be, f"user {self.number} finds {found[:60]!r} in {path!r}, which can be {could}"
        yield q.Close(handle)
        if self.all.load.flips and (self.all.inspecting or self.rng.random() < 0.2):
            [copies] = yield q.Check((attr.ino,))
            if self.all.inspecting and not isinstance(copies, int):
                self.all.checked.add(attr.ino)

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
        target.secured = source.secured
        target.read += source.read  # programs that opened it by its old name read writes by the new one

    def _unlink(self, name: bytes) -> Step:
        file = self.own[name]
        there = None not in file.may_be
        file.may(*file.may_be, None)
        try:
            yield q.UnlinkPath(name)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            assert not there or self.all.may_be_cut, f"user {self.number} cannot remove {name!r}: it is not there"
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
        cluster.contents.fullness = load.fullness
        cluster.contents.flips.begin(load.seed, load.flips)
        self.contents = cluster.contents
        self.inspecting = False  # no bit flips any more
        self.checked: set[int] = set()  # inodes of which all copies were looked at since
        self.users: list[User] = []
        for number in range(load.users):
            self.users.append(User(self, number, cluster.links))

    def start(self) -> None:
        for user in self.users:
            user.start()

    def is_done(self) -> bool:
        return all(user.done for user in self.users)

    def inspect(self, latest: float) -> None:
        """After all that was done, and has happened to nodes: what is there? From now on no bit flips, and all copies are looked at."""
        self.contents.flips.begin(self.load.seed, 0.0)
        self.inspecting = True
        for user in self.users:
            user.inspect()
        self.cluster.world.run(self.is_done, latest)
        self.cluster.world.let_pass(1.0)

    def lose_one_more(self, latest: float) -> None:
        """A node dies when nothing else happens: every name is there afterwards."""
        alive = sorted(node.id for node in self.cluster.alive())
        if len(alive) < 2:
            return
        self.nodes_may_go = True
        self.cluster.crash(random.Random(f"last {self.load.seed}").choice(alive))
        self.cluster.world.run(self._has_settled, latest)
        self.inspect(latest)

    def _has_settled(self) -> bool:
        alive = {node.id for node in self.cluster.alive()}
        systems = [node.core.fs for node in self.cluster.alive()]
        return all(isinstance(fs, FileSystem) and fs.members.live == alive and not fs.mover.in_motion() for fs in systems)

    def end(self) -> None:
        for user in self.users:
            user.die()

    def check_copies(self) -> None:
        """Long after the last request: secured content is whole, and on as many nodes as shall have it, if no more nodes have gone than it
        was to survive. Nodes have the copies that records name."""
        nodes = {node.id: node for node in self.cluster.alive()}
        assert self.cluster.contents is not None
        if any(set(node.core.live) != set(nodes) for node in nodes.values()):
            return  # the network is cut for good
        metas = {number: node.files.meta for number, node in nodes.items()}
        if not metas:
            return  # no side of a cut had the majority
        table = next(iter(metas.values()))
        flips = self.contents.flips
        fewer = len(self.cluster.contents.gone) < min(2, self.load.copies)
        for user in self.users:
            for path, file in user.own.items():
                if not file.secured or len(file.may_be) > 1 or file.may_be == [None] or user.is_changing(path):
                    continue
                [data] = file.may_be
                assert data is not None
                try:
                    parent = table.dir_find(1, user.home[1:])[0]
                    name = path.rpartition(b"/")[2]
                    ino = metas[table.owner(table.name_partition(parent, name))].lookup(parent, name, -1)[0]
                    owner = metas[table.owner(table.ino_partition(ino))]
                    attr, holders = Attr(*owner.getattr(ino, -1)), owner.holders(ino)
                except OSError as error:
                    assert not fewer, f"{path!r} is gone: {error}"
                    continue
                if attr.finished != 1:
                    gone = len(self.contents.gone) + flips.hits[ino]
                    assert ino in flips.only_copies or gone >= min(2, self.load.copies), f"{path!r} is lost, or never finished: {attr}"
                    continue
                if attr.layout == STRIPED:  # which node has which stripe is not simulated; that they are lost is
                    continue
                for node in holders:
                    found = bytes(nodes[node].files.parts.get(ino, b""))
                    overlooked = flips.is_damaged(nodes[node].files, ino) and ino not in self.checked
                    assert found == data or overlooked, f"node {node} is to hold {path!r}, {data[:30]!r}, and has {found[:30]!r}"
                wanted = min(attr.copies, len(nodes))
                assert len(holders) >= wanted, f"{path!r} lies on nodes {holders}: {wanted} are asked for"

    def _check_backups(self, node: SimNode) -> None:
        """Every partition of it has a backup in step, and that says so, too."""
        meta = node.files.meta
        alive = {other.id: other.files.meta for other in self.cluster.alive()}
        own, backed, _ = meta.count_backups()
        assert own == backed or len(alive) == 1, f"{own - backed} partitions of node {node.id} have no backup in step"
        for part in range(len(self.cluster.view.table)):
            if meta.owner(part) == node.id:
                told, believe = set(meta.backups_of(part)), {other for other in alive if alive[other].shadow_state(part) == IN_STEP}
                assert told == believe, f"node {node.id} tells {told} of partition {part}, and {believe} believe to be in step"

    def _check_keepers(self, node: SimNode) -> None:
        """If anybody asks for copies: of the stripes of every partition of it its heir is in step, and nobody else believes so."""
        meta = node.files.meta
        if not meta.copies_wanted():
            return
        systems = {other.id: other.core.fs for other in self.cluster.alive() if isinstance(other.core.fs, FileSystem)}
        members = systems[node.id].members
        table = PartitionTable(members.owners, members.version)
        for part, owner in enumerate(members.owners):
            if owner == node.id:
                believe = {other for other, fs in systems.items() if fs.keeps_stripes(part)}
                heir = table.backup_of(part)
                assert believe == ({heir} - {None}), f"{believe} keep stripes of partition {part} of node {node.id}, and its heir is {heir}"

    def check_nothing_left(self) -> None:
        """Long after the last request: nothing is under way, all nodes know the same directories, and the records agree with themselves."""
        directories = set()
        contents = self.cluster.contents
        assert contents is not None
        twice = not contents.names_may_go and not self.may_be_cut
        for node in self.cluster.alive():
            fs = node.core.fs
            assert isinstance(fs, FileSystem)
            if len(node.core.live) == len(list(self.cluster.alive())) and not self.cluster.is_fenced(node.id):
                assert fs.calls.idle(), f"the file system of node {node.id} still waits"
                assert not fs.mover.in_motion() and not fs.mover.is_fetching(), f"partitions of node {node.id} are still on their way"
                directories.add(node.files.meta.counts()["dirs"])
                self._check_backups(node)
                self._check_keepers(node)
            node.files.meta.check()
            assert not twice or not node.files.meta.count_backups()[2], f"names at node {node.id} are lost, and were on two nodes"
        assert len(directories) <= 1, f"nodes know {directories} directories"
