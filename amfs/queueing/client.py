"""The queue of a session as a command or a program uses it: record tasks, execute what was queued, ask, cancel.

Owns the start of the queue server on demand, and the reconnection to it when it was killed. Must not know: how tasks run, displays.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from amfs.client import discovery
from amfs.errors import AmfsError, SessionError
from amfs.net.records import SessionRecord
from amfs.provision.daemon import node_environment
from amfs.queueing import messages as q
from amfs.queueing import spool

START_S = 30.0
SERVER_MODULE = "amfs.queueing.server"
LOG = "queue.log"
_servers: list[subprocess.Popen[bytes]] = []  # started by this process: kept, so that those that have ended are waited for
LIVES_MAX = 5  # servers that may die under one command


class Queue:
    """The queue of the session ``name`` (as ``discovery.find`` takes it). Raises SessionError."""

    def __init__(self, name: str | None = None) -> None:
        self.session: SessionRecord = discovery.find(name)
        self.directory = self.session.directory
        if not self.directory.is_dir():
            raise SessionError(f"session {self.session.name} has no directory on this host; a queue needs one: amfs node --join")

    # ── recording ──────────────────────────────────────────────────────────────────────────────────

    def add(self, commands: Iterable[Sequence[str]], directory: str, mount: str = "", env: Mapping[str, str] | None = None) -> int:
        """Record tasks, each the words of ``AMFS_queue``; how many. ``directory``: where the caller stands, ``mount``: the mount in which
        that is. When this returns they are recorded. Raises UsageError for the first that is not well-formed; then none is. Raises
        AmfsError if they could not be written: if the space ran out, the first ones may be recorded all the same."""
        from amfs.queueing.words import check

        place = spool.make(self.directory)
        name = spool.keep_environment(place, os.environ if env is None else env)
        records = [spool.Record(directory, mount, name, tuple(words)) for words in commands]
        for record in records:
            check(record)
        try:
            spool.append(place, records)
        except OSError as error:
            raise AmfsError(f"the tasks could not be recorded: {error.strerror}") from None
        return len(records)

    # ── the server ─────────────────────────────────────────────────────────────────────────────────

    def connect(self) -> socket.socket:
        """A line to the server, which is started if there is none. Raises SessionError."""
        path = str(self.directory / q.SOCKET)
        end = time.monotonic() + START_S
        started: subprocess.Popen[bytes] | None = None
        while True:
            line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                line.connect(path)
                return line
            except OSError as error:
                line.close()
                if not (self.directory / "session.json").exists():
                    raise SessionError(f"session {self.session.name} is gone") from None
                if time.monotonic() > end:
                    tail = _tail(self.directory / LOG)
                    raise SessionError(f"the queue server of session {self.session.name} does not answer: {error.strerror}{tail}") from None
            if started is None or started.poll() is not None:
                started = self._start()
            time.sleep(0.02)

    def _start(self) -> subprocess.Popen[bytes]:
        """Start a server; of several that are started at once one stays. It outlives us."""
        log = os.open(self.directory / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            server = subprocess.Popen(
                [sys.executable, "-P", "-m", SERVER_MODULE, self.session.name],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/", env=node_environment(),
            )  # fmt: skip
            _servers[:] = [server, *(other for other in _servers if other.poll() is None)]
            return server
        finally:
            os.close(log)

    def ask(self) -> q.State:
        """How the queue stands. Raises SessionError."""
        with self.connect() as line:
            line.sendall(_line(q.Ask()))
            with line.makefile("rb") as stream:
                answer = msgspec.json.decode(stream.readline(), type=q.Event)
        if not isinstance(answer, q.State):
            raise SessionError(getattr(answer, "error", "the queue server does not answer"))
        return answer

    def cancel(self) -> None:
        """End all batches that run or wait."""
        with self.connect() as line:
            line.sendall(_line(q.Cancel()) + _line(q.Ask()))
            line.recv(1)

    def execute(self, tell: Callable[[q.Event], None], cancelled: Callable[[], bool] = lambda: False) -> q.Over | None:
        """Run what is queued and wait for its end; None: there was nothing. ``tell`` is given what happens; ``cancelled`` is asked now and
        then, and its first yes ends the tasks. If the server dies it is started again. Raises SessionError, AmfsError."""
        batch = 0
        for _ in range(LIVES_MAX):
            with self.connect() as line:
                line.sendall(_line(q.Execute(batch)))
                for event in _events(line, cancelled):
                    if isinstance(event, q.Refused):
                        error = AmfsError(event.error)
                        error.exit_code = event.exit_code
                        raise error
                    if isinstance(event, q.Accepted):
                        batch = event.batch
                        if not batch:
                            return None
                    if isinstance(event, q.Over):
                        return event
                    tell(event)
            if batch:
                tell(q.Said("the queue server was lost; another one goes on"))
        raise SessionError(f"the queue server of session {self.session.name} has died {LIVES_MAX} times{_tail(self.directory / LOG)}")


def _line(request: q.Request) -> bytes:
    return msgspec.json.encode(request) + b"\n"


def _events(line: socket.socket, cancelled: Callable[[], bool]) -> Iterable[q.Event]:
    """The events that arrive, until the other side hangs up."""
    decoder: Any = msgspec.json.Decoder(q.Event)
    line.settimeout(0.2)
    rest = b""
    told = False
    while True:
        if not told and cancelled():
            told = True
            line.sendall(_line(q.Cancel()))
        try:
            data = line.recv(1 << 16)
        except TimeoutError:
            continue
        except OSError:
            return
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from map(decoder.decode, lines)


def _tail(path: os.PathLike[str], lines: int = 3) -> str:
    try:
        with open(path, errors="replace") as stream:
            return "".join(f"\n  {text}" for text in stream.read().strip().splitlines()[-lines:])
    except OSError:
        return ""
