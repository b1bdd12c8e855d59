"""Whether what the nodes of a session hold is what was written: files below a path, and files of runs.

The nodes look; no content moves. They drop damaged content. Here is the order in which they are asked, and what they have found.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from amfs.client.connection import Call
from amfs.client.files import Files
from amfs.client.selected import Selected, files_at
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.attr import STRIPE_COPIES, STRIPED

T = TypeVar("T")

FILES_AT_ONCE = 256
BYTES_AT_ONCE = 512 << 20
AGAIN_MAX = 20  # how often a node is asked again that has not answered within half a minute


class Bad(NamedTuple):
    """A damaged copy, or a file that was lost before."""

    path: str
    node: int  # -1: it was lost before
    done: str


class Scrubbed(NamedTuple):
    bad: list[Bad]
    files: int
    copies: int
    size: int  # bytes of copies
    run_files: int
    run_size: int
    unknown: int  # copies of which no digest was known
    busy: int
    lost: int


class _Counts:
    def __init__(self) -> None:
        self.bad: list[Bad] = []
        self.files = self.copies = self.size = self.run_files = self.run_size = self.unknown = self.busy = self.lost = 0

    def add(self, each: Selected, found: q.Checked) -> None:
        path = os.fsdecode(b"amfs:" + each.path)
        if isinstance(found, int):
            if found == errno.EBUSY:
                self.busy += 1
            elif found not in (errno.ENOENT, errno.EIO):
                raise OSError(found, os.strerror(found), each.path)
            elif found == errno.EIO:
                self._lose(path, -1, "lost before")
            return
        striped = each.attr.layout == STRIPED
        copies = min(each.attr.copies, STRIPE_COPIES) if striped else len(found)
        self.files += 1
        self.copies += copies
        self.size += copies * each.attr.size
        for node, verdict in found:
            if verdict == q.UNKNOWN:
                self.unknown += 1
            elif verdict == q.DROPPED:
                self.bad.append(Bad(path, node, "mended by its other copy" if striped else "dropped; another copy is used"))
            elif verdict == q.DAMAGED_LAST:
                self._lose(path, node, f"{'' if striped else 'dropped; '}it is lost: there is no other copy")

    def _lose(self, path: str, node: int, done: str) -> None:
        self.bad.append(Bad(path, node, done))
        self.lost += 1


def scrub(files: Files, path: bytes, runs: bool, rate: int, said: Callable[[Bad], None]) -> Scrubbed:
    """Check the files at and below ``path``, and (``runs``) those of the runs. ``rate``: bytes of files in a second, 0: as fast as it goes.
    ``said``: called with each bad one. Raises OSError."""
    counts, shown = _Counts(), 0
    for portion in _portions(files, path, counts, rate):
        begun = time.monotonic()
        answers: list[q.Checked] = _patiently(files, q.Check(tuple(each.attr.ino for each in portion)))
        for each, found in zip(portion, answers, strict=True):
            counts.add(each, found)
        shown = _tell(counts, shown, said)
        _pause(sum(each.attr.size for each in portion), rate, begun)
    for node, *_ in files.df() if runs else ():
        after = ""
        while True:
            begun = time.monotonic()
            part = q.CheckedStore(*_patiently(files, q.CheckStore(node, after)))
            counts.run_files += part.files
            counts.run_size += part.size
            counts.unknown += part.unknown
            done = "given up; another copy is used, or its task runs again when it is needed"
            counts.bad += [Bad(f"run {name.replace('/', ': ', 1)}", node, done) for name in part.damaged]
            shown = _tell(counts, shown, said)
            _pause(part.size, rate, begun)
            after = part.after
            if not after:
                break
    return Scrubbed(**vars(counts))


def _portions(files: Files, path: bytes, counts: _Counts, rate: int) -> Iterator[list[Selected]]:
    most = min(BYTES_AT_ONCE, rate) if rate else BYTES_AT_ONCE
    portion: list[Selected] = []
    size = 0
    for each in files_at(files.connection, path, known_only=True):
        if portion and (size + each.attr.size > most or len(portion) >= FILES_AT_ONCE):
            yield portion
            portion, size = [], 0
        portion.append(each)
        size += each.attr.size
    if portion:
        yield portion


def _patiently(files: Files, request: q.Request[T]) -> T:
    for _ in range(AGAIN_MAX):
        [answer] = files.call_many([Call(request)])
        if not isinstance(answer, OSError):
            return answer
        if answer.errno != errno.ETIMEDOUT:
            raise answer
    raise OSError(errno.ETIMEDOUT, "a node that is to check its files does not answer")


def _tell(counts: _Counts, shown: int, said: Callable[[Bad], None]) -> int:
    for bad in counts.bad[shown:]:
        said(bad)
    return len(counts.bad)


def _pause(size: int, rate: int, begun: float) -> None:
    if rate:
        time.sleep(max(0.0, size / rate - (time.monotonic() - begun)))
