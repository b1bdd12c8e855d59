"""A user who may no longer do something is refused on another node as soon as the call that changed that has returned, whatever news the
kernel there gets at that moment: of a file at its end, of files made in a directory."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import mounting
import pytest

STRANGER = 2002
ROUNDS = 60


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Path]]:
    with mounting.mounted(2) as directories:
        yield directories


@contextlib.contextmanager
def being(user: int) -> Iterator[None]:
    os.setresuid(user, user, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


def may(call: object, *arguments: object) -> bool:
    try:
        call(*arguments)  # type: ignore[operator]
    except PermissionError:
        return False
    return True


def test_of_a_file_that_the_other_node_closes(nodes: list[Path]) -> None:
    there, here = nodes[0] / "files", nodes[1] / "files"
    there.mkdir()
    there.chmod(0o777)
    done = []
    for number in range(ROUNDS):
        with being(STRANGER):
            os.mknod(here / str(number), 0o100644)
            fd = os.open(there / str(number), os.O_RDWR)
            os.write(fd, b"0123456789")
            os.fchmod(fd, 0o755)
            assert os.stat(here / str(number)).st_mode & 0o777 == 0o755
            os.fchmod(fd, 0o400)
            os.close(fd)  # which is told the other kernel a moment later
            done.append(may(os.truncate, here / str(number), 4097))
    assert done.count(True) == 0


@pytest.mark.parametrize("make", ["mkdir", "mknod", "symlink", "link"])
def test_a_name_is_taken_also_where_its_file_was_just_given_away_on_the_other_node(nodes: list[Path], make: str) -> None:
    calls: dict[str, Callable[[Path], None]] = {
        "mkdir": os.mkdir, "mknod": os.mknod, "symlink": lambda at: os.symlink("aim", at), "link": lambda at: os.link(aim, at),
    }  # fmt: skip
    found = []
    for number in range(ROUNDS):
        aim = nodes[not number % 2] / "aim"
        aim.touch()
        here, there = (each / f"{make}{number}" for each in (nodes if number % 2 else nodes[::-1]))
        other = here.with_suffix(".other")
        other.write_bytes(b"x" * 5000)
        assert other.read_bytes()  # the kernel keeps pages of it, and knows this name only
        os.link(there.with_suffix(".other"), there)
        os.chown(there, STRANGER, STRANGER)
        try:
            calls[make](here)
        except OSError as error:
            found.append(error.errno)
    assert found == [errno.EEXIST] * ROUNDS


@pytest.mark.parametrize("which", ["top", "below"])
def test_of_a_directory_in_which_the_other_node_makes_files(nodes: list[Path], which: str) -> None:
    for here, there in (nodes, nodes[::-1]):
        if which == "below":
            here, there = here / f"below-{here.name}", there / f"below-{here.name}"
            here.mkdir()
        before = here.stat().st_mode & 0o7777
        (here / "x").touch(0o644)
        done: dict[int, list[bool]] = {0o700: [], 0o755: []}
        for number in range(ROUNDS):
            for mode, results in done.items():
                there.chmod(mode)
                for each in range(number % 4):
                    (there / f"y{number}-{each}").touch()
                with being(STRANGER):
                    results.append(may(os.stat, here / "x"))
        here.chmod(before)
        assert [sum(results) for results in done.values()] == [0, ROUNDS]


def test_capabilities_of_files_are_refused(nodes: list[Path]) -> None:
    """Whichever node has the record. The kernel asks for them before the first write to each file."""
    capability = bytes.fromhex("0000000201000000000000000000000000000000")  # CAP_CHOWN, as setcap writes it
    for number in range(8):
        file = nodes[0] / f"capable{number}"
        file.write_bytes(b"x")
        for at in (file, nodes[1] / file.name):
            for call, fault in (
                (lambda at=at: os.setxattr(at, "security.capability", capability), errno.EOPNOTSUPP),
                (lambda at=at: os.getxattr(at, "security.capability"), errno.ENODATA),
            ):
                with pytest.raises(OSError) as error:
                    call()
                assert error.value.errno == fault
            assert os.listxattr(at) == []
        file.unlink()
