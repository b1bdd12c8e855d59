"""Collectives, shuffle, diff, load, dump and reduce on a session of real nodes, with a node that dies in the middle."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fs_session import kill, running

import amfs
from amfs._native import xxh64
from amfs.client.files import Files
from amfs.errors import UsageError
from amfs.host.digests import BLOCK, Digest, of_file
from amfs.net.records import SessionRecord
from amfs.operations.collective import move
from amfs.operations.differences import diff
from amfs.operations.loading import dump, load
from amfs.operations.loading_common import digests
from amfs.operations.reducing import reduce
from amfs.operations.shuffle import shuffle

NODES = 4


@pytest.fixture(scope="module")
def session() -> Iterator[SessionRecord]:
    with running(NODES, "--tcp", "127.0.0.1") as session:
        yield session


@pytest.fixture
def files(session: SessionRecord) -> Iterator[Files]:
    with Files() as files:
        for entry in list(files.scandir("/")):
            files.rmtree(entry.path) if entry.is_dir() else files.unlink(entry.path)
        yield files


def command(*words: str, status: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-m", "amfs", *words], capture_output=True, text=True, timeout=100, cwd=cwd)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


def nodes_of(files: Files, path: str) -> set[int]:
    return set(files.locate(path)[0].nodes)


def make(files: Files, directory: str, count: int, size: int = 1000) -> dict[str, bytes]:
    """Files on the nodes in turn."""
    files.makedirs(directory, exist_ok=True)
    made = {f"{directory}/f{number:02d}": os.urandom(size) for number in range(count)}
    for number, (path, data) in enumerate(made.items()):
        files.write_bytes(path, data, rank=number % NODES)
    return made


# ── collectives ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("algorithm", ["mst", "sequential"])
def test_every_node_has_what_it_should(files: Files, algorithm: str) -> None:
    made = make(files, "/in", 6)
    one = move(files, "multicast", ["/in/f01"], algorithm=algorithm)
    assert one.ok and (one.transfers, one.rounds) == (3, 2 if algorithm == "mst" else 3)
    assert nodes_of(files, "/in/f01") == set(range(NODES))
    done = move(files, "gather", ["/in"], root=3, algorithm=algorithm)
    assert done.ok and done.files == 6
    for number, path in enumerate(made):
        assert nodes_of(files, path) == (set(range(NODES)) if number == 1 else {number % NODES, 3}), "steps are deleted"
    assert move(files, "scatter", ["/in"], root=1, algorithm=algorithm).ok
    assert [nodes_of(files, path) for path in made] == [{1}, {2}, {3}, {0}, {1}, {2}]
    assert move(files, "allgather", ["/in"], algorithm=algorithm).ok
    for path, data in made.items():
        assert nodes_of(files, path) == set(range(NODES))
        assert files.read_bytes(path) == data
    again = move(files, "allgather", ["/in"], algorithm=algorithm)
    assert again.ok and again.transfers == 0


def test_a_copy_is_old_when_the_file_changes(files: Files) -> None:
    files.write_bytes("/a", b"one", rank=0)
    assert move(files, "multicast", ["/a"]).ok
    files.write_bytes("/a", b"two")
    assert len(nodes_of(files, "/a")) == 1
    assert move(files, "multicast", ["/a"]).ok and nodes_of(files, "/a") == set(range(NODES))
    for node in range(NODES):
        with Files(node=node) as there:
            assert there.gateway == node and there.read_bytes("/a") == b"two"


def test_what_cannot_be_moved_is_named(files: Files) -> None:
    files.write_bytes("/a", b"a", rank=0)
    files.write_bytes("/wide", bytes(1 << 20), layout="striped", stripe=65536)
    done = move(files, "multicast", ["/a", "/wide"])
    assert done.ok and (done.files, done.striped) == (1, 1)
    with files.open("/b", "wb") as writer:
        writer.write(b"unfinished")
        writer.flush()
        done = move(files, "multicast", ["/b", "/a"])
        assert done.failed == {b"/b": "is being written"}
    assert move(files, "gather", ["/a"], root=77).failed == {b"/a": "node 77 is not in the session"}
    with pytest.raises(FileNotFoundError):
        move(files, "gather", ["/nothing"])
    with pytest.raises(UsageError):
        move(files, "multicast", ["/a"], root=1)


def test_commands_of_collectives(files: Files) -> None:
    make(files, "/in", 3)
    assert "3 files, 9 copies" in command("multicast", "-v", "amfs:/in").stderr
    command("scatter", "--root", "0", "--algorithm", "sequential", "/in")
    assert [nodes_of(files, f"/in/f0{number}") for number in range(3)] == [{0}, {1}, {2}]
    assert '"copies": 2' in command("gather", "--root", "0", "--output", "json", "/in").stdout
    failed = command("allgather", "/nothing", status=1)
    assert failed.stderr == "amfs: allgather: /nothing: No such file or directory\n"


# ── shuffle ────────────────────────────────────────────────────────────────────────────────────────


def test_shuffled_lines_are_all_there_and_a_key_is_in_one_part(files: Files) -> None:
    rng = random.Random(1)
    files.makedirs("/in/below")
    lines: list[bytes] = []
    for number in range(7):
        mine = [b"k%d v%d" % (rng.randrange(500), rng.randrange(10**6)) for _ in range(2000)]
        lines += mine
        path = f"/in/below/f{number}" if number % 2 else f"/in/f{number}"
        files.write_bytes(path, b"\n".join(mine) + (b"" if number == 3 else b"\n"), rank=number % NODES)
    files.write_bytes("/in/empty", b"")
    files.write_bytes("/in/wide", b"wide 1\n" * 40_000, layout="striped", stripe=65536)
    lines += [b"wide 1"] * 40_000
    files.makedirs("/out")
    files.write_bytes("/out/part-00009", b"old\n")
    done = shuffle(files, "/in", "/out", parts=6)
    assert done.run.ok and done.files == 9 and done.parts == 6
    found: list[bytes] = []
    for part in range(6):
        mine = files.read_bytes(f"/out/part-{part:05d}").split(b"\n")[:-1]
        assert {xxh64(line.split()[0]) % 6 for line in mine} <= {part}
        found += mine
    assert Counter(found) == Counter(lines)
    assert sorted(files.listdir("/out")) == [f"part-{part:05d}" for part in range(6)], "parts of an earlier shuffle are gone"


def test_shuffle_by_another_column_and_its_mistakes(files: Files) -> None:
    files.makedirs("/csv")
    files.write_bytes("/csv/a", b"1,x\n2,y\n3,x\n4\n")
    command("shuffle", "--key", "2", "--delimiter", ",", "--parts", "3", "/csv", "/by")
    contents = [files.read_bytes(f"/by/part-{part:05d}") for part in range(3)]
    wanted = [b"", b"", b""]
    for line, key in ((b"1,x\n", b"x"), (b"2,y\n", b"y"), (b"3,x\n", b"x"), (b"4\n", b"")):
        wanted[xxh64(key) % 3] += line
    assert contents == wanted
    assert "neither directory" in command("shuffle", "/csv", "/csv/below", status=2).stderr
    assert "one byte" in command("shuffle", "--delimiter", "ab", "/csv", "/by", status=2).stderr
    assert "No such file" in command("shuffle", "/nothing", "/by", status=1).stderr
    files.makedirs("/hollow")
    command("shuffle", "/hollow", "/none")
    assert [files.read_bytes(f"/none/part-{part:05d}") for part in range(NODES)] == [b""] * NODES


# ── digests, diff ──────────────────────────────────────────────────────────────────────────────────


def test_digests_are_those_of_the_content_wherever_it_lies(files: Files, tmp_path: Path) -> None:
    for size in (0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 5):
        data = os.urandom(size)
        (tmp_path / "f").write_bytes(data)
        taken = Digest()
        for start in range(0, size, 300_001):
            taken.add(data[start : start + 300_001])
        assert of_file(str(tmp_path / "f")) == (taken.value(), size)
        files.write_bytes("/whole", data)
        files.write_bytes("/wide", data, layout="striped", stripe=65536)
        inodes = [files.info(path).ino for path in ("/whole", "/wide", "/whole")]
        assert digests(files, inodes) == [(size, taken.value())] * 3
    files.write_bytes("/whole", b"other")  # a digest that was remembered is not believed any more
    assert digests(files, [files.info("/whole").ino]) != [(size, taken.value())]


def test_diff_compares_contents_and_not_names(files: Files) -> None:
    for path in ("/a", "/b/below"):
        files.makedirs(path)
    for path, data in (("/a/1", b"x"), ("/a/2", b"x"), ("/a/3", b"yy"), ("/b/q", b"x"), ("/b/below/r", b"yy")):
        files.write_bytes(path, data)
    found = diff(files, "/a", "/b")
    assert (found.only_first, found.only_second) == ([b"/a/2"], [])
    files.write_bytes("/b/new", b"z")
    done = command("diff", "/a", "/b", status=1)
    assert done.stdout == "< /a/2\n> /b/new\n"
    files.unlink("/b/new")
    files.write_bytes("/b/new", b"x")
    assert command("diff", "/a", "/b").stdout == ""
    assert "No such file" in command("diff", "/a", "/nothing", status=2).stderr


# ── load, dump ─────────────────────────────────────────────────────────────────────────────────────


def tree(directory: Path) -> dict[str, bytes]:
    (directory / "below" / "deeper").mkdir(parents=True)
    (directory / "hollow").mkdir()
    contents = {"a": b"", "b c": b"x" * 100_000, "below/ü": os.urandom(3_000_000), "below/deeper/run": b"#!/bin/sh\n"}
    for name, data in contents.items():
        (directory / name).write_bytes(data)
    (directory / "below/deeper/run").chmod(0o755)
    return contents


@pytest.mark.parametrize("way", ["nodes", "client"])
def test_what_is_loaded_and_dumped_again_is_the_same(files: Files, tmp_path: Path, way: str) -> None:
    contents = tree(tmp_path / "src")
    done = load(files, str(tmp_path / "src"), "/dst", way=way)
    assert done.ok and (done.files, done.same, done.way) == (4, 0, way)
    assert done.bytes == sum(map(len, contents.values()))
    assert {name: files.read_bytes(f"/dst/{name}") for name in contents} == contents
    assert files.isdir("/dst/hollow")
    assert load(files, str(tmp_path / "src"), "/dst", way=way).same == 4
    out = dump(files, "/dst", str(tmp_path / "out"), way=way)
    assert out.ok and out.files == 4 and out.way == way
    assert subprocess.run(["diff", "-r", tmp_path / "src", tmp_path / "out"], check=False).returncode == 0
    assert os.access(tmp_path / "out/below/deeper/run", os.X_OK)
    # A dump that broke off goes on: right files stay, wrong ones are written again.
    (tmp_path / "out/a").unlink()
    (tmp_path / "out/b c").write_bytes(b"y" * 100_000)
    again = dump(files, "/dst", str(tmp_path / "out"), way=way)
    assert (again.files, again.same) == (2, 2)
    assert subprocess.run(["diff", "-r", tmp_path / "src", tmp_path / "out"], check=False).returncode == 0
    assert not [name for _, _, names in os.walk(tmp_path) for name in names if name.startswith(".amfs-")], "nothing half-written is left"
    assert sorted(os.fsdecode(entry.name) for entry in files.scandir("/dst")) == ["a", "b c", "below", "hollow"]


def test_a_dump_leaves_out_what_a_load_has_not_finished(files: Files, tmp_path: Path) -> None:
    """A load that is killed is ended by the nodes, and may be under way when somebody looks."""
    names = [f".amfs-load-{'0123456789abcdef'}-1-2f", ".amfs-load-0-3", os.fsdecode(files.beside("/half/x")).rpartition("/")[2]]
    files.makedirs("/half/below")
    files.write_bytes("/half/below/.amfs-of-mine", b"mine")
    with ExitStack() as writing:
        for name in names:
            writing.enter_context(files.open(f"/half/below/{name}", "wb")).write(b"half")
        assert dump(files, "/half", str(tmp_path / "out")).ok
    assert os.listdir(tmp_path / "out" / "below") == [".amfs-of-mine"]


def test_patterns_names_and_urls(files: Files, tmp_path: Path) -> None:
    tree(tmp_path / "src")
    command("load", f"{tmp_path}/src/b*c", "/one.txt")
    assert files.info("/one.txt").size == 100_000
    command("load", "src/a", "src/b c", "/several", cwd=tmp_path)
    assert sorted(files.listdir("/several")) == ["a", "b c"]
    url = f"file://{tmp_path}/url"
    assert '"files": 2' in command("dump", "--output", "json", "/several", url).stdout
    assert sorted(path.name for path in (tmp_path / "url").iterdir()) == ["a", "b c"]
    assert '"files": 2' in command("load", "--output", "json", url, "/back").stdout
    assert diff(files, "/several", "/back").same
    assert "No such file" in command("load", "nothing", "/x", status=1).stderr
    assert "No such file" in command("dump", "/nothing", str(tmp_path / "x"), status=1).stderr
    (tmp_path / "file").write_text("")
    assert "amfs: dump: " in command("dump", "/several", str(tmp_path / "file"), status=1).stderr


# ── reduce, and Python ─────────────────────────────────────────────────────────────────────────────


def test_reduce_keeps_the_order(files: Files) -> None:
    files.makedirs("/in")
    for number in range(11):
        files.write_bytes(f"/in/{number:02d}", b"%d\n" % number, rank=number % NODES)
    assert reduce(files, "/in", "/all", ["cat"], arity=3).ok
    assert files.read_bytes("/all").split() == [b"%d" % number for number in range(11)]
    command("reduce", "--arity", "2", "/in", "/sum", "awk", "{s+=$1} END{print s}")
    assert files.read_bytes("/sum") == b"55\n"
    command("reduce", "/in/00", "/one", "sh", "-c", 'cat "$@" > "$0"', "{out}", "{in}")
    assert files.read_bytes("/one") == b"0\n"
    assert "exit status 1" in command("reduce", "/in", "/no", "false", status=1).stderr
    assert not files.exists("/no")


def test_a_cluster_has_them_all(files: Files, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    for number in range(3):
        (tmp_path / "src" / str(number)).write_text(f"{number % 2} x\n")
    with amfs.Cluster() as cluster:
        assert cluster.load(str(tmp_path / "src"), "/src").ok
        assert cluster.shuffle("/src", "/out", parts=2).run.ok
        assert cluster.multicast("/out").ok and cluster.allgather("/src").ok and cluster.scatter("/src").ok
        assert cluster.gather("/out", root=1).ok
        assert cluster.reduce("/out", "/all", ["cat"]).ok
        assert cluster.diff("/src", "/src").same and not cluster.diff("/src", "/out").same
        assert cluster.dump("/all", str(tmp_path / "all")).ok
    assert sorted((tmp_path / "all").read_text().split("\n")) == ["", "0 x", "0 x", "1 x"]


def test_names_in_a_mount_are_names_in_the_session(files: Files, tmp_path: Path) -> None:
    make(files, "/in", 1)
    mounted = subprocess.run([sys.executable, "-m", "amfs", "mount", tmp_path], capture_output=True, text=True, timeout=60)
    if mounted.returncode == 5:
        pytest.skip("this machine cannot mount")
    assert mounted.returncode == 0, mounted.stderr
    try:
        command("multicast", "f00", cwd=tmp_path / "in")
        assert nodes_of(files, "/in/f00") == set(range(NODES))
    finally:
        command("umount", str(tmp_path))


# ── a node that dies ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.soak  # tests/sim/test_movement.py ends nodes on the way, too
def test_a_node_that_dies_in_the_middle_is_gone_around() -> None:
    with running(NODES, "--tcp", "127.0.0.1") as session, Files(node=0) as files:
        files.makedirs("/in")
        made = {f"/in/f{number:03d}": os.urandom(100_000) for number in range(120)}
        for path, data in made.items():
            files.write_bytes(path, data, rank=0)
        killer = threading.Thread(target=lambda: (time.sleep(0.02), kill(session, 2)))
        killer.start()
        began = time.monotonic()
        done = move(files, "multicast", ["/in"])
        killer.join()
        assert time.monotonic() - began < 60
        # Records that lay on the dead node went with it: these files are not there any more, and named.
        assert set(done.failed.values()) <= {"is not there any more"} and len(done.failed) < 60
        left = {os.fsencode(path) for path in made} - set(done.failed)
        for each in sorted(left & {entry.path for entry in files.scandir("/in")}):
            assert set(files.locate(each)[0].nodes) >= {0, 1, 3}
            assert files.read_bytes(each) == made[os.fsdecode(each)]
