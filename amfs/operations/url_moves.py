"""Files between the nodes of a session and storage at URLs, by all nodes at the same time.

Owns which node does which files, and what becomes of those of a node that dies. Each node moves its own between its store and the storage;
no content passes through this process. Must not know: why.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from amfs.client.connection import Call
from amfs.client.files import Files
from amfs.client.verifying import LATE_MAX
from amfs.engine.spreading import Job, distribute
from amfs.remote.opening import Storages
from amfs.remote.place import Kind
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.url_moves import GONE, NUMBER, Secret, UrlEnd, UrlFile

PASSES = 3  # over what nodes that died had to do
_AHEAD = 256  # files that a node knows at a time
_PAUSE_S = 1.0  # after which the place of a node that died is mostly taken
#: Errors that a node gets while the place of another is taken. (A rename that is done again there finds nothing: ENOENT.)
_BROKEN = (errno.EIO, errno.EHOSTDOWN, errno.ETIMEDOUT, errno.ESTALE, errno.ENOENT)

Ended = Callable[[int, UrlEnd], None]  # the node, and the outcome of a file


class Portion(NamedTuple):
    """A file, how many bytes it has, and the nodes that have it."""

    file: UrlFile
    size: int
    near: tuple[int, ...] = ()


class UrlMover:
    """One move. ``ended`` is called for each file, by one thread at a time; ``moved`` likewise, with bytes."""

    def __init__(
        self, files: Files, what: int, storages: Storages, sources: Sequence[str], ended: Ended, moved: Callable[[int], None]
    ) -> None:
        """Raises UsageError."""
        self._files = files
        self._what = what
        self._storages = storages
        self._secret = Secret(storages.packed(), tuple(sources))
        self._denied: dict[int, tuple[int, UrlEnd]] = {}  # by the keys that the nodes have; others may have taken their place
        self.name = os.urandom(8).hex()
        self._ended = ended
        self._moved = moved
        self._lock = threading.Lock()
        self._stopped = False
        self._gone: set[int] = set()  # sources that are not reached any more
        self.died = False  # has a node?

    def run(self, portions: Iterable[Portion]) -> list[UrlFile]:
        """Move all of them; returns those that could not be because nodes died. Raises OSError."""
        left = {portion.file.number: portion for portion in portions}
        later = PASSES - 1
        while left:
            undone = self._pass(left, later)
            self.died = self.died or bool(undone)
            renewed = self._renewed()
            left = {number: left[number] for number in [*undone, *renewed]}
            if not renewed:
                if not later:
                    break
                later -= 1
                if left:
                    time.sleep(_PAUSE_S)
        return [portion.file for portion in left.values()]

    def _pass(self, left: Mapping[int, Portion], later: int) -> list[int]:
        """All of these once; returns those that were not done because nodes died."""
        nodes = [int(usage[0]) for usage in self._files.connection.call(q.Df(), about=(self._files.session,))]
        plan = distribute([Job(number, portion.size, portion.near) for number, portion in left.items()], nodes)
        if not plan:
            return list(left)
        try:
            with ThreadPoolExecutor(len(plan), "amfs-urls") as threads:
                shares = [threads.submit(self._share, node, [job.number for job in jobs], left, later) for node, jobs in plan.items()]
                try:
                    return [number for share in shares for number in share.result()]
                except BaseException:
                    self._stopped = True  # and the threads leave when their nodes answer
                    raise
        finally:
            self._files.call_many([Call(self._call(node, (), 0, over=True)) for node in plan])

    def _renewed(self) -> list[int]:
        """The files that were denied by keys which have been renewed since then, in their files. The others are told."""
        denied, self._denied = self._denied, {}
        packed = self._storages.packed() if denied else self._secret.packed
        if packed != self._secret.packed:
            self._secret = Secret(packed, self._secret.sources)
            return list(denied)
        for node, end in denied.values():
            self._ended(node, end)
        return []

    def _call(self, node: int, files: Sequence[UrlFile], heard: int, *, over: bool = False) -> q.MoveUrls:
        return q.MoveUrls(node, self.name, self._what, self._secret, tuple(files), heard, over)

    def _share(self, node: int, numbers: Sequence[int], portions: Mapping[int, Portion], later: int) -> list[int]:
        """Have one node do these; returns those that it could not because it, or another, has died. ``later``: passes that are left."""
        waiting, out, given, again = deque(numbers), set[int](), list[UrlFile](), list[int]()
        heard = moved = late = 0
        while (waiting or out) and not self._stopped:
            while waiting and len(out) < _AHEAD:
                file = portions[waiting.popleft()].file
                if file.source not in self._gone:
                    out.add(file.number)
                    given.append(file)
            if not out:
                break
            try:
                answer = self._files.connection.call(self._call(node, given, heard))
            except OSError as error:
                if error.errno == errno.EHOSTDOWN:
                    return [*again, *out, *waiting]
                if error.errno != errno.ETIMEDOUT or late >= LATE_MAX:
                    raise
                late += 1
                continue  # with the same: it does not begin files again that it was given before
            late, given = 0, []
            if not answer.known:
                heard, given = 0, [portions[number].file for number in out]
                continue
            heard += len(answer.ends)
            with self._lock:
                self._moved(max(0, answer.moved - moved))
                moved = answer.moved
                for end in answer.ends:
                    if end.number in out:
                        out.discard(end.number)
                        if later and end.kind == NUMBER and end.error in _BROKEN:
                            again.append(end.number)
                        else:
                            self._take(node, portions[end.number].file, end)
        return again

    def _take(self, node: int, file: UrlFile, end: UrlEnd) -> None:
        """A storage that is gone is told once."""
        if end.kind == Kind.DENIED.name:
            self._denied[end.number] = node, end
        elif end.kind != GONE:
            self._ended(node, end)
        elif file.source not in self._gone:
            self._gone.add(file.source)
            self._ended(node, end)
