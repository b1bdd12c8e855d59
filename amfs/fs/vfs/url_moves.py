"""Whole files between this node and storage at URLs (load, dump, digests of objects). Pure.

A client has a *move* on each node. It gives a node files and asks again and again what has ended, so a call may be repeated: a file that
was given before is not begun again, and ends are told until the client says that it knows them. A client that asks nothing for a minute
has died, and its moves end.
"""

from __future__ import annotations

import errno
import stat
from contextlib import suppress

from amfs.fs.vfs.caller import Caller
from amfs.fs.vfs.calls import Acquire, Calls, Operation, Sleep, ask, failure, number_of, work
from amfs.fs.vfs.damage import Damage
from amfs.fs.vfs.digests import Digests
from amfs.fs.vfs.namespace import Namespace
from amfs.fs.vfs.outside import Outside
from amfs.fs.vfs.owners import Owners
from amfs.fs.vfs.paths import Paths
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import LOST, WHOLE, Attr
from amfs.vocabulary.url_moves import DIGEST, LOAD, NUMBER, UrlEnd, UrlFile, UrlsMoved

ANSWER_S = 1.0  # for which an answer waits for something to tell
LOOK_FIRST_S, LOOK_S = 0.001, 0.01  # between looks for ends: twice as long each time, as one small file takes a few milliseconds
GATHER, GATHER_S = 64, 0.1  # so many ends are told together, if they come in that time
SILENT_S = 60.0  # after which the client counts as dead
FILES_MAX = 1024  # of one call
SMALL = 8 << 20  # bytes of a file that is read once, and compared with what its node knows it by


class _Move:
    def __init__(self, name: str, what: int, now: float) -> None:
        self.name = name
        self.what = what
        self.begun: set[int] = set()
        self.under_way = 0
        self.ends: list[UrlEnd] = []
        self.forgotten = 0  # ends that the client knows, and are not kept any more
        self.asked = now  # when the client asked last
        self.over = False


class UrlMoves:
    """The moves on this node."""

    def __init__(
        self, calls: Calls, owners: Owners, namespace: Namespace, paths: Paths, digests: Digests, damage: Damage, outside: Outside
    ) -> None:
        self._calls = calls
        self._owners = owners
        self._namespace = namespace
        self._paths = paths
        self._digests = digests
        self._damage = damage
        self._outside = outside
        self._moves: dict[str, _Move] = {}
        calls.serve(p.MoveUrls.by(self._move))

    def move(self, caller: Caller, r: q.MoveUrls) -> Operation[UrlsMoved]:
        """For a client."""
        call = p.MoveUrls(r.move, r.what, r.storage, r.files[:FILES_MAX], r.heard, r.over, caller.uid, caller.gid)
        return (yield from ask(r.node, call))

    def _move(self, peer: int, call: p.MoveUrls) -> Operation[UrlsMoved]:
        move = self._moves.get(call.move)
        if call.over:
            if move is not None:
                self._end(move)
            return UrlsMoved(True, [], 0)
        if move is None:
            if call.heard:
                return UrlsMoved(False, [], 0)
            move = self._moves[call.move] = _Move(call.move, call.what, self._calls.now)
            self._calls.order(w.OpenStorages(call.move, call.storage))
            self._calls.spawn(self._watch(move))
        move.asked = self._calls.now
        for file in call.files:
            if file.number not in move.begun:
                move.begun.add(file.number)
                move.under_way += 1
                self._calls.spawn(self._do(move, file, call.uid, call.gid))
        del move.ends[: max(0, call.heard - move.forgotten)]
        move.forgotten = max(move.forgotten, call.heard)
        until, gathers, pause = self._calls.now + ANSWER_S, False, LOOK_FIRST_S
        while len(move.ends) < GATHER and move.under_way and not move.over and self._calls.now < until:
            if move.ends and not gathers:
                until, gathers = self._calls.now + GATHER_S, True
            yield Sleep(pause)
            pause = min(2 * pause, LOOK_S)
        moved = yield from work(w.CountMoved(move.name))
        return UrlsMoved(True, move.ends[:FILES_MAX], moved)

    def _watch(self, move: _Move) -> Operation[None]:
        while not move.over:
            yield Sleep(SILENT_S / 4)
            if self._calls.now - move.asked > SILENT_S:
                self._end(move)

    def _end(self, move: _Move) -> None:
        move.over = True
        if self._moves.get(move.name) is move:
            del self._moves[move.name]
            self._calls.order(w.CloseStorages(move.name))

    def _do(self, move: _Move, file: UrlFile, uid: int, gid: int) -> Operation[None]:
        try:
            if move.what == LOAD:
                end = yield from self._load(move, file, uid, gid)
            elif move.what == DIGEST:
                end = yield from work(w.ReadUrl(move.name, file))
            else:
                end = yield from self._dump(move, file)
        except OSError as error:
            end = UrlEnd(file.number, kind=NUMBER, error=number_of(error))
        move.under_way -= 1
        move.ends.append(end)

    # ── in ─────────────────────────────────────────────────────────────────────────────────────────

    def _load(self, move: _Move, file: UrlFile, uid: int, gid: int) -> Operation[UrlEnd]:
        key = ("load", file.path)
        caller = Caller(key, uid, gid, self._calls.wall)
        yield Acquire(key)
        try:
            dir, name = yield from self._paths.parent(file.path)
            there = yield from self._there(file, dir, name)
            # The digest is for the comparison with what is there.
            end, scratch, facts = yield from work(w.FetchUrl(move.name, file, there is not None))
            if end.kind:
                return end
            try:
                if move.over or (there is not None and (yield from self._has(there, end.digest))):
                    self._calls.order(w.DropScratch(scratch))
                    return end._replace(same=True)
                mark = move.name.encode(errors="surrogateescape") + b"-"
                yield from self._outside.take_in(caller, scratch, dir, name, file.mode, mark, facts)
            except OSError:
                self._calls.order(w.DropScratch(scratch))
                raise
            return end
        finally:
            self._calls.release(key)

    def _there(self, file: UrlFile, dir: int, name: bytes) -> Operation[Attr | None]:
        """A finished file of that size, if it is there."""
        try:
            attr = yield from self._namespace.find(dir, name)
            if stat.S_ISLNK(attr.mode):
                attr = yield from self._paths.walk(file.path, True)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EIO):  # EIO: it may be a name that was lost with nodes, which is replaced
                raise
            return None
        if stat.S_ISDIR(attr.mode):
            raise failure(errno.EISDIR)
        return attr if attr.finished and attr.finished != LOST and attr.size == file.size else None

    def _has(self, attr: Attr, digest: bytes) -> Operation[bool]:
        [mine] = yield from self._digests.of((attr.ino,))
        return not isinstance(mine, int) and mine[1] == digest

    # ── out ────────────────────────────────────────────────────────────────────────────────────────

    def _dump(self, move: _Move, file: UrlFile) -> Operation[UrlEnd]:
        key = ("dump", move.name, file.source, file.key)
        yield Acquire(key)
        try:
            try:
                return (yield from self._dump_once(move, file, key))
            except OSError as error:
                if error.errno != errno.EILSEQ:
                    raise
            with suppress(OSError):
                yield from self._damage.check((file.ino,))  # if it was a copy that is damaged, another one is read now
            return (yield from self._dump_once(move, file, key))
        finally:
            self._calls.release(key)

    def _dump_once(self, move: _Move, file: UrlFile, key: object) -> Operation[UrlEnd]:
        attr = yield from self._owners.ask(p.Getattr(file.ino))
        if not attr.finished:
            raise failure(errno.EBUSY)
        if attr.layout == WHOLE and attr.size <= SMALL and attr.size != file.size:
            try:
                return (yield from self._store(move, file, key, attr.size, b""))
            except OSError as error:
                if error.errno not in (errno.ENODATA, errno.EBUSY):
                    raise
        [mine] = yield from self._digests.of((file.ino,))
        if isinstance(mine, int):
            raise failure(mine)
        return (yield from self._store(move, file, key, *mine))

    def _store(self, move: _Move, file: UrlFile, key: object, size: int, digest: bytes) -> Operation[UrlEnd]:
        return (yield from self._digests.read_whole(file.ino, key, lambda opened: w.StoreUrl(move.name, file, opened, size, digest)))
