"""Parts that the checks of whole workflows and of growing lists share: texts of faults, checks of single names. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import Protocol

import msgspec

from amfs.errors import UsageError
from amfs.vocabulary.object_versions import ObjectVersion
from amfs.vocabulary.paths import destination_at_url, url_of
from amfs.workflow.workflow import UNCANONICAL, Task, canonical, value_faults


class UnusableInputs(UsageError):
    """Nobody can tell whether some inputs exist. ``reasons``: of each of these in words, or "": that of another. ``missing``: these inputs,
    and those that do not exist."""

    def __init__(self, reasons: Mapping[str, str], missing: set[str]) -> None:
        name, words = next(one for one in reasons.items() if one[1])
        super().__init__(f"{url_of(name) or name}: {words}")
        self.reasons = reasons
        self.missing = missing


class Place(Protocol):
    """The world outside, as far as the checks need it. Names are canonical: relative to ``base``, or absolute."""

    @property
    def base(self) -> str:
        """Absolute directory in which the user stands."""

    def missing(self, names: Iterable[str]) -> set[str]:
        """Those of ``names`` that are not there. Raises UnusableInputs."""

    def versions(self, urls: Iterable[str]) -> dict[str, ObjectVersion]:
        """The versions that ``missing`` saw of those of ``urls`` that it found there. Nobody is asked again."""

    def real(self, directory: str) -> str:
        """The absolute path of a directory without links on its way; a path that does not exist stays as it is."""

    def unwritable(self, directory: str) -> str:
        """Why no file can be put into ``directory`` (which is made if need be), in words; '' if one can."""

    def find_program(self, name: str, *, here: bool) -> tuple[str, str]:
        """(absolute path, '') or ('', why not in words). ``here``: a bare name is looked up in ``base`` before PATH."""


def cycle_in_words(ids: Sequence[str]) -> str:
    """A cycle as a path of tasks that ends where it began; the middle of a very long one is left out."""
    names = [*ids, ids[0]]
    if len(names) > 20:
        names[12:-6] = [f"... ({len(names) - 18} more)"]
    return f"cycle of tasks, each waiting for the one before it: {' -> '.join(names)}"


def on_line(task: Task) -> str:
    return f" (line {task.line})" if task.line else ""


def id_taken(task: Task, other: Task) -> str:
    return f"task id {task.id!r} is already taken{on_line(other)}"


def written_twice(task: Task, name: str, other: Task) -> str:
    return f"task {task.id}: output {name!r} is already written by task {other.id}{on_line(other)}"


def reads_own(task: Task, name: str) -> str:
    return f"task {task.id}: reads {name!r}, which it writes itself"


def where(name: str, base: str) -> str:
    return "" if name.startswith("/") or url_of(name) else f" in {base}"


def task_faults(task: Task, place: Place) -> list[str]:
    words = [f"task {task.id}: {text}" if task.id else text for text in value_faults(task)]
    if task.cwd and not task.staged and place.missing([canonical(task.cwd, place.base)]):
        words.append(f"task {task.id}: working directory {task.cwd!r} does not exist")
    return words


def in_its_mount(task: Task) -> bool:
    """Whether the program of a task is named by a path that counts where a blind task runs, on its node: nobody else can look."""
    return task.blind and "/" in task.argv[0]


def may_be_odd(text: str, names_of: Callable[[Task], tuple[str, ...]], part: Sequence[Task]) -> bool:
    """Whether any of the names that ``text`` joins with newlines may be empty, absolute or not canonical. May say yes in vain."""
    if not text:
        return any(map(names_of, part))  # no names at all, or a single empty one
    text = f"\n{text}\n"
    marks = ("\n/", "//", "/.", "/\n", "\n.", "\n\n") if "/" in text else ("\n.", "\n\n")
    return any(mark in text for mark in marks)


def name_faults(
    task: Task, strays: Callable[[str, str], str], base: str, aliases: dict[str, str], absolutes: set[str], places: Mapping[str, str]
) -> list[str]:
    """Fill in ``aliases`` and ``absolutes`` from the names of one task; their faults, in words. ``strays``: why a name with ".."
    is not its canonical one; ``places``: those that people gave to files."""
    words = []
    for name in chain(task.inputs, task.outputs):
        if UNCANONICAL.search(name):
            true_name = canonical(name, base)
            if true_name != name:
                aliases[name] = true_name
            if true_name[0] == "/":
                absolutes.add(true_name)
            above = name[:1] != "/" and (true_name == "." or f"{base}/".startswith(f"{true_name.rstrip('/')}/"))
            if above and task.staged and not task.blind and name in task.inputs:
                words.append(f"task {task.id}: input {name!r} is the directory of the run, or one above it; name what the task reads in it")
            elif ".." in name and (stray := strays(name, true_name)):
                words.append(f"task {task.id}: {stray}")
        elif name[:1] == "/":
            absolutes.add(name)
    for name in task.outputs:
        if name.endswith("/") and destination_at_url(aliases.get(name, name), places):
            continue  # of a directory at a URL amfs knows all files
        if name.endswith(("/", "/.", "/..")) or name in (".", ".."):
            words.append(f"task {task.id}: output {name!r} names a directory; name the files in it")
    return words


def each_file_once(task: Task, aliases: Mapping[str, str]) -> Task:
    """The task without second spellings of files that it has already named."""
    inputs, outputs = ({aliases.get(name, name): name for name in reversed(names)} for names in (task.inputs, task.outputs))
    if len(inputs) == len(task.inputs) and len(outputs) == len(task.outputs):
        return task
    return msgspec.structs.replace(task, inputs=tuple(reversed(inputs.values())), outputs=tuple(reversed(outputs.values())))


def directory_of(name: str) -> str:
    """The directory of a canonical name; '' is the base directory."""
    head, slash, _ = name.rpartition("/")
    return head or slash


def with_parents(directories: set[str]) -> set[str]:
    found = set()
    for directory in directories:
        while directory and directory != "/" and directory not in found:
            found.add(directory)
            directory = directory.rpartition("/")[0]
    return found


def known_directories(made: Container[str], tasks: Iterable[Task], aliases: Mapping[str, str]) -> set[str]:
    """Those of the outputs ``made`` that must be directories: some task names them together with what lies in them."""
    found: set[str] = set()
    for task in tasks:
        names = {aliases.get(name, name) for name in chain(task.inputs, task.outputs)}
        found.update(above for above in with_parents(set(map(directory_of, names))) if above in made and above in names)
    return found


class Suggestions:
    """Outputs whose names look like a missing input's. Bounded: a million missing files must not cost a million comparisons each."""

    MAX_ASKED = 20
    MAX_NAMES = 20_000

    def __init__(self, writers: Mapping[str, int]) -> None:
        self._writers = writers
        self._asked = 0
        self._plain: dict[str, str] = {}

    def near(self, name: str) -> str:
        self._asked += 1
        if self._asked > self.MAX_ASKED:
            return ""
        if not self._plain:
            self._plain = {made.rpartition("/")[2].casefold(): made for made in self._writers}
        guess = self._plain.get(name.rpartition("/")[2].casefold())
        if guess is None and len(self._writers) <= self.MAX_NAMES:
            import difflib  # only for faulty workflows

            guess = next(iter(difflib.get_close_matches(name, self._writers, 1, 0.8)), None)
        return f"; did you mean the output {guess!r}?" if guess else ""
