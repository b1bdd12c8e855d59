"""Extended attributes: those that a program has set, and ``user.amfs.*``, by which it sees and says where a file lies. Pure."""

from __future__ import annotations

import errno
import stat

from amfs._native import Meta
from amfs.fs.vfs.backups import Backups
from amfs.fs.vfs.caller import Caller
from amfs.fs.vfs.calls import Operation, failure
from amfs.fs.vfs.directories import Directories
from amfs.fs.vfs.layouts import Layouts
from amfs.fs.vfs.namespace import Namespace
from amfs.fs.vfs.opening import STRIPE_BYTES
from amfs.fs.vfs.owners import Owners
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import COPIES_MAX, LOSSES, NO_LAYOUT, ROOT, STRIPED, WHOLE, Attr
from amfs.workflow.origin import ATTRIBUTE as ORIGIN

LOCATION, LAYOUT, PLACEMENT, REPLICAS = b"user.amfs.location", b"user.amfs.layout", b"user.amfs.placement", b"user.amfs.replicas"
STRIPE_MIN, STRIPE_MAX = 4096, 1 << 30


class Xattrs:
    """Reads and sets extended attributes."""

    def __init__(
        self, meta: Meta, owners: Owners, backups: Backups, directories: Directories, namespace: Namespace, layouts: Layouts
    ) -> None:
        self._backups = backups
        self._meta = meta
        self._owners = owners
        self._directories = directories
        self._namespace = namespace
        self._layouts = layouts

    def get(self, ino: int, name: bytes) -> Operation[bytes]:
        of_directory = self._directories.is_directory(ino)
        if name == LOSSES and ino == ROOT:
            return b"%d" % (yield from self._backups.losses(False))
        if name not in (LOCATION, LAYOUT, PLACEMENT, REPLICAS):
            return self._meta.get_xattr(ino, name) if of_directory else (yield from self._owners.ask(p.GetXattr(ino, name)))
        if of_directory and name == REPLICAS:
            return b"%d" % self._meta.dir_copies(ino)
        if of_directory:
            layout, stripe = self._meta.dir_layout(ino)
            if name != LAYOUT or layout not in (WHOLE, STRIPED):
                raise failure(errno.ENODATA)
            return _layout_text(layout, stripe)
        attr = yield from self._namespace.inode(ino)
        if not stat.S_ISREG(attr.mode):
            raise failure(errno.ENODATA)
        if name == LAYOUT:
            return _layout_text(attr.layout, attr.stripe)
        if name == REPLICAS:
            return b"%d" % attr.copies
        if name == PLACEMENT:
            if attr.rank < 0:
                raise failure(errno.ENODATA)
            return str(attr.rank).encode()
        return b",".join(str(node).encode() for node in (yield from self._layouts.nodes(attr)))

    def set(self, caller: Caller, ino: int, name: bytes, value: bytes, flags: int) -> Operation[None]:
        if name in (LOCATION, ORIGIN):
            raise failure(errno.EPERM)
        if name == LOSSES and ino == ROOT:
            if value.strip() != b"accepted":
                raise failure(errno.EINVAL)
            if caller.uid not in (0, Attr(*self._meta.dir_get(ROOT)[0]).uid):
                raise failure(errno.EPERM)
            yield from self._backups.losses(True)
            return
        if name == LAYOUT:
            layout, stripe = _parse_layout(value)
            yield from self._layouts.set_layout(caller, ino, layout, stripe)
            return
        if name == REPLICAS:
            if not value.strip().isdigit() or not 1 <= int(value) <= COPIES_MAX:
                raise failure(errno.EINVAL)
            yield from self._layouts.set_copies(caller, ino, int(value))
            return
        if name == PLACEMENT:
            if not value.strip().lstrip(b"-").isdigit():
                raise failure(errno.EINVAL)
            yield from self._layouts.place(caller, ino, int(value))
            return
        caller.inodes.append(ino)
        if self._directories.is_directory(ino):
            change = p.SetDirectoryXattr(ino, name, value, flags, caller.now)
            yield from self._owners.ask_manager(p.ChangeDirectory(change))
        else:
            yield from self._owners.ask(p.SetXattr(ino, name, value, flags, caller.now))

    def list(self, ino: int) -> Operation[bytes]:
        here = self._directories.is_directory(ino)
        names = self._meta.list_xattr(ino) if here else (yield from self._owners.ask(p.ListXattr(ino)))
        return b"".join(name + b"\0" for name in names)

    def remove(self, caller: Caller, ino: int, name: bytes) -> Operation[None]:
        of_directory = self._directories.is_directory(ino)
        if name == LAYOUT and of_directory:
            yield from self._layouts.set_layout(caller, ino, NO_LAYOUT, 0)
        elif name == PLACEMENT:
            yield from self._layouts.place(caller, ino, -1)
        elif name == REPLICAS and of_directory:
            yield from self._layouts.set_copies(caller, ino, 0)
        elif name in (LOCATION, LAYOUT, REPLICAS, ORIGIN):
            raise failure(errno.EPERM)
        else:
            caller.inodes.append(ino)
            if of_directory:
                yield from self._owners.ask_manager(p.ChangeDirectory(p.RemoveDirectoryXattr(ino, name, caller.now)))
            else:
                yield from self._owners.ask(p.RemoveXattr(ino, name, caller.now))


def _layout_text(layout: int, stripe: int) -> bytes:
    return b"striped:%d" % stripe if layout == STRIPED else b"whole"


def _parse_layout(value: bytes) -> tuple[int, int]:
    """"whole", "striped", "striped:BYTES". EINVAL."""
    word, _, size = value.strip().partition(b":")
    if word == b"whole" and not size:
        return WHOLE, 0
    if word == b"striped" and (not size or size.isdigit()):
        stripe = int(size or STRIPE_BYTES)
        if STRIPE_MIN <= stripe <= STRIPE_MAX and not stripe & (stripe - 1):
            return STRIPED, stripe
    raise failure(errno.EINVAL)
