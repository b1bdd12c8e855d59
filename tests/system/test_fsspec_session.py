"""fsspec over a real session: the conformance tests that fsspec brings along, and what they do not look at."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fs_session import running
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

from amfs.client.fsspec import AmfsFileSystem
from amfs.net.records import SessionRecord


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[SessionRecord]:
    with running(2) as session:
        yield session
        AmfsFileSystem.clear_instance_cache()


@pytest.fixture
def fs() -> AmfsFileSystem:
    return AmfsFileSystem(auto_mkdir=True)


@pytest.fixture
def place(fs: AmfsFileSystem) -> Iterator[str]:
    fs.makedirs("/place")
    yield "/place"
    fs.rm("/place", recursive=True)


class AmfsFixtures(AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture
    def fs(self) -> AmfsFileSystem:
        return AmfsFileSystem(auto_mkdir=True)

    @pytest.fixture
    def fs_path(self, fs: AmfsFileSystem) -> Iterator[str]:
        fs.makedirs("/conformance")
        yield "/conformance"
        fs.rm("/conformance", recursive=True)


#: How patterns become names is fsspec's own code over what we list: of its 32 cases three times over, those that get files are enough here.
for of in (AbstractCopyTests.test_copy_glob_edge_cases, AbstractPutTests.test_put_glob_edge_cases):
    pytest.mark.soak(of)


class TestCopy(AbstractCopyTests, AmfsFixtures):  # type: ignore[misc]
    pass


class TestGet(AbstractGetTests, AmfsFixtures):  # type: ignore[misc]
    pass


class TestPut(AbstractPutTests, AmfsFixtures):  # type: ignore[misc]
    pass


class TestOpen(AbstractOpenTests, AmfsFixtures):  # type: ignore[misc]
    pass


class TestPipe(AbstractPipeTests, AmfsFixtures):  # type: ignore[misc]
    pass


# ── by URL ─────────────────────────────────────────────────────────────────────────────────────────


def test_urls_name_session_and_path(session: SessionRecord, place: str) -> None:
    with fsspec.open(f"amfs://{session.name}{place}/a/b.txt", "w") as file:
        file.write("one\ntwo\n")
    with fsspec.open(f"amfs://{place}/a/b.txt", "r") as file:  # no name: the session that is meant anyway
        assert file.readlines() == ["one\n", "two\n"]
    fs, path = fsspec.url_to_fs(f"amfs://{session.name}{place}/a")
    assert (fs.session, path) == (session.name, f"{place}/a") and fs.fsid == f"amfs:{session.name}"
    assert fs.unstrip_protocol(path) == f"amfs://{session.name}{place}/a"
    assert fs.ls(fs.unstrip_protocol(path), detail=False) == [f"{place}/a/b.txt"]


def test_the_protocol_is_known_without_an_import(session: SessionRecord) -> None:
    """Through the entry point, in a process that has not imported amfs."""
    code = "import fsspec, sys; assert 'amfs' not in sys.modules; print(fsspec.filesystem('amfs').ls('/', detail=False))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stdout.startswith("["), done.stderr


def test_compression_and_text_on_top(place: str) -> None:
    with fsspec.open(f"amfs://{place}/t.csv.gz", "wt", compression="infer") as file:
        file.write("a,b\n1,2\n")
    with fsspec.open(f"amfs://{place}/t.csv.gz", "rt", compression="infer") as file:
        assert file.read() == "a,b\n1,2\n"


# ── what is there ──────────────────────────────────────────────────────────────────────────────────


def test_infos_say_what_os_would(fs: AmfsFileSystem, place: str) -> None:
    fs.pipe(f"{place}/file", b"12345")
    fs.symlink(f"{place}/file", f"{place}/link")
    fs.symlink("nowhere", f"{place}/broken")
    fs.mkdir(f"{place}/dir")
    infos = {info["name"].rpartition("/")[2]: info for info in fs.ls(place)}
    assert {name: (info["type"], info["size"] if info["type"] == "file" else None) for name, info in infos.items()} == {
        "broken": ("other", None), "dir": ("directory", None), "file": ("file", 5), "link": ("file", 5),
    }  # fmt: skip
    assert infos["link"]["islink"] and infos["link"]["destination"] == f"{place}/file"
    assert fs.info(f"{place}/link") == infos["link"]
    assert fs.lexists(f"{place}/broken") and not fs.exists(f"{place}/broken") and fs.islink(f"{place}/broken")
    assert fs.isfile(f"{place}/link") and fs.isdir(f"{place}/dir") and not fs.exists(f"{place}/none")
    assert abs(fs.modified(f"{place}/file").timestamp() - infos["file"]["mtime"]) < 1e-5
    with pytest.raises(FileNotFoundError):
        fs.info(f"{place}/none")
    with pytest.raises(FileNotFoundError):
        fs.ls(f"{place}/none")


def test_trees(fs: AmfsFileSystem, place: str) -> None:
    for name in ("a", "b/c", "b/d/e", ".hidden"):
        fs.pipe(f"{place}/{name}", name.encode())
    names = [f"{place}/{name}" for name in (".hidden", "a", "b/c", "b/d/e")]
    assert fs.find(place) == names
    assert fs.find(place, maxdepth=1) == names[:2]
    assert fs.find(place, withdirs=True) == sorted([place, *names, f"{place}/b", f"{place}/b/d"])
    assert fs.find(f"{place}/a") == [f"{place}/a"] and fs.find(f"{place}/none") == []
    assert fs.glob(f"{place}/*/c") == [f"{place}/b/c"] and fs.glob(f"{place}/**/e") == [f"{place}/b/d/e"]
    assert [(path, dirs, sorted(files)) for path, dirs, files in fs.walk(f"{place}/b")] == [
        (f"{place}/b", ["d"], ["c"]), (f"{place}/b/d", [], ["e"]),
    ]  # fmt: skip
    assert fs.du(place) == sum(len(name) for name in ("a", "b/c", "b/d/e", ".hidden"))
    assert fs.cat(f"{place}/b", recursive=True) == {f"{place}/b/c": b"b/c", f"{place}/b/d/e": b"b/d/e"}


# ── content ────────────────────────────────────────────────────────────────────────────────────────


def test_parts_of_files(fs: AmfsFileSystem, place: str) -> None:
    content = os.urandom(3_000_000)
    fs.pipe(f"{place}/x", content)
    assert fs.cat_file(f"{place}/x", 10, 20) == content[10:20]
    assert fs.cat_file(f"{place}/x", -5) == content[-5:] and fs.cat_file(f"{place}/x", 5, -7) == content[5:-7]
    starts, ends = [0, 2_000_000, None, -3], [3, 2_999_999, 2, None]
    expected = [content[start:end] for start, end in zip(starts, ends, strict=True)]
    assert fs.cat_ranges([f"{place}/x"] * 4, starts, ends) == expected
    (missing,) = fs.cat_ranges([f"{place}/none"], [0], [1])
    assert isinstance(missing, FileNotFoundError)
    assert fs.head(f"{place}/x", 4) == content[:4] and fs.tail(f"{place}/x", 4) == content[-4:]


def test_transactions_show_all_or_nothing(fs: AmfsFileSystem, place: str) -> None:
    with fs.transaction:
        with fs.open(f"{place}/one", "wb") as file:
            file.write(b"1")
        assert not fs.exists(f"{place}/one")
    assert fs.cat(f"{place}/one") == b"1"
    with pytest.raises(RuntimeError, match="changed my mind"), fs.transaction:
        with fs.open(f"{place}/two", "wb") as file:
            file.write(b"2")
        raise RuntimeError("changed my mind")
    assert fs.ls(place, detail=False) == [f"{place}/one"]


def test_progress_is_told(fs: AmfsFileSystem, place: str, tmp_path: Path) -> None:
    class Told(fsspec.callbacks.Callback):  # type: ignore[misc]
        pass

    (tmp_path / "local").write_bytes(b"x" * 2_000_000)
    up, down = Told(), Told()
    fs.put_file(str(tmp_path / "local"), f"{place}/remote", callback=up)
    fs.get_file(f"{place}/remote", str(tmp_path / "back"), callback=down)
    assert (up.size, up.value) == (down.size, down.value) == (2_000_000, 2_000_000)
    assert (tmp_path / "back").read_bytes() == b"x" * 2_000_000


def test_moving_costs_no_copy(fs: AmfsFileSystem, place: str) -> None:
    fs.pipe(f"{place}/a/x", b"1")
    inode = fs.info(f"{place}/a/x")["ino"]
    fs.mkdir(f"{place}/b")
    fs.mv(f"{place}/a", f"{place}/b")
    assert fs.info(f"{place}/b/a/x")["ino"] == inode
    with pytest.raises(FileNotFoundError):
        fs.mv(f"{place}/none", f"{place}/c")


# ── processes and threads ──────────────────────────────────────────────────────────────────────────


def test_instances_and_open_files_travel(fs: AmfsFileSystem, place: str) -> None:
    fs.pipe(f"{place}/x", b"0123456789")
    assert pickle.loads(pickle.dumps(fs)).cat(f"{place}/x") == b"0123456789"
    with fs.open(f"{place}/x", "rb") as file:
        file.read(3)
        with pickle.loads(pickle.dumps(file)) as again:
            assert again.read() == b"3456789"
    with fs.open(f"{place}/y", "wb") as file, pytest.raises(ValueError, match="cannot be pickled"):
        pickle.dumps(file)


def test_threads_share_a_connection(fs: AmfsFileSystem, place: str) -> None:
    used: list[Any] = []

    def work(number: int) -> None:
        own = AmfsFileSystem(auto_mkdir=True)
        for turn in range(20):
            own.pipe(f"{place}/{number}/{turn}", b"%d %d" % (number, turn))
        used.append((own.files, own.cat(f"{place}/{number}/*")))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(used) == 4 and {id(files) for files, _ in used} == {id(fs.files)}
    assert sorted(content for _, found in used for content in found.values()) == sorted(
        b"%d %d" % (number, turn) for number in range(4) for turn in range(20)
    )


def test_a_forked_child_gets_a_connection_of_its_own(fs: AmfsFileSystem, place: str) -> None:
    fs.pipe(f"{place}/x", b"parent's")
    pid = os.fork()
    if not pid:
        status = 1
        try:
            if AmfsFileSystem().cat(f"{place}/x") == b"parent's" and fs.cat(f"{place}/x") == b"parent's":
                status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert fs.cat(f"{place}/x") == b"parent's"
