"""The handshake of data connections as a stranger would write it, from docs/protocol.md: with Python's hashlib, not with ours."""

from __future__ import annotations

import hmac
import os
import socket
import struct

KEY = bytes(range(32))
MAGIC, VERSION = 0x44464D41, 3
OK, WRONG_VERSION, WRONG_KEY, NOT_MEMBER, NOT_ME = range(5)
HELLO = struct.Struct("<IHHQQQQ32s")  # magic, version, lane, own number and incarnation, the server's, nonce
HEAD = struct.Struct("<IHH")  # magic, version, status
CHALLENGE_BYTES, NONCE_BYTES, PROOF_BYTES = 72, 32, 32
CLIENT = 1 << 32
GUARD_S = 20.0


def hello(server: int, *, node: int = 1, lane: int = 0, incarnation: int = 0, of: int = 0) -> bytes:
    return HELLO.pack(MAGIC, VERSION, lane, node, incarnation, server, of, os.urandom(NONCE_BYTES))


def proof(role: bytes, said: bytes, challenge: bytes, key: bytes = KEY) -> bytes:
    return hmac.digest(key, role + said + challenge[: HEAD.size + NONCE_BYTES], "sha256")


def challenge_to(said: bytes, key: bytes = KEY) -> bytes:
    """The answer of a server with that key."""
    head = HEAD.pack(MAGIC, VERSION, OK) + os.urandom(NONCE_BYTES)
    return head + proof(b"amfs data server", said, head, key)


def exactly(line: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = line.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def status(head: bytes) -> int:
    magic, version, number = HEAD.unpack(head[: HEAD.size])
    assert (magic, version) == (MAGIC, VERSION)
    return int(number)


def connect(port: int, server: int, *, key: bytes = KEY, node: int = 1, lane: int = 0, incarnation: int = 0) -> tuple[socket.socket, int]:
    """A connection on which requests may follow if the second value is OK."""
    line = socket.create_connection(("127.0.0.1", port), GUARD_S)
    said = hello(server, node=node, lane=lane, incarnation=incarnation)
    line.sendall(said)
    challenge = exactly(line, CHALLENGE_BYTES)
    if (refused := status(challenge)) != OK:
        return line, refused
    line.sendall(proof(b"amfs data client", said, challenge, key))
    return line, status(exactly(line, HEAD.size))


def accept(line: socket.socket, key: bytes = KEY) -> int:
    """The server's side of it; the lane that is wanted, or -1: it went away."""
    try:
        said = exactly(line, HELLO.size)
        challenge = challenge_to(said, key)
        line.sendall(challenge)
        if exactly(line, PROOF_BYTES) != proof(b"amfs data client", said, challenge, key):
            return -1
        line.sendall(HEAD.pack(MAGIC, VERSION, OK))
    except (EOFError, OSError):
        return -1
    return int(HELLO.unpack(said)[2])
