"""Content that is not what was written: a node drops a damaged copy, and the shard says what is left of the file. Pure.

The shard forgets the node as a holder. If another node holds the file, readers go there, and a copy that is missing is made again; else the
file is lost by its name, as one whose last holder has died. A file that is being written has no digest, and so is never called damaged.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence

from amfs._native import Meta
from amfs.fs.vfs.caches import Caches
from amfs.fs.vfs.calls import Calls, Operation, ask, failure, number_of, together, work
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.open_files import OpenFiles
from amfs.fs.vfs.opening import Opener
from amfs.fs.vfs.owners import Owners
from amfs.fs.vfs.replicas import Replicas
from amfs.fs.vfs.stripe_damage import StripeDamage
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import LOST, STRIPED
from amfs.vocabulary.events import FsDamaged


class Damage:
    """Drops what is damaged here, and decides for the records of this node what is left of a file."""

    def __init__(
        self, calls: Calls, meta: Meta, members: Members, owners: Owners, caches: Caches, opener: Opener, files: OpenFiles,
        replicas: Replicas, stripes: StripeDamage,
    ) -> None:  # fmt: skip
        self._calls = calls
        self._meta = meta
        self._members = members
        self._owners = owners
        self._caches = caches
        self._opener = opener
        self._files = files
        self._replicas = replicas
        self._stripes = stripes
        calls.serve(
            p.Damaged.by(self._damaged), p.Check.by(self._check_all), p.CheckStore.by(lambda peer, call: work(w.CheckStore(call.after)))
        )

    # ── on the node that has it ────────────────────────────────────────────────────────────────────

    def on_damaged(self, event: FsDamaged) -> None:
        self._calls.spawn(self._give_up(event.ino))

    def drop(self, ino: int) -> Operation[None]:
        """The content here was found damaged. Returns when it is gone."""
        try:
            yield from self._give_up(ino)
        except OSError as error:
            if error.errno != errno.EAGAIN:  # else it has been done: the look itself has told of it, too
                raise

    def _give_up(self, ino: int) -> Operation[None]:
        yield from self._files.bring(ino, lambda: self._opener.holding_part(ino, lambda: self._drop(ino)))

    def _drop(self, ino: int) -> Operation[None]:
        """Nothing is brought here, nor opened to be written, meanwhile."""
        lost = yield from self._owners.ask(p.Damaged(ino))
        self._caches.uncache((ino,))
        yield from work(w.DropWhole(ino))
        what = "it is lost" if lost else "other nodes have it"
        self._calls.log(f"inode {ino:#x}: the content on node {self._members.node} was damaged, and is dropped: {what}", logging.ERROR)

    def _check_all(self, peer: int, call: p.Check) -> Operation[list[int]]:
        found = []
        for ino in call.inodes[: q.CHECKED_MAX]:
            found.append((yield from self._check(ino)))
        return found

    def _check(self, ino: int) -> Operation[int]:
        verdict, _ = yield from work(w.CheckPart(ino))
        if verdict != w.PART_DAMAGED:
            return q.FINE if verdict else q.UNKNOWN
        yield from self.drop(ino)
        attr = yield from self._owners.ask(p.Getattr(ino))
        return q.DAMAGED_LAST if attr.finished == LOST else q.DROPPED

    # ── for clients ────────────────────────────────────────────────────────────────────────────────

    def check(self, inodes: Sequence[int]) -> Operation[list[q.Checked]]:
        """Have all that hold a copy, or stripes, look at it. A file that is being written is EBUSY, one that is lost EIO."""
        inodes = inodes[: q.CHECKED_MAX]
        found: dict[int, q.Checked] = {}
        asked: dict[int, list[int]] = {}
        for ino in inodes:
            try:
                attr = yield from self._owners.ask(p.Getattr(ino))
                if attr.finished in (0, LOST):
                    raise failure(errno.EIO if attr.finished else errno.EBUSY)
                if attr.layout == STRIPED:
                    found[ino] = yield from self._stripes.check(ino)
                    continue
                holders = yield from self._owners.ask(p.Holders(ino))
                for node in holders:
                    asked.setdefault(node, []).append(ino)
                found[ino] = []
            except OSError as error:
                found[ino] = number_of(error)
        answers = yield from together([ask(node, p.Check(tuple(some))) for node, some in asked.items()])
        for (node, some), answer in zip(asked.items(), answers, strict=True):
            for place, ino in enumerate(some):
                copies = found[ino]
                if isinstance(answer, OSError):
                    found[ino] = number_of(answer)
                elif not isinstance(copies, int):
                    copies.append((node, answer[place]))
        return [found[ino] for ino in inodes]

    # ── on the node that has its record ────────────────────────────────────────────────────────────

    def _damaged(self, peer: int, call: p.Damaged) -> Operation[bool]:
        lost = self._meta.damaged(call.ino, peer, call.stripe)
        if not lost:
            self._replicas.look()
        yield from self._caches.notify(peer, self._meta.concerned(call.ino), (call.ino,))
        return lost
