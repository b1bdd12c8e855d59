"""Makes the mounts that programs of a node's own use: blind tasks, and shells in the namespaces of its keeper. I/O, in a thread.

Owns the thread, since to mount may take long, and the keeper, which is started when a mount needs it and again when it has ended. Must not
know: how a mount is served, what the file system contains.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from amfs.errors import AmfsError
from amfs.host import fusemounts
from amfs.host.mount_ways import Way
from amfs.node.keeper import Keeper

log = logging.getLogger("amfs.fs")


class Made(NamedTuple):
    """A mount is there: serve ``descriptor``. ``keeper``: in whose namespaces; None: in those of the node."""

    job: int
    descriptor: int
    keeper: Keeper | None


class Settled(NamedTuple):
    """Programs may use the mount. ``device``: of one in the keeper's namespaces, where it is known."""

    job: int
    device: str


class Refused(NamedTuple):
    job: int
    why: str


class MountMaker:
    """``wake`` is called in the thread when there is something to ``take``."""

    def __init__(self, session: str, wake: Callable[[], None]) -> None:
        self._session = session
        self._wake = wake
        self._jobs: queue.SimpleQueue[tuple[int, str, bool] | None] = queue.SimpleQueue()
        self._done: deque[Made | Settled | Refused] = deque()
        self._thread: threading.Thread | None = None
        self._keeper: Keeper | None = None
        self._old: list[Keeper] = []  # have ended by themselves; mounts of theirs may still be in use
        self._last = 0
        self._stopping = False

    def order(self, path: str, *, within: bool) -> int:
        """Have a mount made at ``path``: the number of the job. ``within``: in the keeper's namespaces, and in no other way."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="amfs-mount", daemon=True)
            self._thread.start()
        self._last += 1
        self._jobs.put((self._last, path, within))
        return self._last

    def take(self) -> list[Made | Settled | Refused]:
        """Outcomes of jobs since the last call."""
        taken = []
        while self._done:
            taken.append(self._done.popleft())
        return taken

    def _tell(self, news: Made | Settled | Refused) -> None:
        self._done.append(news)
        self._wake()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._make(*job)

    def _make(self, number: int, path: str, within: bool) -> None:
        kept: list[Keeper] = []

        def in_namespaces() -> int:
            kept.append(self._ready_keeper())
            return kept[0].mount(path, f"amfs:{self._session}")

        way = Way.NAMESPACE
        try:
            os.makedirs(path, 0o700, exist_ok=True)
            if within:
                descriptor = in_namespaces()
            else:
                way, descriptor = fusemounts.mount(path, self._session, in_namespaces)
        except (AmfsError, OSError) as error:
            self._tell(Refused(number, error.strerror or str(error) if isinstance(error, OSError) else str(error)))
            return
        keeper = kept[0] if way is Way.NAMESPACE else None
        self._tell(Made(number, descriptor, keeper))
        device = ""
        if keeper is not None:
            try:
                device = keeper.settle()
            except OSError as error:
                log.warning("the mount at %s: its topmost directory cannot be looked at: %s", path, error.strerror)
        self._tell(Settled(number, device))

    def _ready_keeper(self) -> Keeper:
        if self._stopping:
            raise OSError(0, "the node ends")
        if self._keeper is None:
            self._keeper = Keeper()
        return self._keeper

    def forget(self, keeper: Keeper) -> None:
        """It has ended by itself: the next mount gets another one."""
        if self._keeper is keeper:
            self._keeper = None
        self._old.append(keeper)

    def stop(self) -> list[Made]:
        """End the thread. Returns mounts that nobody serves yet. Repeatable; ``close`` ends the keeper."""
        self._stopping = True
        if self._keeper is not None:
            self._keeper.interrupt()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
        return [news for news in self.take() if isinstance(news, Made)]

    def close(self) -> None:
        for keeper in (*self._old, *([self._keeper] if self._keeper is not None else [])):
            keeper.close()
        self._old.clear()
        self._keeper = None
