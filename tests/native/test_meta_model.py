"""The metadata shard against the same thing in plain dictionaries: three nodes with one table, any calls in any order."""

from __future__ import annotations

import errno
import inspect
import random
import stat
import struct
from typing import Any

import pytest
import xxhash
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from meta_reference import Reference
from meta_reference_state import Refused

from amfs._native import Meta
from amfs.vocabulary.attr import META_BUSY, NO_LAYOUT, ROOT, STRIPED, WHOLE, Attr

NODES, PARTITIONS = 3, 6
TYPES = [stat.S_IFREG, stat.S_IFREG, stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO]

picks = st.integers(1 << 16, 1 << 17)  # away from 0, of which there would be many
good_names = [b"a", b"b", b"c", b"d", b"\xff" * 255]
bad_names = [b"", b".", b"..", b"x/y", b"x\0y", b"n" * 256]
names = st.sampled_from(good_names * 4 + bad_names)
nodes = st.integers(0, NODES)  # the last one is a node that keeps nothing
anybody = st.integers(-1, NODES)
modes = st.sampled_from([0o644, 0o755, 0o6755, 0o4711, 0o2600, 0])
masks = st.integers(0, 1023)
sizes = st.sampled_from([0, 1, 100, 1 << 40])
times = st.integers(-5, 1 << 62)
values = st.binary(max_size=20) | st.sampled_from([b"v" * 40000, b"v" * 65536, b"v" * 65537])
attributes = st.sampled_from([b"user.a", b"user.b", b"", b"n" * 256])


def answer(call: Any, *args: Any) -> tuple[str, Any]:
    try:
        return "gives", call(*args)
    except OSError as error:
        return "refuses", error.errno
    except Refused as error:
        return "refuses", error.number


class Pair:
    """A shard and its reference, asked the same."""

    def __init__(self, node: int) -> None:
        self.meta, self.reference = Meta(node), Reference(node)

    def ask(self, method: str, *args: Any) -> tuple[str, Any]:
        got, wanted = answer(getattr(self.meta, method), *args), answer(getattr(self.reference, method), *args)
        assert ordered(method, got) == ordered(method, wanted), f"node {self.reference.node}: {method}{args}"
        return got


def ordered(method: str, got: tuple[str, Any]) -> Any:
    """Without the order of the nodes to be told."""
    if got[0] == "gives" and method in ("unlink", "insert", "remove", "setattr", "link", "open", "wrote", "wrote_same"):
        return got[0], (*got[1][:-1], sorted(got[1][-1]))
    if got[0] == "gives" and method in ("checkpoint", "short_of_copies"):
        return got[0], sorted(got[1])
    return got


spread_head = struct.Struct("<BBHiQQIIIiq").pack


def list_all(meta: Meta, dir: int, page: int) -> set[Any]:
    found, cursor = [], 0
    while entries := meta.list(dir, cursor, page):
        for name, ino, type, at, attr in entries:
            assert cursor < at < 1 << 48
            cursor = at
            found.append((name, ino, type, attr))
    assert len(set(found)) == len(found)
    return set(found)


class Shards(RuleBasedStateMachine):
    @initialize(owners=st.lists(st.integers(0, NODES - 1), min_size=PARTITIONS, max_size=PARTITIONS), alone=st.booleans())
    def begin(self, owners: list[int], alone: bool) -> None:
        self.now = 1000
        self.version = 1
        self.owners = [0] * PARTITIONS if alone else owners
        self.pairs = [Pair(node) for node in range(NODES)]
        self.files: list[int] = [77, (PARTITIONS - 1) << 40 | 5]  # numbers seen; these two are nobody's
        self.dirs: list[int] = [ROOT]
        self.everywhere("set_table", self.owners, self.version)
        for name in good_names[:3]:
            self.create(1, name, -1, 1, stat.S_IFREG, 0o644, -1, WHOLE, 0, None)

    # ── who and what ───────────────────────────────────────────────────────────────────────────────

    def everywhere(self, method: str, *args: Any) -> tuple[str, Any]:
        answers = [pair.ask(method, *args) for pair in self.pairs]
        return answers[0]

    def tick(self) -> int:
        self.now += 1
        return self.now

    def ino(self, pick: int) -> int:
        """Mostly a file that is there."""
        there = sorted({ino for pair in self.pairs for ino in pair.reference.inodes})
        numbers = [*self.files[-3:], self.files[0], *self.dirs[-2:]] if pick % 5 == 0 or not there else there[-5:]
        return numbers[pick // 5 % len(numbers)]

    def dir(self, pick: int) -> int:
        if pick % 37 == 0:
            return self.ino(pick // 37)
        numbers = self.dirs[:1] + self.dirs[-3:]
        return numbers[pick % len(numbers)]

    def at(self, partition: int, pick: int) -> Pair:
        """Mostly the owner."""
        return self.pairs[pick % NODES] if pick % 11 == 0 else self.pairs[self.owners[partition]]

    def at_name(self, dir: int, name: bytes, pick: int) -> Pair:
        return self.at(self.pairs[0].meta.name_partition(dir, name), pick)

    def at_ino(self, ino: int, pick: int) -> Pair:
        return self.at(self.pairs[0].meta.ino_partition(ino), pick)

    # ── entries ────────────────────────────────────────────────────────────────────────────────────

    @rule(dir=picks, name=names, asker=anybody, pick=picks)
    def lookup(self, dir: int, name: bytes, asker: int, pick: int) -> None:
        dir = self.dir(dir)
        self.at_name(dir, name, pick).ask("lookup", dir, name, asker)

    @rule(
        dir=picks,
        name=names,
        asker=anybody,
        pick=picks,
        type=st.sampled_from(TYPES),
        mode=modes,
        writer=anybody,
        layout=st.sampled_from([WHOLE, WHOLE, STRIPED]),
        stripe=st.sampled_from([0, 4096]),
        goal=st.sampled_from([None, b"", b"there", b"t" * 5000]),
    )
    def create(
        self, dir: int, name: bytes, asker: int, pick: int, type: int, mode: int, writer: int, layout: int, stripe: int, goal: bytes | None
    ) -> None:
        dir = self.dir(dir)
        if pick % 5:  # mostly what goes together
            goal = (goal or b"x")[:9] if type == stat.S_IFLNK else None
            writer = writer if type == stat.S_IFREG else -1
            stripe = stripe or 512
        attr = Attr(mode=type | mode, uid=5, gid=6, rdev=7, writer=writer, layout=layout, stripe=stripe)
        said, made = self.at_name(dir, name, pick).ask("create", dir, name, self.tick(), asker, goal, attr)
        if said == "gives":
            self.files.append(made[0])

    @rule(
        dir=picks,
        name=names,
        ino=picks,
        type=st.sampled_from([*TYPES, stat.S_IFDIR]),
        replace=st.booleans(),
        owner=st.integers(0, 2),
        pick=picks,
    )
    def insert(self, dir: int, name: bytes, ino: int, type: int, replace: bool, owner: int, pick: int) -> None:
        dir, ino = self.dir(dir), self.ino(ino)
        pair = self.at_name(dir, name, pick)
        for other in self.pairs:
            if ino in other.reference.inodes and (other is not pair or pick % 7):  # a wrong type is seen where the record is
                type = stat.S_IFMT(other.reference.inodes[ino].attr.mode)
        if ino in self.dirs:
            type = stat.S_IFDIR
        pair.ask("insert", dir, name, owner, ino, type, replace)

    @rule(dir=picks, name=names, ino=picks, owner=st.integers(0, 2), pick=picks)
    def remove(self, dir: int, name: bytes, ino: int, owner: int, pick: int) -> None:
        dir = self.dir(dir)
        self.at_name(dir, name, pick).ask("remove", dir, name, owner, 0 if ino % 3 else self.ino(ino))

    @rule(dir=picks, name=names, pick=picks)
    def unlink(self, dir: int, name: bytes, pick: int) -> None:
        dir = self.dir(dir)
        if len(name) < 256:
            self.at_name(dir, name, pick).ask("unlink", dir, name, self.tick())

    @rule(dir=picks, name=names, to_dir=picks, to_name=names, flags=st.sampled_from([0, 0, 1, 2, 3, 4]), pick=picks)
    def rename(self, dir: int, name: bytes, to_dir: int, to_name: bytes, flags: int, pick: int) -> None:
        dir, to_dir = self.dir(dir), self.dir(to_dir)
        self.at_name(dir, name, pick).ask("rename", dir, name, to_dir, to_name, flags, self.tick())

    @rule(
        dir=picks,
        name=names,
        owner=st.sampled_from([0, 1, 2, (1 << 40) + 1, (2 << 40) + 1]),
        pick=picks,
        what=st.sampled_from(["lock", "unlock", "unlock"]),
    )
    def lock(self, dir: int, name: bytes, owner: int, pick: int, what: str) -> None:
        dir = self.dir(dir)
        self.at_name(dir, name, pick).ask(what, dir, name, owner)

    @rule(node=nodes)
    def unlock_node(self, node: int) -> None:
        self.everywhere("unlock_node", node)

    # ── inodes ─────────────────────────────────────────────────────────────────────────────────────

    @rule(ino=picks, asker=anybody, pick=picks)
    def getattr(self, ino: int, asker: int, pick: int) -> None:
        self.at_ino(self.ino(ino), pick).ask("getattr", self.ino(ino), asker)

    @rule(
        ino=picks,
        asker=anybody,
        pick=picks,
        mask=masks,
        here=st.booleans(),
        mode=modes,
        size=sizes,
        time=times,
        layout=st.integers(0, 2),
        stripe=st.sampled_from([0, 512]),
    )
    def setattr(
        self, ino: int, asker: int, pick: int, mask: int, here: bool, mode: int, size: int, time: int, layout: int, stripe: int
    ) -> None:
        ino = self.ino(ino)
        if pick % 3:
            mask &= ~128  # else nearly all of them are about layouts
        new = Attr(
            mode=mode, uid=50, gid=60, size=size, blocks=8, atime=time, mtime=time + 1, ctime=time + 2, layout=layout, stripe=stripe,
            rank=1, copies=pick % 4,
        )  # fmt: skip
        pair = self.at_ino(ino, pick)
        if here:
            pair.ask("setattr_here", ino, mask & ~256 if pick % 2 else mask, new, self.tick())
        else:
            pair.ask("setattr", ino, mask, new, self.tick(), asker)

    @rule(ino=picks, delta=st.sampled_from([-2, -1, -1, 1, 1]), pick=picks, asker=anybody)
    def link(self, ino: int, delta: int, pick: int, asker: int) -> None:
        self.at_ino(self.ino(ino), pick).ask("link", self.ino(ino), delta, self.tick(), asker)

    @rule(ino=picks, node=nodes, writing=st.booleans(), pick=picks, here=st.booleans())
    def open(self, ino: int, node: int, writing: bool, pick: int, here: bool) -> None:
        ino = self.ino(ino)
        if here:
            self.at_ino(ino, pick).ask("open_here", ino, writing)
        else:
            self.at_ino(ino, pick).ask("open", ino, node, writing)

    @rule(ino=picks, node=nodes, size=sizes, pick=picks, time=times)
    def wrote(self, ino: int, node: int, size: int, pick: int, time: int) -> None:
        ino = self.ino(ino)
        pair = self.at_ino(ino, pick)
        writer = pair.reference.inodes[ino].attr.writer if ino in pair.reference.inodes else -1
        data = Attr(size=size, blocks=3, atime=time, mtime=time, ctime=self.tick())
        pair.ask("wrote", ino, writer if pick % 4 else node, data)

    @rule(ino=picks, node=nodes, size=sizes, pick=picks, time=times, copies=st.lists(st.integers(0, NODES - 1), max_size=2))
    def checkpoint(self, ino: int, node: int, size: int, pick: int, time: int, copies: list[int]) -> None:
        ino = self.ino(ino)
        pair = self.at_ino(ino, pick)
        writer = pair.reference.inodes[ino].attr.writer if ino in pair.reference.inodes else -1
        by = writer if pick % 4 else node
        pair.ask("checkpoint", ino, by, Attr(size=size, blocks=3, atime=time, mtime=time, ctime=self.tick()), copies)
        if pick % 2:
            pair.ask("wrote_same", ino, by)
        pair.ask("short_of_copies", 1 + pick % 3)

    @rule(ino=picks, node=nodes, pick=picks, what=st.sampled_from(["unused", "unused", "add_holder", "give_up"]))
    def users_and_holders(self, ino: int, node: int, pick: int, what: str) -> None:
        pair = self.at_ino(self.ino(ino), pick)
        more = (pair.meta.grant(self.ino(ino)),) if what == "add_holder" else ()
        pair.ask(what, self.ino(ino), node, *more)

    @rule(ino=picks, pick=picks, what=st.sampled_from(["readlink", "holders"]))
    def read(self, ino: int, pick: int, what: str) -> None:
        self.at_ino(self.ino(ino), pick).ask(what, self.ino(ino))

    @rule(
        ino=picks,
        name=attributes,
        value=values,
        flags=st.integers(0, 2),
        pick=picks,
        what=st.sampled_from(["set", "set", "get", "list", "remove"]),
    )
    def xattr(self, ino: int, name: bytes, value: bytes, flags: int, pick: int, what: str) -> None:
        ino = self.ino(ino)
        more = {"set": (name, value, flags, self.tick()), "get": (name,), "list": (), "remove": (name, self.tick())}[what]
        if ino in self.dirs:
            self.everywhere(f"{what}_xattr", ino, *more)
        else:
            self.at_ino(ino, pick).ask(f"{what}_xattr", ino, *more)

    @rule(
        ino=picks,
        node=st.integers(0, NODES - 1),
        size=sizes,
        time=st.integers(0, 2),
        finished=st.integers(0, 1),
        replica=st.booleans(),
        what=st.sampled_from(["cache", "cached", "uncache"]),
    )
    def copies(self, ino: int, node: int, size: int, time: int, finished: int, replica: bool, what: str) -> None:
        ino = self.ino(ino)
        if what == "cache":
            self.pairs[node].ask("cache", Attr(ino=ino, mode=stat.S_IFREG, size=size, mtime=time, finished=finished), replica)
        else:
            self.pairs[node].ask(what, ino)

    # ── directories: every node does the same ──────────────────────────────────────────────────────

    @rule(dir=picks, name=names, mode=st.sampled_from([0o755, 0o2775]), pick=picks)
    def mkdir(self, dir: int, name: bytes, mode: int, pick: int) -> None:
        dir = self.dir(dir)
        partition = self.pairs[0].meta.name_partition(dir, name)
        said, number = self.at(partition, pick).ask("new_number", partition)
        if said == "gives":
            said, _ = self.everywhere("dir_add", number, dir, name, Attr(mode=mode, gid=9, atime=self.now, mtime=self.now, ctime=self.now))
            if said == "gives":
                self.dirs.append(number)

    @rule(
        dir=picks,
        to=picks,
        name=names,
        mask=masks,
        mode=modes,
        layout=st.sampled_from([WHOLE, STRIPED, 2, NO_LAYOUT]),
        stripe=st.sampled_from([0, 512]),
        frozen=st.booleans(),
        pick=picks,
        what=st.sampled_from((
            "remove", "move", "move", "set", "get", "find", "name", "below", "freeze", "touch", "touched",
            "set_layout", "layout", "set_copies", "copies",
        )),
    )
    def directories(
        self, dir: int, to: int, name: bytes, mask: int, mode: int, layout: int, stripe: int, frozen: bool, pick: int, what: str
    ) -> None:
        dir, to, now = self.dir(dir), self.dir(to), self.tick()
        if what == "touch":
            self.at_ino(dir, pick).ask("dir_touch", dir, now)
            return
        if what == "set" and pick % 3:
            mask &= ~(8 | 128 | 512)
        args: dict[str, tuple[Any, ...]] = {
            "remove": (dir,),
            "move": (dir, to, name, now),
            "set": (dir, mask, Attr(mode=mode, uid=3, gid=4, atime=1, mtime=2, ctime=3, rank=2), now),
            "get": (dir,),
            "find": (dir, name),
            "name": (dir,),
            "below": (dir, to),
            "freeze": (dir, frozen and pick % 4 == 0),
            "touched": (dir,),
            "set_layout": (dir, layout, stripe),
            "layout": (dir,),
            "set_copies": (dir, stripe // 512 + pick % 2),
            "copies": (dir,),
        }
        self.everywhere(f"dir_{what}", *args[what])

    @rule(dir=picks, to=picks, name=names, mode=modes, pick=picks, by=st.integers(1, 255), frozen=st.booleans())
    def spreads(self, dir: int, to: int, name: bytes, mode: int, pick: int, by: int, frozen: bool) -> None:
        """Changes of directories: of the manager and of another node, anew, again, and too late; past the poll loop, and by way of it."""
        dir, to, now = self.dir(dir), self.dir(to), self.tick()
        lot = random.Random(pick)
        manager = lot.choice((1, 1, 1, 2))
        if pick % 5 == 0:
            self.everywhere("set_manager", lot.choice((1, 1, 1, 2, -1)))
            self.everywhere("refuse", manager, now - lot.randrange(30))
        number = now - lot.choice((0, 0, 0, 1, 7))
        entry = self.at_name(dir, name, pick)
        said, ino = entry.ask("reserve_for", manager, number, dir, name)
        ino = ino if said == "gives" else lot.choice(self.dirs)
        directly = lot.random() < 0.5
        name = name[:300]
        asker = lot.randrange(NODES)
        kinds = {
            "add": spread_head(1, 0, len(name), asker, ino, dir, mode, 7, 8, -1, now) + name,
            "drop": spread_head(2, lot.random() < 0.2, len(name), asker, to, dir, 0, 0, 0, 0, now) + name,
            "freeze": spread_head(3 if frozen and lot.random() < 0.3 else 4, 0, 0, asker, to, 0, 0, 0, 0, 0, 0),
        }
        changes = b"".join(kinds[kind] for kind in lot.choices(("add", "add", "drop", "freeze"), k=lot.choice((0, 1, 1, 3))))
        if by > 250:
            changes = changes[: by - 256]
        for pair in self.pairs:
            pair.ask("spread", manager, number, changes, directly)
            pair.ask("spread", manager, number, changes, directly)
        if ino in self.pairs[0].reference.dirs and ino not in self.dirs:
            self.dirs.append(ino)
        if pick % 3 == 0:
            entry.ask("strike_for", manager, number, dir, name, ino)
        self.at_ino(dir, pick).ask("dir_touch_for", dir, now, asker)

    # ── partitions and nodes that come and go ──────────────────────────────────────────────────────

    @rule(partition=st.integers(0, PARTITIONS - 1), to=st.integers(0, NODES - 1), pick=picks, name=names)
    def move_partition(self, partition: int, to: int, pick: int, name: bytes) -> None:
        source, heir = self.pairs[self.owners[partition]], self.pairs[to]
        if source is heir:
            return
        self.everywhere("set_moving", [partition], True)
        self.lookup(pick, name, -1, 1)  # a moving partition is nobody's
        exported, held = source.meta.export_partition(partition), source.reference.export_partition(partition)
        assert answer(heir.meta.import_, exported) == answer(heir.reference.import_, held) == ("gives", None)
        self.compare(source)
        self.version += 1
        self.owners = [to if p == partition else owner for p, owner in enumerate(self.owners)]
        self.everywhere("set_table", self.owners, self.version)
        self.everywhere("set_moving", [partition], False)
        self.compare(heir)
        source.ask("drop", partition)

    @rule(partition=st.integers(0, PARTITIONS - 1), node=st.integers(0, NODES - 1), at=picks, by=st.integers(1, 255), repair=st.booleans())
    def damaged_import(self, partition: int, node: int, at: int, by: int, repair: bool) -> None:
        """A changed byte is noticed; with a checksum that says all is well it is either noticed or harmless."""
        source, heir = self.pairs[self.owners[partition]], self.pairs[node]
        exported = bytearray(source.meta.export_partition(partition))
        exported[at % len(exported)] ^= by
        if not repair:
            assert answer(heir.meta.import_, bytes(exported)) == ("refuses", errno.EPROTO)
            assert answer(heir.meta.import_, bytes(exported[: at % len(exported)])) == ("refuses", errno.EPROTO)
            return
        exported[8:16] = struct.pack("<Q", xxhash.xxh64_intdigest(bytes(exported[16:])))
        other = Meta(9)  # whatever it takes, it must be sound
        other.set_table(self.owners, self.version)
        if answer(other.import_, bytes(exported))[0] == "refuses":
            assert other.counts()["inodes"] == other.counts()["entries"] == 0
        other.check()

    @rule(node=nodes)
    def forget_node(self, node: int) -> None:
        for pair in self.pairs:
            if pair.reference.node != node:
                lost = pair.meta.forget_node(node)
                assert len(set(lost)) == len(lost)
                assert set(lost) == pair.reference.forget_node(node)

    @rule(node=st.integers(0, NODES - 1))
    def join(self, node: int) -> None:
        """All directories for a node that knows none, and once more for one that does."""
        exported = self.pairs[node].meta.export_dirs()
        other = Meta(NODES)
        other.set_table(self.owners, self.version)
        for _ in range(2):
            other.import_(exported)
            other.check()
            for dir in self.dirs:
                assert answer(other.dir_get, dir) == answer(self.pairs[node].meta.dir_get, dir)
                assert answer(other.dir_name, dir) == answer(self.pairs[node].meta.dir_name, dir)
                assert (
                    answer(other.list_xattr, dir)[0] == answer(self.pairs[node].meta.list_xattr, dir)[0]
                    or dir not in self.pairs[node].reference.dirs
                )
        again = other.export_dirs()
        other.import_(again)
        assert sorted(other.export_dirs()) == sorted(exported)

    # ── always ─────────────────────────────────────────────────────────────────────────────────────

    def compare(self, pair: Pair) -> None:
        """All that can be seen of a shard."""
        for dir in self.dirs:
            assert list_all(pair.meta, dir, 3) == pair.reference.list_all(dir)
            assert pair.meta.count(dir) == sum(1 for of, _ in pair.reference.entries if of == dir)
        for ino in self.files:
            pair.ask("getattr", ino, -1)
            pair.ask("holders", ino)
        counts = pair.meta.counts()
        it = pair.reference
        wanted = {"inodes": len(it.inodes), "entries": len(it.entries), "dirs": len(it.dirs), "cached": len(it.copies)}
        assert {what: counts[what] for what in wanted} == wanted

    @rule(node=st.integers(0, NODES - 1))
    def compare_all(self, node: int) -> None:
        self.compare(self.pairs[node])

    @invariant()
    def sound(self) -> None:
        for pair in getattr(self, "pairs", []):
            pair.meta.check()

    def teardown(self) -> None:
        for pair in getattr(self, "pairs", []):
            self.compare(pair)


TestShards = Shards.TestCase
TestShards.settings = settings(max_examples=40, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


RULES = [name for name, member in vars(Shards).items() if hasattr(member, "hypothesis_stateful_rule")]
CHOICES: dict[str, list[Any]] = {
    "name": good_names * 9 + bad_names,
    "to_name": good_names * 9 + bad_names,
    "asker": [-1, -1, 0, 1, 2, 3],
    "node": [0, 1, 2],
    "to": [0, 1, 2],
    "partition": list(range(PARTITIONS)),
    "type": [*TYPES, stat.S_IFDIR],
    "mode": [0o644, 0o755, 0o6755, 0o4711, 0o2600, 0o2775],
    "writer": [-1, -1, 0, 1, 2, 3],
    "layout": [WHOLE, WHOLE, WHOLE, STRIPED, NO_LAYOUT],
    "stripe": [0, 512],
    "goal": [None, b"there"],
    "owner": [0, 0, 1, 2, (1 << 40) + 1],
    "flags": [0, 0, 1, 2],
    "copies": [[], [0], [1], [1, 2]],
    "size": [0, 1, 100, 1 << 40],
    "time": [0, 5, 1 << 62],
    "delta": [-1, 1, 1],
    "value": [b"", b"value", b"v" * 40000],
    "finished": [0, 1],
    "by": list(range(1, 256)),
    "what": [],  # by rule: below
}
WHATS = {
    "lock": ["lock", "unlock", "unlock"],
    "users_and_holders": ["unused", "unused", "add_holder", "give_up"],
    "read": ["readlink", "holders"],
    "xattr": ["set", "get", "list", "remove"],
    "copies": ["cache", "cached", "uncache"],
    "directories": [
        "remove", "move", "set", "get", "find", "name", "below", "freeze", "touch", "set_layout", "layout", "set_copies", "copies",
    ],
}
RARE = {"forget_node", "unlock_node", "join", "damaged_import", "compare_all", "move_partition", "mkdir", "directories"}


def drive(seed: int, steps: int) -> None:
    """The same rules, chosen by lot: ten times as many calls in the time, and mostly such as can be answered."""
    lot = random.Random(seed)
    machine = Shards()
    machine.begin([lot.randrange(NODES) for _ in range(PARTITIONS)], alone=seed % 3 == 0)
    for step in range(steps):
        name = lot.choice(RULES)
        if name in RARE and lot.random() < 0.8:
            continue
        method = getattr(machine, name)
        args: dict[str, Any] = {}
        for parameter, kind in inspect.signature(method).parameters.items():
            choices = WHATS[name] if parameter == "what" else CHOICES.get(parameter)
            if choices is not None:
                args[parameter] = lot.choice(choices)
            else:
                args[parameter] = lot.random() < 0.5 if kind.annotation == "bool" else lot.randrange(1 << 16)
        if name == "directories":
            args["to"] = lot.randrange(1 << 16)
        if name in ("lookup", "getattr") and lot.random() < 0.7:
            args["asker"] = -1
        if name == "xattr":
            args["name"] = lot.choice([b"user.a", b"user.b", b"user.c", b""])
        method(**args)
        if step % 16 == 0:
            machine.sound()
    machine.teardown()


@pytest.mark.parametrize("seed", range(8))
def test_by_lot(seed: int) -> None:
    drive(seed, 4000)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_by_lot_for_long() -> None:
    for seed in range(1000, 3000):
        drive(seed, 4000)


def test_a_frozen_directory_takes_nothing_new() -> None:
    meta = Meta(0)
    meta.set_table([0], 1)
    meta.dir_freeze(ROOT, True)
    with pytest.raises(OSError) as caught:
        meta.create(ROOT, b"x", 1, 0, None, Attr(mode=stat.S_IFREG))
    assert caught.value.errno == META_BUSY
