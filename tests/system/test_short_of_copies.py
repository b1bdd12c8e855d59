"""Files that were changed without being opened have as many copies as asked for, at once; and what is short for any reason is repaired."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import commands
import pytest
from daily import daily
from fs_session import PATIENCE_S, running
from waiting import until

from amfs.client.files import Files

NODES = 3
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(os.environ.get("AMFS_TESTS_NO_FUSE")), reason="AMFS_TESTS_NO_FUSE is set"),
]


def amfs(*arguments: str) -> str:
    done = commands.run(*arguments, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=["data", "open"])
def places(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    places = [tmp_path_factory.mktemp(f"m{node}") for node in range(NODES)]
    with running(NODES, "--replicas", "2"):
        try:
            for node, place in enumerate(places):
                amfs("mount", str(place), "--node", str(node), "--cache", request.param)
            yield places
        finally:
            for place in places:
                subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)


def has_two(path: Path) -> bool:
    return len(os.getxattr(path, "user.amfs.location").split(b",")) == 2


def check_two(request: pytest.FixtureRequest, path: Path) -> None:
    """At once; but with ``--cache open`` a file that was just made counts as being written for a while."""
    if request.node.callspec.params["places"] == "open":
        until(lambda: has_two(path), "there is one copy")
    assert has_two(path)


@pytest.mark.parametrize("node", daily(range(NODES), 1))
def test_a_file_is_cut_and_grows_by_its_name(request: pytest.FixtureRequest, places: list[Path], node: int) -> None:
    files = [places[0] / f"{node}-{number}" for number in range(20)]  # their records lie on all nodes
    for path in files:
        path.touch()
        here = places[node] / path.name
        os.truncate(here, 10_000)
        check_two(request, here)
        assert here.read_bytes() == bytes(10_000)
        os.truncate(here, 500)
        check_two(request, here)
        os.truncate(here, 0)
        os.truncate(here, 3)
        check_two(request, here)
        assert path.read_bytes() == bytes(3)
    assert "fewer copies" not in amfs("status")


def test_a_file_with_holes_is_copied_while_it_is_written(request: pytest.FixtureRequest, places: list[Path]) -> None:
    path = places[0] / "holes"
    with path.open("w+b") as file:
        file.truncate(5 << 20)
        os.fsync(file.fileno())  # copies what is there
        file.seek(3 << 20)
        file.write(b"within")
    check_two(request, path)
    assert path.read_bytes() == places[1].joinpath("holes").read_bytes() == bytes(3 << 20) + b"within" + bytes((2 << 20) - 6)


def test_a_client_cuts_it(request: pytest.FixtureRequest, places: list[Path]) -> None:
    with Files(node=1) as files:
        for number in range(6):
            (places[0] / f"client-{number}").touch()
            files.truncate(f"/client-{number}", 5000)
            check_two(request, places[2] / f"client-{number}")
