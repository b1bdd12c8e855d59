"""Several nodes' file system machines with real shards, joined by links that a seeded scheduler delivers; parts are bytearrays.

Owns the order in which things happen. The hands do the works of the machines at once or later, as the seed says.
"""

from __future__ import annotations

import errno
import os
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from amfs._native import Meta
from amfs.fs.fuse_native import typed
from amfs.fs.vfs.machine import FileSystem
from amfs.net.link import Packet
from amfs.net.wire import decode, encode
from amfs.sim.asking import Changed
from amfs.sim.file_backend import SLOW, Contents, SimFileBackend
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import messages as m
from amfs.vocabulary.attr import META_BUSY, META_NOT_MINE, META_SET_SIZE, Attr
from amfs.vocabulary.events import (
    AttemptSettled,
    CancelTimer,
    ClockRead,
    FsHandlesClosed,
    FsReplied,
    FsRequested,
    FsStriped,
    FsWork,
    FsWorked,
    Log,
    MovedAway,
    PeerDown,
    Received,
    RoomGiven,
    Send,
    SetTimer,
    TimerFired,
    ViewChanged,
)
from amfs.vocabulary.partition import PartitionTable

STEPS_MAX = 100_000


class Node(SimFileBackend):
    """One node: machine, parts, timers."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        super().__init__(cluster.contents, number, Meta(number))
        self.fs = FileSystem(number, self.meta)
        self.timers: dict[object, float] = {}
        self.waiting: list[tuple[int, int]] = []  # (ticket, serial) of those who wait until backups know it


class Cluster:
    """``nodes`` machines under one scheduler. ``call`` runs one operation to its end, ``start`` begins one, ``settle`` all."""

    def __init__(self, nodes: int, seed: int = 0, partitions: int = 64) -> None:
        self.random = random.Random(seed)
        self.time = 0.0
        self.nanoseconds = 1_000_000_000_000
        self.contents = Contents(self.random, self.clock, self.later, lambda a, b: b not in self.dead)
        self.held_works: set[type] = set()  # works that do not end until this is cleared
        self.held_links: set[tuple[int, int]] = set()  # likewise messages that do not arrive
        self.held_backups = False  # do changes not reach backups now?
        self.links: dict[tuple[int, int], deque[m.Message]] = {}
        self.worked: dict[int, deque[FsWorked | FsHandlesClosed | FsStriped | FsRequested]] = {}
        self.slow: dict[int, deque[FsWork]] = {}  # of each node: works done beside all else, one after the other
        self.unsettled: list[tuple[Node, FsWorked, Changed]] = []  # works with changes that backups do not know
        self.answers: dict[object, tuple[int, Any]] = {}
        self.mounted: dict[tuple[int, int, int], set[int]] = {}  # (node, endpoint, inode): handles that a mount has open
        self.on_answer: dict[object, Callable[[], None]] = {}  # the next act of a mount as soon as it is answered
        self.done: dict[object, tuple[int, Any]] = {}
        self.settled: dict[tuple[int, int], list[Any]] = {}  # (node, number of an attempt): the error and the traces
        self.given: list[int] = []  # room given to files of runs
        self.moved: list[MovedAway] = []
        self.serial = 0
        self.silent = False  # data ports do not answer: nothing comes to backups, and waits for them end so
        self.batches: dict[tuple[int, int], bytes] = {}  # to backups, under way
        self.taken: dict[tuple[int, int], tuple[int, bytes]] = {}  # their answers, likewise
        self.dead: set[int] = set()
        self.table = PartitionTable.even([0], partitions)
        self.nodes: dict[int, Node] = {}
        for number in range(nodes):
            self.join(number)

    def join(self, number: int) -> None:
        """A node comes in; in whatever order the others learn of it."""
        self.nodes[number] = Node(self, number)
        self.table = self.table.with_nodes([number])
        self.view()
        self.settle()

    def later(self, number: int, event: Any) -> None:
        """Something happens at a node, which learns of it in its turn."""
        self.worked.setdefault(number, deque()).append(event)

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
        self.act(node, node.fs.handle(ClockRead(self.clock()), self.time))
        self.act(node, node.fs.handle(event, self.time))
        node.fs.check_invariants()
        node.check_uses()

    def act(self, node: Node, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                if effect.to in self.nodes and effect.to not in self.dead:
                    # Through the wire format: lists arrive where tuples were sent.
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
            elif isinstance(effect, FsWork) and isinstance(effect.order, w.AwaitBackup):
                if self.silent:
                    self.worked.setdefault(node.number, deque()).append(FsWorked(effect.serial, errno.EIO, None))
                else:
                    node.waiting.append((effect.order.ticket, effect.serial))
            elif isinstance(effect, FsWork):
                if isinstance(effect.order, SLOW):
                    self.slow.setdefault(node.number, deque()).append(effect)
                    continue
                event = self.work(node, effect)
                if effect.serial:
                    self.worked.setdefault(node.number, deque()).append(event)
            elif isinstance(effect, RoomGiven):
                self.given.append(effect.freed)
            elif isinstance(effect, MovedAway):
                self.moved.append(effect)
            elif isinstance(effect, AttemptSettled):
                self.settled[node.number, effect.ended.number] += [effect.error, effect.traces]
            else:
                assert isinstance(effect, Log), effect

    def work(self, node: Node, effect: FsWork) -> FsWorked:
        return node.do(effect)

    def step(self) -> bool:
        """One delivery, chosen by chance. False: nothing is under way."""
        self.look_at_backups()
        choices: list[Any] = [("batch", key) for key in self.batches if self.is_deliverable(key)] + [("taken", key) for key in self.taken]
        choices += [("link", key) for key, queue in self.links.items() if queue and key not in self.held_links]
        choices += [("work", number) for number, queue in self.worked.items() if queue]
        if not choices or self.random.random() < 0.3:
            choices += [("slow", number) for number, queue in self.slow.items() if queue and type(queue[0].order) not in self.held_works]
        if choices:
            kind, key = self.random.choice(choices)
            self.time += 1e-5
            if kind == "batch":
                self.take_batch(key)
            elif kind == "taken":
                error, answer = self.taken.pop(key)
                self.nodes[key[0]].meta.backup_answered(key[1], error, answer)
            elif kind == "link":
                self.tell(self.nodes[key[1]], Received(key[0], self.links[key].popleft()))
            elif kind == "slow":
                node = self.nodes[key]
                event = self.work(node, self.slow[key].popleft())
                self.unsettled.append((node, event, node.asking.take_changed()))
                self.look_at_unsettled()
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

    def look_at_backups(self) -> None:
        self.look_at_unsettled()
        if self.silent:
            return
        live = sorted(set(self.nodes) - self.dead)
        for source in live:
            node = self.nodes[source]
            for target in live:
                key = source, target
                if target != source and key not in self.batches and key not in self.taken:
                    batch = node.meta.backup_next(target)
                    if batch is not None:
                        self.batches[key] = batch
            if node.waiting:
                known = node.meta.backed_up()
                for ticket, serial in [each for each in node.waiting if each[0] <= known]:
                    node.waiting.remove((ticket, serial))
                    self.worked.setdefault(source, deque()).append(FsWorked(serial, 0, None))

    def look_at_unsettled(self) -> None:
        waiting, self.unsettled = self.unsettled, []
        for node, event, changed in waiting:
            heard = node.asking.answer(event, changed)
            if self.silent and heard is None:
                heard = node.asking.give_up(event)
            if heard is None:
                self.unsettled.append((node, event, changed))
            elif node.number not in self.dead:
                self.later(node.number, heard)

    def is_deliverable(self, key: tuple[int, int]) -> bool:
        """A node that has an older table waits for the newer one, and answers at once if it is the other way round."""
        source, target = (self.nodes[number].fs.members.version for number in key)
        return source <= target and not self.held_backups

    def take_batch(self, key: tuple[int, int]) -> None:
        try:
            self.taken[key] = 0, self.nodes[key[1]].meta.backup_take(key[0], self.batches.pop(key))
        except OSError as error:
            assert error.errno in (META_NOT_MINE, META_BUSY), error
            self.taken[key] = error.errno, b""

    def wander(self, most: int) -> None:
        """A few deliveries, fewer than ``most``."""
        for _ in range(self.random.randrange(most)):
            self.step()

    def settle(self) -> None:
        for _ in range(STEPS_MAX):
            if not self.step():
                return
        raise AssertionError("it goes on for ever")

    def start(self, node: int, op: str, *args: Any, endpoint: int = 1, kind: str = "fuse", uid: int = 0, gid: int = 0) -> object:
        """``kind``: of the endpoint, a mount or a client."""
        self.serial += 1
        token = (kind, endpoint, self.serial)
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
        self.tell(node, node.full())

    def kill(self, number: int) -> None:
        """A node dies; the others learn it."""
        self.dead.add(number)
        self.forget_messages(number)
        self.contents.leave(self.nodes[number])
        self.table = self.table.without(number)
        for node in self.nodes.values():
            if node.number not in self.dead:
                self.tell(node, PeerDown(number))
        self.view()

    def forget_messages(self, number: int) -> None:
        for key in [key for key in self.links if number in key]:
            del self.links[key]
        self.worked.pop(number, None)
        self.slow.pop(number, None)
        self.nodes[number].waiting.clear()
        for under_way in (self.batches, self.taken):
            for key in [key for key in under_way if number in key]:
                del under_way[key]

    def check(self) -> None:
        """Check, when nothing is under way: every entry's inode is there, counted right, and nothing else is."""
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
        listed, more, _ = self.do("list_path", path, 0, 1000)
        assert not more
        return sorted(bytes(name) for name, _ in listed)
