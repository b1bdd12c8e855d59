"""AME's file list: ``ID NAME STATE``, one file a line, Shared or Invalid. Reads and writes; knows no file system."""

from __future__ import annotations

from collections.abc import Iterator

from amfs.translate.reader import Reader
from amfs.translate.shell_quoting import lines_of_words, quote
from amfs.translate.tasklist import parse_state
from amfs.workflow.workflow import DeclaredState, Workflow, complete

HEADER = ["fileid", "filename", "state"]


class FileListReader(Reader):
    """Reads file lists into ``files``."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._ids: dict[str, int] = {}
        self._lines: dict[str, int] = {}

    def text(self, text: str, first: int) -> None:
        for number, line, words in lines_of_words(text, first, self.fault):
            if [word.lower() for word in words] != HEADER:
                self._file(words, number, line)

    def _file(self, words: list[str], number: int, line: str) -> None:
        if len(words) != 3:
            self.fault(number, f"a file is written ID NAME STATE: 3 words, not {len(words)}", line)
            return
        file_id, name, state_word = words
        state = parse_state(state_word)
        if state is None:
            self.fault(number, f"the state of file {name!r} must be Shared or Invalid, not {state_word!r}", line)
        elif not name:
            self.fault(number, "the file name is empty")
        elif file_id in self._ids:
            self.fault(number, f"file id {file_id!r} is already taken (line {self._ids[file_id]})", line)
        elif name in self.files:
            self.fault(number, f"file {name!r} is already listed (line {self._lines[name]})", line)
        else:
            name = self.share(name)
            self.files[name] = state
            self._ids[file_id] = self._lines[name] = number


def states(workflow: Workflow) -> dict[str, DeclaredState]:
    """The state of every file of the workflow: as its file list says; else Invalid if a task makes it and Shared if not.

    Files first named as inputs of the workflow come first, as in the paper.
    """
    tasks = [complete(task) for task in workflow.tasks]
    made = {name for task in tasks for name in task.outputs}
    found = {name: DeclaredState.SHARED for task in tasks for name in task.inputs if name not in made}
    found |= {name: DeclaredState.INVALID for task in tasks for name in task.outputs}
    return workflow.files | {name: state for name, state in found.items() if name not in workflow.files}


def write(files: dict[str, DeclaredState], *, header: bool = True) -> Iterator[str]:
    """The lines of a file list, without newlines. Raises ValueError if a name contains a NUL character."""
    if header:
        yield "FileID Filename State"
    for number, (name, state) in enumerate(files.items()):
        yield f"{number} {quote(name)} {state.value}"
