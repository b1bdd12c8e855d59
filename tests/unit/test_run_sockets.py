"""Sockets by which runs are watched: those of processes that died go, those of others never."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from amfs.runs import watched


def test_only_sockets_of_dead_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMFS_RUN_DIR", str(tmp_path))
    folder = tmp_path / watched.FOLDER
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    mine, dead, told, elsewhere = (
        folder / name
        for name in (
            f"{watched.here()}-{os.getpid()}.1.sock", f"{watched.here()}-{gone.pid}.2.sock", f"{watched.here()}-{gone.pid}.1.end",
            f"{'0' * 8}-{gone.pid}.1.sock",
        )
    )  # fmt: skip
    strange = folder / f"{watched.here()}-notes"
    for path in (mine, dead, told, elsewhere, strange):
        path.touch()
    watched.sweep()
    assert {*folder.iterdir()} == {mine, told, elsewhere, strange}, "amfs top may still read how the dead run ended"
    watched.sweep(also_mine=True)
    assert {*folder.iterdir()} == {told, elsewhere, strange}
    for path in (told, elsewhere, strange):
        path.unlink()
    watched.sweep()
    assert not folder.exists()
