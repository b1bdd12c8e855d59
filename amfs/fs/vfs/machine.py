"""The machine of the file system on one node: requests of clients, and who is a member. Pure."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Sequence
from typing import Any

from amfs._native import Meta
from amfs.engine import messages as m
from amfs.engine.events import PeerDown
from amfs.fs.attr import META_SET_GID, META_SET_UID, ROOT, Attr
from amfs.fs.vfs.attempts import Attempts
from amfs.fs.vfs.calls import Answer, Ask, Work

#: What a node can do that does not know the directories yet.
_WITHOUT_DIRECTORIES = frozenset((
    "spread", "directories", "arrive", "stripes_of", "have", "lose", "drop", "drop_whole", "usage",
))  # fmt: skip


class FileSystem(Attempts):
    """Everything of the file system that one node does."""

    def __init__(self, node: int, meta: Meta, clock: Callable[[], int]) -> None:
        super().__init__(node, meta, clock)
        self.clients: set[int] = set()
        self.owner = (0, 0)  # user and group of the topmost directory: who runs the session
        self.on_message[m.FsRequest] = self._on_do

    def _on_do(self, peer: int, message: m.FsRequest) -> None:
        self.clients.add(peer)

        def answer(error: OSError | None, value: Any) -> None:
            self.send(peer, m.FsResponse(message.serial, (error.errno or errno.EIO) if error is not None else 0, value))

        self.request(("client", peer), message.op, message.args, message.uid, message.gid, answer)

    def client_gone(self, client: int) -> None:
        """Close what a client left open."""
        if client in self.clients:
            self.clients.discard(client)
            self.close_face(("client", client))

    def _on_peer_down(self, event: PeerDown) -> None:
        super()._on_peer_down(event)
        self.client_gone(event.peer)

    # ── before this node knows the directories ─────────────────────────────────────────────────────

    def request(
        self, face: object, op: str, args: tuple[Any, ...], uid: int, gid: int, answer: Callable[[OSError | None, Any], None]
    ) -> None:
        if self.knows_directories:
            super().request(face, op, args, uid, gid, answer)
        else:
            self.spawn(self.introduced(), lambda error, _: answer(error, None) if error else self.request(face, op, args, uid, gid, answer))

    def _serve(self, peer: int, op: str, args: Sequence[Any], answer: Answer) -> None:
        if self.knows_directories or op in _WITHOUT_DIRECTORIES:
            super()._serve(peer, op, args, answer)
        else:
            self.spawn(self.introduced(), lambda error, _: answer(error, None) if error else self._serve(peer, op, args, answer))

    # ── members ────────────────────────────────────────────────────────────────────────────────────

    def set_view(self, owners: tuple[int, ...], version: int, manager: int, live: frozenset[int]) -> None:
        """Who is in, and who has which partition, from now on."""
        dead = self.live - live
        new = live - self.live
        self.live = live
        lost = [part for part, owner in enumerate(self.owners) if owner in dead]
        for node in sorted(dead):
            self._bury(node)  # while the table says which stripes it had
        new_manager = manager == self.node and self.manager != manager
        self.manager = manager
        first, self.version, self.losses = not self.version, version, 0
        self.lost.update((part, self.known) for part in lost)
        self.meta.set_table(owners, version)
        if first:
            self.meta.dir_set(ROOT, META_SET_UID | META_SET_GID, Attr(uid=self.owner[0], gid=self.owner[1]), 0)
        if lost:
            self.tell(Work("lose", (tuple(lost), self.known)))
        self.tell(Work("table", (owners,)))
        if self.owners != owners:
            self.move(owners, set(dead))
        for node in sorted(dead):
            self._fail(lambda asked, node=node: asked.node == node, errno.EHOSTDOWN)  # type: ignore[misc]
            self.tell(Work("forget_peer", (node,)))
        for node in sorted(new - {self.node}):
            self.tell(Work("peer", (node,)))
        if new_manager and not first:
            self.meta.mend_dirs(True)  # what the one before us has begun and not told us is not so
        if manager == self.node:
            for node in sorted((live if new_manager else new) - {self.node}):
                self.spawn(self.introduce(node))

    def _bury(self, node: int) -> None:
        """It is dead: what only it had is lost, which the records say from now on."""
        self.meta.unlock_node(node)
        count = 0
        for ino in self.meta.forget_node(node):
            count += 1
            try:
                self.meta.getattr(ino, self.node)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    continue
                count -= 1  # it had no name any more, and nobody else used it
                for other in self.live:
                    self.tell(Ask(other, "drop", ((ino,),)))
        if count:
            what = f"content of {count} files, which are EIO from now on (amfs stat says which)"
            self.log(f"node {node} has died, and with it {what}", logging.WARNING)
