"""A bit that flips in the memory of a node, behind its back: found when the content goes to another node, and never delivered."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import commands
import pytest
from fs_session import PATIENCE_S, running
from waiting import until

from amfs.client.files import Files
from amfs.host import orphans
from amfs.net.records import SessionRecord

MIB = 1 << 20
TAKEN_S = 0.5  # a digest is taken in the background, a twentieth of a second after the file was finished


def amfs(*arguments: str) -> subprocess.CompletedProcess[str]:
    return commands.run(*arguments, timeout=PATIENCE_S)


def stores(session: SessionRecord, node: int) -> list[Path]:
    return list(orphans.SHM.glob(f"amfs-{os.getuid()}-{session.name}-n{node}-*"))


def find(session: SessionRecord, node: int, name: str) -> Path | None:
    """The file of a node's memory under that name."""
    return next((path for store in stores(session, node) for path in store.rglob(name) if path.is_file()), None)


def part(session: SessionRecord, node: int, ino: int) -> Path | None:
    return find(session, node, f"{ino:016x}")


def flip(path: Path | None, at: int = 12345) -> None:
    """One bit, and nothing that could be seen from outside."""
    assert path is not None
    times = path.stat()
    os.chmod(path, 0o600)
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes((byte ^ 16,)))
    os.chmod(path, times.st_mode & 0o7777)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_bit_flips_in_a_file_of_one_node_and_in_one_of_two_copies() -> None:
    alone, twice = os.urandom(3 * MIB), os.urandom(2 * MIB)
    with running(3) as session, Files(node=0) as first, Files(node=1) as second, Files(node=2) as third:
        first.makedirs("/safe")
        first.setxattr("/safe", "user.amfs.replicas", b"2")
        with first.open("/alone", "wb") as file:
            file.write(alone)
        with first.open("/safe/twice", "wb") as file:
            file.write(twice)
        time.sleep(TAKEN_S)
        ino = first.stat("/safe/twice").st_ino
        holders = [node for node in range(3) if part(session, node, ino) is not None]
        assert len(holders) == 2
        other = ({0, 1, 2} - set(holders)).pop()
        flip(part(session, holders[0], ino))
        with (first, second, third)[other].open("/safe/twice", "rb") as file:
            assert file.read() == twice
        flip(part(session, 0, first.stat("/alone").st_ino))
        with pytest.raises(OSError, check=lambda error: error.errno == errno.EIO), second.open("/alone", "rb") as file:
            assert file.read() != alone, "these are the right bytes, though they were damaged"
        until(lambda: "!" in amfs("ls", "-l", "amfs:/alone").stdout, "it is not marked as lost")
        with pytest.raises(OSError, check=lambda error: error.errno == errno.EIO):
            first.open("/alone", "rb")
        with first.open("/alone", "wb") as file:
            file.write(b"anew")
        with third.open("/alone", "rb") as file:
            assert file.read() == b"anew"


@pytest.mark.parametrize("size", [20_000, 2 * MIB])
def test_a_bit_flips_in_an_intermediate_file_and_its_task_runs_again(tmp_path: Path, size: int) -> None:
    with running(2) as session:
        command = [sys.executable, "-m", "amfs", "run", "--session", session.name, "-q"]
        made = tmp_path / "made"
        script = f"echo >> {made}; head -c {size} /dev/zero | tr '\\000' x > between"
        with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
            assert run.stdin is not None
            run.stdin.write(f'make -b sh -node 0 -o between -a -c "{script}"\n')
            run.stdin.flush()
            until(lambda: find(session, 0, "between") is not None, "it is not made")
            time.sleep(TAKEN_S)
            flip(find(session, 0, "between"))
            run.stdin.write("use -b cp -node 1 -i between -o after -keep after -a between after\n")
            _, said = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 0, said
        assert (tmp_path / "after").read_bytes() == b"x" * size
        assert made.read_text() == "\n\n", "it was made twice"


def test_scrub_names_what_is_damaged_and_what_became_of_it() -> None:
    data = os.urandom(MIB)
    with running(3) as session, Files(node=0) as files:
        files.makedirs("/safe")
        files.setxattr("/safe", "user.amfs.replicas", b"2")
        for name in ("/safe/twice", "/alone", "/good"):
            with files.open(name, "wb") as file:
                file.write(data)
        time.sleep(TAKEN_S)
        said = amfs("scrub")
        assert (said.returncode, said.stderr) == (0, "")
        assert said.stdout == "4 copies of 3 files (4.2 MB), 0 files of runs (0 B): 0 damaged, 0 lost\n"
        ino = files.stat("/safe/twice").st_ino
        copies = [node for node in range(3) if part(session, node, ino) is not None]
        flip(part(session, copies[1], ino))
        said = amfs("scrub", "amfs:/safe", "--rate", "100M")
        assert said.returncode == 0, said.stderr
        assert said.stdout.splitlines() == [
            f"amfs:/safe/twice  node {copies[1]}: damaged; dropped; another copy is used",
            "2 copies of 1 files (2.1 MB): 1 damaged, 0 lost",
        ]
        until(lambda: amfs("scrub", "amfs:/safe").stdout == "2 copies of 1 files (2.1 MB): 0 damaged, 0 lost\n", "no copy was made again")
        flip(part(session, 0, files.stat("/alone").st_ino))
        said = amfs("scrub", "--output", "json")
        assert said.returncode == 1, said.stderr
        found = json.loads(said.stdout)
        lost = [{"path": "amfs:/alone", "node": 0, "done": "dropped; it is lost: there is no other copy"}]
        assert (found["bad"], found["lost"], found["files"]) == (lost, 1, 3)
        with files.open("/safe/twice", "rb") as file:
            assert file.read() == data
        said = amfs("scrub", "-q")
        assert (said.returncode, said.stdout) == (1, ""), "it is lost still"
        assert amfs("scrub", "amfs:/nothing").returncode == 2


def all_taken() -> str:
    """The words of a scrub when all digests have been taken."""
    said: list[str] = []
    until(lambda: said.append(amfs("scrub").stdout) or "no digest yet" not in said[-1], "some were never taken")
    return said[-1]


def stripe_parts(session: SessionRecord, node: int, ino: int) -> list[Path]:
    return sorted(path for store in stores(session, node) for path in store.rglob(f"{ino:016x}.*") if path.is_file())


def test_a_bit_flips_in_a_stripe() -> None:
    """With copies the stripe is replaced, by its owner's or by the copy, whoever finds it; without, the file is lost by its name."""
    data = os.urandom(4 * MIB)
    with running(3) as session, Files(node=0) as first, Files(node=1) as second:
        first.makedirs("/striped")
        first.setxattr("/striped", "user.amfs.layout", b"striped")
        first.makedirs("/striped/safe")
        first.setxattr("/striped/safe", "user.amfs.layout", b"striped")
        first.setxattr("/striped/safe", "user.amfs.replicas", b"2")
        for name in ("/striped/alone", "/striped/safe/read", "/striped/safe/scrubbed"):
            with first.open(name, "wb") as file:
                file.write(data)
        assert all_taken() == "5 copies of 3 files (21.0 MB), 0 files of runs (0 B): 0 damaged, 0 lost\n"
        ino = first.stat("/striped/safe/read").st_ino
        here = {path.suffix: path for path in stripe_parts(session, 0, ino)}
        there = {path.suffix: path for path in stripe_parts(session, 2, ino)}
        for at in here.keys() ^ there.keys():
            flip((here | there)[at])  # the other copy is on node 1; where that is the owner's, its program reads what is good
        with second.open("/striped/safe/read", "rb") as file:
            assert file.read() == data
        ino = first.stat("/striped/safe/scrubbed").st_ino
        hit = [stripe_parts(session, 0, ino)[at] for at in (0, 1)]
        for path in hit:
            flip(path)
        said = amfs("scrub", "amfs:/striped/safe/scrubbed")
        assert said.returncode == 0, said.stdout
        assert said.stdout.splitlines() == [
            "amfs:/striped/safe/scrubbed  node 0: damaged; mended by its other copy",
            "2 copies of 1 files (8.4 MB): 1 damaged, 0 lost",
        ]
        assert amfs("scrub", "amfs:/striped/safe").returncode == 0, "copies that nobody has read"
        assert amfs("scrub", "amfs:/striped/safe").stdout == "4 copies of 2 files (16.8 MB): 0 damaged, 0 lost\n"
        for path in hit:
            assert path.read_bytes() == data[int(path.suffix[1:]) * (512 << 10) :][: 512 << 10]
        both = (here.keys() & there.keys()).pop()
        all_taken()
        for path in (here[both], there[both]):
            flip(path)
        with second.open("/striped/safe/read", "rb") as file, pytest.raises(OSError, check=lambda error: error.errno == errno.EIO):
            file.read()
        until(lambda: "!" in amfs("ls", "-l", "amfs:/striped/safe/read").stdout, "it is not marked as lost")
        ino = first.stat("/striped/alone").st_ino
        flip(stripe_parts(session, 0, ino)[0])
        with second.open("/striped/alone", "rb") as file, pytest.raises(OSError, check=lambda error: error.errno == errno.EIO):
            file.read()
        until(lambda: "!" in amfs("ls", "-l", "amfs:/striped/alone").stdout, "it is not marked as lost")
        with pytest.raises(OSError, check=lambda error: error.errno == errno.EIO):
            first.open("/striped/alone", "rb")
        assert amfs("scrub", "-q").returncode == 1
        told = [log.read_text().count("there is no good copy") for log in Path(session.directory).rglob("*.log")]
        assert 2 <= sum(told) < 50, "once for each look, or a few times"
        with first.open("/striped/alone", "wb") as file:
            file.write(data)
        with second.open("/striped/alone", "rb") as file:
            assert file.read() == data


def test_stripes_that_leave_the_session_are_what_was_written(tmp_path: Path) -> None:
    """Also those of the node that reads the file, which it does not compare when it reads them."""
    data = os.urandom(4 * MIB)
    with running(2) as session, Files(node=0) as files:
        for name, copies in (("/alone", b"1"), ("/twice", b"2")):
            files.makedirs(name)
            files.setxattr(name, "user.amfs.layout", b"striped")
            files.setxattr(name, "user.amfs.replicas", copies)
            with files.open(f"{name}/file", "wb") as file:
                file.write(data)
        all_taken()
        for name in ("/alone/file", "/twice/file"):
            ino = files.stat(name).st_ino
            for node in range(2):
                flip(stripe_parts(session, node, ino)[node])
        said = amfs("get", "amfs:/twice/file", str(tmp_path))
        assert (said.returncode, said.stderr) == (0, "")
        assert (tmp_path / "file").read_bytes() == data
        os.unlink(tmp_path / "file")
        said = amfs("get", "amfs:/alone/file", str(tmp_path))
        assert said.returncode == 1
        assert "/alone/file" in said.stderr
        assert os.listdir(tmp_path) == []


def test_what_leaves_the_session_is_what_was_written(tmp_path: Path) -> None:
    data = os.urandom(2 * MIB)
    ways = [("get",), ("dump", "--by", "nodes"), ("dump", "--by", "client"), ("dump", "url"), ("get", "-")]
    with running(2) as session, Files(node=0) as files, Files(node=1) as other:
        names = [(f"/alone{at}", f"/both{at}") for at in range(len(ways))]
        for name in sum(names, ()):
            with files.open(name, "wb") as file:
                file.write(data)
        time.sleep(TAKEN_S)
        assert other.read_many([both for _, both in names]) == [data] * len(ways)
        time.sleep(TAKEN_S)
        for name in sum(names, ()):
            flip(part(session, 0, files.stat(name).st_ino))
        for at, (way, (alone, both)) in enumerate(zip(ways, names, strict=True)):
            target = tmp_path / str(at)
            target.mkdir()
            to = {"url": f"file://{target}", "-": "-"}.get(way[-1], str(target))
            how = [part for part in way if part not in ("url", "-")]
            if to != "-":
                said = amfs(*how, f"amfs:{both}", to)
                assert (said.returncode, said.stderr) == (0, "")
                assert (target / both[1:]).read_bytes() == data
            command = [sys.executable, "-m", "amfs", *how, f"amfs:{alone}", to]
            error = subprocess.run(command, capture_output=True, timeout=PATIENCE_S)
            assert error.returncode == 1
            [line] = [line for line in error.stderr.decode().splitlines() if "lost" in line]
            assert alone in line and "damaged, and no node has another copy: it is lost" in line
            assert os.listdir(target) == ([both[1:]] if to != "-" else [])
