"""Several nodes' file system machines with real shards, joined by links that a seeded scheduler delivers; parts are bytearrays.

Owns the order in which things happen. What the machines ask the hands to do is done at once or later, as the seed says.
"""

from __future__ import annotations

import errno
import os
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from amfs._native import Meta
from amfs.engine import fs_works as w
from amfs.engine import messages as m
from amfs.engine.attr import META_SET_SIZE, REMOTE, STRIPES, Attr, Facts, Opened
from amfs.engine.events import (
    AttemptSettled,
    CancelTimer,
    ClockRead,
    FsFull,
    FsHandlesClosed,
    FsReplied,
    FsRequested,
    FsStriped,
    FsWork,
    FsWorked,
    Log,
    PeerDown,
    Received,
    Send,
    SetTimer,
    TimerFired,
    ViewChanged,
)
from amfs.engine.partition import PartitionTable
from amfs.engine.peer_requests import Usage
from amfs.fs.fuse_native import typed
from amfs.fs.vfs.machine import FileSystem
from amfs.host.digests import Digest
from amfs.net.link import Packet
from amfs.net.wire import decode, encode

STEPS_MAX = 100_000
STRIPE = 4096
TAKES_A_WHILE = (w.Fetch, w.Restripe, w.Gather, w.FetchStripe)


class Node:
    """One node: machine, parts, timers."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.meta = Meta(number)
        self.fs = FileSystem(number, self.meta)
        self.parts: dict[int, bytearray] = {}
        self.writing: set[int] = set()  # those of the handles that may
        self.limit = 1 << 30  # of a part that is fetched
        self.grown: set[int] = set()  # files that lie in stripes, and whose record may not say so yet
        self.ends: set[int] = set()  # striped files that were written here since their record was told
        self.handles: dict[int, tuple[int, Opened]] = {}
        self.stripes_here: set[tuple[int, int]] = set()  # by tests of moving; else stripes have no place
        self.timers: dict[object, float] = {}
        self.invalidated: list[tuple[Any, ...]] = []
        self.freed: list[int] = []
        self.table = self.works()

    # works, as node.file_backend has them

    def works(self) -> dict[type, Callable[[Any], Any]]:
        return dict((
            w.MakePart.by(lambda o: self.make(o.ino)), w.LiveFacts.by(self.live), w.SetTimes.by(lambda o: 0),
            w.Drop.by(lambda o: self.drop(o.inodes)), w.DropWhole.by(lambda o: self.drop_whole(o.ino)),
            w.DropStripes.by(lambda o: self.drop_stripes(o.ino)), w.ListEvictable.by(lambda o: self.evictable()),
            w.RoomMade.by(lambda o: self.freed.append(o.freed)), w.End.by(lambda o: self.end(o.ino)),
            w.EndRecorded.by(lambda o: self.end_recorded(o.ino)), w.Truncate.by(lambda o: self.truncate(o.ino, o.opened, o.size)),
            w.Fetch.by(self.fetch), w.Restripe.by(lambda o: self.restripe(o.ino)), w.Gather.by(self.gather),
            w.ListStripes.by(lambda o: sorted(self.stripes_here)), w.FetchStripe.by(self.fetch_stripe),
            w.ReportUsage.by(lambda o: Usage(sum(map(len, self.parts.values())), 1 << 30, len(self.parts))),
            w.CountUses.by(lambda o: self.uses(o.ino)), w.CountProxied.by(lambda o: len(self.handles_through(o.ino))),
            w.Keep.by(lambda o: any(self.uses(o.ino))), w.OpenHandle.by(self.open_handle), w.Read.by(self.read), w.Write.by(self.write),
            w.TruncateHandle.by(lambda o: self.truncate(*self.handles[o.handle], o.size)), w.Flush.by(lambda o: None),
            w.CloseHandle.by(lambda o: self.close(o.handle)), w.Digest.by(self.digest), w.Lose.by(lambda o: None),
            w.IsLost.by(lambda o: o.ino in self.cluster.lost), w.SetTable.by(lambda o: None), w.SetMoving.by(lambda o: None),
            w.AddPeer.by(lambda o: None), w.ForgetPeer.by(lambda o: None),
            w.Invalidate.by(lambda o: self.invalidated.append((o.inodes, o.entries, o.but))),
        ))  # fmt: skip

    def make(self, ino: int) -> None:
        if ino not in self.grown:
            self.parts.setdefault(ino, bytearray())

    def content(self, ino: int, opened: Opened) -> bytearray:
        """The bytes a handle reaches. Stripes are kept as one array at node 0 of the cluster: where they lie is not what is tested here."""
        if opened.kind == REMOTE:
            there = self.cluster.nodes[opened.node]
            return there.parts[ino] if ino in there.parts else self.cluster.striped.setdefault(ino, bytearray())
        if opened.kind == STRIPES:
            return self.cluster.striped.setdefault(ino, bytearray())
        if ino in self.parts:
            return self.parts[ino]
        if ino in self.grown:
            return self.cluster.striped[ino]
        raise OSError(errno.ENOENT, "no part")

    def live(self, order: w.LiveFacts) -> Facts:
        known = order.attr
        data = self.content(known.ino, Opened(known.layout * 2, self.number, known.stripe, known.size, 0))
        return Facts(len(data), -(-len(data) // 512), known.atime, self.cluster.written.get(known.ino, known.mtime))

    def truncate(self, ino: int, opened: Opened, to: int) -> None:
        data = self.content(ino, opened)
        data[to:] = b""
        self.cluster.written[ino] = self.cluster.clock()
        data.extend(bytes(to - len(data)))
        self.closed(ino, opened)

    def closed(self, ino: int, opened: Opened) -> None:
        """A handle was closed: the node through which it went is told when it was the last."""
        if opened.kind == REMOTE and not self.cluster.nodes[opened.node].handles_through(ino):
            self.cluster.worked.setdefault(opened.node, deque()).append(FsHandlesClosed(ino))

    def handles_through(self, ino: int) -> list[tuple[Node, int]]:
        """Other nodes' handles that go through this one."""
        through = (ino, REMOTE, self.number)
        return [(each, n) for each in self.cluster.nodes.values() for n, (of, how) in each.handles.items() if (of, *how[:2]) == through]

    def uses(self, ino: int) -> tuple[int, int]:
        mine = [number in self.writing for number, (of, _) in self.handles.items() if of == ino]
        theirs = [number in each.writing for each, number in self.handles_through(ino)]
        return (mine + theirs).count(False), (mine + theirs).count(True)

    def fetch(self, order: w.Fetch) -> int:
        there = self.cluster.nodes[order.node].parts.get(order.ino)
        if there is None or len(there) != order.size:
            raise OSError(errno.ESTALE, "not there")
        if order.size > self.limit:
            raise OSError(errno.ENOSPC, "no room")
        self.parts[order.ino] = bytearray(there)
        return order.size

    def drop(self, inodes: tuple[int, ...]) -> None:
        for ino in inodes:
            self.parts.pop(ino, None)
            self.cluster.striped.pop(ino, None)

    def drop_whole(self, ino: int) -> None:
        self.parts.pop(ino, None)

    def drop_stripes(self, ino: int) -> None:
        self.cluster.striped.pop(ino, None)

    def restripe(self, ino: int) -> int:
        """Not of a file that has been laid so already."""
        if ino in self.parts:
            self.cluster.striped[ino] = self.parts.pop(ino)
            self.grown.add(ino)
        elif ino not in self.grown:
            raise OSError(errno.ENOENT, "no part")
        return 0

    def grow(self, ino: int) -> None:
        """Somebody writes it through this node, and there is no room for more."""
        self.restripe(ino)
        self.cluster.worked.setdefault(self.number, deque()).append(FsStriped(ino, STRIPE))

    def end(self, ino: int) -> tuple[int, int] | None:
        return (len(self.cluster.striped[ino]), self.cluster.written[ino]) if ino in self.ends else None

    def end_recorded(self, ino: int) -> None:
        self.ends.discard(ino)
        if not any(self.uses(ino)):
            self.grown.discard(ino)

    def gather(self, order: w.Gather) -> int:
        self.parts[order.ino] = bytearray(self.cluster.striped[order.ino])
        return order.size

    def fetch_stripe(self, order: w.FetchStripe) -> int:
        if order.node in self.cluster.dead:
            raise OSError(errno.EIO, "dead")
        stripe, there = (order.ino, order.index), self.cluster.nodes[order.node].stripes_here
        if stripe not in there:
            raise OSError(errno.ENOENT, "no part")
        there.discard(stripe)
        self.stripes_here.add(stripe)
        return 0

    def open_handle(self, order: w.OpenHandle) -> int:
        ino, opened = order.ino, order.opened
        self.content(ino, opened)
        if opened.kind == REMOTE and order.writing and not self.cluster.nodes[opened.node].is_written(ino):
            raise OSError(errno.ESTALE, "finished by now")
        self.cluster.handles += 1
        self.handles[self.cluster.handles] = ino, opened
        if order.writing:
            self.writing.add(self.cluster.handles)
        return self.cluster.handles

    def is_written(self, ino: int) -> bool:
        """Through this node."""
        return self.uses(ino)[1] > 0

    def read(self, order: w.Read) -> bytes:
        return bytes(self.content(*self.handles[order.handle])[order.offset : order.offset + order.count])

    def write(self, order: w.Write) -> int:
        (ino, opened), offset, data = self.handles[order.handle], order.offset, order.data
        through = self.cluster.nodes[opened.node] if opened.kind == REMOTE else self
        if opened.kind != STRIPES and ino in through.parts and self.cluster.random.random() < self.cluster.growth:
            through.grow(ino)
        if opened.kind == STRIPES or ino not in through.parts:
            through.ends.add(ino)
        content = self.content(ino, opened)
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + len(data)] = data
        self.cluster.written[ino] = self.cluster.clock()
        return len(data)

    def close(self, number: int) -> Facts:
        ino, opened = self.handles.pop(number)
        self.writing.discard(number)
        content = self.content(ino, opened)
        self.closed(ino, opened)
        return Facts(len(content), -(-len(content) // 512), self.cluster.clock(), self.cluster.written.get(ino, 0))

    def digest(self, order: w.Digest) -> tuple[bytes, int]:
        taken = Digest()
        taken.add(self.content(order.ino, order.opened))
        return taken.value(), taken.size

    def evictable(self) -> list[tuple[int, int]]:
        return [(ino, len(data)) for ino, data in self.parts.items() if data and not any(self.uses(ino))]


class Cluster:
    """``nodes`` machines under one scheduler. ``call`` runs one operation to its end, ``start`` begins one, ``settle`` all."""

    def __init__(self, nodes: int, seed: int = 0, partitions: int = 64) -> None:
        self.random = random.Random(seed)
        self.time = 0.0
        self.nanoseconds = 1_000_000_000_000
        self.handles = 0
        self.growth = 0.0  # how likely a write makes a file outgrow its node
        self.striped: dict[int, bytearray] = {}
        self.held_works: set[type] = set()  # what does not end until this is cleared
        self.held_links: set[tuple[int, int]] = set()  # likewise messages that do not arrive
        self.lost: set[int] = set()  # striped files of which a dead node had some, and their record may not say so yet
        self.written: dict[int, int] = {}  # when each file was written last
        self.links: dict[tuple[int, int], deque[m.Message]] = {}
        self.worked: dict[int, deque[FsWorked | FsHandlesClosed | FsStriped | FsRequested]] = {}
        self.slow: dict[int, deque[FsWork]] = {}  # of each node: what is done beside all else, one after the other
        self.answers: dict[object, tuple[int, Any]] = {}
        self.mounted: dict[tuple[int, int, int], set[int]] = {}  # (node, face, inode): handles that a mount has open
        self.on_answer: dict[object, Callable[[], None]] = {}  # what a mount does as soon as it is answered
        self.done: dict[object, tuple[int, Any]] = {}
        self.settled: dict[tuple[int, int], list[Any]] = {}  # (node, number of an attempt): the error and the traces
        self.serial = 0
        self.dead: set[int] = set()
        self.table = PartitionTable.even([0], partitions)
        self.nodes: dict[int, Node] = {}
        for number in range(nodes):
            self.join(number)

    def join(self, number: int) -> None:
        """A node comes in; in whatever order the others learn of it."""
        self.nodes[number] = Node(self, number)
        self.table = self.table.with_node(number)
        self.view()
        self.settle()

    def view(self) -> None:
        live = frozenset(self.nodes) - self.dead
        order = sorted(live)
        self.random.shuffle(order)
        for number in order:
            node = self.nodes[number]
            self.tell(node, ViewChanged(self.table.owners, self.table.version, min(live), live))
            for _ in range(self.random.randrange(5)):
                self.step()

    def clock(self) -> int:
        self.nanoseconds += 1000
        return self.nanoseconds

    def tell(self, node: Node, event: Any) -> None:
        node.fs.handle(ClockRead(self.clock()), self.time)
        self.act(node, node.fs.handle(event, self.time))
        node.fs.check_invariants()

    def act(self, node: Node, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                if effect.to in self.nodes and effect.to not in self.dead:
                    # Through the wire format: what arrives are lists where tuples were sent.
                    message = decode(bytes(encode(Packet(node.number, effect.to, 1, 1, 1, 0, (effect.message,))))).messages[0]
                    self.links.setdefault((node.number, effect.to), deque()).append(message)
                elif effect.to not in self.nodes:
                    self.done[(effect.to, effect.message.serial)] = (effect.message.error, effect.message.value)
            elif isinstance(effect, SetTimer):
                node.timers[effect.key] = effect.at
            elif isinstance(effect, CancelTimer):
                node.timers.pop(effect.key, None)
            elif isinstance(effect, FsReplied):
                assert effect.token not in self.answers, "answered twice"
                self.answers[effect.token] = (effect.error, effect.value)
                self.on_answer.pop(effect.token, lambda: None)()
            elif isinstance(effect, FsWork):
                if isinstance(effect.order, TAKES_A_WHILE):
                    self.slow.setdefault(node.number, deque()).append(effect)
                    continue
                event = self.work(node, effect)
                if effect.serial:
                    self.worked.setdefault(node.number, deque()).append(event)
            elif isinstance(effect, AttemptSettled):
                self.settled[node.number, effect.ended.number] += [effect.error, effect.traces]
            else:
                assert isinstance(effect, Log), effect

    def work(self, node: Node, effect: FsWork) -> FsWorked:
        error, value = 0, None
        try:
            value = node.table[type(effect.order)](effect.order)
        except OSError as failed:
            error = failed.errno or errno.EIO
        return FsWorked(effect.serial, error, value)

    def step(self) -> bool:
        """One delivery, chosen by chance. False: nothing is under way."""
        choices: list[Any] = [("link", key) for key, queue in self.links.items() if queue and key not in self.held_links]
        choices += [("work", number) for number, queue in self.worked.items() if queue]
        if not choices or self.random.random() < 0.3:
            choices += [("slow", number) for number, queue in self.slow.items() if queue and type(queue[0].order) not in self.held_works]
        if choices:
            kind, key = self.random.choice(choices)
            self.time += 1e-5
            if kind == "link":
                self.tell(self.nodes[key[1]], Received(key[0], self.links[key].popleft()))
            elif kind == "slow":
                self.tell(self.nodes[key], self.work(self.nodes[key], self.slow[key].popleft()))
            else:
                self.tell(self.nodes[key], self.worked[key].popleft())
            return True
        timers = [(at, number, key) for number, node in self.nodes.items() for key, at in node.timers.items() if number not in self.dead]
        if not timers:
            return False
        at, number, key = min(timers, key=lambda timer: timer[0])
        self.time = max(self.time, at)
        del self.nodes[number].timers[key]
        self.tell(self.nodes[number], TimerFired(key))
        return True

    def wander(self, most: int) -> None:
        """A few deliveries, fewer than ``most``."""
        for _ in range(self.random.randrange(most)):
            self.step()

    def settle(self) -> None:
        for _ in range(STEPS_MAX):
            if not self.step():
                return
        raise AssertionError("it goes on for ever")

    def start(self, node: int, op: str, *args: Any, face: int = 1, uid: int = 0, gid: int = 0) -> object:
        self.serial += 1
        token = ("fuse", face, self.serial)
        self.tell(self.nodes[node], FsRequested(token, typed(op, args), uid, gid))
        return token

    def finish(self, token: object) -> Any:
        for _ in range(STEPS_MAX):
            if token in self.answers:
                error, value = self.answers.pop(token)
                if error:
                    raise OSError(error, errno.errorcode.get(error, str(error)))
                return value
            assert self.step(), "no answer, and nothing is under way"
        raise AssertionError("it goes on for ever")

    def call(self, node: int, op: str, *args: Any, **who: int) -> Any:
        return self.finish(self.start(node, op, *args, **who))

    def fill(self, number: int) -> None:
        """A node has no room any more: whatever can go there shall go."""
        node = self.nodes[number]
        self.tell(node, FsFull(1, sum(size for _, size in node.evictable())))

    def kill(self, number: int) -> None:
        """A node dies; the others learn it."""
        self.dead.add(number)
        for key in [key for key in self.links if number in key]:
            del self.links[key]
        self.worked.pop(number, None)
        self.slow.pop(number, None)
        self.table = self.table.without(number)
        for node in self.nodes.values():
            if node.number not in self.dead:
                self.tell(node, PeerDown(number))
        self.view()

    def check(self) -> None:
        """What must hold when nothing is under way: every entry's inode is there, counted right, and nothing else is."""
        live = [node for node in self.nodes.values() if node.number not in self.dead]
        counted: dict[int, int] = {}
        directories = {1}
        for node in live:
            node.meta.check()
            assert node.fs.calls.idle(), f"node {node.number} still waits"
        ahead = [1]
        while ahead:
            above = ahead.pop()
            for node in live:
                for _, ino, type, _, _ in node.meta.list(above, 0, 4096):
                    if type == 0o040000:
                        assert ino not in directories, "a directory with two entries"
                        directories.add(ino)
                        ahead.append(ino)
                    else:
                        counted[ino] = counted.get(ino, 0) + 1
        for ino in directories:
            for node in live:
                node.meta.dir_get(ino)
        assert {node.meta.counts()["dirs"] for node in live} == {len(directories)}
        for ino, count in counted.items():
            owner = self.nodes[self.table.owners[live[0].meta.ino_partition(ino)]]
            assert owner.meta.getattr(ino, owner.number)[2] == count, f"inode {ino:#x} has {count} entries"
        assert sum(node.meta.counts()["inodes"] for node in live) == len(counted), "an inode without an entry"
        for node in live:
            assert set(node.parts) <= set(counted), f"node {node.number} keeps content that nobody needs"


class Real:
    """The same by the operations of clients, each through a node chosen by chance."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def do(self, op: str, *args: Any, node: int | None = None) -> Any:
        return self.cluster.call(self.cluster.random.choice(sorted(self.cluster.nodes)) if node is None else node, op, *args)

    def mkdir(self, path: bytes) -> None:
        self.do("mkdir_path", path, 0o755, False)

    def rmdir(self, path: bytes) -> None:
        self.do("rmdir_path", path)

    def write(self, path: bytes, data: bytes, append: bool) -> None:
        node = self.cluster.random.choice(sorted(self.cluster.nodes))
        flags = os.O_WRONLY | os.O_CREAT | (0 if append else os.O_TRUNC)
        handle, attr = self.do("open_path", path, flags, 0o644, -1, 0, -1, node=node)
        self.do("write", handle, Attr(*attr).size if append else 0, data, node=node)
        self.do("close", handle, node=node)

    def read(self, path: bytes) -> bytes:
        node = self.cluster.random.choice(sorted(self.cluster.nodes))
        handle, _ = self.do("open_path", path, os.O_RDONLY, 0, -1, 0, -1, node=node)
        data = self.do("read", handle, 0, 1 << 20, node=node)
        self.do("close", handle, node=node)
        return bytes(data)

    def truncate(self, path: bytes, size: int) -> None:
        self.do("setattr_path", path, META_SET_SIZE, Attr()._replace(size=size), True)

    def unlink(self, path: bytes) -> None:
        self.do("unlink_path", path)

    def link(self, path: bytes, to: bytes) -> None:
        self.do("link_path", path, to)

    def rename(self, path: bytes, to: bytes) -> None:
        self.do("rename_path", path, to, 0)

    def list(self, path: bytes) -> list[bytes]:
        listed, more = self.do("list_path", path, 0, 1000)
        assert not more
        return sorted(bytes(name) for name, _ in listed)
