"""The simulated I/O of a node's file system: parts are bytes in memory. The counterpart of ``node.file_backend``.

``Contents`` is what the nodes of one session have together: it lets a node reach the parts of another, if the world says that it can.
Stripes are kept in one place, as one array a file: which node has which of them is not simulated, but that some were lost is.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import Any

from amfs._native import Meta
from amfs.host.digests import Digest
from amfs.sim.asking import KINDS, SimAsking
from amfs.sim.bit_flips import BitFlips
from amfs.vocabulary import fs_works as w
from amfs.vocabulary.attr import COPIED, LOCAL, REMOTE, STRIPES, Facts, Opened, stripe_of
from amfs.vocabulary.events import Event, FsDamaged, FsFull, FsHandlesClosed, FsStriped, FsWork, FsWorked
from amfs.vocabulary.peer_requests import Usage

STRIPE = 4096
LIMIT = 1 << 30
SEES_ALL = 1 << 62  # of losses
#: Works that end later, beside all else.
SLOW = (w.Fetch, w.Restripe, w.Gather, w.FetchStripe, w.ListCopied, *KINDS)


class Contents:
    """The content of all files, and the handles on it."""

    def __init__(
        self, rng: random.Random, clock: Callable[[], int], tell: Callable[[int, Event], None], reachable: Callable[[int, int], bool],
        copies: int = 1,
    ) -> None:  # fmt: skip
        """``clock``: nanoseconds since 1970, never twice the same; ``tell``: gives a node an event."""
        self.random = rng
        self.clock = clock
        self.tell = tell
        self.reachable = reachable
        self.copies = copies  # of each file, unless it says otherwise
        self.growth = 0.0  # how likely a write makes a file outgrow its node
        self.fullness = 0.0  # how likely a write makes its node remove what can go; half as likely a copy finds no room
        self.gone: set[int] = set()  # nodes that have died, or were taken out
        self.cleared: set[int] = set()  # nodes that have left, and had handed over all that only they had
        self.nodes: dict[int, SimFileBackend] = {}
        self.striped: dict[int, bytearray] = {}
        self.lost: set[int] = set()  # striped files of which a dead node had some, and their record may not say so yet
        self.written: dict[int, int] = {}  # when each file was written last
        self.handles = 0
        self.fetches = 0  # parts that nodes have fetched from each other
        self.digests = 0  # taken
        self.flips = BitFlips(self.nodes)
        self.late: list[Callable[[], None]] = []  # questions that come after their connection has broken
        self.names_may_go = False  # a node died when not all names were on two nodes

    def there(self, number: int) -> SimFileBackend | None:
        return self.nodes.get(number)

    def leave(self, gone: SimFileBackend) -> None:
        """A node is no more: handles of others through it are broken, and its own through others are closed. A node that was
        taken out, and then ends by itself, leaves once. One that was never let in may end when another node has its number: a manager
        gives a number out and dies, and its successor, which does not know, gives it to the next one that asks."""
        number = gone.number
        if self.nodes.get(number) is not gone:
            return
        self.flips.leave(gone)
        del self.nodes[number]
        self.note_gone({number})
        for handle, (ino, opened) in list(gone.handles.items()):
            gone.forget_handle(handle)
            gone.closed(ino, opened)

    def note_gone(self, nodes: set[int]) -> None:
        """Nothing goes with a node that has handed over all that it had."""
        self.gone |= nodes - self.cleared

    def look_at_names(self, partitions: int) -> None:
        """A node is about to die: are the names of all partitions on two living nodes?"""
        counts = [node.meta.count_backups() for node in self.nodes.values()]
        twice = sum(backed for own, backed, _ in counts if own == backed) == partitions
        self.names_may_go = self.names_may_go or not twice


class SimFileBackend:
    """Parts and handles of one node."""

    def __init__(self, contents: Contents, number: int, meta: Meta) -> None:
        self.contents = contents
        self.number = number
        self.meta = meta
        self.parts: dict[int, bytearray] = {}
        self.limit = LIMIT  # of a part that is fetched
        self.grown: set[int] = set()  # files that lie in stripes, and whose record may not say so
        self.ends: set[int] = set()  # striped files that were written here since their record was told
        self.handles: dict[int, tuple[int, Opened]] = {}
        self.writing: set[int] = set()  # those of the handles that may
        self.through: dict[int, SimFileBackend] = {}  # the nodes through which handles go
        self.kept: dict[int, bytearray] = {}  # by handle: the content that it has open, of a part that was removed since
        self.stripes_here: set[tuple[int, int]] = set()  # by tests of moving; else stripes have no place
        self.moving: set[int] = set()  # partitions that are not served with stripes
        self.invalidated: list[tuple[Any, ...]] = []
        self.send_backups: Callable[[], None] = lambda: None  # something was changed past the poll loop
        self.names_gone: list[int] = []  # with names: of which directory, as of ``Invalidate``
        self.freed: list[int] = []
        self.spilled: set[int] | None = None  # None: there is no disk
        self._lost_parts: dict[int, int] = {}  # partition -> of which losses the node had heard when its stripes were lost
        self._lost_copies: dict[int, int] = {}  # likewise, of files that have copies
        self.asking = SimAsking(contents, number)
        contents.nodes[number] = self
        self._works: dict[type, Callable[[Any], Any]] = dict((
            w.MakePart.by(lambda o: self.make(o.ino)), w.LiveFacts.by(self._live), w.SetTimes.by(lambda o: 0),
            w.Drop.by(lambda o: self._drop(o.inodes)), w.DropWhole.by(lambda o: self._drop_whole(o.ino)),
            w.DropStripes.by(lambda o: self._drop_stripes(o.ino)), w.ListEvictable.by(lambda o: self.evictable()),
            w.ListWhole.by(lambda o: [(ino, len(data)) for ino, data in self.parts.items()]),
            w.DeferOpenings.by(lambda o: 0), w.Spill.by(lambda o: self._spill(o.ino)), w.RoomMade.by(lambda o: self.freed.append(o.freed)),
            w.RunsGiveWay.by(lambda o: 0),
            w.End.by(self._end), w.EndRecorded.by(lambda o: self._end_recorded(o.ino)),
            w.Truncate.by(lambda o: self._truncate(o.ino, o.opened, o.size)), w.Fetch.by(self._fetch),
            w.Restripe.by(lambda o: self._restripe(o.ino)), w.Gather.by(self._gather),
            w.ListStripes.by(lambda o: sorted(self.stripes_here)), w.FetchStripe.by(self._fetch_stripe),
            w.PartPath.by(lambda o: f"part {o.ino:#x} of node {self.number}"),
            w.ReportUsage.by(lambda o: Usage(sum(map(len, self.parts.values())), LIMIT, len(self.parts))),
            w.Keep.by(lambda o: self.is_used(o.ino)), w.OpenHandle.by(self.open_handle), w.Read.by(self._read), w.Write.by(self.write),
            w.Seek.by(self._seek),
            w.TruncateHandle.by(lambda o: self._truncate(*self._handle(o.handle), o.size)), w.Flush.by(lambda o: None),
            w.CloseHandle.by(lambda o: self.close(o.handle)), w.Digest.by(self._digest),
            w.PartDigest.by(lambda o: bytes(self.parts.get(o.ino, b""))),
            w.CheckPart.by(self._check_part), w.CheckStripes.by(lambda o: w.CheckedStripes(0, 0, 0, -1, -1)), w.Lose.by(self._lose),
            w.IsLost.by(lambda o: self._is_lost(o.ino)), w.SetStripeCopies.by(lambda o: None), w.ListCopied.by(lambda o: []),
            w.PushStripe.by(lambda o: 0), w.MendStripe.by(lambda o: 0), w.DropCopied.by(lambda o: None), w.MarkCopied.by(lambda o: None),
            w.SetTable.by(self._set_table), w.SetMoving.by(self._set_moving),
            w.AddPeer.by(lambda o: None), w.SendBackups.by(lambda o: None), w.ForgetPeer.by(lambda o: self._forget_peer(o.node)),
            *self.asking.works(),
            w.Invalidate.by(self.forget),
        ))  # fmt: skip

    def forget(self, order: w.Invalidate) -> None:
        """The kernel of its mount is told."""
        self.invalidated.append((order.inodes, order.entries, order.but))
        if order.entries:
            self.names_gone.append(order.gone)

    def serve(self, *works: tuple[type, Callable[[Any], Any]]) -> None:
        """Do these, too."""
        self._works.update(works)

    def do(self, effect: FsWork) -> FsWorked:
        """Do a work now; how it ended."""
        try:
            return FsWorked(effect.serial, 0, self._works[type(effect.order)](effect.order))
        except OSError as failed:
            return FsWorked(effect.serial, failed.errno or errno.EIO, None)

    # ── reaching content ───────────────────────────────────────────────────────────────────────────

    def _peer(self, number: int) -> SimFileBackend:
        there = self.contents.nodes.get(number)
        if there is None or not self.contents.reachable(self.number, number):
            raise OSError(errno.EIO, "the node cannot be reached")
        return there

    def content(self, ino: int, opened: Opened) -> bytearray:
        """The bytes that a handle reaches."""
        striped = self.contents.striped
        if opened.kind == REMOTE:
            content = self._peer(opened.node).parts.get(ino, striped.get(ino))
            if content is None:
                raise OSError(errno.ESTALE, "that node has nothing of it")
            return content
        if opened.kind == STRIPES:
            content = striped.setdefault(ino, bytearray())
            self._check_stripes(ino, opened, len(content))
            return content
        if ino in self.parts:
            return self.parts[ino]
        if ino in self.grown:
            return striped[ino]
        raise OSError(errno.ENOENT, "no part")

    def _reached(self, ino: int, opened: Opened, kept: bytearray | None) -> bytearray:
        """Likewise. ``kept``: of this handle, a part that was removed since it was opened."""
        if kept is None:
            return self.content(ino, opened)
        if opened.kind == REMOTE:
            self._peer(opened.node)
        return kept

    def _check_stripes(self, ino: int, opened: Opened, size: int) -> None:
        lost, stripe = self._lost_copies if opened.stripe & COPIED else self._lost_parts, opened.stripe & ~COPIED
        for index in range(-(-size // max(stripe, 1)) if lost else 0):
            if lost.get(self.meta.stripe_partition(ino, index), -1) > opened.losses_seen:
                raise OSError(errno.EIO, "a stripe is lost")

    def _handle(self, number: int) -> tuple[int, Opened]:
        if number not in self.handles:
            raise OSError(errno.EIO, "the handle is broken")
        return self.handles[number]

    def _handles_through(self, ino: int) -> list[tuple[SimFileBackend, int]]:
        """Other nodes' handles that go through this one."""
        through = (ino, REMOTE, self.number)
        nodes = self.contents.nodes.values()
        return [(each, n) for each in nodes for n, (of, opened) in each.handles.items() if (of, *opened[:2]) == through]

    def is_used(self, ino: int) -> bool:
        return any(self.meta.uses(ino)[:2])

    def is_written(self, ino: int) -> bool:
        """Through this node."""
        return self.meta.uses(ino)[1] > 0

    def check_uses(self) -> None:
        """The record of each open file counts the handles that there are."""
        nodes = self.contents.nodes.values()
        mine = [(ino, number in self.writing) for number, (ino, _) in self.handles.items()]
        others = [(node.handles[n][0], n in node.writing) for node in nodes for n, through in node.through.items() if through is self]
        for ino in {ino for ino, _ in mine + others}:
            counts = [(mine + others).count((ino, writing)) for writing in (False, True)]
            assert self.meta.uses(ino)[:3] == (*counts, sum(of == ino for of, _ in others)), f"inode {ino:#x} on node {self.number}"

    def _count(self, number: int, by: int) -> None:
        """A handle here, in the record of this node, and in that of the node through which it goes."""
        ino, opened = self.handles[number]
        self.meta.count_handle(ino, by, number in self.writing, False)
        if opened.kind == REMOTE and number in self.through:
            self.through[number].meta.count_handle(ino, by, number in self.writing, True)

    def closed(self, ino: int, opened: Opened) -> None:
        """A handle was closed: the node through which it went is told when it was the last."""
        through = self.contents.nodes.get(opened.node) if opened.kind == REMOTE else None
        if through is not None and not through._handles_through(ino):
            self.contents.tell(opened.node, FsHandlesClosed(ino))

    def forget_handle(self, number: int) -> None:
        self._count(number, -1)
        self.through.pop(number, None)
        del self.handles[number]
        self.kept.pop(number, None)
        self.writing.discard(number)

    def _forget_peer(self, node: int) -> None:
        """It is no member any more: its connections end, those to it and those from it."""
        there = self.contents.nodes.get(node)
        if there is None:
            return
        for number, (ino, opened) in list(there.handles.items()):
            if opened[:2] == (REMOTE, self.number):
                there.forget_handle(number)
                there.closed(ino, opened)

    # ── parts ──────────────────────────────────────────────────────────────────────────────────────

    def make(self, ino: int) -> None:
        if ino not in self.grown:
            self.parts.setdefault(ino, bytearray())

    def _live(self, order: w.LiveFacts) -> Facts:
        known = order.attr
        if known.layout and not (self.is_used(known.ino) or known.ino in self.grown):
            raise FileNotFoundError(errno.ENOENT, "in stripes, and not written any more")
        data = self.content(known.ino, Opened(known.layout * 2, self.number, stripe_of(known), known.size, SEES_ALL))
        return Facts(len(data), -(-len(data) // 512), known.atime, self.contents.written.get(known.ino, known.mtime))

    def _truncate(self, ino: int, opened: Opened, to: int) -> None:
        data = self.content(ino, opened)
        data[to:] = b""
        data.extend(bytes(to - len(data)))
        self.contents.written[ino] = self.contents.clock()
        self.closed(ino, opened)

    def _fetch(self, order: w.Fetch) -> int:
        there = self._peer(order.node).parts.get(order.ino)
        if there is None or len(there) != order.size:
            raise OSError(errno.ESTALE, "not there")
        self._refuse_damaged(self._peer(order.node), order.ino)
        if order.size > self.limit or (self.contents.fullness and self.contents.random.random() < self.contents.fullness / 2):
            raise OSError(errno.ENOSPC, "no room")
        self.parts[order.ino] = bytearray(there)
        self.contents.fetches += 1
        return order.size

    def _refuse_damaged(self, node: SimFileBackend, ino: int) -> None:
        """It differs from its digest, of which the node that has it is told."""
        if self.contents.flips.is_damaged(node, ino):
            self.contents.tell(node.number, FsDamaged(ino))
            raise OSError(errno.EBADMSG, "it is damaged")

    def _check_part(self, order: w.CheckPart) -> tuple[int, int]:
        part = self.parts.get(order.ino)
        try:
            self._refuse_damaged(self, order.ino)
        except OSError:
            return w.PART_DAMAGED, len(part or b"")
        return (0, 0) if part is None or self.is_written(order.ino) else (1, len(part))

    def _drop(self, inodes: tuple[int, ...]) -> None:
        for ino in inodes:
            self._drop_whole(ino)
            self.contents.striped.pop(ino, None)

    def _drop_whole(self, ino: int) -> None:
        """A reader that has it open has it until it closes: only the name of a part is removed. A part that is written must not be removed,
        so that a writer finds none."""
        part = self.parts.pop(ino, None)
        if part is None:
            return
        own = [(self, number) for number, (of, opened) in self.handles.items() if of == ino and opened.kind == LOCAL]
        for user, number in own + self._handles_through(ino):
            if number not in user.writing:
                user.kept.setdefault(number, part)

    def _drop_stripes(self, ino: int) -> None:
        self.contents.striped.pop(ino, None)

    def _restripe(self, ino: int) -> int:
        """Not of a file that has been laid so already."""
        if ino in self.parts:
            self.contents.striped[ino] = self.parts.pop(ino)
            self.grown.add(ino)
        elif ino not in self.grown:
            raise OSError(errno.ENOENT, "no part")
        return 0

    def grow(self, ino: int) -> None:
        """A program writes it through this node, and there is no room for more."""
        self._restripe(ino)
        self.contents.tell(self.number, FsStriped(ino, STRIPE))

    def full(self) -> FsFull:
        """This node has no room any more: whatever can go there shall go."""
        return FsFull(1, sum(size for _, size, _ in self.evictable()))

    def evictable(self) -> list[tuple[int, int, float]]:
        away = self.spilled or ()
        return [(ino, len(data), 0.0) for ino, data in self.parts.items() if data and ino not in away and not self.is_used(ino)]

    def _spill(self, ino: int) -> int:
        """Files on the disk are read as before: only ``evictable`` knows."""
        if self.spilled is None:
            raise OSError(errno.EOPNOTSUPP, "nothing is spilled")
        if ino not in self.parts or self.is_used(ino):
            raise OSError(errno.EBUSY, "it is in use, or gone")
        self.spilled.add(ino)
        return len(self.parts[ino])

    def _end(self, order: w.End) -> tuple[int, int] | None:
        ino = order.ino
        return (len(self.contents.striped[ino]), self.contents.written[ino]) if ino in self.ends else None

    def _end_recorded(self, ino: int) -> None:
        self.ends.discard(ino)
        if not self.is_used(ino):
            self.grown.discard(ino)

    def _gather(self, order: w.Gather) -> int:
        self.parts[order.ino] = bytearray(self.contents.striped[order.ino])
        return order.size

    def _fetch_stripe(self, order: w.FetchStripe) -> int:
        stripe, there = (order.ino, order.index), self._peer(order.node).stripes_here
        if stripe not in there:
            raise OSError(errno.ENOENT, "no part")
        there.discard(stripe)
        self.stripes_here.add(stripe)
        return 0

    def _set_table(self, order: w.SetTable) -> None:
        self.moving = set(order.moves)

    def _set_moving(self, order: w.SetMoving) -> None:
        self.moving = self.moving.union(order.partitions) if order.moving else self.moving.difference(order.partitions)

    def _lose(self, order: w.Lose) -> None:
        (self._lost_copies if order.copies else self._lost_parts).update(dict.fromkeys(order.partitions, order.losses_seen))

    def _is_lost(self, ino: int) -> bool:
        return ino in self.contents.lost

    # ── handles ────────────────────────────────────────────────────────────────────────────────────

    def open_handle(self, order: w.OpenHandle) -> int:
        ino, opened = order.ino, order.opened
        self.contents.flips.maybe()
        self.content(ino, opened)
        if opened.kind == REMOTE and order.writing and not self._peer(opened.node).is_written(ino):
            raise OSError(errno.ESTALE, "finished by now")
        self.contents.handles += 1
        number = self.contents.handles
        self.handles[number] = ino, opened
        if order.writing:
            self.writing.add(number)
        if opened.kind == REMOTE:
            self.through[number] = self._peer(opened.node)
        self._count(number, 1)
        return number

    def _read(self, order: w.Read) -> bytes:
        ino, opened = self._handle(order.handle)
        content = self._reached(ino, opened, self.kept.get(order.handle))
        data = bytes(content[order.offset : order.offset + order.count])
        if opened.kind == REMOTE:
            self.contents.flips.read_through(data, self.number)
        return data

    def _seek(self, order: w.Seek) -> int:
        ino, opened = self._handle(order.handle)
        return max(order.offset, len(self._reached(ino, opened, self.kept.get(order.handle))))

    def write(self, order: w.Write) -> int:
        (ino, opened), offset, data = self._handle(order.handle), order.offset, order.data
        through = self._peer(opened.node) if opened.kind == REMOTE else self
        if opened.kind != STRIPES and ino in through.parts and self.contents.random.random() < self.contents.growth:
            through.grow(ino)
        content = self.content(ino, opened)
        if opened.kind == STRIPES or ino not in through.parts:
            through.ends.add(ino)
        if self.contents.fullness and self.contents.random.random() < self.contents.fullness:
            self.contents.tell(self.number, self.full())
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + len(data)] = data
        self.contents.written[ino] = self.contents.clock()
        return len(data)

    def close(self, number: int) -> Facts:
        ino, opened = self._handle(number)
        kept = self.kept.get(number)
        self.forget_handle(number)
        self.contents.flips.maybe()
        try:
            content = self._reached(ino, opened._replace(losses_seen=SEES_ALL), kept)  # the record learns by ``IsLost`` what was lost
        finally:
            self.closed(ino, opened)
        return Facts(len(content), -(-len(content) // 512), self.contents.clock(), self.contents.written.get(ino, 0))

    def _digest(self, order: w.Digest) -> tuple[bytes, int]:
        self.contents.digests += 1
        taken = Digest()
        taken.add(self.content(order.ino, order.opened))
        if order.opened.kind == LOCAL:
            self._refuse_damaged(self, order.ino)
        return taken.value(), taken.size
