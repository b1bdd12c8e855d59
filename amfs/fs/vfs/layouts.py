"""Moving a file's bytes without changing them: whole to stripes and back, and to another node. Pure.

The node that moves the bytes is the only writer of the file meanwhile; other nodes that open it to write wait until it is done.
"""

from __future__ import annotations

import errno
import stat

from amfs.fs.vfs.caller import Caller
from amfs.fs.vfs.calls import Calls, Operation, ask, failure, together, work
from amfs.fs.vfs.directories import Directories
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.open_files import OpenFiles
from amfs.fs.vfs.owners import Owners
from amfs.fs.vfs.shard import UNSTRIPED
from amfs.fs.vfs.stripe_copies import StripeCopies
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import COPIED, META_SET_COPIES, META_SET_RANK, STRIPE_COPIES, STRIPED, WHOLE, Attr


class Layouts:
    """Changes where the content of files lies."""

    def __init__(
        self, calls: Calls, members: Members, owners: Owners, directories: Directories, files: OpenFiles, stripes: StripeCopies
    ) -> None:
        self._members = members
        self._owners = owners
        self._directories = directories
        self._files = files
        self._stripes = stripes
        calls.serve(
            p.Restripe.by(self._restripe),
            p.Take.by(self._take),
            p.DropStripes.by(lambda peer, call: work(w.DropStripes(call.ino))),
        )

    # ── stripes ────────────────────────────────────────────────────────────────────────────────────

    def set_layout(self, caller: Caller, ino: int, layout: int, stripe: int) -> Operation[None]:
        """EBUSY: it is being written."""
        if self._directories.is_directory(ino):
            yield from self._owners.ask_manager(p.ChangeDirectory(p.SetDirectoryLayout(ino, layout, stripe)), twice=True)
            return
        attr = yield from self._owners.ask(p.Getattr(ino))
        if not stat.S_ISREG(attr.mode):
            raise failure(errno.EINVAL)
        if attr.writer >= 0:
            raise failure(errno.EBUSY)
        if attr.layout == layout and (layout == WHOLE or attr.stripe == stripe):
            return
        if layout == STRIPED and attr.copies > STRIPE_COPIES:
            raise failure(errno.EOPNOTSUPP)
        caller.inodes.append(ino)
        if attr.layout == WHOLE and attr.size:
            holders = yield from self._owners.ask(p.Holders(ino))
            living = [node for node in holders if node in self._members.live]
            if holders and not living:
                raise failure(errno.EIO)
            done = bool(living) and (yield from ask(living[0], p.Restripe(ino, stripe)))
        else:
            done = yield from self._files.exclusively(ino, lambda attr, holders: self._lay(attr, layout, stripe))
        if not done:
            raise failure(errno.EBUSY)
        if attr.copies > 1:
            yield from self._files.secure(ino)

    def set_copies(self, caller: Caller, ino: int, copies: int) -> Operation[None]:
        """0, of a directory: as the one above. ENOSPC: nodes have no room for them; it is tried again."""
        if copies > 1:
            yield from self._stripes.expect()
        if self._directories.is_directory(ino):
            yield from self._owners.ask_manager(p.ChangeDirectory(p.SetDirectoryCopies(ino, copies)), twice=True)
            return
        attr = yield from self._owners.ask(p.Getattr(ino))
        if not stat.S_ISREG(attr.mode) or not copies:
            raise failure(errno.EINVAL)
        caller.inodes.append(ino)
        if attr.layout == STRIPED:
            if copies != attr.copies:
                yield from self._set_stripe_copies(caller, attr, copies)
            return
        yield from self._owners.ask(p.Setattr(ino, META_SET_COPIES, attr._replace(copies=copies), caller.now))
        if copies > 1:
            yield from self._files.secure(ino)

    def _set_stripe_copies(self, caller: Caller, attr: Attr, copies: int) -> Operation[None]:
        """All of it has copies before its record says so. EBUSY: it is being written. Fewer: only of a file that was made whole."""
        if copies != STRIPE_COPIES or attr.copies > copies:
            raise failure(errno.EOPNOTSUPP)

        def copy(now: Attr, holders: tuple[int, ...]) -> Operation[int]:
            if now.layout != STRIPED:
                raise failure(errno.EBUSY)
            if error := (yield from self._stripes.protect(now.ino)):
                raise failure(error)
            yield from self._owners.ask(p.Setattr(now.ino, META_SET_COPIES, now._replace(copies=copies), caller.now))
            return 0

        if not (yield from self._files.exclusively(attr.ino, copy)):
            raise failure(errno.EBUSY)

    def _lay(self, attr: Attr, layout: int, stripe: int) -> Operation[int]:
        """A file that is empty, or lies in stripes."""
        if attr.size and attr.layout == WHOLE:
            raise failure(errno.EBUSY)  # written since we looked
        if attr.size and layout == STRIPED:
            raise failure(errno.EOPNOTSUPP)  # one stripe size to another: make it whole first
        if attr.size:
            yield from work(w.Gather(attr.ino, attr.stripe, attr.size))
            yield from together([ask(node, p.DropStripes(attr.ino)) for node in self._members.live])
        if layout == WHOLE:
            return UNSTRIPED
        yield from work(w.DropWhole(attr.ino))  # an empty one
        return stripe

    def _restripe(self, peer: int, call: p.Restripe) -> Operation[bool]:
        def lay(attr: Attr, holders: tuple[int, ...]) -> Operation[int]:
            if attr.layout != WHOLE:
                return 0
            if attr.copies > STRIPE_COPIES:
                raise failure(errno.ENOSPC)
            if self._members.node not in holders:
                raise failure(errno.EAGAIN)
            yield from work(w.Restripe(call.ino, call.stripe | (COPIED if attr.copies > 1 else 0)))
            return call.stripe

        if (yield from work(w.CheckPart(call.ino)))[0] == w.PART_DAMAGED:
            return False  # it is being dropped: others may have it
        try:
            return (yield from self._files.exclusively(call.ino, lay))
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
            return False

    # ── places ─────────────────────────────────────────────────────────────────────────────────────

    def place(self, caller: Caller, ino: int, node: int) -> Operation[None]:
        """Pin a file to ``node`` (-1: nowhere); content that it has goes there."""
        if node != -1 and node not in self._members.live:
            raise failure(errno.ENXIO)
        attr = yield from self._owners.ask(p.Getattr(ino))
        if not stat.S_ISREG(attr.mode):
            raise failure(errno.EINVAL)
        caller.inodes.append(ino)
        yield from self._owners.ask(p.Setattr(ino, META_SET_RANK, attr._replace(rank=node), caller.now))
        if node >= 0 and attr.size and attr.layout == WHOLE and attr.writer < 0:
            if attr.copies > 1:
                yield from self._bring(ino, node)
            else:
                yield from ask(node, p.Take(ino))

    def _bring(self, ino: int, node: int) -> Operation[None]:
        """It becomes one of the holders: of several copies none is to be missing meanwhile."""
        holders = yield from self._owners.ask(p.Holders(ino))
        living = [holder for holder in holders if holder in self._members.live]
        if not living:
            raise failure(errno.EIO)
        [number] = yield from ask(node, p.Bring(living[0], (ino,)))
        if number:
            raise failure(number)

    def _take(self, peer: int, call: p.Take) -> Operation[None]:
        if not (yield from self._files.exclusively(call.ino, self._fetch)):
            raise failure(errno.EBUSY)

    def _fetch(self, attr: Attr, holders: tuple[int, ...]) -> Operation[int]:
        if attr.layout == STRIPED or not attr.size or self._members.node in holders:
            return 0
        for node in holders:
            if node not in self._members.live:
                continue
            try:
                yield from work(w.Fetch(attr.ino, node, attr.size, attr.atime, attr.mtime))
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    raise
                continue
            return 0
        raise failure(errno.EIO if not self._members.live.intersection(holders) else errno.EBUSY)

    def nodes(self, attr: Attr) -> Operation[list[int]]:
        """The nodes that hold bytes of a file, the one with the first byte first."""
        if attr.layout == STRIPED:
            count = min(-(-attr.size // max(attr.stripe, 1)), 4 * len(self._members.live) + 1024)
            return list(dict.fromkeys(self._owners.of_stripe(attr.ino, index) for index in range(count)))
        if attr.writer >= 0 and attr.copies <= 1:
            return [attr.writer]
        holders = yield from self._owners.ask(p.Holders(attr.ino))
        # Of more copies others have what the writer's node had copied last.
        return list(holders if attr.writer < 0 else dict.fromkeys((attr.writer, *holders)))
