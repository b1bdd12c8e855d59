"""The machine of the file system on one node: composes its parts, hands events and requests to them, and follows the membership. Pure."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable
from typing import Any

import msgspec

from amfs._native import Meta
from amfs.engine.machine import Machine
from amfs.fs.vfs.attempts import Attempts
from amfs.fs.vfs.backups import Backups
from amfs.fs.vfs.caches import Caches
from amfs.fs.vfs.calls import Calls, failure, number_of
from amfs.fs.vfs.copies import Copies
from amfs.fs.vfs.damage import Damage
from amfs.fs.vfs.digests import Digests
from amfs.fs.vfs.directories import Directories
from amfs.fs.vfs.drainer import Drainer
from amfs.fs.vfs.evictor import Evictor
from amfs.fs.vfs.handles import Handles
from amfs.fs.vfs.layouts import Layouts
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.mover import PartitionMover
from amfs.fs.vfs.namespace import Namespace
from amfs.fs.vfs.open_files import OpenFiles
from amfs.fs.vfs.opening import Opener
from amfs.fs.vfs.outside import Outside
from amfs.fs.vfs.owners import Owners
from amfs.fs.vfs.paths import Paths
from amfs.fs.vfs.renames import Renames
from amfs.fs.vfs.replicas import Replicas
from amfs.fs.vfs.requests import Requests
from amfs.fs.vfs.shard import Shard
from amfs.fs.vfs.stripe_copies import StripeCopies
from amfs.fs.vfs.stripe_damage import StripeDamage
from amfs.fs.vfs.stripe_moves import StripeMoves
from amfs.fs.vfs.task_files import ContentLost, TaskFiles
from amfs.fs.vfs.url_moves import UrlMoves
from amfs.fs.vfs.whole_files import WholeFiles
from amfs.fs.vfs.xattrs import Xattrs
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import messages as m
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import META_SET_GID, META_SET_UID, ROOT, Attr
from amfs.vocabulary.events import (
    AttemptSettled,
    ClientGone,
    ClockRead,
    EndAttempt,
    FsAwaited,
    FsDamaged,
    FsFull,
    FsHandlesClosed,
    FsReplied,
    FsRequested,
    FsSpilled,
    FsStriped,
    FsWorked,
    Kept,
    MoveAway,
    MovedAway,
    MovedForTask,
    MoveForTask,
    PeerDown,
    RoomWanted,
    TimerFired,
    Traces,
    ViewChanged,
)
from amfs.vocabulary.fs_requests import BY_TAG, received


class FileSystem(Machine):
    """Everything of the file system that one node does."""

    def __init__(self, node: int, meta: Meta, owner: tuple[int, int] = (0, 0), copies: int = 1) -> None:
        """``owner``: user and group of the topmost directory, those of the person that runs the session; ``copies``: its rule."""
        super().__init__(node)
        self._meta = meta
        self._owner = owner
        self._default_copies = copies
        self.members = members = Members(node)
        self.calls = calls = Calls(self, members)
        owners = Owners(calls, meta, members)
        caches = Caches(calls, meta, members)
        self._backups = backups = Backups(calls, meta, members)
        self._stripes = stripes = StripeCopies(calls, meta, members)
        self.stripe_moves = StripeMoves(calls, meta, members, stripes)
        self.mover = PartitionMover(calls, meta, members, backups, stripes, self.stripe_moves)
        self._shard = Shard(calls, meta, members, owners, caches, self.mover.in_motion)
        self._directories = Directories(calls, meta, members, owners, caches)
        opener = Opener(calls, meta, members, owners, caches)
        self._files = files = OpenFiles(calls, meta, members, owners, caches, opener, stripes)
        self._replicas = Replicas(calls, meta, members, self.mover.in_motion, stripes)
        stripe_damage = StripeDamage(calls, meta, members, owners, stripes)
        damage = Damage(calls, meta, members, owners, caches, opener, files, self._replicas, stripe_damage)
        self._evictor = evictor = Evictor(calls, members, owners, caches, opener, files)
        namespace = Namespace(calls, meta, members, owners, caches, self._directories, files)
        renames = Renames(calls, meta, members, owners, caches, self._directories)
        layouts = Layouts(calls, members, owners, self._directories, files, stripes)
        xattrs = Xattrs(meta, owners, backups, self._directories, namespace, layouts)
        paths = Paths(meta, members, owners, self._directories, namespace, renames, layouts)
        self._handles = handles = Handles(calls, members, namespace, paths, files)
        bringer = Copies(calls, members, owners, opener, files, evictor)
        digests = Digests(calls, members, owners, files, bringer, damage, stripe_damage)
        whole = WholeFiles(calls, meta, members, owners, files, namespace)
        outside = Outside(calls, members, owners, namespace, renames, paths, handles, digests, whole)
        moves = UrlMoves(calls, owners, namespace, paths, digests, damage, outside)
        self._task_files = TaskFiles(calls, members, owners, paths, handles, digests)
        self._attempts = Attempts(calls, meta, members, owners, caches, namespace)
        self._requests = Requests(
            calls, caches, files, namespace, renames, xattrs, paths, handles, bringer, digests, outside, damage, moves
        )
        self._drainer = Drainer(calls, members, owners, opener, files, self.mover)
        self._clients: set[int] = set()
        self.on_message = {m.PeerRequest: calls.on_request, m.PeerResponse: calls.on_response, m.FsRequest: self._on_request}
        self.on_event = {
            FsWorked: calls.on_worked,
            TimerFired: calls.on_timer,
            PeerDown: self._on_peer_down,
            ClockRead: lambda event: calls.set_wall(event.wall_ns),
            FsRequested: self._on_requested,
            FsAwaited: self.stripe_moves.on_awaited,
            FsFull: evictor.on_full,
            RoomWanted: evictor.on_full,
            FsDamaged: lambda event: (damage if event.index < 0 else stripe_damage).on_damaged(event),
            FsSpilled: evictor.on_spilled,
            FsStriped: files.on_striped,
            FsHandlesClosed: files.on_handles_closed,
            MoveForTask: self._on_move_for_task,
            EndAttempt: self._on_end_attempt,
            ClientGone: lambda event: self._client_gone(event.client),
            ViewChanged: self._on_view,
            MoveAway: self._on_move_away,
        }

    @property
    def asked(self) -> int:
        """How many questions this node has asked others."""
        return self.calls.asked

    def backups(self) -> tuple[int, int, int]:
        """Partitions of this node; those of them whose backup is in step; those of which names were lost."""
        return self._backups.counts()

    def short_of_copies(self) -> tuple[int, int]:
        """Files recorded here that fewer nodes hold than shall, and their bytes."""
        return self._replicas.counts()

    @property
    def default_copies(self) -> int:
        """Nodes that shall have each file of which nothing else is said."""
        return self._default_copies

    @property
    def spilled(self) -> int:
        """Bytes of files in the spill directory of this node."""
        return self._evictor.spilled

    def keeps_stripes(self, part: int) -> bool:
        """Has this node all stripes of a partition of another that have copies?"""
        return self._stripes.is_kept(part)

    def flush(self) -> None:
        self._shard.flush()
        self._replicas.notice()

    def check_invariants(self) -> None:
        self.calls.check_invariants()
        self._files.check_invariants()  # of the records: ``Meta.check``, which looks at all of them

    # ── mounts and clients ─────────────────────────────────────────────────────────────────────────

    def _on_requested(self, event: FsRequested) -> None:
        token = event.token

        def answer(error: OSError | None, value: Any) -> None:
            self.out.append(FsReplied(token, number_of(error) if error is not None else 0, value))

        endpoint = token[:2] if isinstance(token, tuple) else token
        self._requests.run(endpoint, event.request, event.uid, event.gid, answer)

    def _on_request(self, peer: int, message: m.FsRequest) -> None:
        self._clients.add(peer)

        def answer(error: OSError | None, value: Any) -> None:
            self.send(peer, m.FsResponse(message.serial, number_of(error) if error is not None else 0, value))

        try:
            request = received(message.request, BY_TAG)
        except msgspec.ValidationError as wrong:
            self.log(f"client {peer} asks what is no request: {wrong}", logging.WARNING)
            answer(failure(errno.EINVAL), None)
        else:
            self._requests.run(("client", peer), request, message.uid, message.gid, answer)

    def _client_gone(self, client: int) -> None:
        """Close what a client left open."""
        if client in self._clients:
            self._clients.discard(client)
            self._handles.close_all(("client", client))

    def _on_peer_down(self, event: PeerDown) -> None:
        self.calls.fail(event.peer)
        self._client_gone(event.peer)

    # ── tasks ──────────────────────────────────────────────────────────────────────────────────────

    def _on_move_for_task(self, event: MoveForTask) -> None:
        def answer(error: OSError | None, size: int) -> None:
            lost_of = error.run if isinstance(error, ContentLost) else ""
            self.out.append(MovedForTask(event.serial, error, size or 0, lost_of))

        self.calls.spawn(self._task_files.move(event), answer)

    def _on_end_attempt(self, event: EndAttempt) -> None:
        def answer(error: OSError | None, traces: Traces | None) -> None:
            self.out.append(AttemptSettled(event.ended, error, traces or Traces()))

        self.calls.spawn(self._attempts.end(event), answer)

    def _on_move_away(self, event: MoveAway) -> None:
        def answer(error: OSError | None, moved: MovedAway | None) -> None:
            self.out.append(moved or MovedAway((Kept("what it has", 0, str(error)),), 1))

        self.calls.spawn(self._drainer.move_away(event.last), answer)

    # ── members ────────────────────────────────────────────────────────────────────────────────────

    def _on_view(self, event: ViewChanged) -> None:
        owners, version, manager, live = event.owners, event.version, event.manager, event.live
        members, calls = self.members, self.calls
        dead, new = members.live - live, live - members.live
        members.live = live
        lost = [part for part, owner in enumerate(members.owners) if owner in dead]
        members.dead += sorted(dead)
        for node in sorted(dead):
            self._bury(node)  # while the table says which stripes it had
        new_manager = manager == self.node and members.manager != manager
        members.manager = manager
        self._directories.heed()
        first = not members.version
        members.set_version(version)
        if lost:
            members.note_lost(lost, False)
        if not first:
            self._add_peers(new)  # threads of C ask an owner as soon as they have its table, and take one that is no peer for dead
        moves = self.mover.expect(owners)
        self._meta.set_table(owners, version)
        if first:
            uid, gid = self._owner
            self._meta.dir_set(ROOT, META_SET_UID | META_SET_GID, Attr(uid=uid, gid=gid), 0)
            if self._default_copies > 1:
                self._meta.dir_set_copies(ROOT, self._default_copies)
        if lost:
            calls.order(w.Lose(tuple(lost), members.losses_seen, False))
        calls.order(w.SetTable(owners, moves))
        if lost:
            self._backups.forget(lost)
        if members.owners != owners:
            self.mover.move(owners, set(dead))
        for node in sorted(dead):
            calls.order(w.ForgetPeer(node))
        if first:
            self._add_peers(new)  # they may ask from now on: a node without a table takes stripes that have not come yet for holes
        self._backups.choose()
        self._stripes.choose()
        for node in sorted(dead):
            calls.fail(node)
        if dead or new:
            self._replicas.look()
        if new_manager and not first:
            self._meta.mend_dirs(True)  # changes that the manager before us has begun and not told us are not made
            calls.spawn(self._directories.take_office())
        if manager == self.node:
            for node in sorted((live if new_manager else new) - {self.node}):
                calls.spawn(self._directories.introduce(node))

    def _add_peers(self, nodes: Iterable[int]) -> None:
        for node in sorted({*nodes} - {self.node}):
            self.calls.order(w.AddPeer(node))

    def _bury(self, node: int) -> None:
        """It is dead: content that only it had is lost, which the records say from now on."""
        self._meta.unlock_node(node)
        count = 0
        for ino in self._meta.forget_node(node):
            count += 1
            try:
                self._meta.getattr(ino, self.node)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    continue
                count -= 1  # it had no name any more, and nobody else used it
                for other in self.members.live:
                    self.calls.tell(other, p.Drop((ino,)))
        if count:
            what = f"content of {count} files, which are EIO from now on (amfs stat says which)"
            self.log(f"node {node} has died, and with it {what}", logging.WARNING)
