"""This machine, as Swift programs ask it: files, names, the environment. The part that needs no run."""

from __future__ import annotations

import glob
import os
import random
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from amfs.swift import requests as r
from amfs.swift.names import local
from amfs.swift.source import Source
from amfs.workflow.workflow import Task


class Host:
    """Answers requests. ``base``: names are relative to it; ``arguments``: of the command line of the script."""

    def __init__(self, base: str, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        self.base = base
        self.arguments = split_arguments(arguments)
        self.environment = os.environ if environment is None else environment
        self.places: dict[str, int] = {}
        self.chance = random.Random()
        #: The function that answers each kind of request. A host that can do more replaces entries.
        self.answers: dict[type[r.Request], Callable[[Any], Any]] = {
            r.ReadFile: self.read_file,
            r.Stat: self.stat,
            r.Present: self._present,
            r.Glob: lambda request: sorted(glob.glob(request.pattern, root_dir=self.base, recursive=True)),
            r.Environment: lambda request: self.environment.get(request.name),
            r.Arguments: lambda request: self.arguments,
            r.Clock: lambda request: time.time(),
            r.Random: lambda request: self.chance.random(),
            r.Nodes: lambda request: [os.uname().nodename],
            r.Place: self._place,
            r.Locate: self.locate,
            r.Pause: lambda request: None,
            **dict.fromkeys((r.Remove, r.Copy, r.Execute, r.CallPython, r.WriteFile), _needs_a_run),
        }

    def path(self, name: str) -> str:
        return os.path.join(self.base, local(name))

    def answer(self, request: r.Request) -> Any:
        """The answer, or ``Refused``."""
        try:
            return self.answers[type(request)](request)
        except OSError as error:
            return r.Refused(f"{getattr(request, 'name', '')}: {error.strerror or error}")
        except r.Refused as refused:
            return refused

    def read_file(self, request: r.ReadFile) -> bytes:
        with open(self.path(request.name), "rb") as file:
            return file.read()

    def stat(self, request: r.Stat) -> r.Status | None:
        try:
            found = os.stat(self.path(request.name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        kind = "file" if stat.S_ISREG(found.st_mode) else "directory" if stat.S_ISDIR(found.st_mode) else "other"
        return r.Status(found.st_size, found.st_mtime, kind)

    def _present(self, request: r.Present) -> list[str]:
        return [name for name in request.names if os.path.isfile(os.path.join(self.base, name))]

    def _place(self, request: r.Place) -> None:
        self.places[request.name] = request.rank

    def placed(self, tasks: list[Task]) -> list[Task]:
        """A task runs where ``set_rank`` has placed one of its outputs, unless the script says where it runs."""
        return [self._where_its_output_is(task) if task.node < 0 else task for task in tasks] if self.places else tasks

    def _where_its_output_is(self, task: Task) -> Task:
        rank = next((self.places[name] for name in task.outputs if name in self.places), -1)
        return task if rank < 0 else msgspec.structs.replace(task, node=rank)

    def locate(self, request: r.Locate) -> list[int]:
        return [self.places[request.name]] if request.name in self.places else []


def _needs_a_run(request: r.Request) -> None:
    raise r.Refused("this needs a run: it does something that a task list cannot")


def split_arguments(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """(plain arguments, those of the form -name=value or --name=value; -name alone has the value "")."""
    plain: list[str] = []
    named: dict[str, str] = {}
    for word in words:
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-") and name and (equals or not _is_number(word)):
            named[name] = value
        else:
            plain.append(word)
    return plain, named


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def loader(script: str) -> Any:
    """``load`` for the parser: imported files, beside the script and in the directories of SWIFT_LIB and SWIFT_PATH."""
    beside = os.path.dirname(os.path.abspath(script)) if script not in ("", "-", "standard input") else os.getcwd()
    searched = [beside]
    for variable in ("SWIFT_LIB", "SWIFT_PATH"):
        searched += [directory for directory in os.environ.get(variable, "").split(":") if directory]

    def load(name: str) -> Source | None:
        for directory in searched:
            path = os.path.join(directory, name)
            try:
                with open(path, encoding="utf-8", errors="surrogateescape") as file:
                    return Source(os.path.relpath(path) if directory == beside else path, file.read())
            except (OSError, ValueError):  # or a NUL in its name
                continue
        return None

    return load
