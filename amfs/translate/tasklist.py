"""AME's task list: ``ID -b BIN [-i IN …] [-o OUT …] [-a ARG …]``, one task a line. Reads and writes; knows no file system.

The rules are in docs/reference/task-lists.md. Lines without quotes in the usual order of options are read by a fast path;
``parse`` reads every line, and both agree (a test compares them).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from amfs.patterns import pattern
from amfs.translate.reader import Reader
from amfs.translate.shell_quoting import Malformed, Word, quote, split, trim
from amfs.workflow.workflow import DeclaredState, Task, Workflow, complete, value_faults

HEADER = ["taskid", "binary", "input", "output", "rule"]
PRAGMA = "#amfs "

_SIZE = pattern(r"(\d+(?:\.\d*)?|\.\d+)([KMGTP]?)(i?B)?", re.ASCII | re.IGNORECASE)
_DURATION = pattern(r"((?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)(ms|s|m|h|d)?", re.ASCII | re.IGNORECASE)
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_size(text: str) -> int:
    """Bytes in ``1024``, ``512MiB``, ``1.5G``: K M G T P and KiB … are powers of 1024, KB MB … of 1000. Raises ValueError."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"a size such as 512MiB or 2G, not {text!r}")
    number, prefix, unit = match.groups()
    step = 1000 if unit is not None and unit.upper() == "B" else 1024
    factor: int = step ** " KMGTP".index(prefix.upper() or " ")
    return int(number) * factor if number.isdigit() else round(float(number) * factor)


def parse_duration(text: str) -> float:
    """Seconds in ``90``, ``1.5m``, ``2h``, ``250ms``, ``1d``. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"a duration such as 90, 1.5m or 2h, not {text!r}")
    return float(match[1]) * _SECONDS[(match[2] or "").lower()]


def _whole(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
        raise ValueError(f"a whole number, not {text!r}")
    return int(text)


def _natural(text: str) -> int:
    if (number := _whole(text)) < 0:
        raise ValueError(f"a whole number from 0 on, not {text!r}")
    return number


class _Option(NamedTuple):
    field: str  # of Task
    convert: Callable[[str], Any] | None  # None: takes any number of words


_OPTIONS = {
    "-b": _Option("program", str),
    "-i": _Option("inputs", None),
    "-o": _Option("outputs", None),
    "-stdin": _Option("stdin", str),
    "-stdout": _Option("stdout", str),
    "-stderr": _Option("stderr", str),
    "-env": _Option("env", None),
    "-cwd": _Option("cwd", str),
    "-cores": _Option("cores", _whole),
    "-memory": _Option("memory", parse_size),
    "-time-limit": _Option("time_limit", parse_duration),
    "-retries": _Option("retries", _natural),
    "-priority": _Option("priority", _whole),
    "-label": _Option("label", str),
    "-node": _Option("node", _natural),
    "-node-soft": _Option("node", _natural),
    "-reduce": _Option("reduce", _whole),
    "-keep": _Option("keep", None),
    "-scratch": _Option("scratch", None),
    "-after": _Option("after", None),
    "-runtime": _Option("runtime", parse_duration),
}
_REST = ("-a", "--")
_FLAGS = {"-unstaged": ("staged", False), "-blind": ("blind", True)}
_LONG = {"-binary": "-b", "-program": "-b", "-input": "-i", "-inputs": "-i", "-output": "-o", "-outputs": "-o", "-args": "-a"}  # for hints
_NAMES = (*_OPTIONS, *_REST, *_FLAGS)


def parse(line: str, number: int = 0, share: Callable[[str], str] = str) -> Task:
    """The task on ``line``. Raises Malformed with everything that is wrong with the line."""
    words = split(line)
    task_id, options, faults = words[0], words[1:], []
    fields: dict[str, Any] = {}
    lists: dict[str, list[str]] = {}
    args: list[str] = []
    at, end = 0, len(options)
    while at < end:
        word = options[at]
        at += 1
        if _is_option(word) and word in _REST:
            args = options[at:]
            break
        if _is_option(word) and word in _FLAGS:
            field, value = _FLAGS[word]
            fields[field] = value
        elif not _is_option(word) or word not in _OPTIONS:
            faults.append(_stray(word, options[: at - 1]))
            while at < end and not _is_option(options[at]):  # they belong to it; one fault is enough
                at += 1
        elif (option := _OPTIONS[word]).convert is None:
            values = lists.setdefault(option.field, [])
            while at < end and not _is_option(options[at]):
                values.append(share(options[at]))
                at += 1
        elif at == end or (options[at] in _NAMES and not isinstance(options[at], Word)):
            faults.append(f"{word} needs a value")
        else:
            if option.field in fields:
                faults.append(f"{word} is given twice" if option.field != "node" else "more than one -node or -node-soft")
            try:
                fields[option.field] = option.convert(options[at])
            except ValueError as error:
                faults.append(f"{word} needs {error}")
            except OverflowError:
                faults.append(f"{word} is too large: {options[at]}")
            if word == "-node-soft":
                fields["node_soft"] = True
            at += 1
    program = fields.pop("program", None)
    if program is None and not any(fault.startswith("-b ") for fault in faults):
        faults.insert(0, "no program: a task is written ID -b PROGRAM [-i INPUT …] [-o OUTPUT …] [-a ARGUMENT …]")
    if task_id == "":
        faults.insert(0, "the task id is empty")
    if faults:
        raise Malformed("; ".join(faults))
    for field in ("stdin", "stdout", "stderr", "cwd", "label"):
        if field in fields:
            fields[field] = share(fields[field])
    fields |= {field: tuple(values) for field, values in lists.items()}
    return Task(str(task_id), tuple([share(word) for word in (program, *args)]), line=number, **fields)


def _is_option(word: str) -> bool:
    """Whether ``word`` claims to be an option: a quoted word never does."""
    return len(word) > 1 and word[0] == "-" and not isinstance(word, Word)


def _stray(word: str, before: list[str]) -> str:
    if not _is_option(word):
        where = f"after {before[-1]}" if before else "after the task id"
        return f"{word!r} {where} belongs to no option (arguments of the program follow -a)"
    near = _nearest(word)
    guess = f"; did you mean {near}?" if near else ""
    return f"unknown option {word}{guess} (quote it if it is a file name; arguments of the program follow -a)"


@functools.lru_cache(64)  # the lines of a list often have the same mistake
def _nearest(word: str) -> str:
    """The option that a word may have been meant for; '' if there is none."""
    import difflib  # only for faulty lists

    near = difflib.get_close_matches(f"-{word.lstrip('-')}", [*_NAMES, *_LONG], 1, 0.7)
    return _LONG.get(near[0], near[0]) if near else ""


class TaskListReader(Reader):
    """Reads task lists; also accepts the header line of the paper, comments and blank lines."""

    def text(self, text: str, first: int) -> None:
        clean = text.isascii() and not any(mark in text for mark in _SLOW_MARKS)
        self._lines(text.split("\n"), first, None if clean else _SLOW_LINE.search)
        self.bound()

    def _lines(self, lines: list[str], first: int, odd: Callable[[str], object] | None) -> None:
        share = self._strings.setdefault
        add = self.tasks.append
        number = first - 1
        for line in lines:
            number += 1
            if odd is not None and odd(line):
                self._line(line, number)
                continue
            # ID -b BIN -i … -o … -a …: cut off from the right what each option holds, then see that nothing else was there.
            head, _, args = line.partition(" -a ")
            left, output, outputs = head.partition(" -o ")
            left, input_, inputs = left.partition(" -i ")
            task_id, _, program = left.partition(" -b ")
            if task_id and program and left.count(" ") == 2 and head.count(" -") == 1 + (input_ != "") + (output != ""):
                words = args.split()
                reads, writes = inputs.split(), outputs.split()
                add(
                    Task(
                        task_id,
                        (share(program, program), *map(share, words, words)),
                        tuple(map(share, reads, reads)),
                        tuple(map(share, writes, writes)),
                        line=number,
                    )
                )
            else:
                self._line(line, number)

    def _line(self, line: str, number: int) -> None:
        bare = trim(line)
        if not bare:
            return
        if bare[0] == "#":
            if bare.startswith(PRAGMA):
                self._pragma(bare, number)
            return
        try:
            self.tasks.append(parse(bare, number, self.share))
        except Malformed as error:
            if bare.lower().split() != HEADER:
                self.fault(number, str(error), line)

    def _pragma(self, line: str, number: int) -> None:
        """Facts that a task list has in comments: ``#amfs workflow NAME``, ``#amfs file NAME STATE``, ``#amfs size NAME BYTES``
        and ``#amfs path NAME PATH``."""
        try:
            words = split(line)[1:]
        except Malformed as error:
            self.fault(number, str(error))
            return
        if len(words) == 2 and words[0] == "workflow":
            self.name = str(words[1])
        elif len(words) == 3 and words[0] == "file" and (state := parse_state(words[2])) is not None:
            self.files[self.share(words[1])] = state
        elif len(words) == 3 and words[0] == "size" and re.fullmatch(r"\d{1,18}", words[2], re.ASCII):
            self.sizes[self.share(words[1])] = int(words[2])
        elif len(words) == 3 and words[0] == "path" and words[2]:
            self.paths[self.share(words[1])] = str(words[2])
        else:
            known = "'#amfs workflow NAME', '#amfs file NAME Shared|Invalid', '#amfs size NAME BYTES' or '#amfs path NAME PATH'"
            self.fault(number, f"a comment that starts with #amfs must be {known}")


#: The fast path cannot read these: quotes, other blanks than the space (``str.split`` would split at them), comments, other alphabets.
_SLOW_MARKS = "'\"\\\t\r\v\f\x1c\x1d\x1e\x1f#"
_SLOW_LINE = pattern("['\"\\\\\\t\\r\\v\\f\\x1c-\\x1f#]|[^\\0-\\x7f]")


#: A list is known by its first lines if they begin with ids like these; a list with others says that it is one.
_PLAIN_ID = pattern(r"[\w-][\w.-]*", re.ASCII)
_PLAIN_IDS = 100


def parse_state(word: str) -> DeclaredState | None:
    """Shared or Invalid, in any case; None for anything else."""
    return {"shared": DeclaredState.SHARED, "invalid": DeclaredState.INVALID}.get(word.lower())


def format_task(task: Task) -> str:
    """One line that ``parse`` reads back as an equal task (but for its line number).

    Raises ValueError for a task that no line can hold: a NUL character in a word, or values that no task may have.
    """

    def values(option: str, words: tuple[str, ...]) -> list[str]:
        return [option, *[quote(word, option_like=True) for word in words]] if words else []

    def value(option: str, word: str) -> list[str]:
        return [option, quote(word, option_like=True)] if word else []

    if faults := value_faults(complete(task)):
        raise ValueError("; ".join(faults))
    parts = [quote(task.id), "-b", quote(task.argv[0], option_like=True)]
    parts += values("-i", task.inputs)
    parts += values("-o", task.outputs)
    parts += value("-stdin", task.stdin)
    parts += value("-stdout", task.stdout)
    parts += value("-stderr", task.stderr)
    parts += values("-env", task.env)
    parts += value("-cwd", task.cwd)
    parts += ["-cores", str(task.cores)] if task.cores != 1 else []
    parts += ["-memory", str(task.memory)] if task.memory else []
    parts += ["-time-limit", f"{task.time_limit!r}".removesuffix(".0")] if task.time_limit else []
    parts += ["-retries", str(task.retries)] if task.retries != -1 else []
    parts += ["-priority", str(task.priority)] if task.priority else []
    parts += value("-label", task.label)
    parts += ["-node-soft" if task.node_soft else "-node", str(task.node)] if task.node != -1 else []
    parts += ["-reduce", str(task.reduce)] if task.reduce else []
    parts += values("-keep", task.keep)
    parts += values("-scratch", task.scratch)
    parts += values("-after", task.after)
    parts += ["-runtime", f"{task.runtime!r}".removesuffix(".0")] if task.runtime is not None else []
    parts += [] if task.staged else ["-unstaged"]
    parts += ["-blind"] if task.blind else []
    parts += ["-a", *map(quote, task.argv[1:])] if len(task.argv) > 1 else []
    return " ".join(parts)


def write(workflow: Workflow) -> Iterator[str]:
    """The lines of a task list, without newlines. Facts that AME's format cannot say stand in comments that the reader knows.

    Raises ValueError naming the task if a word contains a NUL character.
    """
    if workflow.name != Workflow([]).name or not all(_PLAIN_ID.fullmatch(task.id) for task in workflow.tasks[:_PLAIN_IDS]):
        yield f"{PRAGMA}workflow {quote(workflow.name)}"
    for name, state in workflow.files.items():
        yield f"{PRAGMA}file {quote(name)} {state.value}"
    for name, size in workflow.sizes.items():
        yield f"{PRAGMA}size {quote(name)} {size}"
    for name, path in workflow.paths.items():
        yield f"{PRAGMA}path {quote(name)} {quote(path)}"
    for task in workflow.tasks:
        try:
            yield format_task(task)
        except ValueError as error:
            raise ValueError(f"task {task.id}: {error}") from None
