"""The common base of the readers of line formats. Pure: a reader takes text and keeps the tasks and faults that it found.

A reader never raises for faulty input: it notes a ``Fault`` and goes on with the next line, so that all faults are known in the end.
"""

from __future__ import annotations

from amfs.errors import Fault
from amfs.workflow.workflow import DeclaredState, Task, printable

#: Faults kept of one text; a hostile one must not fill the memory with its own faults.
FAULTS_MAX = 100

#: Characters of a faulty line whose words are remembered.
SUSPECT_MAX = 1 << 20

#: Strings remembered for sharing; beyond this the oldest half is forgotten, so that an endless list needs bounded memory.
_SHARED_LIMIT = 4_000_000


class Reader:
    """Base of the readers. ``text`` may be called any number of times, always with whole lines."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tasks: list[Task] = []
        self.files: dict[str, DeclaredState] = {}
        self.sizes: dict[str, int] = {}  # file -> bytes, where the source says
        self.paths: dict[str, str] = {}  # shared input -> where it really is: an absolute path, or a URL that is not file:
        self.name = ""  # of the workflow, if the source says
        self.faults: list[Fault] = []
        self.omitted = 0  # faults that are not kept
        self.suspects: set[str] = set()  # words on faulty lines: files that those lines may have been about
        self._strings: dict[str, str] = {}

    def text(self, text: str, first: int) -> None:
        """Read lines separated (not ended) by newlines, the first of which is number ``first``."""
        raise NotImplementedError

    def fault(self, number: int, message: str, line: str = "") -> None:
        if len(self.faults) >= FAULTS_MAX:
            self.omitted += 1
            return
        self.faults.append(Fault(self.source, number, printable(message)))
        if line and len(line) < SUSPECT_MAX:
            self.suspects.update(line.replace("'", " ").replace('"', " ").replace(",", " ").split())

    def all_faults(self) -> list[Fault]:
        """The faults, and how many more there were."""
        return self.faults + ([Fault(self.source, 0, f"{self.omitted} more faults are not shown")] if self.omitted else [])

    def share(self, word: str) -> str:
        """The first string equal to ``word``, as a plain ``str``: names appear in several tasks but are kept once."""
        known = self._strings.get(word)
        if known is None:
            known = self._strings[str(word)] = str(word)
        return known

    def bound(self) -> None:
        """Forget shared strings when there are too many; later equal ones are then kept once more."""
        if len(self._strings) > _SHARED_LIMIT:
            for word in list(self._strings)[: _SHARED_LIMIT // 2]:
                del self._strings[word]
