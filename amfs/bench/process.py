"""Runs a command as a user would, with a clock and the CPU time of its own process apart from that of its children. Linux only.

Knows nothing of amfs.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from amfs.errors import AmfsError

HANG_SECONDS = 180.0
_END_SECONDS = 60.0  # for a partner that has nothing more to do
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


class Failed(AmfsError):
    """A command that is measured did not do its work."""


class Ran(NamedTuple):
    """``seconds``: wall clock from before the start to the end. ``cpu_s``: user + system of the process itself with all its threads,
    without the children it waited for; ``children_cpu_s``: theirs. ``started_s``: seconds since the epoch."""

    seconds: float
    cpu_s: float
    children_cpu_s: float
    started_s: float
    stdout: str


def cpu_of(pid: int) -> tuple[float, float]:
    """CPU seconds of a process and of its waited-for children so far; also of a zombie. (0, 0) if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0, 0.0
    fields = text[text.rindex(")") + 2 :].split()  # the name may hold spaces and parentheses; utime is field 14 of the whole
    return (int(fields[11]) + int(fields[12])) * _TICK_S, (int(fields[13]) + int(fields[14])) * _TICK_S


def run(
    command: Sequence[str], cwd: str | Path, *, env: Mapping[str, str] | None = None, hang_seconds: float = HANG_SECONDS
) -> Ran:
    """Run ``command`` to its end. Raises Failed if it cannot start, ends with another status than 0 or does not end at all.

    The process is looked at as a zombie, before it is waited for: then its own CPU time (in clock ticks) can be told from that of its
    children, which ``wait4`` adds together.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started_s, started = time.time(), time.perf_counter()
        try:
            process = subprocess.Popen(
                list(command), cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )
        except OSError as error:
            raise Failed(f"cannot run {command[0]}: {error.strerror}") from None
        try:
            ended = _wait(process.pid, hang_seconds)
            seconds = time.perf_counter() - started
            own, children = cpu_of(process.pid)
            how = "" if ended else f"; it used {own:.1f} s of CPU, its children {children:.1f} s"
        finally:
            _end(process)
        if not ended:
            raise Failed(f"{_short(command)} did not end within {hang_seconds:.0f} s{how}")
        if process.returncode != 0:
            err.seek(0)
            raise Failed(f"{_short(command)} ended with status {process.returncode}: {_last_line(err.read())}")
        out.seek(0)
        return Ran(seconds, own, children, started_s, out.read().decode("utf-8", "replace"))


def _wait(pid: int, hang_seconds: float) -> bool:
    fd = os.pidfd_open(pid)
    try:
        return bool(select.select([fd], [], [], hang_seconds)[0])
    finally:
        os.close(fd)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Reap it; if it still runs (we were interrupted, or it hangs), ask it to clean up first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            _wait(process.pid, 5.0)
    process.wait()


def _short(command: Sequence[str]) -> str:
    return " ".join(os.path.basename(word) for word in command[:5])


def _last_line(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "(it said nothing)"


class Partner:
    """A process to talk to by lines, which ends when its standard input does."""

    def __init__(self, what: str, command: Sequence[str]) -> None:
        self._what = what
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def hear(self) -> str:
        """Its next line. Raises Failed if it has ended instead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise Failed(f"{self._what} ended with status {self._process.wait()}")
        return line

    def __enter__(self) -> Partner:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
