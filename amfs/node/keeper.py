"""The keeper of a node's mounts: a small process in a user and mount namespace of its own, where an ordinary user may mount. I/O.

Owns that process (csrc/programs/keeper.c) and the socket to it, by which its end is bound to ours. Must not know: the users
of the mounts, and their servers.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import struct
import subprocess

from amfs.host.fusemounts import Within
from amfs.libexec import program

_ANSWER = struct.Struct("=iiQ")  # kind, errno, number
_NAMESPACES, _NUMBERS, _MOUNT, _SERVED = range(1, 5)  # as in keeper.c
_WORDS = {
    _NAMESPACES: "no namespaces can be made",
    _NUMBERS: "no numbers can be given to users of a namespace",
    _MOUNT: "the mount is refused",
}
_ANSWER_S = 10.0
_END_S = 5.0


class Keeper:
    """Started when made. Raises OSError, whose words say at what it failed; SystemSetupError if the program is not installed."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._line.settimeout(_ANSWER_S)
            try:
                self._process = subprocess.Popen(
                    [program("amfs-keeper")], stdin=theirs.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/"
                )
            except BaseException:
                self._line.close()
                raise
        self.pid = self._process.pid
        self.pidfd = -1
        try:
            self.pidfd = os.pidfd_open(self.pid)  # readable when it has ended
            number, _ = self._answer()
            self.within = Within(self.pidfd, number)
            self._try()
        except BaseException:
            self.close()
            raise

    def _try(self) -> None:
        """Whether others of this user may enter, which is another right than to make the namespaces."""
        try:
            tried = subprocess.run(
                self.within.entering(program("amfs-enter"), "/"), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=_ANSWER_S, check=False, pass_fds=(self.pidfd,),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None
        if tried.returncode:
            raise OSError(0, tried.stderr.strip() or "the namespaces cannot be entered")

    def _answer(self) -> tuple[int, int]:
        """(number, descriptor or -1). Raises OSError."""
        data, descriptors, _, _ = socket.recv_fds(self._line, _ANSWER.size, 1)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if len(data) < _ANSWER.size:
            raise OSError(0, "the process that keeps mounts has ended")
        about, error, number = _ANSWER.unpack(data)
        if error:
            words = _WORDS.get(about, "")
            raise OSError(error, f"{words}: {os.strerror(error)}" if words else os.strerror(error))
        return number, descriptors[0] if descriptors else -1

    def mount(self, path: str, source: str) -> int:
        """The descriptor of a mount at ``path``, which is to be served at once; then ``settle`` is called. Raises OSError."""
        try:
            self._line.sendall(os.fsencode(source) + b"\0" + os.fsencode(path))
            return self._answer()[1]
        except TimeoutError:
            self.interrupt()  # a late answer of it would be taken for another one
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None

    def settle(self) -> str:
        """Wait until files can be made in the mount that was made last: its device. Raises OSError."""
        self._line.settimeout(None)  # its node serves it, or has ended
        try:
            number, _ = self._answer()
        finally:
            self._line.settimeout(_ANSWER_S)
        return f"{os.major(number)}:{os.minor(number)}"

    def unmount(self, path: str) -> None:
        """Take it out of sight of all who are in the namespaces. Does not wait; any thread may call this."""
        with contextlib.suppress(OSError):
            self._line.send(b"\0" + os.fsencode(path), socket.MSG_DONTWAIT)

    def interrupt(self) -> None:
        """Have a thread that waits for an answer wait no longer. The keeper ends; its mounts, which are served, do not."""
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            self._line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it. Its mounts go when the last program has left its namespaces. Repeatable."""
        self._line.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
