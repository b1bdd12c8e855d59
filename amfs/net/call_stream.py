"""The connection between an executor and one of its workers: a handshake with the session's key, and frames both ways.

Owns the bytes. Must not know: calls, futures, tasks. Over a Unix socket in the session's private directory frames go as they are; over
TCP each has a code (BLAKE2b with a key of this connection, 16 bytes) over its number and content, since receivers execute the content.
Nothing is encrypted, as on data connections (docs/protocol.md).

A frame: u32 length of the payload, u8 kind, u64 number of the call, the payload.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

from amfs.errors import ProtocolError

HEAD = struct.Struct("<IBQ")
FRAME_BYTES_MAX = 64 << 20
INLINE_MAX = 64 << 10  # bytes of a value; larger ones travel as files of the session
FUNCTIONS_KNOWN = 500  # that a worker keeps; of more it forgets the oldest
HANDSHAKE_S = 5.0
_HELLO = struct.Struct("<4sHQ32s")  # magic, version, number of the worker, nonce
_MAGIC, _VERSION = b"AMFC", 1
_NONCE = _PROOF = 32
_CODE = 16

# executor -> worker
SETUP = 1  # facts that the worker must know first
FUNCTION = 2  # which function the calls that follow mean, by number; with its pickle when the worker does not know it (any more)
CALL = 3
CHUNK = 4  # several calls of one function in one
GIVE_BACK = 5
STOP = 6
IN_FILE = 0x40  # on one of these: the payload is the path of a file that has it
# worker -> executor (VALUE and ERROR also in files)
VALUE = 16
ERROR = 17
RETURNED = 19  # calls that were given back, 8 bytes each
TEXT = 20  # output of a function


class Frame(NamedTuple):
    kind: int
    call: int
    payload: bytes


def key_of(session_key: bytes, executor: str) -> bytes:
    """The key of all connections of one executor."""
    return hmac.digest(session_key, b"amfs calls " + executor.encode(), "sha256")


class CallStream:
    """A connection after its handshake. ``pack`` makes bytes for the other side, ``feed`` takes bytes from it."""

    def __init__(self, sock: socket.socket, send_key: bytes = b"", receive_key: bytes = b"") -> None:
        self.sock = sock
        self._send_key, self._receive_key = send_key, receive_key
        self._sent = self._received = 0
        self._rest = bytearray()

    def pack(self, kind: int, call: int = 0, payload: bytes = b"") -> bytes:
        frame = HEAD.pack(len(payload), kind, call) + payload
        if self._send_key:
            frame += _code(self._send_key, self._sent, frame)
            self._sent += 1
        return frame

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete now. Raises ProtocolError for what cannot come from the other side."""
        rest = self._rest
        rest += data
        frames: list[Frame] = []
        at, end, tail = 0, len(rest), _CODE if self._receive_key else 0
        while end - at >= HEAD.size:
            length, kind, call = HEAD.unpack_from(rest, at)
            if length > FRAME_BYTES_MAX:
                raise ProtocolError(f"a frame of {length} bytes")
            stop = at + HEAD.size + length
            if stop + tail > end:
                break
            if tail:
                code = _code(self._receive_key, self._received, bytes(rest[at:stop]))
                if not hmac.compare_digest(code, bytes(rest[stop : stop + tail])):
                    raise ProtocolError("a frame was changed on its way")
                self._received += 1
            frames.append(Frame(kind, call, bytes(rest[at + HEAD.size : stop])))
            at = stop + tail
        del rest[:at]
        return frames


def _code(key: bytes, number: int, frame: bytes) -> bytes:
    return hashlib.blake2b(frame, digest_size=_CODE, key=key, salt=number.to_bytes(8, "little")).digest()


def _proof(key: bytes, role: bytes, said: bytes) -> bytes:
    return hmac.digest(key, b"amfs calls " + role + said, "sha256")


def _stream(sock: socket.socket, key: bytes, said: bytes, executor: bool) -> CallStream:
    sock.settimeout(None)
    if sock.family == socket.AF_UNIX:
        return CallStream(sock)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a host that is gone says nothing
    for option, value in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    keys = [_proof(key, role, said) for role in (b"to worker", b"to executor")]
    return CallStream(sock, *(keys if executor else reversed(keys)))


def _receive(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        if not piece:
            raise ProtocolError("the other side hung up during the handshake")
        data += piece
    return data


def join(address: str, key: bytes, worker: int) -> CallStream:
    """Connect to an executor: "unix:PATH" or "tcp:HOST:PORT". Raises OSError, ProtocolError."""
    kind, _, place = address.partition(":")
    if kind == "unix":
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(HANDSHAKE_S)
            sock.connect(place)
        except OSError:
            sock.close()
            raise
    else:
        host, _, port = place.rpartition(":")
        sock = socket.create_connection((host, int(port)), HANDSHAKE_S)
    hello = _HELLO.pack(_MAGIC, _VERSION, worker, os.urandom(_NONCE))
    try:
        sock.sendall(hello)
        nonce = _receive(sock, _NONCE)
        if not hmac.compare_digest(_receive(sock, _PROOF), _proof(key, b"executor", hello + nonce)):
            raise ProtocolError("the executor has another key")
        sock.sendall(_proof(key, b"worker", hello + nonce))
    except BaseException:
        sock.close()
        raise
    return _stream(sock, key, hello + nonce, False)


def join_any(addresses: Sequence[str], key: bytes, worker: int) -> CallStream:
    """At the first of these addresses that can be reached: a Unix socket cannot from other hosts. Raises as ``join``."""
    *others, last = addresses
    for address in others:
        try:
            return join(address, key, worker)
        except OSError:
            continue
    return join(last, key, worker)


def accept(sock: socket.socket, key: bytes) -> tuple[int, CallStream]:
    """The executor's side, on a new connection: the worker's number. Raises OSError, ProtocolError."""
    sock.settimeout(HANDSHAKE_S)
    hello = _receive(sock, _HELLO.size)
    magic, version, worker, _ = _HELLO.unpack(hello)
    if (magic, version) != (_MAGIC, _VERSION):
        raise ProtocolError("a stranger connected to an executor")
    nonce = os.urandom(_NONCE)
    sock.sendall(nonce + _proof(key, b"executor", hello + nonce))
    if not hmac.compare_digest(_receive(sock, _PROOF), _proof(key, b"worker", hello + nonce)):
        raise ProtocolError("a worker has another key")
    return worker, _stream(sock, key, hello + nonce, True)
