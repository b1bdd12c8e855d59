"""Whether what was copied out of the session is what its nodes say that it is, by digests of the content.

A node that holds the file takes the digest, and compares its copy with the digest that it took when the file was finished. So what is
written outside is compared end to end. A file that is being written has no digest, and is not compared.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence

from amfs.client.connection import Call, NodeConnection, failure
from amfs.client.selected import PAUSE_S
from amfs.host.digests import of_file
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.attr import Attr

LATE_MAX = 240  # how often a node is asked again for an order that takes longer than half a minute
_PORTION = 64  # digests of one question
WORDS = {
    errno.EILSEQ: "it was not copied right: its digest differs",
    errno.EBADMSG: "its content is damaged, and no node has another copy: it is lost",
}


def digests(connection: NodeConnection, inodes: Sequence[int], busy_s: float = 0.0) -> list[tuple[int, bytes] | OSError]:
    """(size, digest) of files, taken by nodes that hold them, or why not. ``busy_s``: how long one that is being written is waited for."""
    wanted = list(dict.fromkeys(inodes))
    portions = [wanted[start : start + _PORTION] for start in range(0, len(wanted), _PORTION)]
    found: dict[int, tuple[int, bytes] | OSError] = {}
    late, end = 0, time.monotonic() + busy_s
    while portions:
        answers = connection.call_many(Call(q.Digests(tuple(portion))) for portion in portions)
        again: list[int] = []
        slow = False
        for portion, answer in zip(portions, answers, strict=True):
            values = [answer.errno or errno.EIO] * len(portion) if isinstance(answer, OSError) else answer
            for ino, value in zip(portion, values, strict=True):
                slow = slow or value == errno.ETIMEDOUT
                if (value == errno.ETIMEDOUT and late < LATE_MAX) or (value == errno.EBUSY and time.monotonic() < end):
                    again.append(ino)
                else:
                    found[ino] = failure(value) if isinstance(value, int) else (value[0], bytes(value[1]))
        portions = [again[start : start + _PORTION] for start in range(0, len(again), _PORTION)]
        late += slow
        if portions and not slow:
            time.sleep(PAUSE_S)
    return [found[ino] for ino in inodes]


def fault_of(local: str, found: tuple[int, bytes] | OSError) -> int:
    """Of a local copy of the file with that digest: 0, or the errno. One that cannot be read back is not compared."""
    if isinstance(found, OSError):
        gone = found.errno in (errno.EBUSY, errno.ENOENT)  # it is being written, or was removed meanwhile: nobody can say
        return 0 if gone else found.errno or errno.EIO
    if not os.path.isfile(local):
        return 0
    try:
        digest, size = of_file(local)
    except PermissionError:
        return 0
    return 0 if (size, digest) == found else errno.EILSEQ


def check_read(connection: NodeConnection, path: bytes, before: Attr, taken: tuple[int, bytes]) -> None:
    """Compare (size, digest) of all that was read of a file since it was ``before``. One that was written meanwhile is not compared.

    Raises OSError with the file's name.
    """
    [found] = digests(connection, [before.ino])
    fault = found.errno if isinstance(found, OSError) else errno.EILSEQ
    if found != taken and fault in WORDS:
        after = connection.call(q.Walk(path, True), about=(path,)).attr
        if (after.ino, after.size, after.mtime) == (before.ino, before.size, before.mtime):
            raise failure(fault, (path,), WORDS[fault])


def drop_damaged(connection: NodeConnection, ino: int) -> None:
    """Have all nodes look at their copies of a file. Raises OSError."""
    for _ in range(LATE_MAX):
        [answer] = connection.call_many([Call(q.Check((ino,)))])
        if not isinstance(answer, OSError):
            return
        if answer.errno != errno.ETIMEDOUT:
            raise answer
