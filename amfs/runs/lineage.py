"""How a file came to be, as the journal and the task list of a run tell it: the task that made it, its inputs, its readers.

Owns the search in list and journal. Must not know: sessions, how a story is printed.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from amfs.errors import AmfsError
from amfs.runs.journal import default_path, read
from amfs.workflow.derivation import Keys
from amfs.workflow.workflow import Task, canonical, complete


class RunOf:
    """The last run of a list. ``why``: why it cannot be known, in words; then there are no tasks."""

    def __init__(
        self, file: str, base: str, journal: str, tasks: Sequence[Task] = (), done: frozenset[int] = frozenset(), why: str = ""
    ) -> None:
        self.file = file
        self.base = base
        self.journal = journal
        self.tasks = tasks
        self.done = done  # keys of tasks
        self.why = why
        self._key = Keys(tasks)

    def maker(self, name: str) -> Task | None:
        """The task that makes a file."""
        wanted = canonical(name, self.base)
        return next((task for task in self.tasks if any(canonical(each, self.base) == wanted for each in task.outputs)), None)

    def readers(self, name: str) -> list[Task]:
        """The tasks that read a file."""
        wanted = canonical(name, self.base)
        return [task for task in self.tasks if any(canonical(each, self.base) == wanted for each in task.inputs)]

    def named(self, task_id: str) -> Task | None:
        return next((task for task in self.tasks if task.id == task_id), None)

    def has_finished(self, task: Task) -> bool:
        return self._key(self.tasks.index(task)) in self.done

    def again(self, session: str) -> str:
        """The command that makes again what is lost; '' if there is none."""
        if not (self.file and self.journal):
            return ""
        words = ["amfs", "run", "--resume", *(["--session", session] if session else [])]
        if self.base != os.getcwd():
            words += ["-C", self.base]
        if self.journal != str(default_path(self.file, self.base)):
            words += ["--journal", self.journal]
        return shlex.join([*words, self.file])


def of_list(file: str, base: str, journal: Path | None) -> RunOf:
    """The last run of a list. Raises AmfsError if the list cannot be read."""
    from amfs.translate.detect import load

    kept = journal or default_path(file, base)
    past = read(kept)
    done = frozenset(past.done) if past is not None else frozenset[int]()
    return RunOf(os.path.abspath(file), base, str(kept) if past is not None else "", [complete(each) for each in load(file).tasks], done)


def of_journal(journal: str) -> RunOf:
    """The run that kept a journal."""
    try:
        past = read(Path(journal))
        if past is None:
            return RunOf("", "", journal, why=f"its journal {journal} is not there any more")
        file, base = past.header.file, past.header.base
        if not file:
            return RunOf("", base, journal, why=f"its tasks did not come from a file ({past.header.source or 'but from a program'})")
        found = of_list(file, base, Path(journal))
    except AmfsError as error:
        return RunOf("", "", journal, why=str(error))
    return found
