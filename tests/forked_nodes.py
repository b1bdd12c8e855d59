"""Processes of nodes that are forked from one that has amfs imported (``ready.py``), instead of a new Python for each ``amfs up``.

Both sides of that: the request, and the ``Popen`` of ``amfs.provision.daemon`` that makes it. Must not know: the tests.
"""

from __future__ import annotations

import io
import os
import resource
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from amfs.provision import daemon

#: So many descriptors go with a request at most, as the kernel has it.
PASSED = 253
PIECE = 1 << 16
LIMITS = 16


class Request(msgspec.Struct, array_like=True):
    """The new process asked for: ``python -m MODULE ARGUMENTS``. The rest it has from the process that forks."""

    module: str
    arguments: list[bytes]
    directory: bytes
    environment: list[tuple[bytes, bytes]]
    passed: list[int] = []
    detached: bool = False
    safe_path: bool = False
    umask: int | None = None
    limits: list[tuple[int, int]] | None = None
    interruptible: bool = True  # a suite in the background ignores SIGINT, and so do its programs


def encoded(environment: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(os.fsencode(name), os.fsencode(value)) for name, value in environment.items()]


def asked(line: socket.socket, request: Request) -> int:
    """Ask for a process; a descriptor of it. Raises ChildProcessError if there is nobody to ask."""
    request.interruptible = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    line.sendall(msgspec.msgpack.encode(request))
    line.shutdown(socket.SHUT_WR)
    word, got, _, _ = socket.recv_fds(line, 1, 1)
    if not word:
        raise ChildProcessError("the process that forks has ended")
    return got[0]


def received(line: socket.socket) -> Request:
    pieces = []
    while piece := line.recv(PIECE):
        pieces.append(piece)
    line.close()
    return msgspec.msgpack.decode(b"".join(pieces), type=Request)


class ForkedNodes:
    """As ``subprocess.Popen``, for what ``daemon.launch`` does with it."""

    def __init__(
        self, words: Sequence[str], *, stdin: int, stdout: int, stderr: int, pass_fds: Sequence[int], start_new_session: bool, cwd: str,
        env: Mapping[str, str],
    ) -> None:  # fmt: skip
        assert list(words[:3]) == [sys.executable, "-P", "-m"] and stdin == subprocess.PIPE and start_new_session
        umask = os.umask(0o077)  # the only way to know it; as narrow as can be in between
        os.umask(umask)
        request = Request(
            words[3], list(map(os.fsencode, words[4:])), os.fsencode(cwd), encoded(env), list(pass_fds), True, True, umask,
            [resource.getrlimit(number) for number in range(LIMITS)],
        )  # fmt: skip
        theirs, ours = os.pipe2(os.O_CLOEXEC)
        try:
            self._line = socket.socket(socket.AF_UNIX)
            self._line.connect(_address)
            socket.send_fds(self._line, [b"r"], [theirs, stdout, stderr, *pass_fds])
            self._process = asked(self._line, request)
        except BaseException:
            self._line.close()
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self.stdin: io.BufferedWriter | None = os.fdopen(ours, "wb")
        self._status: int | None = None

    def kill(self) -> None:
        signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def wait(self) -> int:
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(int.from_bytes(self._line.recv(4), "little"))
            self._line.close()
            os.close(self._process)
        return self._status


_address: Any = None


def fork_from(address: object) -> None:
    """From now on nodes that this process or its forks start are forked by the process that listens there."""
    global _address
    _address = address
    vars(daemon)["subprocess"] = types.SimpleNamespace(Popen=_start, PIPE=subprocess.PIPE)


def _start(words: Sequence[str], **how: Any) -> Any:
    try:
        return ForkedNodes(words, **how)
    except OSError:  # another network namespace
        return subprocess.Popen(words, **how)
