"""In a notebook, an interrupt of the kernel ends the work that was started from it: calls of executors, tasks of open sessions.

IPython raises KeyboardInterrupt in the cell, wherever that waits; afterwards objects registered here are told. Elsewhere nothing happens.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any, Protocol

from amfs.display.front_end import in_notebook, shell


class Interruptible(Protocol):
    def interrupt(self) -> None:
        """End the tasks that run or wait."""


ENDED = "amfs: interrupted: the tasks and calls that went on were ended; the cluster can be used again"

_started: weakref.WeakSet[Interruptible] = weakref.WeakSet()
_said: list[bool] = []  # something, if it was said in this cell
_registered: list[Any] = []  # the shell that tells us


def watch(work: Interruptible) -> None:
    """Have it interrupted with the kernel, as long as it lives."""
    here = shell()
    if here is None:
        return
    _started.add(work)
    _register(here)


def _after_cell(result: Any) -> None:
    if isinstance(result.error_in_exec, KeyboardInterrupt):
        works = list(_started)
        for work in works:
            work.interrupt()
        if works:
            say()
    _said.clear()


def say() -> None:
    """Say in a notebook, once for a cell, that its work was ended."""
    here = shell()
    if here is None or not in_notebook() or _said:
        return
    _said.append(True)
    print(ENDED, file=sys.stderr)
    _register(here)


def _register(here: Any) -> None:
    if here not in _registered:
        _registered.append(here)
        here.events.register("post_run_cell", _after_cell)
