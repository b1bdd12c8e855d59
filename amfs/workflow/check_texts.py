"""Checks of every task, whatever its format: ids that are taken, text that cannot be written down, names that no file system takes. Pure.

A workflow that passes can be translated into any format and read back; so these checks apply to every list and document, also where nothing
is to run. For a list without faults they go over whole lists at the speed of C.
"""

from __future__ import annotations

import operator
import re
from itertools import chain

from amfs.errors import Fault
from amfs.workflow.check_parts import id_taken
from amfs.workflow.workflow import Task, Workflow, printable, shortened

#: Bytes that Linux allows between two slashes, and in a whole path.
NAME_BYTES_MAX = 255
PATH_BYTES_MAX = 4095

#: Bytes of a task's id, and of any one other text of a task.
ID_BYTES_MAX = 4096
TEXT_BYTES_MAX = 16 << 20

#: Words in one list of a task: its command, its inputs, its outputs.
LIST_MAX = 1 << 20

#: About so many faults are kept.
FAULTS_MAX = 1000

#: Tasks looked at together; bounds the memory of texts that are joined for a moment.
_PART = 4096

#: Surrogates that stand for no byte: halves of characters, as JSON may have them.
_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")

_WORDS = ("id", "stdin", "stdout", "stderr", "cwd", "label")
_LISTS = ("argv", "inputs", "outputs", "env", "keep", "scratch", "after")
_words_of = [operator.attrgetter(field) for field in _WORDS]
_lists_of = [operator.attrgetter(field) for field in _LISTS]
_ids_of = _words_of[0]
_names_of = _lists_of[1:3]


def whole_faults(workflow: Workflow) -> list[Fault]:
    """The faults of a workflow that has been read to its end."""
    return workflow_texts(workflow) + ids_taken(workflow)


def workflow_texts(workflow: Workflow) -> list[Fault]:
    """Texts and names that cannot be. A caller that goes on with such a workflow meets them again."""
    found: list[tuple[int, str]] = []
    for start in range(0, len(workflow.tasks), _PART):
        part = workflow.tasks[start : start + _PART]
        if len(found) < FAULTS_MAX and may_have_faults(part):
            found += [(task.line, words) for task in part for words in text_faults(task)]
    around = chain([workflow.name], workflow.files, workflow.sizes, workflow.paths, workflow.paths.values())
    found += [(0, f"{shortened(text)} {why}") for text in around if (why := _unwritable(text))]
    return [Fault(workflow.source or workflow.name, line, printable(words)) for line, words in found]


def ids_taken(workflow: Workflow) -> list[Fault]:
    """A fault for every task whose id an earlier one has."""
    tasks = workflow.tasks
    if len(set(map(_ids_of, tasks))) == len(tasks):
        return []
    found: list[Fault] = []
    first: dict[str, Task] = {}
    for task in tasks:
        other = first.setdefault(task.id, task)
        if other is not task and len(found) < FAULTS_MAX:
            found.append(Fault(workflow.source or workflow.name, task.line, printable(id_taken(task, other))))
    return found


def may_have_faults(part: list[Task]) -> bool:
    """Whether ``text_faults`` may find something in one of the tasks. May say yes in vain."""
    longest = NAME_BYTES_MAX
    for field in _words_of:
        text = "\n".join(map(field, part))
        if not text.isascii():
            longest = NAME_BYTES_MAX // 4
        if "\0" in text or _HALF.search(text) or (len(text) > longest and max(map(len, map(field, part))) > longest):
            return True
    for field in _lists_of:
        lists = list(map(field, part))
        text = "\n".join(chain.from_iterable(lists))
        if not text.isascii():
            longest = NAME_BYTES_MAX // 4
        if "\0" in text or _HALF.search(text) or (len(text) > longest and max(map(len, chain.from_iterable(lists))) > longest):
            return True
        if field in _names_of and "" in chain.from_iterable(lists):
            return True
        if len(text) >= LIST_MAX and max(map(len, lists)) > LIST_MAX:
            return True
    return False


def text_faults(task: Task) -> list[str]:
    """The faults of the texts of one task, in words."""
    who = f"task {shortened(task.id, quoted=False)}"
    words: list[str] = []
    if len(task.id) > ID_BYTES_MAX // 4 and len(task.id.encode("utf-8", "surrogatepass")) > ID_BYTES_MAX:
        words.append(f"{who}: its id has {len(task.id):,} characters; {ID_BYTES_MAX:,} bytes are enough")
    elif why := _unwritable(task.id):
        words.append(f"{who}: its id {why}")
    for field in _LISTS:
        count = len(getattr(task, field))
        if count > LIST_MAX:
            words.append(f"{who}: {count:,} entries in {_TITLES[field]} are more than {LIST_MAX:,}")
    if "" in task.inputs or "" in task.outputs:
        words.append(f"{who}: a file name is empty")
    for name in dict.fromkeys(chain((task.stdin, task.stdout, task.stderr), task.inputs, task.outputs)):
        if (why := _unwritable(name)) or (why := too_long(name)):
            words.append(f"{who}: file name {shortened(name)} {why}")
    for title, texts in (
        ("a word of its command", task.argv), ("an environment entry", task.env), ("its working directory", (task.cwd,)),
        ("its label", (task.label,)), ("an id after which it is to come", task.after),
    ):  # fmt: skip
        words += [f"{who}: {title} {why}" for text in texts if (why := _unwritable(text))]
    return words


_TITLES = {
    "argv": "its command", "inputs": "its inputs", "outputs": "its outputs", "env": "its environment", "keep": "what it keeps",
    "scratch": "its scratch files", "after": "what it is to come after",
}  # fmt: skip


def too_long(name: str) -> str:
    """Why no file system takes ``name``, in words; '' if one may."""
    if len(name) <= NAME_BYTES_MAX // 4:
        return ""
    path = name.encode("utf-8", "surrogateescape")
    if len(path) > PATH_BYTES_MAX:
        return f"has {len(path):,} bytes; no file system takes more than {PATH_BYTES_MAX:,}"
    longest = max(map(len, path.split(b"/")))
    if longest > NAME_BYTES_MAX:
        return f"has {longest:,} bytes between two slashes; no file system takes more than {NAME_BYTES_MAX}"
    return ""


def _unwritable(text: str) -> str:
    if "\0" in text:
        return "contains a NUL character"
    if not text.isascii() and _HALF.search(text):
        return "contains half a character (a lone surrogate)"
    if len(text) > TEXT_BYTES_MAX:
        return f"has {len(text) >> 20:,} MiB; {TEXT_BYTES_MAX >> 20} MiB are enough"
    return ""
