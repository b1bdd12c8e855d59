"""Looks for files in the session's file system, asked for by the submitter (``LookFor``, ``FindLost``), answered from a thread.

Owns the thread and its connection to the session. Must not know: tasks, why somebody looks.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from amfs.errors import AmfsError
from amfs.vocabulary.attr import LOST
from amfs.vocabulary.paths import namespace_path
from amfs.workflow.origin import ATTRIBUTE, Origin, unpack

if TYPE_CHECKING:
    from amfs.client.files import Files


class Lookups:
    """``answer(serial, names that are there)`` is called in the thread. A look that cannot be made finds nothing."""

    def __init__(self, session: str, answer: Callable[[int, list[str]], None]) -> None:
        self._session = session
        self._answer = answer
        self._asked: queue.SimpleQueue[Callable[[Files | None], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._follow, name="lookups", daemon=True)
        self._thread.start()

    def ask(self, serial: int, names: Sequence[str]) -> None:
        """Returns at once."""

        def answer(files: Files | None) -> None:
            self._answer(serial, there(files, names) if files is not None else [])

        self._asked.put(answer)

    def find_lost(self, names: Sequence[str], run: str, answer: Callable[[list[str]], None]) -> None:
        """Returns at once. ``answer``, in the thread: those that a task of ``run`` made, and whose content was lost."""
        self._asked.put(lambda files: answer(lost(files, names, run) if files is not None else []))

    def close(self) -> None:
        """Answer no more. Repeatable."""
        self._asked.put(None)

    def _follow(self) -> None:
        from amfs.client.files import Files

        files: Files | None = None
        while (one := self._asked.get()) is not None:
            try:
                files = files or Files(self._session)
                one(files)
            except (AmfsError, OSError):
                one(None)
        if files is not None:
            files.close()


def there(files: Files, names: Sequence[str]) -> list[str]:
    """Those of the paths that are in the file system, and that no task is still writing."""
    infos = files.info_many(names)
    return [name for name, info in zip(names, infos, strict=True) if not isinstance(info, OSError) and not info.pending]


def lost(files: Files, names: Sequence[str], run: str) -> list[str]:
    """Those of the files of the session that a task of ``run`` made, and whose content was lost."""
    infos = files.info_many([namespace_path(name) for name in names])
    gone = [name for name, info in zip(names, infos, strict=True) if not isinstance(info, OSError) and info.finished == LOST]
    return [name for name in gone if (origin := origin_of(files, name)) is not None and origin.run == run]


def origin_of(files: Files, name: str) -> Origin | None:
    """Which task made a file of the session; None: that is not known."""
    try:
        return unpack(files.getxattr(namespace_path(name), ATTRIBUTE))
    except OSError:
        return None


class SessionSizes:
    """The sizes of files of a session. Called with a name: the size of what is there and whole, else -1."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._known: dict[str, int] = {}

    def ask(self, names: Sequence[str]) -> None:
        """Of many at a time; others are asked for one by one. Raises SessionError."""
        from amfs.client.files import Files

        if not names:
            return
        with Files(self._session or None) as files:
            infos = files.info_many([namespace_path(name) for name in names])
        for name, info in zip(names, infos, strict=True):
            self._known[name] = -1 if isinstance(info, OSError) or info.pending or info.finished == LOST else info.size

    def __call__(self, name: str) -> int:
        if name not in self._known:
            self.ask([name])
        return self._known[name]
