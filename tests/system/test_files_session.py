"""``amfs.client.files`` and ``amfs.Cluster`` on sessions of real nodes: what Python's own functions do, pipelines, nodes that die."""

from __future__ import annotations

import errno
import io
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fs_session import kill, running

import amfs
from amfs.client import discovery
from amfs.client.connection import Call
from amfs.client.files import Files
from amfs.client.open_file import CHUNK, RawFile
from amfs.errors import SessionError, UsageError
from amfs.host import processes
from amfs.net import transport
from amfs.net.records import SessionRecord
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.attr import Attr


@pytest.fixture(scope="module")
def session() -> Iterator[SessionRecord]:
    with running(2, "--tcp", "127.0.0.1") as session:
        yield session


@pytest.fixture(params=["same host", "another host"])
def files(session: SessionRecord, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    """The session's files, none of them there at first; as seen from its host, and as from another one."""
    if request.param == "another host":
        for module in (processes, discovery, transport):
            monkeypatch.setattr(module, "host_id", lambda: "elsewhere/0")
    with Files() as files:
        assert files.connection.same_host is (request.param == "same host")
        for entry in list(files.scandir("/")):
            files.rmtree(entry.path) if entry.is_dir() else files.unlink(entry.path)
        yield files


# ── as os and open ─────────────────────────────────────────────────────────────────────────────────


def test_files_are_written_and_read_in_every_mode(files: Files) -> None:
    with files.open("/t", "w", newline="\r\n") as text:
        assert isinstance(text, io.TextIOWrapper) and text.name == "/t"
        print("grüße\nzwei", file=text)
    with files.open("/t", newline="") as text:
        assert text.read() == "grüße\r\nzwei\r\n"
    with files.open("/t", "a") as text:
        text.write("drei")
    with files.open("/t", encoding="utf-8") as text:
        assert [line.strip() for line in text] == ["grüße", "zwei", "drei"]
    with files.open("/t", "r+b") as both:
        both.seek(-4, os.SEEK_END)
        both.write(b"vier!")
        both.seek(0)
        assert both.read().endswith(b"zwei\r\nvier!") and both.tell() == 20
        both.truncate(5)
    assert files.read_bytes("/t") == "grü".encode() + b"\xc3"
    with files.open("/new", "x+b") as both:
        both.write(b"abc")
        both.seek(1)
        assert both.read() == b"bc"
    with pytest.raises(FileExistsError) as caught:
        files.open("/new", "x")
    assert caught.value.filename == "/new"
    with files.open("/new", "rb") as reader, pytest.raises(io.UnsupportedOperation):
        reader.write(b"")
    with files.open("/new", "wb") as writer, pytest.raises(io.UnsupportedOperation):
        writer.read()
    for mode, how in (("rw", {}), ("rb", {"encoding": "utf-8"}), ("r", {"buffering": 0})):
        with pytest.raises(ValueError, match=r"mode|text"):
            files.open("/new", mode, **how)


@pytest.mark.parametrize("layout", ["whole", "striped"])
def test_copies_keep_holes(files: Files, tmp_path: Path, layout: str) -> None:
    for name, tail in (("/end", b""), ("/data", b"z")):
        with files.open(name, "wb") as file:
            file.write(b"head")
            file.truncate(1 << 40)
            file.seek(0, os.SEEK_END)
            file.write(tail)
        files.copy_file(name, "/copy", layout=layout)
        size = (1 << 40) + len(tail)
        files.get_file(name, tmp_path / "out")
        assert (tmp_path / "out").stat().st_size == size and (tmp_path / "out").stat().st_blocks < 1 << 14
        assert files.info("/copy").size == size
        with files.open("/copy", "rb") as file:
            assert file.read(6) == b"head\0\0"
            file.seek(-1, os.SEEK_END)
            assert file.read() == (tail or b"\0")


@pytest.mark.parametrize("layout", ["whole", "striped"])
def test_large_files_read_the_same_in_any_order(files: Files, layout: str) -> None:
    data = os.urandom(6 * CHUNK + 12345)
    files.write_bytes("/big", data, layout=layout)
    assert files.info("/big").size == len(data)
    assert files.read_bytes("/big") == data
    with files.open("/big", "rb") as file:
        parts = []
        while part := file.read(70_000):
            parts.append(part)
        assert b"".join(parts) == data
        for at in (5 * CHUNK, 17, len(data) - 3, CHUNK - 1, 2 * CHUNK):
            file.seek(at)
            assert file.read(CHUNK + 7) == data[at : at + CHUNK + 7]
        file.seek(CHUNK)
        file.readline()
        assert file.read() == data[data.index(b"\n", CHUNK) + 1 :]
    with files.open("/big", "rb", buffering=0) as raw:
        assert isinstance(raw, RawFile)
        room = bytearray(3 * CHUNK)
        assert raw.readinto(room) == len(room) and bytes(room) == data[: len(room)]
        assert raw.read(10) == data[len(room) : len(room) + 10]
        assert raw.readall() == data[len(room) + 10 :] and raw.read(1) == b""


def test_what_is_written_shows_while_it_is_written(files: Files) -> None:
    with files.open("/log", "wb", buffering=0) as writer, files.open("/log", "rb", buffering=0) as reader:
        assert reader.read(10) == b""
        writer.write(b"first")
        assert reader.read(10) == b"first"
        writer.write(b"second")
        assert reader.read(3) == b"sec" and reader.read(10) == b"ond"
        assert not files.info("/log").finished
    assert files.info("/log").finished


def test_the_tree_changes_as_with_os(files: Files) -> None:
    files.makedirs("/a/b/c")
    files.makedirs("/a/b/c", exist_ok=True)
    with pytest.raises(FileExistsError):
        files.makedirs("/a/b/c")
    with pytest.raises(FileNotFoundError):
        files.mkdir("/x/y")
    files.write_bytes("/a/f", b"12345")
    with pytest.raises(NotADirectoryError):
        files.mkdir("/a/f/g")
    with pytest.raises(FileExistsError):
        files.mkdir("/")
    files.makedirs("/", exist_ok=True)
    files.rename("/a/f", "/a/b/g")
    files.link("/a/b/g", "/a/h")
    assert files.stat("/a/h").st_nlink == 2 and files.stat("/a/h").st_ino == files.stat("/a/b/g").st_ino
    files.symlink("b/g", "/a/s")
    assert files.readlink("/a/s") == "b/g" and files.readlink(b"/a/s") == b"b/g"
    assert files.stat("/a/s").st_size == 5 and stat.S_ISLNK(files.lstat("/a/s").st_mode)
    assert sorted(files.listdir("/a")) == ["b", "h", "s"] and sorted(files.listdir(b"/a")) == [b"b", b"h", b"s"]
    with pytest.raises(OSError, match="not empty") as caught:
        files.rmdir("/a")
    assert caught.value.errno == errno.ENOTEMPTY
    with pytest.raises(FileExistsError) as twice:
        files.rename("/a/h", "/a/s", replace=False)
    assert (twice.value.filename, twice.value.filename2) == ("/a/h", "/a/s")
    with pytest.raises(NotADirectoryError):
        files.rmtree("/a/h")
    with pytest.raises(NotADirectoryError):
        files.listdir("/a/h")
    files.rmtree("/a")
    assert files.listdir() == [] and not files.exists("/a")


def test_attributes_change_as_with_os(files: Files) -> None:
    files.write_bytes("/f", b"x" * 1000)
    files.chmod("/f", 0o600)
    files.utime("/f", ns=(1, 1_700_000_000_123_456_789))
    facts = files.stat("/f")
    assert (stat.S_IMODE(facts.st_mode), facts.st_atime_ns, facts.st_mtime_ns) == (0o600, 1, 1_700_000_000_123_456_789)
    files.utime("/f", (5, 6))
    assert (files.stat("/f").st_atime, files.stat("/f").st_mtime) == (5, 6)
    files.utime("/f")
    assert abs(files.stat("/f").st_mtime - time.time()) < 60
    files.chown("/f", 1234, -1)
    assert files.stat("/f").st_uid == 1234 and files.stat("/f").st_gid == facts.st_gid
    files.truncate("/f", 10)
    assert files.read_bytes("/f") == b"x" * 10
    files.truncate("/f", 12)
    assert files.read_bytes("/f") == b"x" * 10 + b"\0\0"
    files.setxattr("/f", "user.note", b"\0value")
    assert files.getxattr("/f", "user.note") == b"\0value" and "user.note" in files.listxattr("/f")
    with pytest.raises(FileExistsError):
        files.setxattr("/f", "user.note", b"", os.XATTR_CREATE)
    files.removexattr("/f", "user.note")
    with pytest.raises(OSError, match=os.strerror(errno.ENODATA)):
        files.getxattr("/f", "user.note")


def test_new_files_obey_the_umask(files: Files) -> None:
    old = os.umask(0o027)
    try:
        files.write_bytes("/f", b"")
        files.mkdir("/d")
    finally:
        os.umask(old)
    assert stat.S_IMODE(files.stat("/f").st_mode) == 0o640 and stat.S_IMODE(files.stat("/d").st_mode) == 0o750
    assert files.stat("/f").st_uid == os.geteuid()


# ── many at a time ─────────────────────────────────────────────────────────────────────────────────


def test_many_calls_travel_together_and_answer_in_order(files: Files) -> None:
    files.mkdir("/m")
    made = files.call_many(Call(q.SymlinkPath(b"%d" % number, b"/m/%d" % number)) for number in range(1200))
    assert not [each for each in made if isinstance(each, OSError)]
    found = files.call_many(Call(q.ReadlinkPath(b"/m/%d" % number), ("/m",)) for number in range(1202))
    assert found[:1200] == [b"%d" % number for number in range(1200)]
    assert all(isinstance(each, FileNotFoundError) for each in found[1200:])
    assert len(list(files.scandir("/m"))) == 1200
    assert len(files.glob("/m/11??")) == 100
    files.rmtree("/m")


def test_a_tree_of_many_directories_is_walked_in_order(files: Files) -> None:
    expected = []
    for one in range(3):
        for other in range(15):
            files.makedirs(f"/w/{one}/{other:02}")
            files.write_bytes(f"/w/{one}/{other:02}/f", b"")
    for path, entries in files.walk("/w"):
        entries.sort(key=lambda entry: entry.name)
        expected.append(path)
        if path == b"/w":
            del entries[1]  # a directory that is taken out is not gone into
    assert expected == sorted(expected) and len(expected) == 1 + 2 * 16


def test_threads_use_one_connection_at_a_time(files: Files) -> None:
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        try:
            data = bytes([number]) * 300_000
            for turn in range(10):
                path = f"/thread-{number}-{turn}"
                files.write_bytes(path, data)
                with files.open(path, "rb") as file:
                    assert file.read(1000) == data[:1000] and file.read() == data[1000:]
                assert files.stat(path).st_size == len(data)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert wrong == [] and len(files.listdir()) == 40


# ── bulk copies ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [0, 1, 5 * CHUNK + 17])
def test_local_files_go_in_and_out(files: Files, tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "in").write_bytes(data)
    (tmp_path / "in").chmod(0o750)
    told: list[int] = []
    attr = files.put_file(tmp_path / "in", "/f", progress=told.append)
    assert isinstance(attr, Attr) and attr.size == sum(told) == size
    assert files.read_bytes("/f") == data and stat.S_IMODE(files.stat("/f").st_mode) == 0o750
    told.clear()
    files.get_file("/f", tmp_path / "out", progress=told.append)
    assert (tmp_path / "out").read_bytes() == data and sum(told) == size
    with pytest.raises(FileExistsError):
        files.put_file(tmp_path / "in", "/f", exclusive=True)
    with pytest.raises(FileExistsError):
        files.get_file("/f", tmp_path / "out", exclusive=True)
    (tmp_path / "in").write_bytes(b"shorter")
    files.put_file(tmp_path / "in", "/f")
    assert files.read_bytes("/f") == b"shorter"


def test_copies_name_the_side_at_fault(files: Files, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"x")
    files.mkdir("/d")
    with pytest.raises(FileNotFoundError) as caught:
        files.put_file(tmp_path / "none", "/f")
    assert caught.value.filename == str(tmp_path / "none")
    with pytest.raises(FileNotFoundError) as caught:
        files.put_file(tmp_path / "in", "/none/f")
    assert os.fsencode(caught.value.filename) == b"/none/f"
    with pytest.raises(IsADirectoryError):
        files.put_file(tmp_path / "in", "/d")
    with pytest.raises(IsADirectoryError):
        files.get_file("/d", tmp_path / "out")
    with pytest.raises(FileNotFoundError) as caught:
        files.get_file("/none", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    files.write_bytes("/f", b"x")
    with pytest.raises(FileNotFoundError) as caught:
        files.get_file("/f", tmp_path / "no" / "where")
    assert caught.value.filename == str(tmp_path / "no" / "where")


def test_no_scratch_file_is_left_behind(session: SessionRecord, tmp_path: Path) -> None:
    with Files() as files:
        (tmp_path / "in").write_bytes(b"x" * 1000)
        place = os.path.dirname(os.fsencode(files.connection.call(q.Scratch())))
        os.unlink(os.path.join(place, os.listdir(place)[0]))
        files.mkdir("/dir")
        for target in ("/f", "/none/f", "/dir"):
            try:
                files.put_file(tmp_path / "in", target)
            except OSError:
                continue
        assert os.listdir(place) == []
        files.rmtree("/dir")


# ── places ─────────────────────────────────────────────────────────────────────────────────────────


def test_ranks_and_layouts(files: Files) -> None:
    files.set_rank("/future", 1)
    with files.open("/future", "wb") as file:
        file.write(b"x" * 100_000)
    assert files.get_rank("/future") == 1 and files.locate("/future") == [(0, 100_000, (1,))]
    files.set_rank("/future", 0)
    assert files.get_rank("/future") == 0 and files.read_bytes("/future") == b"x" * 100_000
    with pytest.raises(OSError, match=os.strerror(errno.ENXIO)):
        files.set_rank("/future", 99)
    assert files.get_layout("/future") == ("whole", 0)
    files.set_layout("/future", "striped", 4096)
    assert files.get_layout("/future") == ("striped", 4096) and files.read_bytes("/future") == b"x" * 100_000
    assert len(files.locate("/future")) == 25
    files.mkdir("/d")
    assert files.get_layout("/d") is None
    files.set_layout("/d", "striped")
    files.mkdir("/d/e")
    files.write_bytes("/d/e/f", b"y")
    assert files.info("/d/e/f").layout == 1
    files.set_layout("/d", None)
    assert files.get_layout("/d") is None
    assert [usage.node for usage in files.df()] == [0, 1]


# ── keys and values, and the cluster ───────────────────────────────────────────────────────────────


def test_keys_and_values(files: Files) -> None:
    kv = files.kv
    keys: list[str | bytes] = ["plain", "with/slash", b"\xff\x00binary", ".", "..", "long" * 500, "ünï"]
    for number, key in enumerate(keys):
        assert not kv.exists(key)
        kv.put(key, b"value %d" % number)
    for number, key in enumerate(keys):
        assert kv.exists(key) and kv.get(key) == b"value %d" % number
    assert sorted(kv.keys()) == sorted(os.fsencode(key) for key in keys)
    assert kv.get_many(["plain", "none", ".."]) == [b"value 0", None, b"value 4"]
    kv.put("plain", b"")
    assert kv.get("plain") == b""
    kv.delete("plain")
    for call in (kv.get, kv.delete):
        with pytest.raises(KeyError, match="plain"):
            call("plain")
    assert not kv.exists("plain")


def test_a_value_is_old_or_new_never_between(files: Files, session: SessionRecord) -> None:
    versions = [bytes([number]) * 200_000 for number in range(20)]
    files.kv.put("k", versions[0])
    stop = threading.Event()
    wrong: list[object] = []

    def watch() -> None:
        with Files(node=1) as others:
            while not stop.is_set():
                value = others.kv.get("k")
                if len(value) != 200_000 or len(set(value)) != 1:
                    wrong.append(value[:10])

    thread = threading.Thread(target=watch)
    thread.start()
    for value in versions:
        files.kv.put("k", value)
    stop.set()
    thread.join(60)
    assert wrong == []


def test_a_cluster_runs_workflows_and_reaches_files(session: SessionRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with amfs.Cluster() as cluster:
        assert (cluster.name, cluster.nodes) == (session.name, [0, 1])
        result = cluster.run([amfs.Task("t", ("echo", "made"), outputs=("out",), stdout="out")])
        assert result.ok and (tmp_path / "out").read_text() == "made\n"
        with pytest.raises(UsageError, match="its own session"):
            cluster.run([], session="other")
        with cluster.session() as tasks:
            tasks.wait([tasks.submit(["true"])])
        cluster.upload("out", "/c-out")
        with cluster.open("/c-out") as file:
            assert file.read() == "made\n"
        assert cluster.stat("/c-out").st_size == 5 and cluster.locate("/c-out")[0].length == 5
        assert [entry.path for entry in cluster.ls("/c-out")] == ["/c-out"]
        assert "c-out" in [entry.name for entry in cluster.ls()]
        cluster.put("key", b"v")
        cluster.put("/c-path", b"p")
        assert (cluster.get("key"), cluster.get("/c-path")) == (b"v", b"p")
        assert cluster.exists("key") and cluster.exists("/c-path") and not cluster.exists("c-path")
        cluster.set_rank("/c-path", 1)
        assert cluster.get_rank("/c-path") == 1
        cluster.download("/c-path", "local")
        assert (tmp_path / "local").read_bytes() == b"p"
        for name in ("key", "/c-path", "/c-out"):
            cluster.delete(name)
            assert not cluster.exists(name)


# ── waiting ends ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.soak
def test_an_idle_connection_is_kept(session: SessionRecord) -> None:
    """The gateway hears from us although nobody calls: it would give us up after 10 s."""
    with Files() as files:
        with files.open("/idle", "wb", buffering=0) as file:
            file.write(b"before ")
            time.sleep(12)
            file.write(b"after")
        assert files.read_bytes("/idle") == b"before after"
        files.unlink("/idle")


def test_files_left_open_are_written_out_in_the_end(session: SessionRecord) -> None:
    code = "from amfs.client.files import Files; f = Files(); o = f.open('/left', 'w'); o.write('not closed')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with Files() as files:
        assert files.read_bytes("/left") == b"not closed"
        files.unlink("/left")


@pytest.mark.soak
def test_a_client_that_is_killed_leaves_no_handles(session: SessionRecord) -> None:
    code = "from amfs.client.files import Files; f = Files(); o = f.open('/dead', 'wb', 0); o.write(b'x'); print(flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdin is not None
    with Files() as files:
        process.stdout.readline()
        assert not files.info("/dead").finished
        process.kill()
        process.wait(60)
        process.stdin.close()
        process.stdout.close()
        end = time.monotonic() + 60
        while not files.info("/dead").finished:
            assert time.monotonic() < end, "the dead client's file stays open"
            time.sleep(0.2)
        files.unlink("/dead")


def test_a_gateway_that_does_not_answer_is_named(session: SessionRecord) -> None:
    with Files(node=1, answer_s=2.0) as files:
        assert files.gateway == 1
        pid = next(entry.pid for entry in session.nodes if entry.node == 1)
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(TimeoutError) as caught:
                files.stat("/")
        finally:
            os.kill(pid, signal.SIGCONT)
        assert caught.value.filename == "/" and f"node 1 of session {session.name} did not answer within 2 s (walk)" in str(caught.value)
        end = time.monotonic() + 60
        while True:
            try:
                files.stat("/")
                break
            except TimeoutError:
                assert time.monotonic() < end


def test_a_closed_connection_says_so(session: SessionRecord) -> None:
    files = Files()
    files.close()
    files.close()
    with pytest.raises(SessionError, match="is closed"):
        files.listdir()


def test_when_the_gateway_dies_another_node_takes_over(tmp_path: Path) -> None:
    with running(2) as session, Files(node=0) as files:
        data = os.urandom(6 * CHUNK)
        files.set_rank("/kept", 1)
        files.write_bytes("/kept", data)
        assert (files.gateway, files.get_rank("/kept")) == (0, 1)
        reader = files.open("/kept", "rb")
        assert reader.read(CHUNK) == data[:CHUNK]
        writer = files.open("/half", "wb", buffering=0)
        writer.write(b"x")
        kill(session, 0)
        assert files.read_bytes("/kept") == data and files.gateway == 1
        assert reader.read() == data[CHUNK:]
        reader.close()
        with pytest.raises(OSError, match="the node that served this was lost") as caught:
            writer.write(b"y")
        assert (caught.value.errno, caught.value.filename) == (errno.EIO, "/half")
        with pytest.raises(OSError, match="was lost"):
            writer.close()
        kill(session, 1)
        began = time.monotonic()
        with pytest.raises(SessionError, match=f"session {session.name} does not answer"):
            files.listdir()
        assert time.monotonic() - began < 20


def test_writing_at_once_or_not_at_all(session: SessionRecord) -> None:
    with Files() as files:
        files.makedirs("/atomic/d")
        name = "/atomic/" + "n" * 255
        files.write_atomic(name, b"old")
        files.write_atomic(name, b"new")
        assert files.read_bytes(name) == b"new"
        files.unlink(name)
        with pytest.raises(IsADirectoryError) as caught:
            files.write_atomic("/atomic/d", b"x")
        assert caught.value.filename == "/atomic/d" and files.listdir("/atomic") == ["d"]
        with pytest.raises(FileNotFoundError) as missing:
            files.write_atomic("/none/x", b"x")
        assert missing.value.filename == "/none/x"
        files.rmtree("/atomic")
