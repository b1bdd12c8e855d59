"""The real place: files, directories and programs of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amfs.translate.place import HostPlace


def make_program(path: Path) -> None:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


@pytest.mark.parametrize("count", [3, 100])  # looked at one by one, and by listing the directory
def test_missing(tmp_path: Path, count: int) -> None:
    (tmp_path / "d").mkdir()
    names = [f"d/{at}" for at in range(count)]
    for name in names[1:]:
        (tmp_path / name).write_text("")
    (tmp_path / "d" / "dangling").symlink_to("nowhere")
    (tmp_path / "d" / "good link").symlink_to("1")
    place = HostPlace(tmp_path)
    asked = [*names, "d/dangling", "d/good link", "gone/x", str(tmp_path / "d/1"), str(tmp_path / "nope")]
    assert place.missing(asked) == {"d/0", "d/dangling", "gone/x", str(tmp_path / "nope")}


def test_missing_in_a_directory_that_is_not_there(tmp_path: Path) -> None:
    names = [f"gone/{at}" for at in range(100)]
    assert HostPlace(tmp_path).missing(names) == set(names)


def test_unwritable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = HostPlace(tmp_path)
    assert place.unwritable("") == ""
    assert place.unwritable("new/deep/er") == ""
    assert place.unwritable("file") == f"{tmp_path}/file is not a directory"
    assert place.unwritable("file/below") == f"{tmp_path}/file is not a directory"
    assert "/proc" in place.unwritable("/proc/amfs") or os.access("/proc", os.W_OK)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_directory(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir(mode=0o555)
    assert HostPlace(tmp_path).unwritable("d/e") == f"directory {tmp_path}/d is not writable"


def test_find_program(tmp_path: Path) -> None:
    here, bin_, more = tmp_path / "here", tmp_path / "bin", tmp_path / "more"
    for directory in (here, bin_, more):
        directory.mkdir()
    make_program(here / "own")
    make_program(here / "both")
    make_program(bin_ / "both")
    make_program(more / "far")
    (here / "data").write_text("")
    (here / "dir").mkdir()
    place = HostPlace(here, f"{bin_}:{more}")

    assert place.find_program("own", here=True) == (f"{here}/own", "")
    assert place.find_program("both", here=True) == (f"{here}/both", "")
    assert place.find_program("both", here=False) == (f"{bin_}/both", "")
    assert place.find_program("far", here=True) == (f"{more}/far", "")
    assert place.find_program("./own", here=False) == (f"{here}/own", "")
    assert place.find_program("../more/far", here=True) == (f"{more}/far", "")
    assert place.find_program(f"{more}/far", here=True) == (f"{more}/far", "")

    assert place.find_program("own", here=False) == ("", "was not found on PATH; it is here: write ./own")
    assert place.find_program("-b", here=False)[1].endswith("not found on PATH; a line of a task list begins with the id of its task")
    assert place.find_program("nope", here=True) == ("", f"was not found in {here} nor on PATH")
    assert place.find_program("data", here=True) == ("", "is here, but is not executable, and is not on PATH")
    assert place.find_program("dir", here=True) == ("", "is a directory here, and is not on PATH")
    assert place.find_program("./data", here=True) == ("", "is not executable")
    assert place.find_program("./dir", here=True) == ("", "is a directory")
    assert place.find_program("./nope", here=True) == ("", "does not exist")


def test_base_is_where_the_user_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert HostPlace().base == str(tmp_path)
