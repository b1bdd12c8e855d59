"""Frames: round trips, and nothing but RemoteProtocolError whatever arrives."""

from __future__ import annotations

import contextlib
import re
import types
import typing
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amfs.errors import ProtocolError
from amfs.net.link import Packet
from amfs.net.wire import ESCAPED, HEADER, MAGIC, RemoteProtocolError, decode, encode
from amfs.vocabulary import messages as vocabulary
from amfs.vocabulary.messages import (
    PROTOCOL_VERSION,
    AnyMessage,
    Blob,
    Content,
    FsRequest,
    Heartbeat,
    Message,
    Options,
    RunBegin,
    RunInfo,
    Status,
    Submit,
    TaskSpec,
)

U64 = st.integers(0, 2**64 - 1)


def simplest(kind: type[typing.Any]) -> typing.Any:
    """A message with an empty or zero value in each field."""
    values: dict[object, object] = {int: 0, str: "", bytes: b"", bool: False, object: None}
    arguments: list[object] = []
    hints = typing.get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        hint = hints[field.name]
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            arguments.append(simplest(hint))
        elif typing.get_origin(hint) is types.UnionType:
            arguments.append(simplest(typing.get_args(hint)[0]))
        elif typing.get_origin(hint) in (tuple, dict):
            arguments.append(typing.get_origin(hint)())
        else:
            arguments.append(values[hint])
    return kind(*arguments)


@pytest.mark.parametrize("kind", typing.get_args(AnyMessage), ids=lambda kind: kind.__name__)
def test_every_message_makes_the_round_trip(kind: type[Message]) -> None:
    message = simplest(kind)
    assert decode(encode(Packet(3, 9, 4, 5, 1, 0, [message]))).messages == [message]


def test_every_message_of_the_vocabulary_is_in_the_union() -> None:
    kinds = {kind for kind in vars(vocabulary).values() if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message}
    assert kinds == set(typing.get_args(AnyMessage))


def test_a_full_message_makes_the_round_trip() -> None:
    task = TaskSpec(7, b"\0body", ("7/a",), ("b",), ("7/c",), (2,), Options(cores=2), 1, 3)
    batch = [Submit(1, (task, task)), Content(1, (Blob("7/a", 3, b"abc"),)), Status(0, 2, {"queued": 3, "host": "x"}), Heartbeat(9)]
    packet = Packet(1 << 40, 7, 2, 3, 4, 5, batch)
    assert decode(bytes(encode(packet))) == packet
    assert decode(memoryview(encode(packet))) == packet


LETTERS = st.characters(exclude_categories=["Cs"])
TEXT = st.text(st.one_of(LETTERS, st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF), st.just("\0")))


@given(st.lists(TEXT, min_size=1), st.binary())
@example(["b\udce4d", "\0\udc80\0\0", "fine\0\xe4"], b"\xff")
def test_names_that_are_not_utf_8_make_the_round_trip(names: list[str], content: bytes) -> None:
    info = RunInfo("7/", names[0], tuple(f"{name}=x" for name in names), paths={name: name for name in names})
    tasks = (TaskSpec(7, content, tuple(names)),)
    status = Status(0, 2, {name: name for name in names})
    batch = [RunBegin(7, 1 << 40, info), Submit(7, tasks), status, FsRequest(1, ["x", content, None, 1.5, True])]
    packet = Packet(1 << 40, 7, 2, 3, 4, 5, batch)
    assert decode(bytes(encode(packet))) == packet


@given(U64, U64, st.integers(1, 2**64 - 1), U64, U64, U64)
def test_headers_make_the_round_trip(sender: int, receiver: int, incarnation: int, target: int, seq: int, ack: int) -> None:
    packet = Packet(sender, receiver, incarnation, target, seq, ack, [Heartbeat(1)] if seq else ())
    assert decode(encode(packet)) == packet


@given(st.binary(max_size=200))
@example(b"")
@example(MAGIC)
@example(MAGIC * 100)
def test_arbitrary_bytes_are_refused(frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(frame)


@given(st.binary(max_size=200))
@example(b"\x91" * 100_000)  # deep nesting
@example(b"\xdd\xff\xff\xff\xff")  # an array of four thousand million
@example(b"\x91\x92\x05\xa1\xff")  # text that is not UTF-8
@example(b"\x91\x92\x05\xc0")
def test_arbitrary_bodies_are_refused_or_understood(body: bytes) -> None:
    for flags in (0, ESCAPED):
        frame = HEADER.pack(MAGIC, PROTOCOL_VERSION, flags, 1, 2, 1, 1, 1, 0) + body
        try:
            packet = decode(frame)
        except RemoteProtocolError:
            continue
        assert all(isinstance(message, Message) for message in packet.messages)


@given(st.data())
def test_a_damaged_frame_is_refused_or_understood(data: st.DataObject) -> None:
    frame = bytearray(encode(Packet(1, 7, 2, 3, 4, 5, [Submit(1, (TaskSpec(7, b"body", ("a",)),)), Heartbeat(2)])))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    del frame[data.draw(st.integers(0, len(frame))) :]
    with contextlib.suppress(RemoteProtocolError):
        assert isinstance(decode(frame), Packet)


def test_the_message_for_another_version_names_both() -> None:
    frame = HEADER.pack(MAGIC, PROTOCOL_VERSION + 1, 0, 1, 2, 1, 1, 0, 0)
    with pytest.raises(RemoteProtocolError, match=f"protocol version {PROTOCOL_VERSION + 1}, this is version {PROTOCOL_VERSION}"):
        decode(frame)


def test_what_cannot_be_encoded_names_the_message() -> None:
    with pytest.raises(ProtocolError, match="cannot encode Status"):
        encode(Packet(1, 1, 1, 1, 1, 0, [Status(0, 0, {"x": object()})]))


def test_the_protocol_page_lists_every_message() -> None:
    page = (Path(__file__).resolve().parent.parent.parent / "docs" / "protocol.md").read_text(encoding="utf-8")
    listed = {(int(tag), name) for tag, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE)}
    assert listed == {(kind.__struct_config__.tag, kind.__name__) for kind in typing.get_args(AnyMessage)}
