"""The tasks of ``amfs map``, from the arguments of its jobs. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from amfs.translate.commands import SHELL, command_argv, misread
from amfs.translate.map_arguments import Argument, in_columns
from amfs.translate.map_lines import Template
from amfs.translate.shell_quoting import Malformed, trim
from amfs.workflow.workflow import Task


class TaskMaker:
    """Makes the task of each job. ``command`` "": the arguments are command lines themselves. ``inputs`` and ``outputs`` are templates of
    names; with any of them a task is staged. Without ``inputs``, those arguments of a staged task are that ``is_file`` knows.

    Raises Malformed for what is wrong with all jobs.
    """

    def __init__(
        self, command: str, *, inputs: Sequence[str] = (), outputs: Sequence[str] = (), shell: str = "", sh: str = "sh",
        columns: re.Pattern[str] | None = None, is_file: Callable[[str], bool] = lambda name: False,
    ) -> None:  # fmt: skip
        self._shell = shell or SHELL
        self._sh = sh
        self._columns = columns
        self._is_file = is_file
        self._command: Template | None = None
        if command:
            self._command = Template(command)
            if not self._command.pieces:
                self._command = Template(f"{command} {{}}")
            self._argv(self._command(["x"] * max(1, self._command.needs()), 1))  # so that a fault of the command is told once
        self._inputs = [Template(text, command=False) for text in inputs if text]
        self._outputs = [Template(text, command=False) for text in outputs]
        self._look = not inputs and bool(outputs)
        self._staged = bool(inputs or outputs)

    def _argv(self, line: str) -> tuple[list[str], str]:
        argv, label = command_argv(line, self._shell)
        if argv[1:] == ["-c", line] and (why := misread(line, self._shell, self._sh)):
            raise Malformed(f"{why}; or have bash run it: --shell bash")
        return argv, label

    def line(self, arguments: Sequence[Argument], number: int) -> str:
        """The command line of job ``number``; blank if there is nothing to run. Raises Malformed."""
        words = in_columns([argument.text for argument in arguments], self._columns)
        return self._command(words, number) if self._command is not None else trim(" ".join(words))

    def task(self, arguments: Sequence[Argument], number: int) -> Task | None:
        """The task of job ``number``; None if there is nothing to run. Raises Malformed."""
        line = self.line(arguments, number)
        if not line.strip(" \t\n"):
            return None
        argv, label = self._argv(line) if self._command is None else command_argv(line, self._shell)
        where = next((argument.line for argument in arguments if argument.line), 0)
        if not self._staged:
            return Task(str(number), tuple(argv), label=label, staged=False, line=where)
        words = in_columns([argument.text for argument in arguments], self._columns)
        inputs = [template(words, number) for template in self._inputs] or [word for word in words if self._look and self._is_file(word)]
        outputs = [template(words, number) for template in self._outputs]
        return Task(str(number), tuple(argv), tuple(dict.fromkeys(inputs)), tuple(dict.fromkeys(outputs)), label=label, line=where)
