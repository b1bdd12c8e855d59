"""A finished file takes the place of files, never of a device or a pipe."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from amfs.cli.writing import write_out
from amfs.host.replacing import put_in_place


def test_a_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "new").write_text("new")
    (tmp_path / "old").write_text("old")
    put_in_place(str(tmp_path / "new"), str(tmp_path / "old"))
    assert (tmp_path / "old").read_text() == "new"


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "new").write_text("new")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError):
        put_in_place(str(tmp_path / "new"), str(tmp_path / "pipe"))
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_command_writes_into_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_out(str(tmp_path / "pipe"), [b"one", b"two"])
    reader.join()
    assert read == [b"onetwo"]
