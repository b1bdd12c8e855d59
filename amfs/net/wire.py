"""Packets to bytes and back: one frame is a fixed header and a MessagePack list of tagged messages.

Owns the layout of the frame and the refusal of malformed frames. Must not know: sockets, links, the meaning of a message.

::

    offset  size
         0     4  magic "amfs"
         4     2  PROTOCOL_VERSION
         6     2  flags: 1: the strings are escaped; 2: the sender has given up on the receiver (and says nothing else)
         8     8  sender's id
        16     8  receiver's id
        24     8  sender's incarnation
        32     8  receiver's incarnation, 0: not known
        40     8  sequence number, 0: no messages follow
        48     8  acknowledgement
        56        MessagePack: [[tag, field, …], …]

Little-endian. Versions are equal or the peer is refused: all nodes of a session run one version of amfs.

A name need not be UTF-8, but a string in MessagePack has to be. Python keeps bytes that are not UTF-8 as lone surrogates (U+DC80 to
U+DCFF). When a packet has any, all of its strings are escaped: byte N becomes NUL and U+00N, and NUL is doubled.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from amfs.errors import ProtocolError
from amfs.net.link import Packet
from amfs.vocabulary.messages import PROTOCOL_VERSION, AnyMessage, Message

MAGIC = b"amfs"
HEADER = struct.Struct("<4sHHQQQQQQ")

ESCAPED = 1
CLOSED = 2

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[AnyMessage])
_untyped = msgspec.msgpack.Decoder()
_TO_ESCAPE = re.compile("[\0\udc80-\udcff]")
_ESCAPED = re.compile("\0([\0\x80-\xff])")


class RemoteProtocolError(ProtocolError):
    """The peer sent what this version does not understand: its fault, not ours."""


def encode(packet: Packet) -> bytes | bytearray:
    """The frame of a packet. Raises ProtocolError if a message holds what MessagePack cannot carry."""
    sender, receiver, incarnation, target, seq, ack, messages, closed = packet
    header = HEADER.pack(MAGIC, PROTOCOL_VERSION, CLOSED if closed else 0, sender, receiver, incarnation, target, seq, ack)
    if not seq:
        return header
    frame = bytearray(header)
    try:
        try:
            _encoder.encode_into(messages, frame, HEADER.size)
        except UnicodeEncodeError:
            frame = bytearray(HEADER.pack(MAGIC, PROTOCOL_VERSION, ESCAPED, sender, receiver, incarnation, target, seq, ack))
            _encoder.encode_into(_each_string(msgspec.to_builtins(messages, builtin_types=(bytes,)), _escape), frame, HEADER.size)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"cannot encode {_kinds(messages)}: {error}") from error
    return frame


def encodable(message: Message) -> bool:
    try:
        encode(Packet(0, 0, 1, 0, 1, 0, (message,)))
    except ProtocolError:
        return False
    return True


def decode(frame: bytes | bytearray | memoryview) -> Packet:
    """The packet of a frame. Raises RemoteProtocolError, and nothing else, whatever the bytes are."""
    if len(frame) < HEADER.size:
        raise RemoteProtocolError(f"not a frame of amfs: {len(frame)} bytes")
    magic, version, flags, sender, receiver, incarnation, target, seq, ack = HEADER.unpack_from(frame)
    if magic != MAGIC:
        raise RemoteProtocolError("not a frame of amfs")
    if version != PROTOCOL_VERSION:
        raise RemoteProtocolError(f"protocol version {version}, this is version {PROTOCOL_VERSION}: both sides must run the same amfs")
    if flags & ~(ESCAPED | CLOSED) or not incarnation or (flags & CLOSED and seq):
        raise RemoteProtocolError("malformed header")
    if not seq:
        if len(frame) != HEADER.size:
            raise RemoteProtocolError(f"{len(frame) - HEADER.size} unexpected bytes after the header")
        return Packet(sender, receiver, incarnation, target, 0, ack, (), bool(flags & CLOSED))
    try:
        content = memoryview(frame)[HEADER.size :]
        messages: Sequence[Message]
        if flags & ESCAPED:
            messages = msgspec.convert(_each_string(_untyped.decode(content), _unescape), list[AnyMessage], builtin_types=(bytes,))
        else:
            messages = _decoder.decode(content)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"undecodable messages: {error}") from error
    return Packet(sender, receiver, incarnation, target, seq, ack, messages)


def _each_string(thing: Any, change: Callable[[str], str]) -> Any:
    """A copy of what lists, dicts and scalars make up, with each string changed. Raises RecursionError if it is too deep."""
    if isinstance(thing, str):
        return change(thing)
    if isinstance(thing, (list, tuple)):
        return [_each_string(part, change) for part in thing]
    if isinstance(thing, dict):
        return {_each_string(key, change): _each_string(value, change) for key, value in thing.items()}
    return thing


def _escape(text: str) -> str:
    return _TO_ESCAPE.sub(lambda found: "\0\0" if found[0] == "\0" else f"\0{chr(ord(found[0]) - 0xDC00)}", text)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\0" if found[1] == "\0" else chr(ord(found[1]) + 0xDC00), text)


def _kinds(messages: Sequence[Message]) -> str:
    return ", ".join(sorted({type(message).__name__ for message in messages}))
