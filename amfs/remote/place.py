"""A storage outside, as amfs uses it: objects with an identity, read under it, and written so that they are seen when they are whole.

Owns the interface and its errors. Knows no storage, no session and no settings.
"""

from __future__ import annotations

import enum
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol


class Kind(enum.Enum):
    """Why a storage did not do what it was asked for."""

    MISSING = "no such object"
    NO_PLACE = "no such bucket"
    DENIED = "permission denied"
    UNREACHABLE = "cannot be reached"
    UNTRUSTED = "its certificate is not trusted"
    BUSY = "the storage is too busy"
    PARTLY = "not all of it came there"
    DAMAGED = "what came does not have the sum that the storage tells"
    CHANGED = "changed while it was read"
    UNNOTICED = "a change while it is read could not be noticed"
    UNSUPPORTED = "the storage cannot do that"
    OTHER = "failed"


_NUMBERS = {
    Kind.MISSING: errno.ENOENT,
    Kind.NO_PLACE: errno.ENXIO,
    Kind.DENIED: errno.EACCES,
    Kind.UNREACHABLE: errno.EHOSTUNREACH,
    Kind.UNTRUSTED: errno.EACCES,
    Kind.BUSY: errno.EAGAIN,
    Kind.PARTLY: errno.EIO,
    Kind.DAMAGED: errno.EILSEQ,
    Kind.CHANGED: errno.ESTALE,
    Kind.UNNOTICED: errno.EOPNOTSUPP,
    Kind.UNSUPPORTED: errno.EOPNOTSUPP,
    Kind.OTHER: errno.EIO,
}

_OTHER_HOST, _EXPIRED, _EARLY = "it is for another host", "it has expired", "it is not valid yet"
#: Words of the libraries on faults of a certificate that no setting mends.
_CERTIFICATES = {
    "CaUsedAsEndEntity": "it is that of an authority; the server needs one that an authority has signed, or with basicConstraints=CA:FALSE",
    "NotValidForName": _OTHER_HOST,
    "mismatch": _OTHER_HOST,
    "not valid for": _OTHER_HOST,
    "Expired": _EXPIRED,
    "has expired": _EXPIRED,
    "NotValidYet": _EARLY,
    "not yet valid": _EARLY,
}


def why_untrusted(text: str) -> str:
    """The fault of a certificate, or advice about it, by a library's words."""
    setting = "the setting 'certificate' names a file with that of its authority"
    return next((words for says, words in _CERTIFICATES.items() if says in text), setting)


SILENT_S = 30.0  # without a byte of an answer: the server is given up

#: Faults that may be gone a moment later.
TRANSIENT = frozenset((Kind.UNREACHABLE, Kind.BUSY, Kind.PARTLY, Kind.DAMAGED))


class RemoteError(OSError):
    """``filename`` is the URL; the text says more than the kind where the storage did."""

    def __init__(self, kind: Kind, url: str, words: str = "") -> None:
        super().__init__(_NUMBERS[kind], f"{kind.value}: {words}" if words else kind.value, url)
        self.kind = kind
        self.words = words


class Found(NamedTuple):
    """An object, as it was when somebody looked."""

    key: str
    size: int  # bytes
    identity: str  # of the content: changes when that does; "" where the storage tells nothing
    mtime: int = 0  # nanoseconds since 1970; 0: not known
    directory: bool = False  # an empty one; other directories are in the keys


Told = Callable[[int], None]


def put_piece(descriptor: int, piece: bytes | memoryview, at: int) -> None:
    """Write all of a piece. Raises OSError."""
    view = memoryview(piece)
    done = 0
    while done < len(view):
        done += os.pwrite(descriptor, view[done:], at + done)


class Remote(Protocol):
    """One bucket, server or file system. A key is what follows it in a URL, without the first slash. All methods raise RemoteError, and may
    be called from ``at_once`` threads."""

    #: The pieces of a large object may be of any size; one that is not larger than this should be written in one piece.
    whole_max: int
    #: How many calls may be under way at the same time.
    at_once: int
    #: ``get`` may be asked for objects that are not larger.
    small_max: int
    #: Is the content of an object whose identity is an ETag given under that only? Then nobody need look at it first.
    conditional: bool
    #: Has each object in listings the identity that ``stat`` tells?
    lists_identities: bool

    def url(self, key: str) -> str:
        """For people."""
        ...

    def list(self, prefix: str) -> Iterator[Found]:
        """All objects whose keys begin with ``prefix``, which is "" or ends with a slash."""
        ...

    def is_directory(self, key: str) -> bool:
        """Is anything below ``key``, or could there be?"""
        ...

    def stat(self, key: str) -> Found: ...

    def read(self, found: Found) -> Iterator[bytes]:
        """Its content. CHANGED if that is not the one of ``found``: at the beginning, or after the last piece. UNNOTICED if it has no
        identity."""
        ...

    def get(self, found: Found) -> bytes | memoryview:
        """The whole content of a small object, as ``fetch`` has it."""
        ...

    def fetch(self, found: Found, descriptor: int, told: Told) -> None:
        """Its content into an empty local file, as ``read`` has it. DAMAGED if it does not have the sum that the storage tells. ``told``:
        called with the bytes of each piece, in any thread; an error that it raises ends the transfer."""
        ...

    def write(self, key: str, pieces: Iterable[bytes], size: int = 0) -> Found:
        """Seen only when whole: if ``pieces`` raises an error, an older object stays. ``size``: about how large it will be."""
        ...

    def delete(self, key: str) -> None: ...

    def close(self) -> None:
        """Nobody calls any more: connections may end."""
        ...
