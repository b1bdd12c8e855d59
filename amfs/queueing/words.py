"""The words of ``AMFS_queue``: its options and the command, and the Task that is meant. Pure.

``csrc/programs/queue.c`` looks whether words are well-formed by the same grammar; this module alone knows what they mean. Must not know:
the spool, sessions, who runs the task.
"""

from __future__ import annotations

import os
import posixpath
import shlex
import shutil
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from amfs.errors import UsageError
from amfs.queueing.spool import Record
from amfs.vocabulary.paths import NAMESPACE, in_namespace, namespace_path
from amfs.workflow.workflow import Task

USAGE = "usage: AMFS_queue [-C DIR] [--data-arg N] [--even] [--to DIR] [--] PROGRAM [ARGUMENT]... [-if FILE...] [-of FILE...]"
_WITH_VALUE = {"-C": "directory", "--directory": "directory", "--to": "to", "--data-arg": "data_arg"}


class Words(NamedTuple):
    """The words, understood. ``data_arg``: the number of the argument whose node is wished, 0: none."""

    argv: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    declared: bool = False  # -if or -of was given: it is no blind task
    directory: str = ""
    data_arg: int = 1
    to: str = ""


def parse(words: tuple[str, ...]) -> Words:
    """Raises UsageError."""
    given: dict[str, str] = {}
    at, plain = 0, False
    while at < len(words) and words[at].startswith("-") and not plain:
        option = words[at]
        if option == "--":
            plain = True
        elif option == "--even":
            given["data_arg"] = "0"
        elif option in _WITH_VALUE:
            at += 1
            if at >= len(words):
                raise UsageError("an option is without its value")
            if option == "--data-arg" and not (words[at].isascii() and words[at].isdigit() and 0 < int(words[at]) < 10**9):
                raise UsageError("--data-arg takes the number of an argument, from 1 on")
            given[_WITH_VALUE[option]] = words[at]
        else:
            raise UsageError(f"no such option; {USAGE}")
        at += 1
    rest = words[at:]
    if not rest or not rest[0]:
        raise UsageError("no program to run")
    argv, named = _split(rest, plain)
    return Words(
        argv, named.get("-if", ()), named.get("-of", ()), bool(named), given.get("directory", ""), int(given.get("data_arg", "1")),
        given.get("to", ""),
    )  # fmt: skip


def _split(words: tuple[str, ...], plain: bool) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """The command, and the files named after -if and -of at its end."""
    named: dict[str, tuple[str, ...]] = {}
    marks = [] if plain else [at for at, word in enumerate(words) if at and word in ("-if", "-of")]
    for at, end in zip(marks, [*marks[1:], len(words)], strict=False):
        if at + 1 == end:
            raise UsageError("-if and -of take names of files (after -- they are words of the program)")
        named[words[at]] = named.get(words[at], ()) + words[at + 1 : end]
    return words[: marks[0]] if marks else words, named


def check(record: Record) -> None:
    """Raise UsageError for faults of a record on any node: its words, its directory."""
    _directory(parse(record.words), record)


class Queued(NamedTuple):
    """A task of the queue. ``about``: the file whose node is wished, as a path in the session's file system; "" if none is."""

    task: Task
    about: str = ""


def task_of(number: int, record: Record, environment: Mapping[str, str] | None, common: Mapping[str, str]) -> Queued:
    """The task that a record means; ``number`` names it. ``common``: the part of the environment that the run gives to all its tasks.

    Raises UsageError saying what is wrong.
    """
    words = parse(record.words)
    if environment is None:
        raise UsageError(f"its environment {record.env} is not in the spool")
    where = _directory(words, record)
    argv = tuple([_relative(word, record.mount, where) for word in words.argv])
    env = tuple(f"{name}={value}" for name, value in environment.items() if common.get(name) != value)
    task = Task(str(number), argv, env=env, cwd=where, label=posixpath.basename(argv[0]), line=number)
    about = _file_at(argv[words.data_arg], where) if 0 < words.data_arg < len(argv) else ""
    program, inside = _program(argv[0], environment)
    if not words.declared and not words.to:
        return Queued(msgspec.structs.replace(task, argv=(program, *argv[1:]), blind=True), about)
    if words.to and not words.outputs:
        raise UsageError("--to says where outputs go; name them with -of")
    if any(name.endswith("/") for name in words.outputs):
        raise UsageError("-of names files, not directories")
    inputs = [_name(name, record.mount, where) for name in words.inputs]
    outputs = [_name(name, record.mount, where) for name in words.outputs]
    command = (program, *argv[1:])
    if inside:  # it is linked into the sandbox like every input, and a shell finds it there
        inputs.append(NAMESPACE[:-1] + _clean(f"{where}/{program}"))
        command = ("/bin/sh", "-c", 'exec "$0" "$@"', *command)
    if words.to:
        command = ("/bin/sh", "-c", _and_move([posixpath.relpath(name, f"amfs:{where}") for name in outputs], words.to), "amfs", *command)
        outputs = []
    task = msgspec.structs.replace(
        task, argv=command, inputs=tuple(dict.fromkeys(inputs)), outputs=tuple(dict.fromkeys(outputs)), cwd=f"amfs:{where}".rstrip("/")
    )
    return Queued(task)


def _program(name: str, environment: Mapping[str, str]) -> tuple[str, bool]:
    """The program to run, and whether it is a file of the session. Raises UsageError."""
    if "/" in name:
        return name, not name.startswith("/")
    found = shutil.which(name, path=environment.get("PATH", os.defpath))
    if not found:
        raise UsageError(f"there is no program {name!r} on its PATH")
    return os.path.abspath(found), False


def _and_move(outputs: Sequence[str], to: str) -> str:
    """Shell words that run a command and then copy what it made to persistent storage, each file whole or not at all."""
    if not to.startswith("/"):
        raise UsageError(f"--to {to}: name the directory by its absolute path, for the node of the task has another working directory")
    steps = ['"$@"', f"mkdir -p -- {shlex.quote(to)}"]
    for name in outputs:
        last, half = (shlex.quote(f"{to}/{prefix}{posixpath.basename(name)}") for prefix in ("", ".amfs-half-"))
        steps.append(f"cp -- {shlex.quote(name)} {half} && mv -f -- {half} {last}")
    return " && ".join(steps)


def _directory(words: Words, record: Record) -> str:
    """The directory of the session's file system in which the task runs."""
    here = _inside(record.directory, record.mount)
    if words.directory:
        if in_namespace(words.directory):
            return _clean(os.fsdecode(namespace_path(words.directory)))
        there = _inside(words.directory, record.mount)
        if there:
            return there
        if words.directory.startswith("/") or not here:
            raise UsageError(f"-C {words.directory}: name a directory of the session, as amfs:/DIR")
        return _clean(f"{here}/{words.directory}")
    if not here:
        raise UsageError(f"{record.directory} is in no mount of the session; stand in one, or name a directory there with -C amfs:/DIR")
    return here


def _inside(path: str, mount: str) -> str:
    """The path in the session's file system of a path in its mount; "" if it is outside."""
    if mount and (path == mount or path.startswith(f"{mount}/")):
        return _clean(path[len(mount) :])
    return ""


def _clean(path: str) -> str:
    return "/" + posixpath.normpath(f"/{path}").lstrip("/")


def _relative(word: str, mount: str, where: str) -> str:
    """A word that is a path of the session by its form, as the task will find it: the mount is elsewhere on its node."""
    inside = _clean(os.fsdecode(namespace_path(word))) if in_namespace(word) else _inside(word, mount)
    if not inside:
        return word
    short = posixpath.relpath(inside, where)
    return f"./{short}" if "/" not in short else short


def _name(name: str, mount: str, where: str) -> str:
    """The name of a declared file for the engine."""
    inside = _inside(name, mount)
    if inside:
        return NAMESPACE[:-1] + inside
    return name if name.startswith("/") or in_namespace(name) else NAMESPACE[:-1] + _clean(f"{where}/{name}")


def _file_at(word: str, where: str) -> str:
    return "" if word.startswith("/") or not word or "\0" in word else _clean(f"{where}/{word}")
