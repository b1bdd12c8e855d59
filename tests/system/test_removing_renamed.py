"""Files of a real session that were renamed, or have hard links, are removed: their names and records may lie on different nodes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from fs_session import fine, kill, running
from waiting import until

from amfs.client.files import Files
from amfs.net.records import SessionRecord

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(os.environ.get("AMFS_TESTS_NO_FUSE")), reason="AMFS_TESTS_NO_FUSE is set"),
]

NODES = 3
DIRECTORIES, FILES = 6, 4  # enough that names and records lie on all nodes
CONTENT = b"what it contains" * 1000


@pytest.fixture(scope="module")
def session() -> Iterator[SessionRecord]:
    with running(NODES) as made:
        yield made


@pytest.fixture(scope="module", params=["data", "open"])
def mounts(request: pytest.FixtureRequest, session: SessionRecord, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """One on each node. With ``--cache open`` kernels open files without a word, and so removing always asks the poll loops."""
    places = [tmp_path_factory.mktemp(f"m{node}") for node in range(NODES)]
    with ExitStack() as stack:
        for node, place in enumerate(places):
            fine("mount", str(place), "--node", str(node), "--cache", request.param)
            stack.callback(subprocess.run, ["umount", "-l", str(place)], check=False, capture_output=True)
        yield places


@pytest.fixture
def paths(mounts: list[Path]) -> Iterator[list[str]]:
    """In directories of every home. Everything is gone in the end: names, records, and content."""
    names = [str(number) for number in range(DIRECTORIES)]
    for name in names:
        (mounts[0] / name).mkdir()
    yield [f"{name}/{number}" for name in names for number in range(FILES)]
    for name in names:
        assert os.listdir(mounts[1] / name) == []
        (mounts[0] / name).rmdir()
    with Files() as files:
        until(lambda: all(used == 0 and count == 0 for _, _, used, count in files.df()), "something is left")


@pytest.fixture
def tells(request: pytest.FixtureRequest) -> None:
    """The kernel says what it opens."""
    if request.node.callspec.params["mounts"] == "open":
        pytest.skip("with --cache open a file that another node removes, or looks for, while it is open is ESTALE")


def write(path: Path) -> None:
    path.write_bytes(CONTENT)


def renamed(place: Path, path: str) -> Path:
    write(place / path)
    os.rename(place / path, place / f"{path}-renamed")
    return place / f"{path}-renamed"


def is_gone(path: Path) -> bool:
    try:
        path.lstat()
    except OSError as error:
        assert error.errno == errno.ENOENT
        return True
    return False


def questions(of: Callable[[], object]) -> tuple[int, int]:
    """Questions between nodes, and requests that poll loops got, because of that."""

    def so_far() -> tuple[int, int]:
        (shown,) = json.loads(fine("status", "--output", "json"))["sessions"]
        return (
            sum(node["fs_asked"] for node in shown["nodes"]),
            sum(mount["slow"] for node in shown["nodes"] for mount in node["mounts"]),
        )

    asked, slow = so_far()
    of()
    now_asked, now_slow = so_far()
    return now_asked - asked, now_slow - slow


def test_no_poll_loop_has_to_do_with_it(mounts: list[Path], paths: list[str], request: pytest.FixtureRequest) -> None:
    files = [renamed(mounts[0], path) for path in paths]
    until(lambda: questions(lambda: None) == (0, 0), "the nodes do not come to rest")

    def remove() -> None:
        for file in files:
            file.unlink()

    asked, slow = questions(remove)
    assert all(is_gone(file) for file in files)
    if request.node.callspec.params["mounts"] == "data":
        assert asked <= 2 and slow <= 2  # where two nodes have no connection yet the long way makes it
    else:
        assert slow > 2


@pytest.mark.usefixtures("tells")
def test_an_open_file_keeps_its_content(mounts: list[Path], paths: list[str]) -> None:
    for path in paths:
        file = renamed(mounts[0], path)
        with file.open("r+b", buffering=0) as opened:
            file.unlink()
            assert is_gone(file)
            assert is_gone(mounts[1] / f"{path}-renamed")
            assert os.fstat(opened.fileno()).st_nlink == 0
            assert opened.read(len(CONTENT) + 1) == CONTENT
            opened.write(b"more")
            opened.seek(len(CONTENT))
            assert opened.read(9) == b"more"


@pytest.mark.usefixtures("tells")
def test_a_file_that_another_node_has_open_keeps_its_content(mounts: list[Path], paths: list[str]) -> None:
    for path in paths:
        file = renamed(mounts[0], path)
        with (mounts[1] / f"{path}-renamed").open("rb", buffering=0) as opened:
            assert opened.read(9) == CONTENT[:9]
            file.unlink()
            assert is_gone(mounts[1] / f"{path}-renamed")
            assert opened.read(len(CONTENT)) == CONTENT[9:]


def test_other_names_of_the_file_stay(mounts: list[Path], paths: list[str]) -> None:
    for path in paths:
        first, second, third = mounts[0] / path, mounts[0] / f"{path}-two", mounts[0] / f"{path}-three"
        write(first)
        os.link(first, second)
        os.link(first, third)
        for name, left in ((second, 2), (first, 1)):
            name.unlink()
            assert is_gone(name)
            assert is_gone(mounts[2] / name.relative_to(mounts[0]))
            assert third.stat().st_nlink == left
            assert (mounts[1] / f"{path}-three").stat().st_nlink == left
        assert third.read_bytes() == CONTENT
        third.unlink()


def test_copies_of_other_nodes_go(mounts: list[Path], paths: list[str]) -> None:
    for path in paths:
        file = renamed(mounts[0], path)
        for place in mounts[1:]:
            assert (place / f"{path}-renamed").read_bytes() == CONTENT
        file.unlink()
        assert all(is_gone(place / f"{path}-renamed") for place in mounts)


def test_what_other_nodes_remember_of_it_is_forgotten(mounts: list[Path], paths: list[str]) -> None:
    for path in paths:
        file = renamed(mounts[0], path)
        assert (mounts[1] / f"{path}-renamed").stat().st_size == len(CONTENT)
        assert not is_gone(mounts[2] / f"{path}-renamed")
        file.unlink()
        assert all(is_gone(place / f"{path}-renamed") for place in mounts)
        write(file)  # the name is free
        assert (mounts[1] / f"{path}-renamed").read_bytes() == CONTENT
        file.unlink()


def test_any_node_may_remove_it(mounts: list[Path], paths: list[str]) -> None:
    for number, path in enumerate(paths):
        renamed(mounts[0], path)
        (mounts[1 + number % 2] / f"{path}-renamed").unlink()
        assert all(is_gone(place / f"{path}-renamed") for place in mounts)


def test_links_and_pipes(mounts: list[Path], paths: list[str]) -> None:
    for number, path in enumerate(paths):
        place = mounts[0] / path
        if number % 2:
            os.symlink("anywhere", place)
        else:
            os.mkfifo(place)
        os.rename(place, f"{place}-renamed")
        os.unlink(f"{place}-renamed")
        assert all(is_gone(each / f"{path}-renamed") for each in mounts)


def test_several_at_once(mounts: list[Path], paths: list[str]) -> None:
    """Each of the names goes once."""
    for path in paths[:: FILES // 2]:
        file = renamed(mounts[0], path)
        removers = [
            subprocess.Popen(["rm", str(place / file.relative_to(mounts[0]))], stderr=subprocess.DEVNULL) for place in mounts
        ]
        assert sorted(remover.wait() for remover in removers) == [0, 1, 1]
        assert is_gone(file)


def look_until(stop: threading.Event, places: list[Path], wrong: list[object]) -> None:
    """A file that is there is whole, or is being written; others are not there."""
    while not stop.is_set():
        for place in places:
            try:
                if not CONTENT.startswith(found := place.read_bytes()):
                    wrong.append((place, found))
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ESTALE):
                    wrong.append(error)


@contextmanager
def mounted(top: Path, nodes: int) -> Iterator[list[Path]]:
    places = [top / str(node) for node in range(nodes)]
    with ExitStack() as stack:
        for node, place in enumerate(places):
            place.mkdir()
            fine("mount", str(place), "--node", str(node))
            stack.callback(subprocess.run, ["umount", "-l", str(place)], check=False, capture_output=True)
        yield places


def test_nodes_that_read_them_all_the_while(tmp_path: Path) -> None:
    """A third node that has just forgotten a file may ask for it anew before the name has gone."""
    stop, wrong = threading.Event(), list[object]()
    with running(NODES), mounted(tmp_path, NODES) as places, Files() as files:
        names = [str(number) for number in range(8)]
        looks = [[place / f"{name}{end}" for name in names for end in ("", "-renamed")] for place in places[1:]]
        readers = [threading.Thread(target=look_until, args=(stop, look, wrong)) for look in looks]
        for reader in readers:
            reader.start()
        try:
            for turn in range(40):
                name = names[turn % 8]
                file = renamed(places[0], name) if turn % 2 else places[0] / name
                write(file)
                file.unlink()
                assert all(is_gone(place / file.name) for place in places)
        finally:
            stop.set()
            for reader in readers:
                reader.join()
        until(lambda: all(used == 0 and count == 0 for _, _, used, count in files.df()), "something is left")
    assert not wrong


@pytest.mark.parametrize("dying", [0, 1, 2])
def test_a_node_dies_while_files_that_it_has_read_are_removed(tmp_path: Path, dying: int) -> None:
    """Each name is there or it is not, and what is there is whole. Node 3 removes them."""
    nodes = NODES + 1
    with running(nodes, "--replicas", "2") as session, Files(node=NODES) as files, mounted(tmp_path, nodes) as places:
        names = [f"f{number}" for number in range(200)]
        data = {name: (name * 300).encode() for name in names}
        for name in names:
            (places[NODES] / name).write_bytes(data[name])
        for place in places[:NODES]:
            assert all((place / name).read_bytes() == data[name] for name in names)
        removed: set[str] = set()

        def remove() -> None:
            for name in names[:150]:
                try:
                    (places[NODES] / name).unlink()
                    removed.add(name)
                except OSError:
                    removed.discard(name)  # EIO: nobody knows

        remover = threading.Thread(target=remove)
        remover.start()
        until(lambda: len(removed) > 20, "nothing is removed")
        kill(session, dying)
        remover.join()
        until(lambda: len(files.df()) == NODES, "the death is not noticed")
        for place in [place for node, place in enumerate(places) if node != dying]:
            there = set(os.listdir(place))
            assert not there & removed
            assert there >= set(names[150:])
            assert all((place / name).read_bytes() == data[name] for name in there)


def test_replicas(tmp_path: Path) -> None:
    """A node with a copy of the content uses it perhaps: it is asked. A node that died takes no name along."""
    with running(NODES, "--replicas", "2") as session, Files() as files:
        fine("mount", str(tmp_path), "--node", "0")
        try:
            names = [f"f{number}" for number in range(12)]
            there = [renamed(tmp_path, name) for name in names]
            with there[0].open("rb", buffering=0) as opened:
                for file in there[:6]:
                    file.unlink()
                assert opened.read() == CONTENT
            os.link(there[6], tmp_path / "link")
            there[6].unlink()
            kill(session, 2)
            until(lambda: len(files.df()) == 2, "the death is not noticed")
            assert sorted(os.listdir(tmp_path)) == sorted(["link", *(file.name for file in there[7:])])
            for file in (tmp_path / "link", *there[7:]):
                assert file.read_bytes() == CONTENT
                file.unlink()
            until(lambda: all(used == 0 and count == 0 for _, _, used, count in files.df()), "something is left")
        finally:
            subprocess.run(["umount", "-l", str(tmp_path)], check=False, capture_output=True)
