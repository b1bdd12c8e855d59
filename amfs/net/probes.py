"""Asks the host of a silent process whether that still listens. A host refuses connections to an endpoint that nobody has any more.

Owns the connections that are being tried. Whatever else comes of one (an answer, none, a path that is cut, a name that would have to be
looked up) says nothing. Must not know: ZeroMQ, membership.
"""

from __future__ import annotations

import errno
import select
import socket
from contextlib import suppress

from amfs.net.addresses import split

_AT_ONCE_MS = 2  # for an answer over a local network; a later one is seen by the next question
_WAITED_FOR = 8  # with so many that do not answer nobody is waited for: the poll loop asks, and many nodes may be cut off at once


class Probes:
    """At most one connection to each endpoint at a time."""

    def __init__(self) -> None:
        self._tried: dict[str, socket.socket] = {}

    def is_refused(self, endpoint: str) -> bool:
        """Begin to connect, or look what has come of it."""
        attempt = self._tried.pop(endpoint, None)
        if attempt is None:
            attempt, error = _begin(endpoint)
            if attempt is None:
                return error == errno.ECONNREFUSED
        poll = select.poll()
        poll.register(attempt, select.POLLOUT)
        if not poll.poll(_AT_ONCE_MS if len(self._tried) < _WAITED_FOR else 0):
            self._tried[endpoint] = attempt
            return False
        with attempt:
            return attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED

    def close(self) -> None:
        for attempt in self._tried.values():
            attempt.close()
        self._tried.clear()


def _begin(endpoint: str) -> tuple[socket.socket | None, int]:
    """A connection under way, or the error with which it ended at once."""
    family, address = socket.AF_UNIX, endpoint.removeprefix("ipc://")
    where: str | tuple[str, int] = address
    if endpoint.startswith("tcp://"):
        host, port = split(endpoint)
        host = host.strip("[]")
        family, where = socket.AF_INET6 if ":" in host else socket.AF_INET, (host, int(port))
        try:
            socket.inet_pton(family, host)
        except OSError:
            return None, errno.EINVAL
    attempt = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    error = errno.EINVAL
    with suppress(OSError, ValueError):
        error = attempt.connect_ex(where)
    if error in (0, errno.EINPROGRESS):
        return attempt, 0
    attempt.close()
    return None, error
