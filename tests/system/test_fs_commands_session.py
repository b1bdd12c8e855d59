"""The file system's commands on a session of two nodes, as a person would use them."""

from __future__ import annotations

import json
import os
import pwd
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import commands
import pytest
from fs_session import running

from amfs.cli import main as frame
from amfs.client.files import Files
from amfs.net.records import SessionRecord


class Done(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def data(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Done]


@pytest.fixture(scope="module")
def session() -> Iterator[SessionRecord]:
    with running(2) as session:
        yield session


@pytest.fixture
def files(session: SessionRecord) -> Iterator[Files]:
    """The session's files, none of them there at first."""
    with Files() as files:
        for entry in list(files.scandir("/")):
            files.rmtree(entry.path) if entry.is_dir() else files.unlink(entry.path)
        yield files


@pytest.fixture
def run(session: SessionRecord, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command in this process, in a directory of the test's own."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> Done:
        capfdbinary.readouterr()
        status = frame.main(arguments)
        out, err = capfdbinary.readouterr()
        return Done(status, os.fsdecode(out), os.fsdecode(err))

    return command


def piped(*arguments: str, input: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return commands.run_bytes(*arguments, input=input, timeout=60)


def good(done: Done) -> Done:
    assert (done.status, done.err) == (0, "")
    return done


# ── ls ─────────────────────────────────────────────────────────────────────────────────────────────


def test_ls_lists_names_like_any_ls(files: Files, run: Run) -> None:
    files.makedirs("/d/sub")
    for name, size in (("b", 3), ("a", 2000), (".hidden", 1), ("c d", 10)):
        files.write_bytes(f"/d/{name}", b"x" * size)
    assert good(run("ls")).lines == ["d"]
    assert good(run("ls", "amfs:/d")).lines == ["a", "b", "c d", "sub"]
    assert good(run("ls", "-A", "/d")).lines == [".hidden", "a", "b", "c d", "sub"]
    assert good(run("ls", "-a", "/d")).lines[:3] == [".", "..", ".hidden"]
    assert good(run("ls", "-r", "/d")).lines == ["sub", "c d", "b", "a"]
    assert good(run("ls", "-S", "/d/a", "/d/b", "/d/c d")).lines == ["/d/a", "/d/c d", "/d/b"]
    assert good(run("ls", "-d", "/d")).lines == ["/d"]
    assert good(run("ls", "-R", "/d")).lines == ["/d:", "a", "b", "c d", "sub", "", "/d/sub:"]
    files.utime("/d/a", (5e8, 5e8))
    files.utime("/d/b", (1e9, 1e9))
    assert good(run("ls", "-t", "/d/a", "/d/b")).lines == ["/d/b", "/d/a"]


def test_ls_in_the_long_form(files: Files, run: Run) -> None:
    files.mkdir("/d")
    files.write_bytes("/d/a", b"x" * 2000, permissions=0o640)
    files.chmod("/d/a", 0o4751)
    files.link("/d/a", "/d/again")
    files.symlink("a", "/d/link")
    files.utime("/d/a", (1e9, 1e9))
    done = good(run("ls", "-lh", "/d"))
    assert re.fullmatch(r"total \d+", done.lines[0])
    user = re.escape(pwd.getpwuid(os.geteuid()).pw_name)
    day = re.escape(time.strftime("%b %e  %Y", time.localtime(1e9)))
    assert re.fullmatch(rf"-rwsr-x--x 2 {user} +\S+ 2\.0K {day} a", done.lines[1])
    assert re.fullmatch(rf"lrwxrwxrwx 1 {user} +\S+ +1 .* link -> a", done.lines[3])
    with files.open("/d/new", "wb", buffering=0) as file:
        file.write(b"12345")
        (line,) = good(run("ls", "-l", "/d/new")).lines
        assert re.match(r"-rw-r--r--~ .* 5 .* /d/new$", line), "a file that is being written shows as such, with its size so far"
        assert run("ls", "/d/new", "--output", "json").data[0]["finished"] is False
    assert good(run("ls", "-l", "/d/new")).out.startswith("-rw-r--r-- ")


def test_ls_complains_and_goes_on(files: Files, run: Run) -> None:
    files.write_bytes("/a", b"")
    done = run("ls", "/none", "/a", "amfs:/n*ne")
    assert (done.status, done.lines) == (2, ["/a"])
    assert done.err.splitlines() == [
        "amfs: ls: /none: No such file or directory",
        "amfs: ls: /n*ne: No such file or directory",
    ]


def test_patterns_are_expanded_by_us(files: Files, run: Run) -> None:
    files.makedirs("/p/x/y")
    for name in ("1.fits", "2.fits", "3.txt", ".4.fits", "x/5.fits", "x/y/6.fits", "*"):
        files.write_bytes(f"/p/{name}", b"")
    assert good(run("ls", "amfs:/p/*.fits")).lines == ["/p/1.fits", "/p/2.fits"]
    assert good(run("ls", "/p/[12].*", "/p/?.txt")).lines == ["/p/1.fits", "/p/2.fits", "/p/3.txt"]
    assert good(run("ls", "/p/.*")).lines == ["/p/.4.fits"]
    assert good(run("ls", "/p/**/*.fits")).lines == ["/p/1.fits", "/p/2.fits", "/p/x/5.fits", "/p/x/y/6.fits"]
    assert good(run("ls", "/*/*/y/*")).lines == ["/p/x/y/6.fits"]
    assert good(run("ls", "/p/*")).lines == ["/p/*"], "what is there as it is written is meant"


def test_names_of_any_bytes(files: Files, run: Run) -> None:
    files.write_bytes(b"/caf\xe9\n", b"latin")
    assert os.fsencode(good(run("ls")).out) == b"caf\xe9\n\n"
    assert good(run("cat", os.fsdecode(b"amfs:/caf\xe9\n"))).out == "latin"
    assert good(run("ls", "--output", "json")).data[0]["path_base64"] == "L2NhZukK"


# ── stat, tree, find ───────────────────────────────────────────────────────────────────────────────


def test_stat_says_where_the_bytes_are(files: Files, run: Run) -> None:
    files.write_bytes("/whole", b"x" * 100)
    files.write_bytes("/striped", b"x" * 100_000, layout="striped", stripe=4096)
    files.symlink("whole", "/link")
    assert good(run("stat", "-c", "%n %s %a", "/whole", "/link")).lines == ["/whole 100 644", "/link 5 777"]
    assert good(run("stat", "-L", "-c", "%s", "/link")).lines == ["100"]
    whole, striped = good(run("stat", "/whole", "/striped", "--output", "json")).data
    assert (whole["layout"], whole["finished"], whole["nodes"]) == ("whole", True, [files.get_rank("/whole")])
    assert (striped["layout"], striped["stripe"], striped["nodes"]) == ("striped", 4096, [0, 1])
    text = good(run("stat", "/striped")).out
    assert "striped, 4.0K each, finished; on nodes 0, 1" in text and "Size: 100000" in text
    done = run("stat", "/none")
    assert (done.status, done.err) == (1, "amfs: stat: /none: No such file or directory\n")


def test_tree(files: Files, run: Run) -> None:
    files.makedirs("/t/a/deep")
    files.write_bytes("/t/a/deep/file", b"123")
    files.write_bytes("/t/b", b"x" * 3000)
    files.write_bytes("/t/.c", b"")
    assert good(run("tree", "/t")).lines == [
        "/t", "├── a", "│   └── deep", "│       └── file", "└── b", "", "2 directories, 2 files",
    ]  # fmt: skip
    assert good(run("tree", "-L", "1", "-a", "/t")).lines == ["/t", "├── .c", "├── a", "└── b", "", "1 directory, 2 files"]
    assert good(run("tree", "-h", "-L", "1", "/t")).lines[-3] == "└── [3.0K]  b"
    assert good(run("tree", "-d", "/t")).lines[-1] == "2 directories"
    (top,) = good(run("tree", "/t", "--output", "json")).data
    assert [entry["path"] for entry in top["contents"]] == ["/t/a", "/t/b"]
    assert top["contents"][0]["contents"][0]["contents"][0]["size"] == 3


def test_find(files: Files, run: Run) -> None:
    files.makedirs("/f/dir")
    files.write_bytes("/f/small.txt", b"1")
    files.write_bytes("/f/dir/large.TXT", b"x" * 50_000)
    files.symlink("small.txt", "/f/link.txt")
    assert good(run("find", "/f")).lines == ["/f", "/f/dir", "/f/link.txt", "/f/small.txt", "/f/dir/large.TXT"]
    assert good(run("find", "/f", "-name", "*.txt", "-type", "f")).lines == ["/f/small.txt"]
    assert good(run("find", "/f", "-iname", "*.txt", "-size", "+10k")).lines == ["/f/dir/large.TXT"]
    assert good(run("find", "/f", "-path", "*/dir/*")).lines == ["/f/dir/large.TXT"]
    assert good(run("find", "/f", "-maxdepth", "1", "-mindepth", "1", "-type", "d,l")).lines == ["/f/dir", "/f/link.txt"]
    assert good(run("find", "/f", "-type", "d", "-print0")).out == "/f\0/f/dir\0"
    files.utime("/f/small.txt", (1e9, 1e9))
    assert "/f/dir/large.TXT" in good(run("find", "/f", "-newer", "/f/small.txt")).lines
    assert [each["path"] for each in good(run("find", "/f", "-size", "-2k", "-type", "f", "--output", "json")).data] == ["/f/small.txt"]
    done = run("find", "/f", "-newer", "/none")
    assert (done.status, done.err) == (1, "amfs: find: /none: No such file or directory\n")
    done = run("find", "/none", "/f/small.txt")
    assert (done.status, done.lines, done.err) == (1, ["/f/small.txt"], "amfs: find: /none: No such file or directory\n")


# ── cat, put, get, cp ──────────────────────────────────────────────────────────────────────────────


def test_cat(files: Files, run: Run) -> None:
    files.write_bytes("/a", b"one\n")
    files.write_bytes("/b", b"two\n")
    files.mkdir("/d")
    done = run("cat", "/a", "/none", "/d", "/b")
    assert (done.status, done.out) == (1, "one\ntwo\n")
    assert done.err.splitlines() == ["amfs: cat: /none: No such file or directory", "amfs: cat: /d: Is a directory"]


def test_who_reads_no_further_is_no_failure_to_talk_about(files: Files, session: SessionRecord) -> None:
    files.write_bytes("/large", b"line\n" * 1_000_000)
    for command in (["cat", "/large"], ["get", "/large", "-"]):
        with subprocess.Popen([sys.executable, "-m", "amfs", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stderr is not None
            assert process.stdout.readline() == b"line\n"
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(60) == 141


def test_a_full_device_is_told(files: Files, session: SessionRecord) -> None:
    files.write_bytes("/large", b"x" * 1_000_000)
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "amfs", "cat", "/large"], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode != 0 and b"No space left on device" in done.stderr and b"Traceback" not in done.stderr


def test_streams(files: Files, run: Run) -> None:
    data = os.urandom(5_000_001)
    done = piped("put", "-", "amfs:/data", input=data)
    assert (done.returncode, done.stderr) == (0, b"")
    assert files.read_bytes("/data") == data
    assert piped("get", "amfs:/data", "-").stdout == data
    assert piped("put", "--layout", "striped", "-", "amfs:/data2", input=data).returncode == 0
    assert len(files.locate("/data2")) == 10 and piped("cat", "/data2").stdout == data
    files.mkdir("/d")
    done = piped("put", "-", "amfs:/d", input=data)
    assert done.returncode == 2 and b"standard input has no name" in done.stderr


def test_put_and_get_of_files(files: Files, run: Run, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a" * 10)
    (tmp_path / "b").write_bytes(os.urandom(3_000_000))
    (tmp_path / "a").chmod(0o755)
    good(run("put", "a", "amfs:/renamed"))
    assert files.read_bytes("/renamed") == b"a" * 10 and stat.S_IMODE(files.stat("/renamed").st_mode) == 0o755
    files.mkdir("/d")
    good(run("put", "a", "b", "amfs:/d"))
    assert good(run("ls", "/d")).lines == ["a", "b"]
    (tmp_path / "back").mkdir()
    good(run("get", "amfs:/d/*", "back"))
    assert (tmp_path / "back" / "b").read_bytes() == (tmp_path / "b").read_bytes()
    assert os.access(tmp_path / "back" / "a", os.X_OK)
    (tmp_path / "a").write_bytes(b"new")
    done = good(run("put", "-n", "-v", "a", "amfs:/d/a"))
    assert done.out == "" and files.read_bytes("/d/a") == b"a" * 10
    assert good(run("put", "-v", "a", "amfs:/d/a")).lines == ["a -> /d/a"] and files.read_bytes("/d/a") == b"new"
    summary = good(run("get", "amfs:/d/a", "x", "--output", "json")).data
    assert (summary["files"], summary["bytes"], summary["ok"]) == (1, 3, True) and (tmp_path / "x").read_bytes() == b"new"


def test_put_and_get_of_trees(files: Files, run: Run, tmp_path: Path) -> None:
    top = tmp_path / "tree"
    for number in range(100):
        path = top / f"d{number % 7}" / f"sub{number % 3}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"%d" % number)
        os.utime(path, ns=(10**18 + number, 10**18 + number))
    (top / "empty").mkdir()
    (top / "link").symlink_to("d0/sub0/f0")
    (top / "broken").symlink_to("nowhere")
    os.mkfifo(top / "fifo")
    done = run("put", "-rp", "tree", "amfs:/")
    assert done.status == 1 and done.err == "amfs: put: tree/fifo: not a regular file; left out\n"
    assert files.stat("/tree/d5/sub2/f5").st_mtime_ns == 10**18 + 5
    (top / "fifo").unlink()
    good(run("get", "-rp", "amfs:/tree", "back"))
    theirs = subprocess.run(["diff", "-r", "--no-dereference", top, tmp_path / "back"], capture_output=True, text=True, check=False)
    assert (theirs.returncode, theirs.stdout) == (0, "")
    assert (tmp_path / "back" / "d5" / "sub2" / "f5").stat().st_mtime_ns == 10**18 + 5
    good(run("put", "-r", "tree", "amfs:/"))  # once more over what is there
    done = run("put", "tree", "amfs:/other")
    assert done.status == 1 and "is a directory; to copy it with all that is in it: -r" in done.err


def test_what_cannot_be_put_or_got_is_told_and_the_rest_goes_on(files: Files, run: Run, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    files.mkdir("/d")
    done = run("put", "none", "a", "amfs:/d")
    assert (done.status, done.err) == (1, "amfs: put: none: No such file or directory\n") and files.exists("/d/a")
    done = run("put", "a", "amfs:/none/a")
    assert (done.status, done.err) == (1, "amfs: put: /none/a: No such file or directory\n")
    done = run("get", "amfs:/d/a", "amfs:/none", "amfs:/d", str(tmp_path))
    assert done.status == 1 and (tmp_path / "a").read_bytes() == b"a"
    assert "amfs: get: /none: No such file or directory\n" in done.err and "amfs: get: /d: is a directory" in done.err
    done = run("get", "amfs:/d/a", "nowhere/x")
    assert (done.status, done.err) == (1, "amfs: get: nowhere/x: No such file or directory\n")
    done = run("put", "a", "a", "amfs:/nodir")
    assert done.status == 2 and "/nodir: not a directory" in done.err
    for arguments in (["put", "a", "amfs:/new/"], ["get", "amfs:/d/a", "new/"], ["cp", "amfs:/d/a", "amfs:/new/"], ["mv", "/d/a", "/new/"]):
        done = run(*arguments)
        assert done.status == 2 and "new/: not a directory" in done.err
    (tmp_path / "tree").mkdir()
    good(run("put", "-r", "tree", "amfs:/new/"))
    good(run("mv", "/new", "/newer/"))
    good(run("get", "-r", "amfs:/newer", "newest/"))
    assert files.isdir("/newer") and (tmp_path / "newest").is_dir()


def test_where_new_files_go(files: Files, run: Run, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(os.urandom(2_000_000))
    good(run("put", "--rank", "1", "data", "amfs:/pinned"))
    assert files.get_rank("/pinned") == 1 and files.read_bytes("/pinned") == (tmp_path / "data").read_bytes()
    good(run("put", "--stripe", "64K", "data", "amfs:/striped"))
    assert files.info("/striped").stripe == 65536
    good(run("mkdir", "--layout", "striped", "--stripe", "128K", "amfs:/rule"))
    good(run("put", "data", "amfs:/rule/data"))
    assert (files.info("/rule/data").layout, files.info("/rule/data").stripe) == (1, 131072)
    good(run("put", "--layout", "whole", "data", "amfs:/rule/whole"))
    assert files.info("/rule/whole").layout == 0
    assert "new files are striped, 128K each" in good(run("stat", "/rule")).out
    for name in ("/pinned", "/striped", "/rule/data", "/rule/whole"):
        assert files.read_bytes(name) == (tmp_path / "data").read_bytes()
    done = run("put", "--rank", "77", "data", "amfs:/x")
    assert done.status == 1 and done.err == "amfs: put: /x: the session has no node 77\n"


def test_cp(files: Files, run: Run, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"local")
    good(run("cp", "a", "amfs:/a"))
    good(run("cp", "amfs:/a", "b"))
    assert (tmp_path / "b").read_bytes() == b"local"
    files.makedirs("/t/sub")
    files.write_bytes("/t/sub/x", os.urandom(2_000_000))
    files.symlink("sub/x", "/t/link")
    good(run("cp", "-r", "amfs:/t", "amfs:/u"))
    assert files.read_bytes("/u/sub/x") == files.read_bytes("/t/sub/x") and files.readlink("/u/link") == "sub/x"
    done = run("cp", "-r", "amfs:/t", "amfs:/t/sub")
    assert done.status == 1 and "cannot be copied into itself" in done.err and not files.exists("/t/sub/t")
    done = run("cp", "amfs:/a", "amfs:/a")
    assert done.status == 1 and "they are the same file" in done.err and files.read_bytes("/a") == b"local"


# ── rm, mv, mkdir ──────────────────────────────────────────────────────────────────────────────────


def test_rm(files: Files, run: Run) -> None:
    files.makedirs("/d/sub/deep")
    for name in ("a", "b.o", "c.o", "d/x", "d/sub/y", "d/sub/deep/z"):
        files.write_bytes(f"/{name}", b"")
    good(run("rm", "/*.o"))
    assert good(run("ls")).lines == ["a", "d"]
    done = run("rm", "/d", "/none", "/a")
    assert (done.status, done.err.splitlines()) == (1, ["amfs: rm: /d: Is a directory", "amfs: rm: /none: No such file or directory"])
    assert not files.exists("/a")
    done = run("rm", "-d", "/d")
    assert (done.status, done.err) == (1, "amfs: rm: /d: Directory not empty\n")
    good(run("rm", "-f", "/none"))
    done = run("rm", "-rf", "/")
    assert done.status == 1 and "dangerous to remove the root" in done.err
    assert sorted(good(run("rm", "-rv", "/d")).lines) == sorted([
        "removed /d/x", "removed /d/sub/y", "removed /d/sub/deep/z", "removed directory /d/sub/deep", "removed directory /d/sub",
        "removed directory /d",
    ])  # fmt: skip
    assert good(run("ls")).lines == []


def test_mv(files: Files, run: Run) -> None:
    files.makedirs("/d/sub")
    files.write_bytes("/a", b"a")
    files.write_bytes("/b", b"b")
    good(run("mv", "/a", "/renamed"))
    assert good(run("mv", "-v", "/renamed", "/b", "/d")).lines == ["renamed /renamed -> /d/renamed", "renamed /b -> /d/b"]
    good(run("mv", "-n", "/d/b", "/d/renamed"))
    assert files.read_bytes("/d/renamed") == b"a"
    good(run("mv", "/d/b", "/d/renamed"))
    assert files.read_bytes("/d/renamed") == b"b" and not files.exists("/d/b")
    done = run("mv", "/d", "/d/sub/x")
    assert done.status == 1 and "cannot be moved below itself" in done.err
    done = run("mv", "/none", "/x")
    assert (done.status, done.err) == (1, "amfs: mv: /none: No such file or directory\n")
    done = run("mv", "/d/renamed", "/no/where")
    assert (done.status, done.err) == (1, "amfs: mv: /no/where: No such file or directory\n")
    files.mkdir("/empty")
    good(run("mv", "-T", "/d", "/empty"))
    assert good(run("ls", "/empty")).lines == ["renamed", "sub"]


def test_mkdir(files: Files, run: Run) -> None:
    good(run("mkdir", "/a"))
    done = run("mkdir", "/a", "/x/y", "/b")
    assert done.status == 1 and files.isdir("/b")
    assert done.err.splitlines() == ["amfs: mkdir: /a: File exists", "amfs: mkdir: /x/y: No such file or directory"]
    good(run("mkdir", "-p", "/a", "/x/y/z"))
    good(run("mkdir", "-m", "1700", "/private"))
    assert stat.S_IMODE(files.stat("/private").st_mode) == 0o1700


# ── locate, du, df ─────────────────────────────────────────────────────────────────────────────────


def test_locate_du_and_df(files: Files, run: Run) -> None:
    files.makedirs("/d/sub")
    files.write_bytes("/d/one", b"x" * 10_000)
    files.write_bytes("/d/sub/two", b"x" * 5_000, layout="striped", stripe=4096)
    files.link("/d/one", "/d/again")
    assert good(run("locate", "/d/one")).lines == [f"/d/one 10000 whole {files.get_rank('/d/one')}:10000"]
    assert len(good(run("locate", "--extents", "/d/sub/two")).lines) == 2
    found = {each["path"]: each for each in good(run("locate", "-r", "/d", "--output", "json")).data}
    assert set(found) == {"/d/one", "/d/again", "/d/sub/two"}
    assert sum(each["bytes"] for each in found["/d/sub/two"]["nodes"]) == 5000
    assert run("locate", "/d").err == "amfs: locate: /d: Is a directory; for the files below it: -r\n"
    assert good(run("du", "-b", "/d")).lines == ["5000\t/d/sub", "15000\t/d"]
    assert good(run("du", "-sh", "/d")).lines == ["15K\t/d"]
    assert good(run("du", "-sc", "/d/sub", "/d/one")).lines == ["5\t/d/sub", "10\t/d/one", "15\ttotal"]
    usage = good(run("df", "--output", "json")).data
    assert [each["node"] for each in usage] == [0, 1] and sum(each["used"] for each in usage) >= 15_000
    table = good(run("df", "-h")).lines
    assert table[0].split() == ["node", "size", "used", "available", "use%", "files"] and table[-1].split()[0] == "total"


# ── many, and other sessions ───────────────────────────────────────────────────────────────────────


def test_a_directory_with_many_entries(files: Files, run: Run, tmp_path: Path) -> None:
    top = tmp_path / "many"
    top.mkdir()
    for number in range(1100):  # a listing comes in pieces of 1,000 at most
        (top / f"f{number:04}").write_bytes(b"%d" % number)
    good(run("put", "-r", "many", "amfs:/"))
    assert good(run("ls", "/many")).lines == [f"f{number:04}" for number in range(1100)]
    assert files.read_bytes("/many/f1034") == b"1034"
    good(run("rm", "-r", "/many"))
    assert good(run("ls")).lines == []


def test_the_session_can_be_named(files: Files, run: Run, session: SessionRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_bytes("/here", b"")
    monkeypatch.delenv("AMFS_SESSION")
    assert good(run("ls", "--session", session.name)).lines == ["here"]
    assert good(run("ls", f"amfs://{session.name}/")).lines == ["here"]
    done = run("ls", "amfs://other/")
    assert done.status == 4 and "no session named other; there are: " in done.err
