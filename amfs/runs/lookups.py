"""Looks for files in the session's file system, asked for by the submitter (``LookFor``), answered from a thread.

Owns the thread and its connection to the session. Must not know: tasks, why somebody looks.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from amfs.errors import AmfsError

if TYPE_CHECKING:
    from amfs.client.files import Files


class Lookups:
    """``answer(serial, names that are there)`` is called in the thread. A look that cannot be made finds nothing."""

    def __init__(self, session: str, answer: Callable[[int, list[str]], None]) -> None:
        self._session = session
        self._answer = answer
        self._asked: queue.SimpleQueue[tuple[int, Sequence[str]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._follow, name="lookups", daemon=True)
        self._thread.start()

    def ask(self, serial: int, names: Sequence[str]) -> None:
        """Returns at once."""
        self._asked.put((serial, names))

    def close(self) -> None:
        """Answer no more. Repeatable."""
        self._asked.put(None)

    def _follow(self) -> None:
        from amfs.client.files import Files

        files: Files | None = None
        while (one := self._asked.get()) is not None:
            serial, names = one
            try:
                files = files or Files(self._session)
                found = there(files, names)
            except (AmfsError, OSError):
                found = []
            self._answer(serial, found)
        if files is not None:
            files.close()


def there(files: Files, names: Sequence[str]) -> list[str]:
    """Those of the paths that are in the file system, and that no task is still writing."""
    infos = files.info_many(names)
    return [name for name, info in zip(names, infos, strict=True) if not isinstance(info, OSError) and not info.pending]
