"""Nodes that a command starts and then waits for: on the hosts of a file by ssh, in pods by kubectl, as a template says.

Keys go through the command's standard input. Owns the files of hosts and the commands' processes. Must not know: the commands
(``systems``); the order of the steps (``joining``).
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from amfs.errors import SessionError, UsageError
from amfs.net.records import Ready, SessionRecord
from amfs.provision import daemon
from amfs.provision.joining import Place
from amfs.provision.local import START_S
from amfs.provision.systems import System

_END_S = 3.0  # for commands whose nodes were told to end
_CHOSEN_S = 600.0  # for a system to find a place and to make it ready
_LINE = re.compile(r"(?P<host>[\w[][\w.@:%\]-]*?)(?:(?::|\s+slots=)(?P<slots>\d+))?")


def read_hosts(path: str) -> list[Place]:
    """The hosts of a file: on each line one, and how many tasks it runs at a time, if that is not the number of its CPUs.

    "n1", "me@n2 slots=4" and "n3:4" are such lines; "#" begins a remark. Raises UsageError.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--hosts {path}: {getattr(error, 'strerror', None) or 'not a text'}") from None
    found: dict[str, Place] = {}
    for at, line in enumerate(lines, 1):
        if not (text := line.partition("#")[0].strip()):
            continue
        match = _LINE.fullmatch(text)
        if match is None or match["slots"] == "0":
            raise UsageError(f"{path}:{at}: '{text}' is no host; write one a line, such as 'n1' or 'n1 slots=4'")
        if match["host"] in found:
            raise UsageError(f"{path}:{at}: {match['host']} is named twice; a host has one node")
        found[match["host"]] = Place(match["host"], int(match["slots"] or 0))
    if not found:
        raise UsageError(f"--hosts {path}: it names no host")
    return list(found.values())


class Commands:
    """One process of the system's command for each node."""

    def __init__(self, system: System, hosts: str = "", more: Sequence[str] = ()) -> None:
        if system.needs_hosts and not hosts:
            raise UsageError(f"--on {system.name} needs --hosts FILE, with a host on each line")
        if hosts and not system.needs_hosts:
            raise UsageError(f"--hosts is not for {system.name}, which chooses the hosts itself")
        self.system, self.name, self._hosts, self._more = system, system.name, hosts, tuple(more)
        self.patience_s = START_S if system.needs_hosts else _CHOSEN_S
        self._commands: dict[int, tuple[subprocess.Popen[bytes], Path]] = {}
        self._session = ""

    @property
    def begun(self) -> int:
        return len(self._commands)

    def places(self, most: int | None) -> Sequence[Place]:
        if self._hosts:
            return read_hosts(self._hosts)[:most]
        return [Place(f"number {number}") for number in range(1, (most or 1) + 1)]

    def begin(self, number: int, place: Place, session: SessionRecord, words: Sequence[str]) -> None:
        environment = daemon.node_environment()
        node = list(self.system.amfs) or [sys.executable, "-P", "-m", "amfs"]
        if not self.system.amfs and (path := environment.get("PYTHONPATH")):
            node = ["env", f"PYTHONPATH={path}", *node]
        node += ["node", "--join", "-", "--log-here", *words]
        command = self.system.starting(session.name, number, place.name, node, self._more)
        log = session.directory / f"launch-{number}.log"
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True, cwd="/", env=environment
            )
        except OSError as error:
            raise SessionError(f"cannot run {command[0]}: {error.strerror}") from None
        finally:
            os.close(out)
        self._session = session.name
        self._commands[number] = process, log
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it ended at once; ``ended`` tells why
            process.stdin.write(msgspec.json.encode(session))
            process.stdin.close()

    def ended(self) -> Mapping[int, str]:
        return {number: _last_words(log, process) for number, (process, log) in self._commands.items() if process.poll() is not None}

    def leave(self) -> None:
        """The commands go on as long as their nodes do."""

    def stop(self) -> None:
        for process, log in self._commands.values():
            if process.poll() is None and _ready(log) is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_END_S)

    def cancel(self) -> None:
        end = time.monotonic() + _END_S
        left = [process for process, _ in self._commands.values()]
        while (left := [process for process in left if process.poll() is None]) and time.monotonic() < end:
            time.sleep(0.02)
        for process in left:
            process.terminate()
        for process in left:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
        if self.system.cancel and self._commands:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # if it fails now it would have failed before, too
                subprocess.run(self.system.cancelling(self._session, ()), capture_output=True, stdin=subprocess.DEVNULL, timeout=60)


def _ready(log: Path) -> Ready | None:
    """The node's word of its start, if there is one."""
    for line in reversed(_lines(log)):
        with contextlib.suppress(msgspec.MsgspecError):
            return msgspec.json.decode(line, type=Ready)
    return None


def _lines(log: Path) -> list[str]:
    try:
        return [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return []


def _last_words(log: Path, process: subprocess.Popen[bytes]) -> str:
    """Why a command has ended: the node's own words, or the command's last line."""
    if (ready := _ready(log)) is not None:
        return ready.error or f"node {ready.node} has ended"
    return (_lines(log) or [f"exit status {process.returncode}"])[-1].removeprefix("amfs: ")
