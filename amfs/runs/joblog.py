"""The job log: a line for each attempt that decided how a task ended, with the columns of GNU parallel's ``--joblog``.

Owns the file. Reads only results.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

from amfs.errors import UsageError
from amfs.runs.live import hosts
from amfs.vocabulary.states import Outcome
from amfs.workflow.workflow import printable

if TYPE_CHECKING:
    from amfs.runs.driver import RunDriver
    from amfs.vocabulary.messages import Result
    from amfs.workflow.workflow import Task

COLUMNS = ("Seq", "Host", "Starttime", "JobRuntime", "Send", "Receive", "Exitval", "Signal", "Command")
LOCAL = ":"  # as GNU parallel calls the machine on which it runs


def command_of(argv: Sequence[str]) -> str:
    """The command line of a task, on one line."""
    is_line = len(argv) == 3 and argv[1] == "-c" and posixpath.basename(argv[0]).endswith("sh")
    return printable(argv[2] if is_line else shlex.join(argv))


def line_of(number: int, host: str, argv: Sequence[str], result: Result) -> str:
    """The line of a task that ended. An end that is neither an exit status nor a signal is the exit value -1."""
    code = {Outcome.OK: 0, Outcome.EXIT: result.code, Outcome.SIGNAL: 0}.get(Outcome(result.outcome), -1)
    signal = result.code if result.outcome == Outcome.SIGNAL else 0
    seconds = max(0, result.end_us - result.start_us) / 1e6
    printed = result.stdout_bytes or len(result.stdout)
    columns = (number, host, f"{result.start_us / 1e6:.3f}", f"{seconds:10.3f}", 0, printed, code, signal, command_of(argv))
    return "\t".join(map(str, columns))


class JobLog:
    """The file of a run. ``further``: of a run that is resumed, whose lines come behind those of the earlier one. Raises UsageError."""

    def __init__(self, path: str, *, further: bool = False) -> None:
        try:
            self._file: IO[str] = open(  # noqa: SIM115  (closed by close)
                path, "a" if further else "w", encoding="utf-8", errors="surrogateescape"
            )
            self._fault = ""
            if not self._file.tell():
                self._write("\t".join(COLUMNS))
        except OSError as error:
            raise UsageError(f"cannot write the job log to {path}: {error.strerror}") from None

    def add(self, run: RunDriver, number: int, task: Task, result: Result) -> None:
        """Task ``number`` has ended. One that never began has no line. A disk that is full stops the run."""
        if not result.start_us or self._fault:
            return
        names = [LOCAL] if run.context.store is not None else hosts(run)
        host = names[result.node].partition("/")[0] if result.node < len(names) else ""  # the rest tells containers apart
        try:
            self._write(line_of(number, host or str(result.node), task.argv, result))
        except OSError as error:
            self._fault = f"cannot write the job log: {error.strerror}"
            run.context.loop.post(lambda: run.stop(f"stopped: {self._fault}"))

    def _write(self, line: str) -> None:
        self._file.write(f"{line}\n")
        self._file.flush()

    def close(self) -> None:
        """No more lines come."""
        try:
            self._file.close()
        except OSError:
            """The run has told it."""
