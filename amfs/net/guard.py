"""Refused connections and frames, and how often the node logs them. Pure but for the log and the clock that limits it; knows no sockets."""

from __future__ import annotations

import hmac
import logging
import time
from collections import deque
from collections.abc import Sequence

log = logging.getLogger("amfs.net")

_INTERVAL_S = 60.0
_REMEMBERED = 1000


class Refusals:
    """Counts refusals; logs each kind once a minute, with how many went unsaid."""

    def __init__(self) -> None:
        self.count = 0
        self.recent: deque[str] = deque(maxlen=10)
        self._said: dict[str, tuple[float, int]] = {}  # key -> when it was logged, how many since

    def add(self, key: str, text: str) -> bool:
        """``key``: the peer and the kind of fault, as far as known. Returns whether a line was logged."""
        self.count += 1
        now = time.monotonic()
        if key in self._said:
            when, unsaid = self._said[key]
            if now - when < _INTERVAL_S:
                self._said[key] = when, unsaid + 1
                return False
            if unsaid:
                text += f" ({unsaid} times more within the last {now - when:.0f} s)"
        elif len(self._said) >= _REMEMBERED:
            self._said.pop(next(iter(self._said)))
        self._said[key] = now, 0
        self.recent.append(text)
        log.warning("%s", text)
        return True


class Handshakes:
    """Which connections end without ever having introduced themselves.

    ZeroMQ tells that a handshake succeeded or failed, but not of which connection; and of one that it hangs up on because it does not speak
    the protocol at all it tells only the end. While one connection is at it, all is clear; else the benefit of the doubt is given.
    """

    def __init__(self) -> None:
        self._shaking: dict[int, None] = {}
        self._settled = 0  # handshakes that ended in some way, of one of these

    def accepted(self, connection: int) -> None:
        self._shaking[connection] = None

    def ended(self) -> None:
        """One succeeded, or failed in a way that has been told."""
        if len(self._shaking) == 1:
            self._shaking.clear()
        elif self._settled < len(self._shaking):
            self._settled += 1

    def disconnected(self, connection: int) -> bool:
        """Returns whether this one was cut off without a handshake."""
        if connection not in self._shaking:
            return False
        del self._shaking[connection]
        if self._settled:
            self._settled -= 1
            return False
        return True


def answer_zap(request: Sequence[bytes], public_key: bytes) -> tuple[list[bytes], str]:
    """The reply to a question of ZeroMQ's authentication protocol (RFC 27), and the address of the peer if it is refused.

    The one CURVE key that may come in is ``public_key`` (32 bytes).
    """
    version, request_id = (*request, b"", b"")[:2]
    if len(request) == 7 and request[5] == b"CURVE" and hmac.compare_digest(request[6], public_key):
        return [version, request_id, b"200", b"OK", b"session", b""], ""
    address = request[3].decode(errors="replace") if len(request) > 3 else ""
    return [version, request_id, b"400", b"not a key of this session", b"", b""], address or "an unknown address"
