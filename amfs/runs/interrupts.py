"""In a notebook, an interrupt of the kernel ends the work that was started from it: calls of executors, tasks of open sessions.

IPython raises KeyboardInterrupt in the cell, wherever that waits; afterwards what is registered here is told. Elsewhere nothing happens.
"""

from __future__ import annotations

import weakref
from typing import Any, Protocol

from amfs.display.front_end import shell


class Interruptible(Protocol):
    def interrupt(self) -> None:
        """End what runs and what waits."""


_started: weakref.WeakSet[Interruptible] = weakref.WeakSet()
_registered: list[Any] = []  # the shell that tells us


def watch(work: Interruptible) -> None:
    """Have it interrupted with the kernel, as long as it lives."""
    here = shell()
    if here is None:
        return
    _started.add(work)
    if here not in _registered:
        _registered.append(here)
        here.events.register("post_run_cell", _after_cell)


def _after_cell(result: Any) -> None:
    if isinstance(result.error_in_exec, KeyboardInterrupt):
        for work in list(_started):
            work.interrupt()
