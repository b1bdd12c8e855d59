"""A node lives, whatever arrives with the right keys, and does its work afterwards."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import commands
import msgspec
import pytest
from fs_session import PATIENCE_S, running

from amfs.host.processes import is_running
from amfs.net.records import SessionRecord
from amfs.net.transport import Transport, random_client_id
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary import messages as m
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.records import pack_body

MESSAGES = 800
RUN = 77
#: Those whose right meaning is the end of the node or of its membership.
MEANT_TO_END = (m.Shutdown, m.View, m.Leave, m.DrainNode)
REQUESTS = [*typing.get_args(q.AnyRequest), *typing.get_args(p.AnyPeerCall)]
KINDS = [kind for kind in typing.get_args(m.AnyMessage) if kind not in MEANT_TO_END]


@pytest.fixture(scope="module")
def session() -> Iterator[SessionRecord]:
    with running(1) as session:
        yield session


class Client:
    def __init__(self, session: SessionRecord) -> None:
        self.session = session
        self.node = session.nodes[0]
        self.transport = Transport(random_client_id(), session.keys)
        self.transport.connect(0, self.node.endpoints, self.node.host)

    def say(self, *messages: m.Message) -> None:
        for message in messages:
            self.transport.queue(0, message)
        self.transport.flush(time.monotonic())

    def hear(self, kind: type[m.Message]) -> Any:
        """The next message of this kind."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            assert is_running(self.node.pid, self.node.started), "the node has ended"
            self.transport.poll(0.1)
            now = time.monotonic()
            found = [message for _, message in self.transport.receive(now) if isinstance(message, kind)]
            self.transport.on_timer(now)
            self.transport.flush(now)
            if found:
                return found[-1]
        raise AssertionError(f"no {kind.__name__} has come")

    def close(self) -> None:
        self.transport.close()


@pytest.fixture
def client(session: SessionRecord) -> Iterator[Client]:
    client = Client(session)
    yield client
    client.close()


def works(session: SessionRecord, here: Path) -> None:
    (here / "list").write_text("a -b sh -o x -a -c 'echo fine > x'\nb -b cp -i x -o y -a x y\n")
    done = commands.run("run", "--no-journal", "--session", session.name, "list", cwd=here, timeout=PATIENCE_S)
    assert done.returncode == 0 and (here / "y").read_text() == "fine\n", done.stderr


class Chance(random.Random):
    """Values for the fields of messages, plausible or not."""

    def value(self, hint: Any, place: str, depth: int = 0) -> Any:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if hint is int:
            return self.choice([0, 0, 1, RUN, RUN, 7, -1, 65535, 1 << 31, 1 << 33, (1 << 63) - 1, -(1 << 63), self.getrandbits(16)])
        if hint is bool:
            return self.random() < 0.5
        if hint is bytes:
            return self.choice([b"", b"x", self.randbytes(16), self.randbytes(100), pack_body("/bin/true", ["true"]), b"\xff" * 9])
        if hint is str:
            return self.choice([
                "", f"{RUN}/a", f"{RUN}/a", f"{RUN}/b/c", f"{RUN}/", "7/x", "x", "/", place, f"{RUN}/../../../../../../etc/x",
                f"{RUN}/x\0y", f"{RUN}/{'d/' * 1500}x", f"{RUN}/\udcff", "A=b", "=", "tcp://127.0.0.1:1", "tcp://x", "ipc:///none", "read",
                "lookup", "open", "__init__", "spread", "hello", "list", "unlink_path", "info_path", "x" * 5000,
            ])  # fmt: skip
        if hint is object and depth == 1 and self.random() < 0.7:
            return self.struct(self.choice(REQUESTS), place, depth)
        if hint is object:
            kind = self.choice([int, str, bytes, bool, None, tuple[object, ...], dict[str, object]] if depth < 3 else [int, bytes, None])
            return None if kind is None else self.value(kind, place, depth + 1)
        if origin is tuple and arguments[-1] is ...:
            return tuple(self.value(arguments[0], place, depth + 1) for _ in range(self.choice([0, 1, 1, 2, 5])))
        if origin is tuple:
            return tuple(self.value(argument, place, depth + 1) for argument in arguments)
        if origin is dict:
            return {self.value(str, place, depth + 1): self.value(arguments[1], place, depth + 1) for _ in range(self.randrange(3))}
        if arguments:  # a union, perhaps with None
            some = [each for each in arguments if each is not type(None)]
            return self.value(self.choice(some), place, depth) if len(some) == len(arguments) or self.random() < 0.7 else None
        return self.struct(hint, place, depth)

    def struct(self, kind: type[msgspec.Struct], place: str, depth: int = 0) -> Any:
        hints = typing.get_type_hints(kind)
        names = getattr(kind, "_fields", None) or kind.__struct_fields__
        return kind(*[self.value(hints[name], place, depth + 1) for name in names])


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_a_node_lives_whatever_it_is_told(session: SessionRecord, client: Client, tmp_path: Path, seed: int) -> None:
    chance = Chance(seed)
    info = m.RunInfo(f"{RUN}/", str(tmp_path), ("PATH=/usr/bin:/bin",))
    client.say(m.ClientHello(client.transport.own_id), m.RunBegin(RUN, client.transport.own_id, info))
    client.hear(m.View)
    for i in range(MESSAGES):
        client.say(chance.struct(KINDS[i % len(KINDS)], str(tmp_path)))
        if i % 100 == 0:
            client.say(m.StatusAsk())
            assert client.hear(m.Status).node == 0
    client.say(m.RunEnd(RUN, True), m.StatusAsk())
    client.hear(m.Status)
    works(session, tmp_path)


@pytest.mark.parametrize(
    "message",
    [
        m.RunBegin(RUN, m.CLIENT_ID_MIN, m.RunInfo(f"{RUN}/", "relative", ())),
        m.RunBegin(RUN, m.CLIENT_ID_MIN, m.RunInfo(f"{RUN}/", "/", ("nonsense",))),
        m.RunBegin(1 << 40, m.CLIENT_ID_MIN, m.RunInfo(f"{1 << 40}/", "/", ())),
        m.Fetch(RUN, ("no slash", "", f"{RUN}/\0")),
        m.Fetch(RUN, (f"{RUN}/../../../../etc/passwd",)),
        m.Join(m.Member(9, 1, ("nonsense", "tcp://x"), 4)),
        m.Join(m.Member(9, 1, ("tcp://127.0.0.1:1",), -4)),
        m.Join(m.Member(9, 1, ("tcp://127.0.0.1:1",), 4, "", 65536)),
        m.Join(m.Member(1 << 50, 1, ("tcp://127.0.0.1:1",), 1 << 40)),
        m.PeerRequest(1, ["Lookup", None, [], {}]),
        m.PeerRequest(1, p.Lookup(1, b"x")),
        m.PeerRequest(1, {"Lookup": 1}),
        m.FsRequest(1, ["Walk", b"/" + b"x/" * 100_000]),
        m.FsRequest(1, ["InfoPath", b"/"]),
        m.FsRequest(1, q.Walk(b"/" + b"x/" * 100_000, True)),
        m.FsRequest(1, q.Write(1, -1, b"x"), -5, 1 << 60),
        m.Assign(RUN, (m.TaskSpec(1, b"", outputs=("x",)),)),
        m.Assign(RUN, (m.TaskSpec(1, b"\xff" * 40),)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_makes_no_sense_is_refused(client: Client, message: m.Message) -> None:
    client.say(message, m.StatusAsk())
    assert client.hear(m.Status).node == 0


def test_large_answers_come_in_pieces(session: SessionRecord, client: Client, tmp_path: Path) -> None:
    """Three hundred files of a size that travels inside the answer are 19 MB."""
    count, size = 300, 65536
    names = [f"f{i}" for i in range(count)]
    store = next(Path("/dev/shm").glob(f"amfs-{os.getuid()}-{session.name}-n0-*"))
    info = m.RunInfo(f"{RUN}/", str(tmp_path), ())
    client.say(m.RunBegin(RUN, client.transport.own_id, info), m.StatusAsk())
    client.hear(m.Status)
    place = next(store.rglob("files")) / str(RUN)
    place.mkdir(exist_ok=True)
    for name in names:
        (place / name).write_bytes(bytes(size))
    client.say(m.Fetch(RUN, tuple(f"{RUN}/{name}" for name in names)))
    blobs = client.hear(m.Content).blobs
    inline = [blob for blob in blobs if blob.data is not None]
    assert len(blobs) == count and not any(blob.missing for blob in blobs)
    assert sum(len(blob.data) for blob in inline) <= 8 << 20
    assert all(blob.size == size for blob in blobs if blob.data is None)
    client.say(m.RunEnd(RUN, True))


def test_names_of_any_depth(session: SessionRecord, tmp_path: Path) -> None:
    deep = "d/" * 1200 + "x"
    (tmp_path / "list").write_text(f"a -b sh -o {deep} -a -c 'echo deep > {deep}'\nb -b sh -i {deep} -o y -a -c 'cat < {deep} > y'\n")
    command = [sys.executable, "-m", "amfs", "run", "--no-journal", "--session", session.name, "list"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "y").read_text() == "deep\n"
    works(session, tmp_path)
