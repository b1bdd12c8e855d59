"""A native mount's requests as events of the file system's machine, and its effects as answers. Pure but for the mount it is given.

The C side of a mount (``_native.Fuse``) answers by itself what concerns this node only; here are the few lines between the rest and the
machine.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import Any, Protocol

from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.attr import Attr
from amfs.vocabulary.events import FsReplied, FsRequested

log = logging.getLogger("amfs.fs")

#: Nobody at a prompt knows what to make of a node being down: the file cannot be had.
_AS_IO_ERROR = frozenset((errno.EHOSTDOWN, errno.ETIMEDOUT, errno.ECONNRESET, errno.ECONNREFUSED, errno.ENOTCONN))


class Answers(Protocol):
    """The used part of ``_native.Fuse``."""

    def requests(self) -> list[tuple[int, str, tuple[Any, ...], int, int, int]]: ...
    def reply_error(self, unique: int, error: int) -> None: ...
    def reply_entry(self, unique: int, attr: tuple[int, ...], cache: bool) -> None: ...
    def reply_attr(self, unique: int, attr: tuple[int, ...], cache: bool) -> None: ...
    def reply_open(self, unique: int, kind: int, node: int, stripe: int, size: int, losses_seen: int) -> None: ...
    def reply_created(self, unique: int, attr: tuple[int, ...], kind: int, node: int, stripe: int, size: int, losses_seen: int) -> None: ...
    def reply_bytes(self, unique: int, data: bytes) -> None: ...
    def reply_dir(self, unique: int, entries: list[tuple[bytes, int, int, int, tuple[int, ...] | None]]) -> None: ...
    def reply_statfs(self, unique: int, bsize: int, blocks: int, bfree: int, bavail: int, files: int, ffree: int) -> None: ...


def _entry(fuse: Answers, unique: int, value: Any) -> None:
    fuse.reply_entry(unique, tuple(value[0]), bool(value[1]))


def _attr(fuse: Answers, unique: int, value: Any) -> None:
    fuse.reply_attr(unique, tuple(value[0]), bool(value[1]))


def _open(fuse: Answers, unique: int, value: Any) -> None:
    fuse.reply_open(unique, *value)


def _created(fuse: Answers, unique: int, value: Any) -> None:
    fuse.reply_created(unique, tuple(value[0]), *value[1:])


def _bytes(fuse: Answers, unique: int, value: Any) -> None:
    fuse.reply_bytes(unique, bytes(value))


def _dir(fuse: Answers, unique: int, value: Any) -> None:
    fuse.reply_dir(
        unique, [(bytes(name), ino, kind, cursor, None if attr is None else tuple(attr)) for name, ino, kind, cursor, attr in value]
    )


def _statfs(fuse: Answers, unique: int, value: Any) -> None:
    fuse.reply_statfs(unique, *value)


def _nothing(fuse: Answers, unique: int, value: Any) -> None:
    fuse.reply_error(unique, 0)


ANSWERS: dict[str, Callable[[Answers, int, Any], None]] = {
    "lookup": _entry, "mknod": _entry, "mkdir": _entry, "symlink": _entry, "link": _entry,
    "getattr": _attr, "setattr": _attr,
    "open": _open, "ensure": _open, "create": _created,
    "readlink": _bytes, "get_xattr": _bytes, "list_xattr": _bytes,
    "list": _dir, "statfs": _statfs,
    "unlink": _nothing, "rmdir": _nothing, "rename": _nothing, "set_xattr": _nothing, "remove_xattr": _nothing, "secure": _nothing,
    "unnamed": _nothing, "renaming": _nothing,
}  # fmt: skip


def typed(op: str, args: tuple[Any, ...]) -> q.Request[Any]:
    """The request that the C side calls ``op``."""
    if op in ("setattr", "closed") and args[-1] is not None:
        args = (*args[:-1], Attr(*args[-1]))
    return q.BY_NAME[op](*args)


class NativeEndpoint:
    """One mount as the machine sees it: the endpoint ``("fuse", number)``."""

    def __init__(self, number: int, fuse: Answers) -> None:
        self.number = number
        self.fuse = fuse
        self._asked: dict[int, str] = {}  # unique -> operation

    def requests(self) -> list[FsRequested]:
        """Requests that have come since the last call."""
        events = []
        for unique, op, args, uid, gid, _ in self.fuse.requests():
            if unique:
                self._asked[unique] = op
            events.append(FsRequested(("fuse", self.number, unique), typed(op, args), uid, gid))
        return events

    def reply(self, effect: FsReplied) -> None:
        """Answer one request. A request that only told something has no answer."""
        assert isinstance(effect.token, tuple)
        unique: int = effect.token[2]
        op = self._asked.pop(unique, None)
        if op is None:
            return
        try:
            if effect.error:
                self.fuse.reply_error(unique, errno.EIO if effect.error in _AS_IO_ERROR else effect.error)
            else:
                ANSWERS[op](self.fuse, unique, effect.value)
        except LookupError:
            return  # the mount has ended meanwhile
        except (TypeError, ValueError, OverflowError):
            log.exception("an answer to %s that is none: %r", op, effect.value)
            self.fuse.reply_error(unique, errno.EIO)
