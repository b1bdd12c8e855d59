"""Works that threads have ended, for the poll loop: a queue with a descriptor that can be read while something is in it. I/O.

Owns the descriptor. Must not know: the kinds of works that end.
"""

from __future__ import annotations

import os
import threading
from typing import Generic, TypeVar

T = TypeVar("T")


class Ends(Generic[T]):
    """``put`` may be called in any thread, the others in the loop's."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ends: list[T] = []
        self._told = False  # the descriptor can be read
        self._lock = threading.Lock()  # else the loop could take an end before its thread has written, and be woken for nothing ever after

    def put(self, end: T) -> None:
        with self._lock:
            self._ends.append(end)
            if not self._told:  # one write for all that end in one turn of the loop
                os.eventfd_write(self.fd, 1)
                self._told = True

    def take(self) -> list[T]:
        """All since the last call. Never blocks."""
        if not self._told:
            return []
        with self._lock:
            os.eventfd_read(self.fd)
            self._told = False
            ends, self._ends = self._ends, []
            return ends

    def close(self) -> None:
        os.close(self.fd)
