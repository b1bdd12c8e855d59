"""Packets to bytes and back: one frame is a fixed header and a MessagePack list of tagged messages.

Owns the frame's layout and the refusal of everything that is not one. Must not know: sockets, links, what a message means.

::

    offset  size
         0     4  magic "amfs"
         4     2  PROTOCOL_VERSION
         6     2  zero
         8     8  sender's id
        16     8  receiver's id
        24     8  sender's incarnation
        32     8  receiver's incarnation, 0: not known
        40     8  sequence number, 0: no messages follow
        48     8  acknowledgement
        56        MessagePack: [[tag, field, …], …]

Little-endian. Versions are equal or the peer is refused: all nodes of a session run one version of amfs.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from amfs.engine.messages import PROTOCOL_VERSION, AnyMessage, Message
from amfs.errors import ProtocolError
from amfs.net.link import Packet

MAGIC = b"amfs"
HEADER = struct.Struct("<4sHHQQQQQQ")

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[AnyMessage])


class RemoteProtocolError(ProtocolError):
    """The peer sent what this version does not understand: its fault, not ours."""


def encode(packet: Packet) -> bytes | bytearray:
    """The frame of a packet. Raises ProtocolError if a message holds what MessagePack cannot carry."""
    sender, receiver, incarnation, target, seq, ack, messages = packet
    header = HEADER.pack(MAGIC, PROTOCOL_VERSION, 0, sender, receiver, incarnation, target, seq, ack)
    if not seq:
        return header
    frame = bytearray(header)
    try:
        _encoder.encode_into(messages, frame, HEADER.size)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"cannot encode {_kinds(messages)}: {error}") from error
    return frame


def decode(frame: bytes | bytearray | memoryview) -> Packet:
    """The packet of a frame. Raises RemoteProtocolError, and nothing else, whatever the bytes are."""
    if len(frame) < HEADER.size:
        raise RemoteProtocolError(f"not a frame of amfs: {len(frame)} bytes")
    magic, version, zero, sender, receiver, incarnation, target, seq, ack = HEADER.unpack_from(frame)
    if magic != MAGIC:
        raise RemoteProtocolError("not a frame of amfs")
    if version != PROTOCOL_VERSION:
        raise RemoteProtocolError(f"protocol version {version}, this is version {PROTOCOL_VERSION}: both sides must run the same amfs")
    if zero or not incarnation:
        raise RemoteProtocolError("malformed header")
    if not seq:
        if len(frame) != HEADER.size:
            raise RemoteProtocolError(f"{len(frame) - HEADER.size} unexpected bytes after the header")
        return Packet(sender, receiver, incarnation, target, 0, ack, ())
    try:
        messages: Sequence[Message] = _decoder.decode(memoryview(frame)[HEADER.size :])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"undecodable messages: {error}") from error
    return Packet(sender, receiver, incarnation, target, seq, ack, messages)


def _kinds(messages: Sequence[Message]) -> str:
    return ", ".join(sorted({type(message).__name__ for message in messages}))
