"""``_native.write_new``: a small file in one step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amfs._native import write_new


@pytest.mark.parametrize("data", [b"", b"some", bytes(3 << 20), bytearray(b"any"), memoryview(b"buffer")])
def test_it_has_the_content_and_the_times(tmp_path: Path, data: bytes | bytearray | memoryview) -> None:
    path = tmp_path / "new"
    found = write_new(os.fsencode(path), data, 1_234_567_890_123_456_789)
    facts = path.stat()
    assert path.read_bytes() == bytes(data) and facts.st_mtime_ns == facts.st_atime_ns == 1_234_567_890_123_456_789
    assert found == (facts.st_size, facts.st_blocks, facts.st_atime_ns, facts.st_mtime_ns)


def test_without_a_time_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "new"
    assert write_new(os.fsencode(path), b"x", 0)[3] == path.stat().st_mtime_ns > 1_600_000_000 * 10**9


def test_what_is_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_bytes(b"old")
    with pytest.raises(FileExistsError):
        write_new(os.fsencode(path), b"new", 0)
    with pytest.raises(FileNotFoundError):
        write_new(os.fsencode(tmp_path / "nowhere" / "new"), b"new", 0)
    assert path.read_bytes() == b"old"


def test_half_of_it_does_not_stay() -> None:
    import resource
    import signal
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "new")
        if not (child := os.fork()):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
            try:
                write_new(os.fsencode(path), bytes(1 << 20), 0)
            except OSError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0 and not os.path.exists(path)
