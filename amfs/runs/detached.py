"""Commands that outlive their terminal (``amfs run --detach``): a process of its own for each, its output and exit status kept.

Owns the directory of each. Must not know: workflows, and who looks at the output.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from amfs.errors import UsageError
from amfs.host import folders
from amfs.host.processes import boot, host_id, is_running, start_time

#: So many that have ended are remembered.
KEPT = 50

#: The shell stays when a signal ends the command, and writes down how it ended. The file appears whole.
_KEEPER = 'place=$1; shift; trap : INT TERM; "$@"; echo $? > "$place/status.part"; mv "$place/status.part" "$place/status"'


class Record(msgspec.Struct):
    """How it was started. ``pid``: of the process group, too."""

    number: int
    words: tuple[str, ...]
    directory: str
    host: str
    pid: int
    started: int  # in clock ticks since boot
    began: float  # seconds since 1970


class Detached:
    """One command."""

    def __init__(self, place: Path, record: Record) -> None:
        self.place = place
        self.record = record

    @property
    def output(self) -> Path:
        return self.place / "output"

    def status(self) -> int | None:
        """The exit status; None if it has not ended, or was killed together with the process that would have written it down."""
        try:
            return int((self.place / "status").read_text())
        except (OSError, ValueError):
            return None

    def goes_on(self) -> bool:
        """Raises UsageError if that is known on another host only."""
        if self.status() is not None:
            return False
        if self.record.host != host_id():
            host = self.record.host.split("/")[0]
            raise UsageError(f"run {self.record.number} was started on {host}, or before {host} was started again: it is not known here")
        return is_running(self.record.pid, self.record.started)

    def has_ended(self) -> bool:
        """Is that known here?"""
        boot_then = self.record.host.rpartition("/")[2].partition("-")[0]
        name, _, _ = self.record.host.partition("/")
        restarted = name == socket.gethostname() and boot_then != boot()
        return self.status() is not None or restarted or (self.record.host == host_id() and not self.goes_on())

    def follow(self) -> Iterator[bytes]:
        """Its output from the beginning, as it comes, until it has ended."""
        with open(self.output, "rb") as file:
            while True:
                going = self.goes_on()
                if data := file.read():
                    yield data
                elif not going:
                    return
                else:
                    time.sleep(0.1)

    def stop(self) -> None:
        """Interrupt it, as Ctrl-C would."""
        if self.goes_on():
            with suppress(ProcessLookupError):
                os.killpg(self.record.pid, signal.SIGINT)

    def forget(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)


def _base() -> Path:
    return folders.state() / "runs"


def start(words: Sequence[str], environment: Mapping[str, str]) -> Detached:
    """Start ``amfs`` with these arguments in the current directory. Raises UsageError if its output cannot be kept."""
    base = _base()
    for old in [one for one in every() if one.has_ended()][:-KEPT]:
        old.forget()
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, place = _take_number(base)
        with open(place / "output", "xb") as output:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _KEEPER, "sh", str(place), sys.executable, "-P", "-m", "amfs", *words],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env=environment,
            )  # fmt: skip
        record = Record(number, tuple(words), os.getcwd(), host_id(), process.pid, start_time(process.pid), time.time())
        (place / "record.part").write_bytes(msgspec.json.encode(record))
        (place / "record.part").rename(place / "record")
    except OSError as error:
        raise UsageError(f"cannot keep the output of the run in {base}: {error.strerror or error}") from None
    return Detached(place, record)


def _take_number(base: Path) -> tuple[int, Path]:
    """The next number, and its directory."""
    number = max((int(path.name) for path in base.iterdir() if path.name.isdigit()), default=0) + 1
    while True:
        try:
            (base / str(number)).mkdir(mode=0o700)
        except FileExistsError:
            number += 1
        else:
            return number, base / str(number)


def every() -> list[Detached]:
    """All that are remembered, the newest last."""
    try:
        places = sorted((path for path in _base().iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    except OSError:
        return []
    found = []
    for place in places:
        with suppress(OSError, msgspec.DecodeError):  # being made, or left by an interrupted start
            found.append(Detached(place, msgspec.json.decode((place / "record").read_bytes(), type=Record)))
    return found


def find(number: int | None) -> Detached:
    """That of the number, or the newest. Raises UsageError."""
    known = every()
    wanted = known[-1:] if number is None else [one for one in known if one.record.number == number]
    if not wanted:
        raise UsageError("no run was started with --detach" if number is None else f"there is no run {number}: see amfs attach --list")
    return wanted[0]
