"""Directories are on every node. Pure.

Changes of them are serialised by the manager and spread down a tree over all nodes, answered up it (AMFS Shell §3): O(log N) steps. A
node that finds one below it dead asks those below that one; so a node may be asked twice, and applies a change once. The entry of a
directory's name lies with the entries of files, so that one name is never both; the node that has its partition keeps it in step with the
directory. A node that is new is given all of them by the manager.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress

from amfs._native import Meta
from amfs.fs.vfs.caches import EVERY_NAME, Caches, Name
from amfs.fs.vfs.calls import PATIENCE_S, PAUSE_LAST_S, Acquire, Calls, Operation, Sleep, ask, failure, number_of, together, work
from amfs.fs.vfs.direct import Direct, Tried, Wish, latest
from amfs.fs.vfs.members import Members, below
from amfs.fs.vfs.owners import Owners
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import Attr
from amfs.vocabulary.directory_changes import pack

LOCK = "directories"  # one change after the other
SPREADING = "spreading"  # no node is introduced while a change is on its way to all
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
_Answers = list[int | OSError]  # to changes that go together


class Directories:
    """The manager's part of changing directories, and every node's of knowing them."""

    def __init__(self, calls: Calls, meta: Meta, members: Members, owners: Owners, caches: Caches) -> None:
        self._calls = calls
        self._meta = meta
        self._members = members
        self._owners = owners
        self._caches = caches
        self._direct = Direct(calls, meta, members, owners)
        self._spreads = 0  # changes that this node has spread as the manager
        self._applied: tuple[int, int, list[int]] = (-1, 0, [])  # the last spread: its manager, its number there, its outcome here
        self._wishes: list[Wish] = []  # that wait for the lock
        self._forgotten: list[w.Invalidate] = []  # names and inodes that the change being applied makes old
        calls.serve(
            p.Mkdir.by(self._mkdir),
            p.Rmdir.by(self._rmdir),
            p.Rename.by(self._rename),
            p.ChangeDirectory.by(self._change),
            p.Spread.by(lambda peer, call: self._take_spread(peer, call)),
            p.Directories.by(self._take_all),
            p.ReportDirectories.by(lambda peer, call: meta.export_dirs() if members.introduced else None),
            p.SettleDirectories.by(lambda peer, call: calls.wait(LOCK)),
        )

    # ── what this node knows ───────────────────────────────────────────────────────────────────────

    def is_directory(self, ino: int) -> bool:
        try:
            self._meta.dir_get(ino)
        except OSError:
            return False
        return True

    def attr(self, ino: int) -> Operation[Attr]:
        """Attributes of a directory, with the times that its home knows."""
        attr, _ = self._meta.dir_get(ino)
        home = self._owners.of_inode(ino)
        if home != self._members.node and home in self._members.live:
            try:
                return (yield from ask(home, p.Getattr(ino)))
            except OSError as error:
                if error.errno not in (errno.EHOSTDOWN, errno.ETIMEDOUT, errno.ENOENT) and (error.errno or 0) < 1000:
                    raise
        return Attr(*attr)

    def touch(self, dir: int, now: int, refused: bool = False) -> None:
        """Say at its home that entries of ``dir`` changed. Not waited for: the times of a directory seen from another node may be as old as
        the messages that are under way. ``refused``: C has asked C there, and others must be told."""
        home = self._owners.of_inode(dir)
        self.remember_touch(now, dir)
        if refused and home in self._members.live:
            self._calls.tell(home, p.Touch(dir, now))
        elif not refused:
            self._direct.touch(home, dir, now)

    def remember_touch(self, now: int, *dirs: int) -> None:
        """This node sees its own changes at once, whatever the homes of the directories have heard by then."""
        for dir in dirs:
            if not self._owners.is_here(dir):
                with suppress(OSError):  # META_NOT_MINE: remembered is all it is
                    self._meta.dir_touch(dir, now)

    # ── changes, at the manager ────────────────────────────────────────────────────────────────────

    def _mkdir(self, peer: int, call: p.Mkdir) -> Operation[Attr]:
        dir, name, now = call.dir, call.name, call.now
        if not self.is_directory(dir):
            raise failure(errno.ENOENT)  # it was one when this was asked for
        above, _ = self._meta.dir_get(dir)
        made = call.attr
        if above[1] & stat.S_ISGID:
            made = made._replace(mode=made.mode | stat.S_ISGID, gid=above[4])
        made = made._replace(mode=stat.S_IFDIR | stat.S_IMODE(made.mode), nlink=2, atime=now, mtime=now, ctime=now)
        wish = Wish(peer, dir, name, now, made)
        tried = yield from self._make_alone(wish, made)
        if not wish.done:
            wish.made = made._replace(ino=(yield from self._direct.reserve(dir, name, tried)))
            yield from self._in_company(wish)
        elif wish.error is not None:
            raise wish.error
        return wish.made or made

    def _make_alone(self, wish: Wish, made: Attr) -> Operation[Tried | None]:
        """While no other directory is being changed C asks the node of the name, and then at once all others."""
        node = self._direct.node_ahead(wish.dir, wish.name)
        if node < 0 or self._calls.is_held(LOCK) or self._calls.is_held(SPREADING):
            return None
        yield Acquire(LOCK)
        yield Acquire(SPREADING)
        try:
            call = self._next([(wish.peer, p.AddDirectory(0, wish.dir, wish.name, made))])
            tried, said = yield from self._direct.make(node, wish, call)
            if tried.error:
                return tried
            wish.made = made._replace(ino=said.ino)
            add = p.AddDirectory(said.ino, wish.dir, wish.name, wish.made)
            (answer,) = yield from self._answers(p.Spread((add,), call.order, 0, call.askers, call.number), said.answers)
            wish.ended(answer)
            wish.done = True
            self._touch_for([wish])
        finally:
            self._calls.release(SPREADING)
            self._calls.release(LOCK)
        return None

    def _rmdir(self, peer: int, call: p.Rmdir) -> Operation[None]:
        yield from self._in_company(Wish(peer, call.dir, call.name, call.now))

    def _in_company(self, wish: Wish) -> Operation[None]:
        """Directories that are made and removed at the same time go to all nodes together: the holder of the lock makes them all."""
        self._wishes.append(wish)
        yield Acquire(LOCK)
        try:
            if not wish.done:
                wishes, self._wishes = self._wishes, []
                try:
                    yield from self._add_all([one for one in wishes if one.made is not None])
                    yield from self._remove_all([one for one in wishes if one.made is None])
                finally:
                    for one in wishes:
                        one.done = True
                self._touch_for(wishes)
        finally:
            self._calls.release(LOCK)
        if wish.error is not None:
            raise wish.error

    def _touch_for(self, wishes: list[Wish]) -> None:
        for one in wishes:
            if one.error is None and one.touched:
                self.remember_touch(one.now, one.dir)
        for dir, now in latest(wishes).items():
            self.touch(dir, now)

    def _add_all(self, wishes: list[Wish]) -> Operation[None]:
        made = [(one, one.made) for one in wishes if one.made is not None]
        added = yield from self._spread_all([(one.peer, p.AddDirectory(attr.ino, one.dir, one.name, attr)) for one, attr in made])
        for (one, _), answer in zip(made, added, strict=True):
            one.ended(answer)

    def _remove_all(self, wishes: list[Wish]) -> Operation[None]:
        """They are frozen everywhere, those that are empty everywhere go, and the others thaw."""
        numbers = yield from together([self._number_of(one.dir, one.name) for one in wishes])
        left: dict[int, Wish] = {}
        for one, ino in zip(wishes, numbers, strict=True):
            if isinstance(ino, OSError):
                one.error = ino
            elif left.setdefault(ino, one) is not one:
                one.error = failure(errno.ENOENT)  # another one removes it just now
        ahead = (yield from self._remove_alone(*next(iter(left.items())))) if len(left) == 1 else None
        counts, tried, gone = ahead or (None, None, None)
        counts = counts or (yield from self._spread_all([(one.peer, p.FreezeDirectory(ino, True)) for ino, one in left.items()]))
        for one, count in zip(left.values(), counts, strict=True):
            one.error = count if isinstance(count, OSError) else failure(errno.ENOTEMPTY) if count else None
        empty = {ino: one for ino, one in left.items() if one.error is None}
        removed = yield from together([self._direct.strike(one.dir, one.name, ino, one.peer, tried) for ino, one in empty.items()])
        for one, struck in zip(empty.values(), removed, strict=True):
            one.error = struck if isinstance(struck, OSError) else None
        ends = [
            (one.peer, p.FreezeDirectory(ino, False) if one.error else p.DropDirectory(ino, one.dir, one.name, False, one.now))
            for ino, one in left.items()
        ]
        dropped = gone or (yield from self._spread_all(ends))
        stay: list[tuple[int, p.AnyChange]] = []
        for (ino, one), answer in zip(left.items(), dropped, strict=True):
            if one.error is None:
                one.ended(answer)
            if isinstance(answer, OSError) and one.error is answer:
                stay.append((one.peer, p.FreezeDirectory(ino, False)))
        yield from self._spread_all(stay)

    def _remove_alone(self, ino: int, wish: Wish) -> Operation[tuple[_Answers, Tried | None, _Answers | None] | None]:
        """C has all others freeze it, the node of the name strike the entry, and all others drop it, as far as nothing comes between. None:
        C was not asked."""
        node = self._direct.node_ahead(wish.dir, wish.name)
        if node < 0 or self._calls.is_held(SPREADING):
            return None
        yield Acquire(SPREADING)
        try:
            freeze = self._next([(wish.peer, p.FreezeDirectory(ino, True))])
            drop = self._next([(wish.peer, p.DropDirectory(ino, wish.dir, wish.name, False, wish.now))])
            if self._make(freeze, []) != [0]:
                return (yield from self._answers(freeze)), None, None
            tried, said = yield from self._direct.remove(node, wish, ino, freeze, drop)
            counts = yield from self._answers(freeze, said.counts)
            return counts, tried, (yield from self._answers(drop, said.answers)) if said.struck == 0 else None
        finally:
            self._calls.release(SPREADING)

    def _number_of(self, dir: int, name: bytes) -> Operation[int]:
        """Of a directory that is to go. The manager knows all that there are."""
        try:
            return self._meta.dir_find(dir, name)[0]
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
        found = yield from self._owners.ask(p.Lookup(dir, name))
        raise failure(errno.ENOTDIR if found.type != stat.S_IFDIR else errno.ENOENT)  # ENOENT: it is being made just now

    def _remove(self, peer: int, ino: int, dir: int, name: bytes, keep_entry: bool, now: int) -> Operation[None]:
        """Take it out everywhere if it is empty everywhere. ``keep_entry``: its entry is another's already."""
        try:
            if (yield from self._spread(peer, p.FreezeDirectory(ino, True))):
                raise failure(errno.ENOTEMPTY)
            if not keep_entry:
                yield from self._direct.strike(dir, name, ino, peer)
            yield from self._spread(peer, p.DropDirectory(ino, dir, name, keep_entry, now))
        except OSError:
            yield from self._spread(peer, p.FreezeDirectory(ino, False))
            raise

    def _rename(self, peer: int, call: p.Rename) -> Operation[None]:
        dir, name, to_dir, to_name, flags, now = call.dir, call.name, call.to_dir, call.to_name, call.flags, call.now
        yield Acquire(LOCK)
        names = (dir, name), (to_dir, to_name)
        owner = 0
        try:
            owner, ((ino, type, _), (other, other_type, _)) = yield from self._owners.lock(*names)
            if other_type == stat.S_IFDIR and self.is_directory(other) and not self._is_name_of(other, to_dir, to_name):
                other = other_type = 0  # a manager died that was about to give it this name
            if not ino or (flags & RENAME_EXCHANGE and not other):
                raise failure(errno.ENOENT)
            if other and flags & RENAME_NOREPLACE:
                raise failure(errno.EEXIST)
            if ino == other:
                return
            for one, kind in ((ino, type), (other, other_type)):
                if kind == stat.S_IFDIR and not self.is_directory(one):
                    raise failure(errno.EBUSY)  # its name is there, and it is being made just now
            self._refuse_loop(ino, type, to_dir)
            if flags & RENAME_EXCHANGE:
                self._refuse_loop(other, other_type, dir)
                yield from self._owners.ask(p.Insert(dir, name, other, other_type, True, owner, peer))
                yield from self._owners.ask(p.Insert(to_dir, to_name, ino, type, True, owner, peer))
                if type == other_type == stat.S_IFDIR:
                    yield from self._spread(peer, p.ExchangeDirectories(ino, other, now))
                else:
                    yield from self._moved(peer, ino, type, to_dir, to_name, now)
                    yield from self._moved(peer, other, other_type, dir, name, now)
            else:
                yield from self._replace(peer, ino, type, other, other_type, call)
                yield from self._owners.ask(p.Insert(to_dir, to_name, ino, type, True, owner, peer))
                try:
                    yield from self._owners.ask(p.Remove(dir, name, ino, owner, peer))
                except OSError as error:
                    if error.errno not in (errno.EIO, errno.ENOENT):
                        raise
                    # Its node has died: the entry has gone with it, or goes when its heir hears that the directory has another name.
                yield from self._moved(peer, ino, type, to_dir, to_name, now)
                yield from self._spread(peer, p.ForgetName(dir, name))
            self.touch(dir, now)
            if to_dir != dir:
                self.touch(to_dir, now)
        finally:
            if owner:
                self._owners.unlock(owner, *names)
            self._calls.release(LOCK)

    def _is_name_of(self, ino: int, dir: int, name: bytes) -> bool:
        return self._meta.dir_get(ino)[1] == dir and self._meta.dir_name(ino) == name

    def _replace(self, peer: int, ino: int, type: int, other: int, other_type: int, call: p.Rename) -> Operation[None]:
        """``other`` gives way to ``ino``, if it may."""
        if not other:
            return
        if other_type == stat.S_IFDIR and type != stat.S_IFDIR:
            raise failure(errno.EISDIR)
        if other_type != stat.S_IFDIR and type == stat.S_IFDIR:
            raise failure(errno.ENOTDIR)
        if type != stat.S_IFDIR:
            raise failure(errno.EBUSY)  # one was a directory when this was asked for
        yield from self._remove(peer, other, call.to_dir, call.to_name, True, call.now)

    def _refuse_loop(self, ino: int, type: int, to_dir: int) -> None:
        if type == stat.S_IFDIR and self._meta.dir_below(to_dir, ino):
            raise failure(errno.EINVAL)

    def _moved(self, peer: int, ino: int, type: int, to_dir: int, to_name: bytes, now: int) -> Operation[None]:
        if type == stat.S_IFDIR:
            yield from self._spread(peer, p.MoveDirectory(ino, to_dir, to_name, now))
        else:
            yield from self._owners.ask(p.Setattr(ino, 0, Attr(), now))

    def _change(self, peer: int, call: p.ChangeDirectory) -> Operation[Attr]:
        yield Acquire(LOCK)
        try:
            yield from self._spread(peer, call.change)
            return Attr(*self._meta.dir_get(call.change.ino)[0])
        finally:
            self._calls.release(LOCK)

    # ── the node of a mount or client ──────────────────────────────────────────────────────────────

    def ask_manager(self, call: p.PeerCall[None], is_done: Callable[[], bool | None]) -> Operation[None]:
        """The next manager is asked again when the one that was asked left or died, unless ``is_done`` says that it had done it (None: that
        cannot be seen; then nobody is asked again)."""
        again, end = False, self._calls.now + PATIENCE_S
        while not (again and is_done()):
            try:
                return (yield from ask(self._members.manager, call))
            except OSError as error:
                if error.errno == errno.EHOSTDOWN and self._calls.now < end and is_done() is not None:
                    again = True
                elif error.errno in (errno.EHOSTDOWN, errno.ETIMEDOUT):
                    raise failure(errno.EIO) from None
                elif error.errno not in (errno.ENOENT, errno.EBUSY) or not again or self._calls.now >= end:
                    raise  # ENOENT: done, and this node is about to hear of it. EBUSY: half done, and about to be taken back
            yield Sleep(PAUSE_LAST_S)

    def number_of(self, dir: int, name: bytes) -> int:
        """The number of the directory of this name; 0: this node knows none. ENOTDIR, ENAMETOOLONG."""
        try:
            return self._meta.dir_find(dir, name)[0]
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return 0

    # ── the tree ───────────────────────────────────────────────────────────────────────────────────

    def _spread(self, asker: int, change: p.AnyChange) -> Operation[int]:
        """Apply ``change``, which node ``asker`` wants, on every node, this one first. How many entries a frozen directory has."""
        (answer,) = yield from self._spread_all([(asker, change)])
        if isinstance(answer, OSError):
            raise answer
        return answer

    def _spread_all(self, changes: Sequence[tuple[int, p.AnyChange]]) -> Operation[list[int | OSError]]:
        """Likewise several, which do not depend on each other, for the nodes that want them."""
        if not changes:
            return []
        yield Acquire(SPREADING)
        try:
            return (yield from self._answers(self._next(changes)))
        finally:
            self._calls.release(SPREADING)

    def _next(self, changes: Sequence[tuple[int, p.AnyChange]]) -> p.Spread:
        """The next spread of this manager, to all nodes that live."""
        me = self._members.node
        self._spreads += 1
        askers, wanted = zip(*changes, strict=True)
        return p.Spread(wanted, (me, *sorted(self._members.live - {me})), 0, askers, self._spreads)

    def _answers(self, call: p.Spread, heard: Sequence[list[int] | None] | None = None) -> Operation[_Answers]:
        """Of all nodes, this one first, together. ``heard``: of the others, as far as they have been asked already."""
        try:
            nodes = yield from self._take_spread(self._members.node, call, heard)
        except OSError as error:
            return [error] * len(call.changes)
        return [failure(-min(answers)) if min(answers) < 0 else sum(answers) for answers in zip(*nodes, strict=True)]

    def _take_spread(
        self, peer: int, call: p.Spread, heard: Sequence[list[int] | None] | None = None
    ) -> Operation[list[list[int]]]:
        manager = call.order[0]
        end = self._calls.now + PATIENCE_S
        while self._members.manager != manager:
            if manager not in self._members.live or self._calls.now >= end:
                raise failure(errno.EIO)  # of a manager before this one, which has told us what there is, or is about to
            yield Sleep(PAUSE_LAST_S)
        key = ("spread", manager)
        yield Acquire(key)  # a node that is asked twice answers twice when it is done, and so do those below it
        try:
            told: list[w.Invalidate] = []
            mine = self._make(call, told)
            answers, _ = yield from together([self._relay(call, mine, heard), self._have_forgotten(told)])
            if isinstance(answers, OSError):
                raise answers
            return answers
        finally:
            self._calls.release(key)

    def _have_forgotten(self, told: list[w.Invalidate]) -> Operation[list[list[int]]]:
        inodes = tuple({ino: None for old in told for ino in old.inodes})
        names = [w.Invalidate((), old.entries, None, old.gone) for old in told if old.entries]
        if told:
            yield from together([work(old) for old in (w.Invalidate(inodes), *names)])
        return []

    def _relay(self, call: p.Spread, mine: list[int], heard: Sequence[list[int] | None] | None) -> Operation[list[list[int]]]:
        """Pass changes on down the tree; the answers from below and ``mine``."""
        answers, places, count = [mine], below(call.place, len(call.order)), len(call.order)
        left = [place for place, answer in enumerate(heard or (), 1) if answer is None]
        if heard and len(heard) == count - 1 and not any(below(place, count) for place in left):
            answers, places = [mine, *(answer for answer in heard if answer is not None)], left
        failed: OSError | None = None
        while places:
            asked = yield from self._pass_on(call, places)
            dead: list[int] = []
            for child, answer in zip(places, asked, strict=True):
                if not isinstance(answer, OSError):
                    answers += answer
                elif answer.errno == errno.EHOSTDOWN:
                    dead += below(child, count)  # it is no member any more, and has no say; those below it have
                else:
                    failed = answer
            places = dead
        if failed is not None:
            raise failed
        return answers

    def _pass_on(self, call: p.Spread, places: list[int]) -> Operation[list[list[list[int]] | OSError]]:
        """To these places. Where nobody is below, C tells C; the poll loop must hear what C will not."""
        leaves = [place for place in places if not below(place, len(call.order))]
        heard = yield from self._direct.spread([call.order[place] for place in leaves], call)
        told = {place: answer for place, answer in zip(leaves, heard, strict=True) if answer is not None}
        left = [place for place in places if place not in told]
        asked = yield from together([
            ask(call.order[place], p.Spread(call.changes, call.order, place, call.askers, call.number)) for place in left
        ])  # fmt: skip
        answers = dict(zip(left, asked, strict=True))
        return [answers[place] if place in answers else [told[place]] for place in places]

    # ── a change, on every node ────────────────────────────────────────────────────────────────────

    def heed(self) -> None:
        """From now on other nodes may bring changes of the manager that this node knows, and of no other, past its poll loop."""
        self._meta.set_manager(self._members.manager if self._members.introduced else -1)

    def _make(self, call: p.Spread, told: list[w.Invalidate]) -> list[int]:
        """Once: the shard sees to that for what may come past this poll loop (``pack``), and this for the rest."""
        key, each = (call.order[0], call.number), list(zip(call.changes, call.askers, strict=True))
        changes = pack(call.changes, call.askers)
        if self._applied[:2] == key:
            return self._applied[2]
        if changes is not None and self._members.introduced:
            mine = self._meta.spread(*key, changes)
            for (change, asker), answered in zip(each, mine, strict=True):
                if answered >= 0:
                    self._made_old(change)
                self._tell(asker, told)
            return mine
        self._meta.spread(*key, b"")
        # A node that is introduced by this manager is about to get what has been applied there already.
        mine = [self._try(change, asker, told) if self._members.introduced else 0 for change, asker in each]
        self._applied = *key, mine
        return mine

    def _made_old(self, change: p.AnyChange) -> None:
        match change:
            case p.AddDirectory(_, dir):
                self._forget((dir,))  # no kernel remembers a name that is not there
            case p.DropDirectory(ino, dir, name):
                self._forget((dir, ino), (dir, name), gone=ino)

    def _try(self, change: p.AnyChange, asker: int, told: list[w.Invalidate]) -> int:
        try:
            return self._apply(change)
        except OSError as error:
            return -number_of(error)
        finally:
            self._tell(asker, told)

    def _tell(self, asker: int, told: list[w.Invalidate]) -> None:
        """Tell of old names. The kernel that asked changes its own names, and holds the directory until it is answered. Other mounts
        here are told by the operation."""
        if self._members.node == asker:
            for old in self._forgotten:
                self._calls.order(w.Invalidate(old.inodes))
        else:
            told += self._forgotten
        self._forgotten = []

    def _apply(self, change: p.AnyChange) -> int:
        """Make a change here, of those that come by way of poll loops alone."""
        meta = self._meta
        match change:
            case p.ForgetName(dir, name):
                self._forget((dir,), (dir, name))
            case p.MoveDirectory(ino, to_dir, to_name, now):
                parent, name = meta.dir_get(ino)[1], meta.dir_name(ino)
                meta.dir_move(ino, to_dir, to_name, now)
                self._strike(parent, name, ino)
                self._enter(to_dir, to_name, ino)
                self._forget((ino, parent, to_dir), (parent, name), (to_dir, to_name))
            case p.ExchangeDirectories(ino, other, now):
                self._exchange(ino, other, now)
            case p.SetDirectoryAttr(ino, mask, attr, now):
                meta.dir_set(ino, mask, attr, now)
                self._forget((ino,))
            case p.SetDirectoryXattr(ino, name, value, flags, now):
                meta.set_xattr(ino, name, value, flags, now)
            case p.RemoveDirectoryXattr(ino, name, now):
                meta.remove_xattr(ino, name, now)
            case p.SetDirectoryLayout(ino, layout, stripe):
                meta.dir_set_layout(ino, layout, stripe)
            case p.SetDirectoryCopies(ino, copies):
                meta.dir_set_copies(ino, copies)
        return 0

    def _exchange(self, ino: int, other: int, now: int) -> None:
        meta = self._meta
        parent, other_parent = meta.dir_get(ino)[1], meta.dir_get(other)[1]
        name, other_name = meta.dir_name(ino), meta.dir_name(other)
        meta.dir_move(ino, parent, b".amfs-%x" % ino, now)  # two cannot have one name, not even for a moment
        meta.dir_move(other, parent, name, now)
        meta.dir_move(ino, other_parent, other_name, now)
        self._forget((ino, other, parent, other_parent), (parent, name), (other_parent, other_name))

    def _enter(self, dir: int, name: bytes, ino: int) -> None:
        """The entry was made before the directory; unless its partition came here without it, since the node that had it died."""
        with suppress(OSError):  # there it is, or elsewhere
            self._meta.insert(dir, name, 0, ino, stat.S_IFDIR, False)

    def _strike(self, dir: int, name: bytes, ino: int) -> None:
        """Likewise it was removed before, unless it was made again from what we knew."""
        with suppress(OSError):
            self._meta.remove(dir, name, 0, ino)

    def _forget(self, inodes: tuple[int, ...], *entries: Name, gone: int = 0) -> None:
        self._forgotten.append(w.Invalidate(inodes, entries, None, gone))

    # ── a new node ─────────────────────────────────────────────────────────────────────────────────

    def introduce(self, node: int) -> Operation[None]:
        """The manager gives a new node all directories. A change under way may be waiting for this node, which answers nothing before."""
        while not self._members.introduced:
            yield Sleep(PAUSE_LAST_S)  # until it has taken office
        yield Acquire(SPREADING)
        try:
            while node in self._members.live and self._members.manager == self._members.node:
                try:
                    yield from ask(node, p.Directories(self._meta.export_dirs()))
                    break
                except OSError as error:
                    if error.errno not in (errno.EIO, errno.ETIMEDOUT, errno.EHOSTDOWN):
                        raise
                    yield Sleep(PAUSE_LAST_S)  # it has not heard yet that we are the manager
        finally:
            self._calls.release(SPREADING)

    def take_office(self) -> Operation[None]:
        """This node is the manager from now on."""
        yield Acquire(LOCK)
        try:
            yield from self._know_all()
        finally:
            self._calls.release(LOCK)

    def _know_all(self) -> Operation[None]:
        """The manager before this one may have died before it introduced this node. Then another node knows the directories; or none does,
        for the session has just begun, and has none."""
        members = self._members
        while not members.introduced and members.manager == members.node:
            others = sorted(members.live - {members.node})
            answers = yield from together([ask(node, p.ReportDirectories()) for node in others])
            if known := next((answer for answer in answers if isinstance(answer, bytes)), None):
                self._meta.import_(known)
            elif any(isinstance(answer, OSError) for answer in answers):
                yield Sleep(PAUSE_LAST_S)
                continue
            members.introduced = True
            self.heed()
            self._meta.mend_dirs(True)

    def _take_all(self, peer: int, call: p.Directories) -> Operation[None]:
        members = self._members
        yield from self._calls.until(lambda: bool(members.owners))  # others may have learnt earlier that this node is a member
        yield from self._calls.until(lambda: members.manager == peer)  # changes of the one before it are refused from then on
        self._meta.import_(call.data)
        members.introduced = True
        self.heed()
        self._meta.mend_dirs(True)
        yield from work(w.Invalidate((), (EVERY_NAME,)))  # a change that not all had heard of is made here by now, or taken back
