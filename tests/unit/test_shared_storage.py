"""Shared storage: answers of local paths, and that nothing else is asked of it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from amfs.host.shared_storage import Copier, Facts, LocalPaths, SharedStorage, exists, missing, size_of
from amfs.runs.api import Session
from amfs.translate.place import HostPlace


class Counted(LocalPaths):
    """Local paths that keep a list of what they are asked, and hide what ends in "hidden"."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def stat(self, path: str) -> Facts:
        self.asked.append(("stat", path))
        if path.endswith("hidden"):
            raise FileNotFoundError(errno.ENOENT, "hidden", path)
        return super().stat(path)

    def list(self, directory: str) -> dict[str, bool]:
        self.asked.append(("list", directory))
        return {name: link for name, link in super().list(directory).items() if not name.endswith("hidden")}

    def fetch(self, copier: Copier, serial: int, path: str, into: str) -> None:
        self.asked.append(("fetch", path))
        super().fetch(copier, serial, path, into)

    def store(self, copier: Copier, serial: int, source: str, path: str, rights: int) -> None:
        self.asked.append(("store", path))
        super().store(copier, serial, source, path, rights)


@pytest.mark.parametrize("count", [3, 100])
def test_what_is_missing_is_found_by_single_looks_and_by_a_listing(tmp_path: Path, count: int) -> None:
    for number in range(count):
        (tmp_path / f"f{number}").touch()
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "good").symlink_to("f0")
    names = [f"f{number}" for number in range(count)] + ["broken", "good", "never"]
    shared = Counted()
    assert missing(shared, str(tmp_path), names) == {"broken", "never"}
    assert (("list", str(tmp_path)) in shared.asked) is (count > 32)


def test_a_directory_that_cannot_be_listed_is_asked_for_each_name(tmp_path: Path) -> None:
    names = [f"f{number}" for number in range(50)]
    assert missing(LocalPaths(), str(tmp_path / "gone"), names) == set(names)


def test_sizes_and_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    shared: SharedStorage = LocalPaths()
    assert size_of(shared, str(tmp_path / "f")) == 5
    assert size_of(shared, str(tmp_path / "g")) == -1
    assert shared.read(str(tmp_path / "f")) == b"12345"
    assert shared.stat(str(tmp_path)).directory
    assert not exists(shared, "/a\0b")


def test_the_checks_ask_shared_storage(tmp_path: Path) -> None:
    for name in ("f", "hidden"):
        (tmp_path / name).touch()
    place = HostPlace(tmp_path, shared=Counted())
    assert place.missing(["f", "hidden", "./hidden"]) == {"hidden", "./hidden"}
    assert place.unwritable("new/directory") == ""
    assert place.unwritable("f/directory") == f"{tmp_path}/f is not a directory"


def test_a_directory_is_not_staged_and_that_is_said_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "D").mkdir()
    (tmp_path / "list").write_text("t0 -b touch -o first -a first\nt1 -b ls -i D -stdout out -a D\n")

    def run(how: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "amfs", "run", "--local", "--shared-inputs", how, "list"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    refused = run("stage")
    assert refused.returncode == 2 and not (tmp_path / "first").exists(), refused.stderr
    assert refused.stderr.splitlines() == [
        "amfs: input 'D' is a directory, and --shared-inputs stage copies files only: name its files, or use in-place"
    ]
    assert run("in-place").returncode == 0


def test_inputs_come_by_shared_storage_and_outputs_go_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Counted()
    monkeypatch.setattr("amfs.runs.context.Outside", lambda: shared)
    (tmp_path / "in").write_text("read\n")
    os.chmod(tmp_path / "in", 0o755)
    with Session(slots=1, base=tmp_path, stage_shared=True) as session:
        session.submit("cat in > out; test -x in", inputs=["in"], outputs=["out"])
    assert (tmp_path / "out").read_text() == "read\n"
    assert ("fetch", str(tmp_path / "in")) in shared.asked
    assert ("store", str(tmp_path / "out")) in shared.asked
