"""Short commands of amfs for tests, run as a person would but for the start of Python: a process that has amfs imported forks.

``ready.py`` is that process. Where a fork would not be the same, and with ``AMFS_TESTS_NEW_PYTHON=1``, each command is a new Python.
Must not know: the tests.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from forked_nodes import Request, asked, encoded

NEW_PYTHON = "AMFS_TESTS_NEW_PYTHON"
READY = Path(__file__).with_name("ready.py")

#: Variables that Python, the C library or the loader read at the start of a process.
READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "TZ", "COVERAGE")
PIECE = 1 << 16
PATIENCE_S = 100.0  # only turns a hang into a failure


class Inherited(msgspec.Struct, frozen=True):
    """Properties that a process takes from the one that starts it, besides those in a request. A test may have changed it for a while."""

    umask: str
    limits: tuple[tuple[int, int], ...]
    read_at_start: tuple[tuple[str, str], ...]


def inherited(environment: Mapping[str, str]) -> Inherited:
    with open("/proc/self/status") as status:
        umask = next(line for line in status if line.startswith("Umask:"))
    limits = tuple(resource.getrlimit(getattr(resource, name)) for name in sorted(vars(resource)) if name.startswith("RLIMIT_"))
    return Inherited(umask, limits, tuple(sorted(one for one in environment.items() if one[0].startswith(READ_AT_START))))


class Ready:
    """The process that forks, as long as this one lives."""

    def __init__(self) -> None:
        self.like = inherited(os.environ)
        self.door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, socket.socket(socket.AF_UNIX) as listener:
            listener.bind("")  # a name that the kernel chooses
            listener.listen(64)
            self.process = subprocess.Popen(
                [sys.executable, str(READY), str(theirs.fileno()), str(listener.fileno())], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno(), listener.fileno()], cwd="/",
            )  # fmt: skip

    def ask(self, descriptors: Sequence[int], request: Request) -> tuple[int, socket.socket]:
        """A pidfd of a new process with these standard streams, and where its status comes when it has ended."""
        line, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.door, [b"r"], [*descriptors, theirs.fileno()])
        try:
            return asked(line, request), line
        except BaseException:
            line.close()
            raise

    def end(self) -> None:
        self.door.close()
        self.process.wait()


_ready: Ready | None = None
_ready_lock = threading.Lock()


def the_ready() -> Ready:
    global _ready
    with _ready_lock:
        _ready = _ready or Ready()
        return _ready


def end() -> None:
    """No process is ready any more."""
    global _ready
    with _ready_lock:
        if _ready is not None:
            _ready.end()
            _ready = None


def run(
    *arguments: str | bytes | Path,
    module: str = "amfs",
    input: str | None = None,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = PATIENCE_S,
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m MODULE ARGUMENTS…``; its output as subprocess makes text of it. The limit only turns a hang into a failure.

    ``env``: besides ``environment``, which is that of this process if it is not given.
    """
    given = None if input is None else input.encode()
    done = run_bytes(*arguments, module=module, input=given, cwd=cwd, env=env, environment=environment, timeout=timeout)
    out, err = (one.decode().replace("\r\n", "\n").replace("\r", "\n") for one in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def run_bytes(
    *arguments: str | bytes | Path,
    module: str = "amfs",
    input: bytes | None = None,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = PATIENCE_S,
) -> subprocess.CompletedProcess[bytes]:
    command = Command(
        module, tuple(map(os.fsdecode, arguments)), os.path.join(os.getcwd(), os.fspath(cwd or "")),
        {**(os.environ if environment is None else environment), **(env or {})}, input, timeout,
    )  # fmt: skip
    forks = module == "amfs" and os.environ.get(NEW_PYTHON) != "1" and the_ready().like == inherited(command.environment)
    return command.in_fork() if forks else command.in_new_python()


class Command(NamedTuple):
    """``python -m MODULE ARGUMENTS…`` and what it is given."""

    module: str
    arguments: tuple[str, ...]
    cwd: str
    environment: Mapping[str, str]
    input: bytes | None = None
    timeout: float = PATIENCE_S

    @property
    def words(self) -> list[str]:
        return [sys.executable, "-m", self.module, *self.arguments]

    def in_new_python(self) -> subprocess.CompletedProcess[bytes]:
        stdin = subprocess.DEVNULL if self.input is None else None
        return subprocess.run(
            self.words, cwd=self.cwd, env=self.environment, stdin=stdin, input=self.input, capture_output=True, timeout=self.timeout
        )

    def in_fork(self) -> subprocess.CompletedProcess[bytes]:
        request = Request(self.module, list(map(os.fsencode, self.arguments)), os.fsencode(self.cwd), encoded(self.environment))
        with _Running(request, self.input, self.timeout) as running:
            try:
                out, err = running.outputs()
                status = running.status()
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.words, self.timeout, bytes(running.heard[1]), bytes(running.heard[2])) from None
        return subprocess.CompletedProcess(self.words, status, out, err)


class _Running:
    """A command that runs: its ends of the pipes. The process is killed where nobody waits for its end."""

    def __init__(self, request: Request, input: bytes | None, timeout: float) -> None:
        self.until = time.monotonic() + timeout
        self.heard = {1: bytearray(), 2: bytearray()}
        self.input = memoryview(input or b"")
        self.ours: dict[int, int] = {}  # by number of the stream
        with contextlib.ExitStack() as theirs:
            streams = []
            for number in range(3):
                if number == 0 and input is None:
                    reader, writer = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), None
                else:
                    reader, writer = os.pipe2(os.O_CLOEXEC)
                own, other = (writer, reader) if number == 0 else (reader, writer)
                assert other is not None
                theirs.callback(os.close, other)
                streams.append(other)
                if own is not None:
                    self.ours[number] = own
            self.process, self.line = the_ready().ask(streams, request)
        self.ended = False

    def __enter__(self) -> _Running:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.process, signal.SIGKILL)
            self.line.settimeout(None)
            self.line.recv(4)
        for number in list(self.ours):
            self._close(number)
        os.close(self.process)
        self.line.close()

    def _close(self, number: int) -> None:
        os.close(self.ours.pop(number))

    def _ready(self, selector: selectors.BaseSelector) -> Iterator[int]:
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        for key, _ in selector.select(left):
            yield key.data

    def outputs(self) -> tuple[bytes, bytes]:
        """All that it, and whoever has its streams from it, writes; raises TimeoutError."""
        with selectors.PollSelector() as selector:
            for number, descriptor in self.ours.items():
                selector.register(descriptor, selectors.EVENT_WRITE if number == 0 else selectors.EVENT_READ, number)
            while selector.get_map():
                for number in self._ready(selector):
                    if not self._move(number):
                        selector.unregister(self.ours[number])
                        self._close(number)
        return bytes(self.heard[1]), bytes(self.heard[2])

    def _move(self, number: int) -> bool:
        """A piece of a stream; False when it is at its end."""
        if number:
            piece = os.read(self.ours[number], PIECE)
            self.heard[number] += piece
            return bool(piece)
        try:
            written = os.write(self.ours[0], self.input[: select.PIPE_BUF])
        except BrokenPipeError:
            return False
        self.input = self.input[written:]
        return bool(self.input)

    def status(self) -> int:
        self.line.settimeout(max(0.0, self.until - time.monotonic()) or 1e-6)
        told = self.line.recv(4)
        if not told:
            raise ChildProcessError(f"{READY.name} has ended before a command of it")
        self.ended = True
        return os.waitstatus_to_exitcode(int.from_bytes(told, "little"))
