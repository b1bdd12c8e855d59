"""The account of one node's memory: files of runs and parts of ``amfs:/`` together have one limit. I/O.

The worker says what its files take, and hears what the parts take; both sides charge the budget in csrc/data/store/count.c. A file
of ``amfs:/`` that a task reads or makes has a name on either side. It counts once, as a part. The account decides nothing.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable

from amfs._native import Io

LOOK_EVERY_S = 1.0  # how often is looked which files have two names still; and parts are counted, for files come and go through other hands


class Account:
    """The bytes taken of ``--store-limit``."""

    def __init__(self, io: Io) -> None:
        self._io = io
        self._taken = 0  # by files of runs, as their worker says,
        self._spilled = 0  # and on the disk
        self._lock = threading.Lock()
        self._twice: dict[str, int] = {}  # paths of those of them that are parts as well -> bytes
        self._twice_bytes = 0
        self._looked_at = 0.0

    def linked(self, path: str) -> int:
        """The file of a run at ``path`` is a part as well; in any thread. Its size. Raises OSError."""
        facts = os.stat(path)
        size = min(facts.st_size, facts.st_blocks * 512)
        with self._lock:
            self._twice_bytes += size - self._twice.get(path, 0)
            self._twice[path] = size
        return facts.st_size

    def forget(self, paths: Iterable[str]) -> None:
        """The runs' names of these go."""
        if self._twice:
            with self._lock:
                self._twice_bytes -= sum(self._twice.pop(path, 0) for path in paths)

    def forget_below(self, top: str) -> None:
        self.forget([path for path in tuple(self._twice) if path.startswith(top)])

    def hold(self, taken: int, spilled: int) -> None:
        """Files of runs take so many bytes now, in memory and in the spill directory."""
        self._taken, self._spilled = taken, spilled
        self._charge()

    def others(self) -> int:
        """Bytes that parts take besides the files of runs."""
        now = time.monotonic()
        if now > self._looked_at + LOOK_EVERY_S:
            self._looked_at = now
            self._look()
            self._io.usage()
        return self._charge()

    def _charge(self) -> int:
        twice = self._twice_bytes
        return max(0, self._io.hold(max(0, self._taken - twice), self._spilled) - twice)

    def _look(self) -> None:
        """Those that the file system, or the worker, has deleted or spilled are single again."""
        self.forget([path for path in tuple(self._twice) if not self._is_twice(path)])

    @staticmethod
    def _is_twice(path: str) -> bool:
        try:
            return os.lstat(path).st_nlink > 1
        except FileNotFoundError:
            return False
