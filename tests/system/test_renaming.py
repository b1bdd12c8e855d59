"""Files of a real session are renamed by mounts, from shard to shard, while others look, rename too, or die."""

from __future__ import annotations

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

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(os.environ.get("AMFS_TESTS_NO_FUSE")), reason="AMFS_TESTS_NO_FUSE is set"),
]

NODES = 4
NAMES = [f"f{number}" for number in range(40)]  # enough that names lie on all nodes


def content(name: str) -> bytes:
    return name.encode() * 1000


@contextmanager
def mounted(top: Path) -> Iterator[list[Path]]:
    places = [top / str(node) for node in range(NODES)]
    with ExitStack() as stack:
        for node, place in enumerate(places):
            place.mkdir()
            fine("mount", str(place), "--node", str(node))
            stack.callback(subprocess.run, ["umount", "-l", str(place)], check=False, capture_output=True)
        yield places


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    with running(NODES), mounted(tmp_path_factory.mktemp("m")) as made:
        yield made


@pytest.fixture
def made(places: list[Path]) -> Iterator[list[Path]]:
    """Files are there at the mount of node 0. In the end nothing is left: names, records, content."""
    for name in NAMES:
        (places[0] / name).write_bytes(content(name))
    yield places
    for name in os.listdir(places[0]):
        (places[0] / name).unlink()
    with Files() as files:
        until(lambda: all(used == 0 and count == 0 for _, _, used, count in files.df()), "something is left")


def slow_requests(of: Callable[[], None]) -> int:
    """How many requests the poll loops got because of that."""

    def so_far() -> int:
        (shown,) = json.loads(fine("status", "--output", "json"))["sessions"]
        return sum(mount["slow"] for node in shown["nodes"] for mount in node["mounts"])

    before = so_far()
    of()
    return so_far() - before


def expect_renamed(places: list[Path], end: str) -> None:
    for place in places:
        assert sorted(os.listdir(place)) == sorted(name + end for name in NAMES)
        for name in NAMES:
            assert (place / (name + end)).read_bytes() == content(name)
            assert (place / (name + end)).stat().st_nlink == 1
            assert not (place / name).exists()


def test_no_poll_loop_has_to_do_with_it(made: list[Path]) -> None:
    def rename() -> None:
        for name in NAMES:
            os.rename(made[0] / name, made[0] / f"{name}-new")

    assert slow_requests(rename) <= 2  # where two nodes have no connection yet the long way makes it
    expect_renamed(made, "-new")


def test_another_file_gives_its_name(made: list[Path]) -> None:
    for name in NAMES:
        (made[0] / f"{name}-new").write_bytes(b"old" * 5000)

    def rename() -> None:
        for name in NAMES:
            os.rename(made[0] / name, made[0] / f"{name}-new")

    assert slow_requests(rename) <= 2
    expect_renamed(made, "-new")


def test_a_file_that_gave_its_name_while_it_is_open_keeps_its_content(made: list[Path]) -> None:
    for node in (0, 1):
        for name in NAMES:
            (made[2] / f"{name}-new").write_bytes(b"old")
            with (made[node] / f"{name}-new").open("rb", buffering=0) as opened:
                os.rename(made[0] / name, made[0] / f"{name}-new")
                assert opened.read() == b"old"
        expect_renamed(made, "-new")
        for name in NAMES:
            os.rename(made[0] / f"{name}-new", made[0] / name)


def test_links_and_names_that_are_there(made: list[Path]) -> None:
    (made[0] / "directory").mkdir()
    for name in NAMES:
        file, link = made[0] / name, made[0] / f"{name}-link"
        os.link(file, link)
        os.rename(file, link)  # of the same file: nothing happens
        assert file.stat().st_nlink == 2
        link.unlink()
        with pytest.raises(IsADirectoryError):
            os.rename(file, made[0] / "directory")
        with pytest.raises(FileNotFoundError):
            os.rename(made[0] / f"{name}-none", file)
        assert file.read_bytes() == content(name)
        assert file.stat().st_nlink == 1
    (made[0] / "directory").rmdir()


def test_one_of_several_that_want_a_file_gets_it(made: list[Path]) -> None:
    got: dict[str, list[int]] = {name: [] for name in NAMES}

    def claim(node: int) -> None:
        for name in NAMES:
            try:
                os.rename(made[node] / name, made[node] / f"{name}-of-{node}")
            except FileNotFoundError:
                continue
            got[name].append(node)

    claimers = [threading.Thread(target=claim, args=(node,)) for node in range(NODES)]
    for claimer in claimers:
        claimer.start()
    for claimer in claimers:
        claimer.join()
    for name, nodes in got.items():
        assert len(nodes) == 1, (name, nodes)
        assert (made[0] / f"{name}-of-{nodes[0]}").read_bytes() == content(name)
    assert len(os.listdir(made[1])) == len(NAMES)


def test_others_look_meanwhile(made: list[Path]) -> None:
    """A file has its old name or its new one, or both for a moment, at each look; and never other content."""
    stop, wrong = threading.Event(), list[object]()

    def look(place: Path) -> None:
        while not stop.is_set():
            for name in NAMES[:8]:
                for end in ("-new", "", "-new"):
                    try:
                        found = (place / (name + end)).read_bytes()
                    except FileNotFoundError:
                        continue
                    if found == content(name):
                        break
                    wrong.append((name, end, found))
                else:
                    if not os.listdir(place):
                        wrong.append(name)

    lookers = [threading.Thread(target=look, args=(place,)) for place in made[1:]]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(3):
            for one, other in (("", "-new"), ("-new", "")):
                for name in NAMES[:8]:
                    os.rename(made[0] / (name + one), made[0] / (name + other))
    finally:
        stop.set()
        for looker in lookers:
            looker.join()
    assert not wrong


@pytest.mark.parametrize("dying", [0, 1, 2])
def test_a_node_dies_meanwhile(tmp_path: Path, dying: int) -> None:
    """Each file is there by the name that it has been given, or, if its renaming met the death, by one or both. To remove one name of two
    takes nothing of the other. Node 3 renames."""
    names = [f"f{number}" for number in range(200)]
    with running(NODES, "--replicas", "2") as session, Files(node=NODES - 1) as files, mounted(tmp_path) as places:
        place = places[NODES - 1]
        for name in names:
            (place / name).write_bytes(content(name)[:3000])
        done: set[str] = set()
        unknown: set[str] = set()

        def rename() -> None:
            for name in names:
                try:
                    os.rename(place / name, place / f"{name}-new")
                    done.add(name)
                except OSError:
                    unknown.add(name)

        renamer = threading.Thread(target=rename)
        renamer.start()
        until(lambda: len(done) > 20, "nothing is renamed")
        kill(session, dying)
        renamer.join()
        until(lambda: len(files.df()) == NODES - 1, "the death is not noticed")
        there = set(os.listdir(place))
        for name in names:
            found = [each for each in (name, f"{name}-new") if each in there]
            assert found == [f"{name}-new"] if name in done else found
            for each in found:
                assert (place / each).read_bytes() == content(name)[:3000]
            if len(found) == 2:
                (place / name).unlink()
                assert (place / f"{name}-new").read_bytes() == content(name)[:3000]
